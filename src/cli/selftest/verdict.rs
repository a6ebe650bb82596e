//! The verdict about a case, from what was written and what was captured.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "verdict", content = "detail")]
pub enum CaseResult {
    Passed,
    Failed(String),
    Skipped(String),
}

/// One row of a case: whether it was written, how often it was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowCounts {
    pub source: String,
    pub key: String,
    pub written: bool,
    pub captured: i64,
}

/// Keys named in a detail; the first ones tell enough.
const NAMED: usize = 5;

/// Passed if every row was captured once, and nothing was captured that is not a row.
#[must_use]
pub fn judge(rows: &[RowCounts]) -> CaseResult {
    let named = |what: &str, wrong: &dyn Fn(&&RowCounts) -> bool| {
        let found: Vec<_> = rows.iter().filter(wrong).collect();
        let keys: Vec<_> = found.iter().take(NAMED).map(|r| format!("{} {}", r.source, r.key)).collect();
        (!found.is_empty()).then(|| format!("{} {what}: {}", found.len(), keys.join(", ")))
    };
    let problems: Vec<_> = [
        named("not handed off", &|r| r.written && r.captured == 0),
        named("handed off twice", &|r| r.captured > 1),
        named("handed off that were never committed", &|r| !r.written),
    ]
    .into_iter()
    .flatten()
    .collect();
    match (rows.iter().any(|r| r.written), problems.is_empty()) {
        (false, _) => CaseResult::Failed("nothing was written".to_owned()),
        (true, true) => CaseResult::Passed,
        (true, false) => CaseResult::Failed(problems.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, written: bool, captured: i64) -> RowCounts {
        RowCounts { source: "s".to_owned(), key: key.to_owned(), written, captured }
    }

    #[test]
    fn every_row_once_is_a_pass_and_nothing_else_is() {
        assert_eq!(judge(&[row("1", true, 1), row("2", true, 1)]), CaseResult::Passed);
        for (rows, word) in [
            (vec![], "nothing was written"),
            (vec![row("1", true, 1), row("2", true, 0)], "1 not handed off: s 2"),
            (vec![row("1", true, 2)], "1 handed off twice: s 1"),
            (vec![row("1", true, 1), row("9", false, 1)], "1 handed off that were never committed: s 9"),
        ] {
            assert_eq!(judge(&rows), CaseResult::Failed(word.to_owned()));
        }
    }
}
