//! Mapping: the one function from a source row to its handoffs, the same on every path.

use crate::core::dead_letter::code;
use crate::core::definition::{Grain, IdType, OrderType, SourceDefinition, TrustBy};
use crate::core::group::GroupKey;
use crate::core::identity::Identity;
use crate::core::payload::{Violation, violation};
use crate::core::row::{LARGEST_ROW, NO_TEXT, Row};
use crate::core::rule::{Columns, DefinitionError, KIND_PREFIX, Rule, RuleFace, Template, Test};
use crate::core::time::{PgInstant, Zone, parse_timestamp, parse_timestamptz};
use crate::core::watermark::{Key, Watermark};
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// The producer or actor of a row that names none. The outbox requires a value.
const UNKNOWN: &str = "unknown";

/// How a handoff is to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i16)]
pub enum Standing {
    Normal = 0,
    /// Captured and flagged. It marks no group until an operator trusts the producer.
    Untrusted = 1,
    /// No rule matched. The row is captured, so that it is not skipped silently.
    Unmapped = 2,
}

/// A typed, address-only signal. It has no field that could hold a row's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handoff {
    pub id: Uuid,
    pub subject: Uuid,
    pub rule: Arc<RuleFace>,
    pub standing: Standing,
    pub object_type: String,
    pub object_ref: String,
    pub canonical_address: String,
    pub group: GroupKey,
    pub dims: Vec<(String, Option<String>)>,
    pub scope: Option<Vec<(String, Option<String>)>>,
    pub source_key: String,
    /// The key, if it is an integer: retention remembers rows by it. `None` for a replaced row.
    pub number: Option<i64>,
    pub occurred_at: Option<PgInstant>,
    pub source_system: String,
    pub actor_ref: String,
}

impl Handoff {
    /// Gives the handoff the identity of a replaced row: another row was handed off under this key before.
    pub fn replace(&mut self, identity: &Identity) {
        let (key, kind) = (&self.source_key, &self.rule.kind);
        self.id = identity.signal_of_replacement(key, kind, &self.object_ref);
        self.subject = identity.subject_of_replacement(key, &self.object_ref);
        self.number = None;
    }
}

/// The result of mapping a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapped {
    /// The definition excludes the row. It counts as read, and there is nothing to hand off.
    Excluded,
    Handoffs(Vec<Handoff>),
    /// The row cannot be handed off. It becomes a dead letter with this reason.
    Refused(Refusal),
}

/// A contract violation that mapping found, before the row was sent to the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub subject: Uuid,
    pub source_key: String,
    pub code: &'static str,
    pub detail: String,
}

/// A source that is ready to map rows.
#[derive(Debug, Clone)]
pub struct Source {
    /// The version of the definition, if it was read from the database. The gates reject a batch that was mapped by
    /// another version.
    pub version: Option<Uuid>,
    pub definition: SourceDefinition,
    pub identity: Identity,
    /// The columns whose cast to text may differ from what their type's output function writes, and so from what the
    /// stream delivers. Only the catalogue knows them; a source that was not read from the database has none.
    pub cast_apart: BTreeSet<String>,
    /// The columns whose value is exactly the text that the rules compare, so that the server may test them for us.
    /// Only the catalogue knows them; a source that was not read from the database has none.
    pub plain_text: BTreeSet<String>,
    id: usize,
    order: Option<(usize, OrderType, Zone)>,
    address: Vec<Template>,
    source_system: Option<usize>,
    actor_ref: Option<usize>,
    exclude: Vec<Test>,
    rules: Vec<Rule>,
    unmapped: Arc<RuleFace>,
}

impl Source {
    pub fn compile(definition: SourceDefinition) -> Result<Self, DefinitionError> {
        Self::compile_as(definition, None)
    }

