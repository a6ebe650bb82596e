//! What a definition must satisfy to be used, and what a row must satisfy to be handed off.

use super::Handoff;
use crate::core::dead_letter::code;
use crate::core::definition::{IdType, SourceDefinition, TrustBy};
use crate::core::payload::{Violation, violation};
use crate::core::row::{LARGEST_ROW, NO_TEXT, Row};
use crate::core::rule::{Columns, DefinitionError};
use crate::core::watermark::Key;

/// The limits of the name and of the batch size.
pub(super) fn limits(definition: &SourceDefinition, columns: &Columns<'_>) -> Result<(), DefinitionError> {
    if definition.name.is_empty() || definition.name.len() > 200 {
        return Err(columns.invalid("name", "a source has a name of 1 to 200 bytes".to_owned()));
    }
    // The keys of findings and dead letters consist of the name, a colon and more.
    if definition.name.chars().any(|c| c == ':' || c.is_control()) {
        let problem = "a source's name must not contain a colon or a control character";
        return Err(columns.invalid("name", problem.to_owned()));
    }
    if definition.batch_size == 0 || definition.batch_size > 50_000 {
        let problem = format!("{} is not between 1 and 50000", definition.batch_size);
        return Err(columns.invalid("batch_size", problem));
    }
    Ok(())
}

/// Each column may be listed once.
pub(super) fn columns(definition: &SourceDefinition, columns: &Columns<'_>) -> Result<(), DefinitionError> {
    let mut sorted = definition.columns.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|w| w[0] == w[1]) {
        Some(twice) => Err(columns.invalid("columns", format!("column {} is listed twice", twice[0]))),
        None => Ok(()),
    }
}

/// A list of trusted producers needs a column that names the producer of a row.
pub(super) fn trust(definition: &SourceDefinition, columns: &Columns<'_>) -> Result<(), DefinitionError> {
    let by = definition.trust.by;
    let producer = match by {
        TrustBy::SourceSystem => &definition.source_system,
        TrustBy::ActorRef => &definition.actor_ref,
    };
    if definition.trust.producers.is_some() && producer.is_none() {
        let problem = format!("a list of producers needs `{}`, or every row would be untrusted", by.name());
        return Err(columns.invalid("trust", problem));
    }
    Ok(())
}

/// Why a row cannot be handed off: the code and the detail of its dead letter.
pub(super) type Problem = (&'static str, String);

pub(super) fn key(id_type: IdType, key: &str) -> Result<(), Problem> {
    if Key::parse(id_type, key).is_none() {
        return Err(("malformed_key", format!("the key is not of type {}", id_type.sql_name())));
    }
    if key.contains(NO_TEXT) {
        // Two such keys might not be distinguishable, and the row could not be read again by its key.
        return Err(("malformed_key", "the key is not valid UTF-8".to_owned()));
    }
    Ok(())
}

pub(super) fn readable(row: &Row) -> Result<(), Problem> {
    if let Some(state) = row.unreadable_because() {
        let detail = format!(
            "the server cannot send the row ({state}): it holds a character without an equivalent in UTF-8, or a \
             damaged value; repair the row in its table, then replay the letter"
        );
        return Err((code::UNREADABLE, detail));
    }
    Ok(())
}

/// A signal carries addresses and no content, so a row with content is rejected.
pub(super) fn contents(row: &Row) -> Result<(), Problem> {
    if row.size() > LARGEST_ROW {
        let detail = format!("its columns hold more than {LARGEST_ROW} bytes, too long for an address");
        return Err((code::OVERSIZED, detail));
    }
    match row.values().find_map(violation) {
        Some(Violation::Key(name)) => {
            Err((code::PAYLOAD, format!("a value carries contents under the key {name}")))
        }
        Some(Violation::Vector) => Err((code::VECTOR, "a value carries a vector".to_owned())),
        None => Ok(()),
    }
}

pub(super) fn references(handoffs: &[Handoff]) -> Result<(), Problem> {
    let is_blank = |h: &&Handoff| h.object_ref.trim().is_empty() || h.object_type.trim().is_empty();
    match handoffs.iter().find(is_blank) {
        Some(h) => {
            Err(("blank_reference", format!("{} gives a blank object type or reference", h.rule.kind)))
        }
        None => Ok(()),
    }
}
