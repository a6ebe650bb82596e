//! Compiled rules: names resolved to column positions, templates parsed, contradictions rejected.

use crate::core::definition::{ColumnTest, Grain, RuleDefinition, SourceDefinition};
use crate::core::row::Row;
use std::sync::Arc;
use thiserror::Error;
use uuid::Uuid;

/// Why a definition cannot be used. Each message names the source and the rule or column at fault.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DefinitionError {
    #[error(
        "source {source_name}: {place} names column {column}, which is not among its columns; add it to `columns` or correct the name"
    )]
    UnknownColumn { source_name: String, place: String, column: String },
    #[error("source {source_name}: {place}: {problem}")]
    Invalid { source_name: String, place: String, problem: String },
}

/// `text{column}text`: a constant, a column or a mixture. `{{` and `}}` are literal braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Column(usize),
}

impl Template {
    fn parse(text: &str, columns: &Columns<'_>, place: &str) -> Result<Self, DefinitionError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' if chars.next_if_eq(&'{').is_some() => literal.push('{'),
                '}' if chars.next_if_eq(&'}').is_some() => literal.push('}'),
                '{' => {
                    let mut name = String::new();
                    while let Some(c) = chars.next_if(|&c| c != '}') {
                        name.push(c);
                    }
                    if chars.next().is_none() {
                        let problem = format!("template `{text}` has a `{{` without a `}}`");
                        return Err(columns.invalid(place, problem));
                    }
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Column(columns.position(&name, place)?));
                }
                '}' => {
                    return Err(
                        columns.invalid(place, format!("template `{text}` has a `}}` without a `{{`"))
                    );
                }
                c => literal.push(c),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self(parts))
    }

    /// NULL counts as empty text.
    #[must_use]
    pub fn render(&self, row: &Row) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Column(i) => out.push_str(row.get(*i).unwrap_or_default()),
            }
        }
        out
    }

    /// `None` if one column is blank while other parts of the template are not: such a text does not identify one
    /// object. If the whole text is blank it is returned, and the caller has to reject it.
    #[must_use]
    pub fn render_whole(&self, row: &Row) -> Option<String> {
        let says = |i: &usize| row.get(*i).is_some_and(|value| !value.trim().is_empty());
        let whole = self.0.iter().all(|part| match part {
            Part::Text(_) => true,
            Part::Column(i) => says(i),
        });
        let text = self.render(row);
        (whole || text.trim().is_empty()).then_some(text)
    }

    /// `None` if any column of the template is NULL.
    #[must_use]
    pub fn render_present(&self, row: &Row) -> Option<String> {
        let all = self.0.iter().all(|part| match part {
            Part::Text(_) => true,
            Part::Column(i) => row.get(*i).is_some(),
        });
        all.then(|| self.render(row))
    }
}

/// A compiled column test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    column: usize,
    form: Form,
    not: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Equals(String),
    OneOf(Vec<String>),
    Present(bool),
    Prefix(String),
}

impl Test {
    fn compile(test: &ColumnTest, columns: &Columns<'_>, place: &str) -> Result<Self, DefinitionError> {
        let column = columns.position(&test.column, place)?;
        let form = match (&test.equals, &test.one_of, test.present, &test.prefix) {
            (Some(value), None, None, None) => Form::Equals(value.clone()),
            (None, Some(values), None, None) => Form::OneOf(values.clone()),
            (None, None, Some(present), None) => Form::Present(present),
            (None, None, None, Some(prefix)) => Form::Prefix(prefix.clone()),
            _ => {
                let problem = format!(
                    "the test on {} needs exactly one of equals, one_of, present, prefix",
                    test.column
                );
                return Err(columns.invalid(place, problem));
            }
        };
        Ok(Self { column, form, not: test.not })
    }

    #[must_use]
    pub fn passes(&self, row: &Row) -> bool {
        let value = row.get(self.column);
        let holds = match &self.form {
            Form::Equals(wanted) => value == Some(wanted.as_str()),
            Form::OneOf(wanted) => value.is_some_and(|v| wanted.iter().any(|w| w == v)),
            Form::Present(present) => value.is_some() == *present,
            Form::Prefix(prefix) => value.is_some_and(|v| v.starts_with(prefix.as_str())),
        };
        holds != self.not
    }
}

/// What the store needs to know of a rule. All handoffs of the rule share it.
#[derive(Debug, PartialEq, Eq)]
pub struct RuleFace {
    /// The version of the definition, if it was read from the database.
    pub version: Option<Uuid>,
    pub source: String,
    pub table: String,
    pub kind: String,
    pub stream: String,
    pub severity: Option<String>,
    pub bumps_ruleset: bool,
    pub grain: Grain,
}