    /// Prepares a definition that is in force in the database under this version.
    pub fn compile_as(definition: SourceDefinition, version: Option<Uuid>) -> Result<Self, DefinitionError> {
        let columns = Columns(&definition);
        if definition.name.is_empty() || definition.name.len() > 200 {
            return Err(columns.invalid("name", "a source has a name of 1 to 200 bytes".to_owned()));
        }
        // The keys of findings and dead letters consist of the name, a colon and more.
        if definition.name.chars().any(|c| c == ':' || c.is_control()) {
            return Err(
                columns.invalid("name", "a source's name must not contain a colon or a control character".to_owned())
            );
        }
        if definition.batch_size == 0 || definition.batch_size > 50_000 {
            return Err(columns
                .invalid("batch_size", format!("{} is not between 1 and 50000", definition.batch_size)));
        }
        let mut sorted = definition.columns.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|w| w[0] == w[1]) {
            return Err(columns.invalid("columns", format!("column {} is listed twice", twice[0])));
        }
        let by = definition.trust.by;
        let producer = match by {
            TrustBy::SourceSystem => &definition.source_system,
            TrustBy::ActorRef => &definition.actor_ref,
        };
        if definition.trust.producers.is_some() && producer.is_none() {
            let problem =
                format!("a list of producers needs `{}`, or every row would be untrusted", by.name());
            return Err(columns.invalid("trust", problem));
        }
        let named =
            |name: &Option<String>, place| name.as_ref().map(|n| columns.position(n, place)).transpose();
        let order = match &definition.order {
            Some(o) => Some((columns.position(&o.column, "order")?, o.order_type, o.zone)),
            None => None,
        };
        let unmapped = RuleFace {
            version,
            source: definition.name.clone(),
            table: definition.table().to_owned(),
            kind: format!("{KIND_PREFIX}unmapped"),
            stream: "update".to_owned(),
            severity: None,
            bumps_ruleset: false,
            grain: Grain::Group,
        };
        Ok(Self {
            version,
            identity: Identity::new(&definition.name, definition.id.id_type),
            cast_apart: BTreeSet::new(),
            plain_text: BTreeSet::new(),
            id: columns.position(&definition.id.column, "id")?,
            order,
            address: definition
                .address
                .iter()
                .map(|t| columns.template(t, "address"))
                .collect::<Result<_, _>>()?,
            source_system: named(&definition.source_system, "source_system")?,
            actor_ref: named(&definition.actor_ref, "actor_ref")?,
            exclude: definition
                .exclude
                .iter()
                .map(|t| columns.test(t, "exclude"))
                .collect::<Result<_, _>>()?,
            rules: definition
                .rules
                .iter()
                .map(|r| Rule::compile(r, &definition, version, &columns))
                .collect::<Result<_, _>>()?,
            unmapped: Arc::new(unmapped),
            definition,
        })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    #[must_use]
    pub fn id_type(&self) -> IdType {
        self.definition.id.id_type
    }

    /// The row's primary key as text. Empty for a row without a key, which a table with a primary key never has.
    #[must_use]
    pub fn key<'r>(&self, row: &'r Row) -> &'r str {
        row.get(self.id).unwrap_or_default()
    }

    /// Whether the row's key is among its values.
    #[must_use]
    pub fn has_key(&self, row: &Row) -> bool {
        row.get(self.id).is_some()
    }

    /// A row of which only the key can be read; `state` is the SQLSTATE that says why.
    #[must_use]
    pub fn unreadable(&self, key: String, state: String) -> Row {
        Row::unreadable(self.id, key, state)
    }

    #[must_use]
    pub fn watermark(&self, row: &Row) -> Option<Watermark> {
        let key = Key::parse(self.id_type(), self.key(row))?;
        Some(Watermark { at: self.occurred_at(row).ok().flatten(), key })
    }

    fn occurred_at(&self, row: &Row) -> Result<Option<PgInstant>, String> {
        let Some((column, order_type, zone)) = self.order else { return Ok(None) };
        let Some(text) = row.get(column) else { return Ok(None) };
        let parsed = match order_type {
            OrderType::Timestamptz => parse_timestamptz(text),
            OrderType::Timestamp => parse_timestamp(text, zone),
        };
        // The value may be content, so the message does not repeat it.
        parsed.map(Some).map_err(|_| format!("the order column is not a {order_type:?}").to_lowercase())
    }

    /// Maps a row to its handoffs. Every matching rule fires, once per kind.
    #[must_use]
    pub fn map(&self, row: &Row) -> Mapped {
        // The tests of `exclude` cannot be applied to a row that cannot be read.
        if row.unreadable_because().is_none() && self.exclude.iter().any(|test| test.passes(row)) {
            return Mapped::Excluded;
        }
        let key = self.key(row);
        let refuse = |code, detail: String| {
            Mapped::Refused(Refusal {
                subject: self.identity.subject(key),
                source_key: key.to_owned(),
                code,
                detail,
            })
        };
        if Key::parse(self.id_type(), key).is_none() {
            return refuse("malformed_key", format!("the key is not of type {}", self.id_type().sql_name()));
        }
        if key.contains(NO_TEXT) {
            // Two such keys might not be distinguishable, and the row could not be read again by its key.
            return refuse("malformed_key", "the key is not valid UTF-8".to_owned());
        }
        if let Some(state) = row.unreadable_because() {
            let detail = format!(
                "the server cannot send the row ({state}): it holds a character without an equivalent in UTF-8, or a \
                 damaged value; repair the row in its table, then replay the letter"
            );
            return refuse(code::UNREADABLE, detail);
        }
        if row.size() > LARGEST_ROW {
            let detail =
                format!("its address columns hold more than {LARGEST_ROW} bytes, which is too long for an address");
            return refuse(code::OVERSIZED, detail);
        }
        match row.values().find_map(violation) {
            Some(Violation::Key(name)) => {
                return refuse(code::PAYLOAD, format!("a value carries contents under the key {name}"));
            }
            Some(Violation::Vector) => return refuse(code::VECTOR, "a value carries a vector".to_owned()),
            None => {}
        }
        let occurred_at = match self.occurred_at(row) {
            Ok(at) => at,
            Err(detail) => return refuse("malformed_order_key", detail),
        };
        let facts = Facts { subject: self.identity.subject(key), key, occurred_at, row, source: self };
        let mut handoffs: Vec<Handoff> = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.matches(row)) {
            // A row yields one signal per kind. Of two matching rules of one kind the first is used.
            if handoffs.iter().all(|h| h.rule.kind != rule.face.kind) {
                handoffs.push(facts.handoff(rule));
            }
        }
        if let Some(blank) =
            handoffs.iter().find(|h| h.object_ref.trim().is_empty() || h.object_type.trim().is_empty())
        {
            return refuse(
                "blank_reference",
                format!("{} gives a blank object type or reference", blank.rule.kind),
            );
        }
        if handoffs.is_empty() {
            Mapped::Handoffs(vec![facts.unmapped()])
        } else {
            Mapped::Handoffs(handoffs)
        }
    }
}

