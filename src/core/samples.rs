//! The default sources, and rows of them, for the tests of every module.

use crate::core::definition::{SourceDefinition, SourceFile};
use crate::core::handoff::{Handoff, Mapped, Source};
use crate::core::row::Row;

pub(crate) const SOURCES_TOML: &str = include_str!("../../replication/sources.toml");

pub(crate) fn definitions() -> Vec<SourceDefinition> {
    toml::from_str::<SourceFile>(SOURCES_TOML).expect("sources.toml is a file of sources").sources
}

pub(crate) fn definition(name: &str) -> SourceDefinition {
    definitions().into_iter().find(|d| d.name == name).unwrap_or_else(|| panic!("no default source {name}"))
}

pub(crate) fn source(name: &str) -> Source {
    Source::compile(definition(name)).expect("a default source compiles")
}

/// A row of the given columns; the others are NULL.
pub(crate) fn row(source: &Source, values: &[(&str, &str)]) -> Row {
    let columns = &source.definition.columns;
    for (name, _) in values {
        assert!(columns.iter().any(|c| c == name), "{} has no column {name}", source.name());
    }
    let value = |column: &String| values.iter().find(|(name, _)| name == column).map(|(_, v)| v.to_string());
    Row::new(columns.iter().map(value).collect())
}

pub(crate) fn handoffs(source: &Source, values: &[(&str, &str)]) -> Vec<Handoff> {
    match source.map(&row(source, values)) {
        Mapped::Handoffs(handoffs) => handoffs,
        other => panic!("expected handoffs, found {other:?}"),
    }
}