#[derive(Debug, Clone)]
pub struct Rule {
    pub face: Arc<RuleFace>,
    pub when: Vec<Test>,
    pub object_type: Template,
    pub object_ref: Template,
    pub group: Vec<(String, Template)>,
    pub scope: Option<Vec<(String, Template)>>,
}

const STREAMS: [&str; 7] = ["comment", "review", "update", "birth", "task", "alert", "health"];
const SEVERITIES: [&str; 3] = ["info", "warning", "critical"];
/// The namespace of every kind that we emit. Without it a kind could be confused with an event of another domain.
pub const KIND_PREFIX: &str = "governance.handoff.";

/// Kinds that the daemon uses itself. A rule of such a kind would be misinterpreted.
const RESERVED: [&str; 5] = ["retry", "unmapped", "refused", "certified", "heartbeat"];

/// A kind must be in our namespace, not reserved, and of plain characters, because keys are composed of it.
fn check_kind(kind: &str) -> Result<(), String> {
    let Some(name) = kind.strip_prefix(KIND_PREFIX).filter(|name| !name.is_empty()) else {
        return Err(format!("a kind starts with {KIND_PREFIX}"));
    };
    if RESERVED.contains(&name) {
        return Err(format!("the kind {kind} is reserved; choose another name"));
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        return Err("a kind consists of letters, digits, `.`, `_` and `-`".to_owned());
    }
    Ok(())
}

impl Rule {
    pub fn compile(
        rule: &RuleDefinition,
        source: &SourceDefinition,
        version: Option<Uuid>,
        columns: &Columns<'_>,
    ) -> Result<Self, DefinitionError> {
        let place = format!("rule {}", rule.kind);
        check_kind(&rule.kind).map_err(|problem| columns.invalid(&place, problem))?;
        if !STREAMS.contains(&rule.stream.as_str()) {
            return Err(columns
                .invalid(&place, format!("stream {} is not one of {}", rule.stream, STREAMS.join(", "))));
        }
        if let Some(severity) = rule.severity.as_deref().filter(|s| !SEVERITIES.contains(s)) {
            return Err(columns
                .invalid(&place, format!("severity {severity} is not one of {}", SEVERITIES.join(", "))));
        }
        if rule.group.is_empty() {
            return Err(columns.invalid(&place, "a group needs at least one dimension".to_owned()));
        }
        let dims = |dims: &[(String, String)]| {
            dims.iter()
                .map(|(name, t)| Ok((name.clone(), Template::parse(t, columns, &place)?)))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            face: Arc::new(RuleFace {
                version,
                source: source.name.clone(),
                table: source.table().to_owned(),
                kind: rule.kind.clone(),
                stream: rule.stream.clone(),
                severity: rule.severity.clone(),
                bumps_ruleset: rule.bumps_ruleset,
                grain: rule.grain,
            }),
            when: rule.when.iter().map(|t| Test::compile(t, columns, &place)).collect::<Result<_, _>>()?,
            object_type: Template::parse(&rule.object_type, columns, &place)?,
            object_ref: Template::parse(&rule.object_ref, columns, &place)?,
            group: dims(&rule.group)?,
            scope: rule.scope.as_deref().map(dims).transpose()?,
        })
    }

    #[must_use]
    pub fn matches(&self, row: &Row) -> bool {
        self.when.iter().all(|test| test.passes(row))
    }
}

/// The names a source's templates and tests may use.
pub struct Columns<'a>(pub &'a SourceDefinition);

impl Columns<'_> {
    pub fn position(&self, name: &str, place: &str) -> Result<usize, DefinitionError> {
        self.0.columns.iter().position(|c| c == name).ok_or_else(|| DefinitionError::UnknownColumn {
            source_name: self.0.name.clone(),
            place: place.to_owned(),
            column: name.to_owned(),
        })
    }

    pub fn template(&self, text: &str, place: &str) -> Result<Template, DefinitionError> {
        Template::parse(text, self, place)
    }

    pub fn test(&self, test: &ColumnTest, place: &str) -> Result<Test, DefinitionError> {
        Test::compile(test, self, place)
    }

    #[must_use]
    pub fn invalid(&self, place: &str, problem: String) -> DefinitionError {
        DefinitionError::Invalid { source_name: self.0.name.clone(), place: place.to_owned(), problem }
    }
}

#[cfg(test)]
mod tests;
