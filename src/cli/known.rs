//! Unknown names: every command reports them with the same words and the same exit code.

use crate::core::handoff::Source;
use crate::error::{Error, Result};
use std::sync::Arc;

/// Rejects an unknown name, and lists the known ones.
pub fn one_of<T: AsRef<str>>(what: &str, asked: &str, known: &[T]) -> Result<()> {
    let known: Vec<_> = known.iter().map(AsRef::as_ref).collect();
    if known.contains(&asked) {
        return Ok(());
    }
    let all =
        if known.is_empty() { "there is none".to_owned() } else { format!("known are {}", known.join(", ")) };
    Err(Error::config(format!("unknown {what} {asked}; {all}")))
}

/// The source of that name.
pub fn source(sources: &[Arc<Source>], asked: &str) -> Result<Arc<Source>> {
    one_of("source", asked, &sources.iter().map(|s| s.name()).collect::<Vec<_>>())?;
    let found = sources.iter().find(|s| s.name() == asked).cloned();
    found.ok_or_else(|| Error::config(format!("unknown source {asked}")))
}
