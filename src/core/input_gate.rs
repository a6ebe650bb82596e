//! The input gate: what is wrong with the source row behind a candidate.

use crate::core::handoff::{Mapped, Source, Standing};
use crate::core::row::Row;
use std::collections::BTreeSet;

/// Why a candidate is rejected. Each is also the code of a check, which an operator may switch off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    SourceRowMissing,
    AddressMissing,
    KeyNotUnique,
    ProvenanceUntrusted,
}

impl Rejection {
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::SourceRowMissing => "source_row_missing",
            Self::AddressMissing => "address_missing",
            Self::KeyNotUnique => "key_not_unique",
            Self::ProvenanceUntrusted => "provenance_untrusted",
        }
    }
}

/// A candidate as far as the gate looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub key: String,
    pub source: Option<String>,
    pub source_key: Option<String>,
    pub key_conflict: bool,
}

/// The first check that the candidate fails. `row` is the source row of its latest change; `None`: it is gone.
#[must_use]
pub fn check(
    checks: &BTreeSet<String>,
    source: &Source,
    candidate: &Candidate,
    row: Option<&Row>,
) -> Option<Rejection> {
    let mapped = row.map(|row| source.map(row));
    let handoffs = match &mapped {
        Some(Mapped::Handoffs(handoffs)) => handoffs.as_slice(),
        _ => &[],
    };
    let addressed = handoffs.iter().find(|h| h.canonical_address == candidate.key);
    // A row that the definition excludes by now is not a row of the source, so nothing is asked about its address.
    let is_there = !matches!(mapped, None | Some(Mapped::Excluded));
    let failed = [
        (!is_there, Rejection::SourceRowMissing),
        (is_there && addressed.is_none(), Rejection::AddressMissing),
        (candidate.key_conflict, Rejection::KeyNotUnique),
        (addressed.is_some_and(|h| h.standing == Standing::Untrusted), Rejection::ProvenanceUntrusted),
    ];
    failed.into_iter().find(|(fails, why)| *fails && checks.contains(why.code())).map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::definition::SourceDefinition;

    fn source(trust: &str) -> Source {
        let text = format!(
            r#"
            name = "s"
            id = {{ column = "id", type = "int4" }}
            columns = ["id", "code", "by", "kind"]
            source_system = "by"
            exclude = [{{ column = "kind", equals = "own" }}]
            {trust}
            [[rule]]
            kind = "governance.handoff.object_born"
            object_type = "o"
            object_ref = "o:{{code}}"
            group = [["g", "o"]]
            "#
        );
        let definition: SourceDefinition = toml::from_str(&text).expect("a definition");
        Source::compile(definition).expect("a source")
    }

    fn row(code: &str, by: &str, kind: &str) -> Row {
        Row::new(["1", code, by, kind].map(|text| Some(text.to_owned())).to_vec())
    }

    fn checks() -> BTreeSet<String> {
        use Rejection::{AddressMissing, KeyNotUnique, ProvenanceUntrusted, SourceRowMissing};
        [SourceRowMissing, AddressMissing, KeyNotUnique, ProvenanceUntrusted]
            .map(|why| why.code().to_owned())
            .into()
    }

    #[test]
    fn each_check_finds_what_it_is_about() {
        let source = source("trust = { by = \"source_system\", producers = [\"a\"] }");
        let candidate = |key_conflict| Candidate {
            key: "o:x".to_owned(),
            source: Some("s".to_owned()),
            source_key: Some("1".to_owned()),
            key_conflict,
        };
        for (row, conflict, found) in [
            (Some(row("x", "a", "k")), false, None),
            (None, false, Some(Rejection::SourceRowMissing)),
            (Some(row("x", "a", "own")), false, Some(Rejection::SourceRowMissing)),
            (Some(row("y", "a", "k")), false, Some(Rejection::AddressMissing)),
            (Some(row("", "a", "k")), false, Some(Rejection::AddressMissing)),
            (Some(row("x", "a", "k")), true, Some(Rejection::KeyNotUnique)),
            (Some(row("x", "b", "k")), false, Some(Rejection::ProvenanceUntrusted)),
        ] {
            assert_eq!(check(&checks(), &source, &candidate(conflict), row.as_ref()), found, "{row:?}");
            let off: BTreeSet<_> =
                checks().into_iter().filter(|c| found.is_none_or(|why| c != why.code())).collect();
            assert_eq!(
                check(&off, &source, &candidate(conflict), row.as_ref()),
                None,
                "{row:?}, switched off"
            );
        }
    }
}
