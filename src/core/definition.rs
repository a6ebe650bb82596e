//! A source as data: what `replication/sources.toml` declares and the cursor row's `metadata` stores.
//!
//! The same structure is read from TOML and from jsonb. It does not depend on the catalogue: the store checks whether
//! the table and its columns exist.

use crate::core::time::Zone;
use serde::{Deserialize, Serialize};

/// The primary key's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdType {
    Int4,
    Int8,
    Uuid,
    Text,
}

impl IdType {
    /// The smallest and the largest id of the type, for types that are read by ranges.
    #[must_use]
    pub fn bounds(self) -> Option<(i64, i64)> {
        match self {
            Self::Int4 => Some((i32::MIN.into(), i32::MAX.into())),
            Self::Int8 => Some((i64::MIN, i64::MAX)),
            Self::Uuid | Self::Text => None,
        }
    }

    /// The name that `format_type` gives the type.
    #[must_use]
    pub fn sql_name(self) -> &'static str {
        match self {
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Uuid => "uuid",
            Self::Text => "text",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdColumn {
    pub column: String,
    #[serde(rename = "type")]
    pub id_type: IdType,
}

/// The type of the column that orders a source in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderType {
    Timestamptz,
    Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderColumn {
    pub column: String,
    #[serde(rename = "type")]
    pub order_type: OrderType,
    /// The time zone of a `timestamp` without a zone.
    #[serde(default = "utc")]
    pub zone: Zone,
}

/// One test on a column's text. Exactly one of the four forms is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct ColumnTest {
    pub column: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Negates the test. A NULL fails every test except `present = false`, and so passes the negated test.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not: bool,
}

/// Whether a rule marks the object as well as its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Grain {
    /// The object and its group.
    #[default]
    Object,
    /// The group only.
    Group,
}

/// `kind` fires for each row that passes every test in `when`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleDefinition {
    pub kind: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<ColumnTest>,
    pub object_type: String,
    pub object_ref: String,
    /// Ordered dimensions: name, template.
    pub group: Vec<(String, String)>,
    /// Marks every group whose dimensions contain these; an empty list marks every group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Vec<(String, String)>>,
    #[serde(default)]
    pub grain: Grain,
    #[serde(default = "update")]
    pub stream: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bumps_ruleset: bool,
}

/// The producers that a source believes. Without a list every producer is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// Which column names the producer of a row.
    #[serde(default, skip_serializing_if = "TrustBy::is_default")]
    pub by: TrustBy,
    /// Trusted producers. Signals of all others are captured as untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producers: Option<Vec<String>>,
}

/// The names are those of the fields in a handoff, which the gates use, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum TrustBy {
    #[default]
    SourceSystem,
    ActorRef,
}

impl TrustBy {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SourceSystem => "source_system",
            Self::ActorRef => "actor_ref",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What becomes of the rows that exist when a source is first registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Backlog {
    /// Their objects become candidates, without a signal.
    Seed,
    /// Nothing.
    Skip,
    /// A signal each. The default, because nothing is left out; and the sources that were registered before there was a
    /// choice did so.
    #[default]
    HandOff,
}

impl Backlog {
    /// The name in a definition, in the table `gov_source_boundary` and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Skip => "skip",
            Self::HandOff => "hand_off",
        }
    }

    /// What is done with each row, for people.
    #[must_use]
    pub fn deed(self) -> &'static str {
        match self {
            Self::Seed => "seeded as candidates, without a signal",
            Self::Skip => "skipped",
            Self::HandOff => "handed off, a signal each",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl std::str::FromStr for Backlog {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Seed, Self::Skip, Self::HandOff];
        let found = all.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("expected seed, skip or hand_off, found `{text}`"))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceDefinition {
    pub name: String,
    #[serde(default = "public")]
    pub schema: String,
    /// The table's name; by default the name of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    pub id: IdColumn,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderColumn>,
    /// Every column that may be read. No other column leaves the source, not even over the wire.
    pub columns: Vec<String>,
    /// The canonical address: the first template of which no column is blank. If there is none, the object's reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub address: Vec<String>,
    /// The columns that name the producer of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_system: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_ref: Option<String>,
    #[serde(default = "batch_size")]
    pub batch_size: u32,
    /// How long a change may wait for others of its group while polling.
    #[serde(default)]
    pub coalesce_window_ms: u64,
    /// Rows that match any of these tests are not handed off: our own audit rows and events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<ColumnTest>,
    #[serde(default)]
    pub trust: Trust,
    /// Decided at the first registration of the source; from then on the database says what was decided.
    #[serde(default, skip_serializing_if = "Backlog::is_default")]
    pub backlog: Backlog,
    #[serde(rename = "rule", default)]
    pub rules: Vec<RuleDefinition>,
}

impl SourceDefinition {
    #[must_use]
    pub fn table(&self) -> &str {
        self.table.as_deref().unwrap_or(&self.name)
    }
}

/// A whole `sources.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    #[serde(rename = "source", default)]
    pub sources: Vec<SourceDefinition>,
}

fn public() -> String {
    "public".to_owned()
}

fn update() -> String {
    "update".to_owned()
}

fn utc() -> Zone {
    Zone::Utc
}

/// The upper end of the default range in SPEC. The size hardly matters between 2,000 and 20,000.
fn batch_size() -> u32 {
    5_000
}

#[cfg(test)]
mod tests;
