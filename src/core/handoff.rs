//! Mapping: the one function from a source row to its handoffs, the same on every path.

use crate::core::definition::{Grain, IdType, OrderType, SourceDefinition, TrustBy};
use crate::core::group::GroupKey;
use crate::core::identity::Identity;
use crate::core::row::Row;
use crate::core::rule::{Columns, DefinitionError, KIND_PREFIX, Rule, RuleFace, Template, Test};
use crate::core::time::{PgInstant, Zone, parse_timestamp, parse_timestamptz};
use crate::core::watermark::{Key, Watermark};
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

mod checks;

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
        checks::limits(&definition, &columns)?;
        checks::columns(&definition, &columns)?;
        checks::trust(&definition, &columns)?;
        let order = compile_order(&definition, &columns)?;
        let named =
            |name: &Option<String>, place| name.as_ref().map(|n| columns.position(n, place)).transpose();
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
            unmapped: Arc::new(unmapped_face(&definition, version)),
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
        match self.handoffs(row) {
            Ok(handoffs) => Mapped::Handoffs(handoffs),
            Err((code, detail)) => {
                let key = self.key(row);
                let subject = self.identity.subject(key);
                Mapped::Refused(Refusal { subject, source_key: key.to_owned(), code, detail })
            }
        }
    }

    /// The handoffs of a row that is not excluded, or why the row cannot be handed off.
    fn handoffs(&self, row: &Row) -> Result<Vec<Handoff>, checks::Problem> {
        let key = self.key(row);
        checks::key(self.id_type(), key)?;
        checks::readable(row)?;
        checks::contents(row)?;
        let occurred_at = self.occurred_at(row).map_err(|detail| ("malformed_order_key", detail))?;
        let facts = RowFacts { subject: self.identity.subject(key), key, occurred_at, row, source: self };
        let handoffs = self.fired(row, &facts);
        checks::references(&handoffs)?;
        Ok(if handoffs.is_empty() { vec![facts.unmapped()] } else { handoffs })
    }

    /// A row yields one signal per kind. Of two matching rules of one kind the first is used.
    fn fired(&self, row: &Row, facts: &RowFacts<'_>) -> Vec<Handoff> {
        let mut handoffs: Vec<Handoff> = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.matches(row)) {
            if handoffs.iter().all(|h| h.rule.kind != rule.face.kind) {
                handoffs.push(facts.handoff(rule));
            }
        }
        handoffs
    }
}

/// The position, type and zone of the order column, if the source has one.
fn compile_order(
    definition: &SourceDefinition,
    columns: &Columns<'_>,
) -> Result<Option<(usize, OrderType, Zone)>, DefinitionError> {
    let Some(order) = &definition.order else { return Ok(None) };
    Ok(Some((columns.position(&order.column, "order")?, order.order_type, order.zone)))
}

/// The rule of a row that no rule of the definition matches.
fn unmapped_face(definition: &SourceDefinition, version: Option<Uuid>) -> RuleFace {
    RuleFace {
        version,
        source: definition.name.clone(),
        table: definition.table().to_owned(),
        kind: format!("{KIND_PREFIX}unmapped"),
        stream: "update".to_owned(),
        severity: None,
        bumps_ruleset: false,
        grain: Grain::Group,
    }
}

/// What all handoffs of one row have in common.
struct RowFacts<'a> {
    subject: Uuid,
    key: &'a str,
    occurred_at: Option<PgInstant>,
    row: &'a Row,
    source: &'a Source,
}

impl RowFacts<'_> {
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