/// What all handoffs of one row have in common.
struct Facts<'a> {
    subject: Uuid,
    key: &'a str,
    occurred_at: Option<PgInstant>,
    row: &'a Row,
    source: &'a Source,
}

impl Facts<'_> {
    fn handoff(&self, rule: &Rule) -> Handoff {
        let dims = self.dims(&rule.group);
        // With an empty column, `law:{code}` would be the same reference for every law without a code. The row's own
        // key tells them apart.
        let object_ref = rule.object_ref.render_whole(self.row).unwrap_or_else(|| self.own_reference());
        self.build(
            Arc::clone(&rule.face),
            self.standing(),
            rule.object_type.render(self.row),
            object_ref,
            dims,
            self.scope(rule),
        )
    }

    fn unmapped(&self) -> Handoff {
        let table = self.source.definition.table().to_owned();
        let object_ref = self.own_reference();
        let dims = vec![("source_registry".to_owned(), Some(table.clone()))];
        self.build(Arc::clone(&self.source.unmapped), Standing::Unmapped, table, object_ref, dims, None)
    }

    /// A reference to the row itself, if nothing else names its object.
    fn own_reference(&self) -> String {
        format!("{}:{}", self.source.definition.table(), self.key)
    }

    fn build(
        &self,
        rule: Arc<RuleFace>,
        standing: Standing,
        object_type: String,
        object_ref: String,
        dims: Vec<(String, Option<String>)>,
        scope: Option<Vec<(String, Option<String>)>>,
    ) -> Handoff {
        Handoff {
            id: self.source.identity.signal(self.key, &rule.kind),
            subject: self.subject,
            canonical_address: self.address(&object_ref),
            group: GroupKey::from_dims(&dims),
            source_key: self.key.to_owned(),
            number: Key::parse(self.source.id_type(), self.key).and_then(|key| key.as_int()),
            occurred_at: self.occurred_at,
            source_system: self.named(self.source.source_system),
            actor_ref: self.named(self.source.actor_ref),
            rule,
            standing,
            object_type,
            object_ref,
            dims,
            scope,
        }
    }

    fn address(&self, object_ref: &str) -> String {
        let own = self
            .source
            .address
            .iter()
            .filter_map(|t| t.render_whole(self.row))
            .find(|a| !a.trim().is_empty());
        own.unwrap_or_else(|| object_ref.to_owned())
    }

    fn named(&self, column: Option<usize>) -> String {
        let value = column.and_then(|c| self.row.get(c)).filter(|v| !v.trim().is_empty());
        value.unwrap_or(UNKNOWN).to_owned()
    }

    fn standing(&self) -> Standing {
        let trust = &self.source.definition.trust;
        let producer = match trust.by {
            TrustBy::SourceSystem => self.source.source_system,
            TrustBy::ActorRef => self.source.actor_ref,
        };
        match &trust.producers {
            Some(known) if !known.contains(&self.named(producer)) => Standing::Untrusted,
            _ => Standing::Normal,
        }
    }

    fn dims(&self, dims: &[(String, Template)]) -> Vec<(String, Option<String>)> {
        dims.iter().map(|(name, t)| (name.clone(), t.render_present(self.row))).collect()
    }

    fn scope(&self, rule: &Rule) -> Option<Vec<(String, Option<String>)>> {
        rule.scope.as_ref().map(|scope| self.dims(scope))
    }
}

#[cfg(test)]
mod tests;
