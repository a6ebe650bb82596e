//! Open findings: what each means, what to do, and the commands to begin with.

use super::html::{Html, all, tag};
use super::parts;
use crate::core::finding::Severity;
use crate::core::plain;
use crate::core::remedy::Remedy;
use crate::core::standing::State;
use crate::store::overview::Overview;
use crate::store::status::FindingStatus;

pub fn section(board: &Overview) -> Html {
    let findings = &board.status.findings;
    let shown = i64::try_from(findings.len()).unwrap_or(i64::MAX);
    let note = if board.status.open_findings > shown {
        "The latest ones; the command findings shows all"
    } else {
        ""
    };
    let body = if findings.is_empty() {
        parts::empty("No finding is open.")
    } else {
        tag("ul").class("findings").put(all(findings.iter().map(one))).into()
    };
    parts::section("findings", "Findings", note, body)
}

fn one(finding: &FindingStatus) -> Html {
    let remedy = Remedy::of(&finding.kind);
    let state = if Severity::of(&finding.severity) == Severity::Info { State::Off } else { State::Wrong };
    let times = format!(", seen {} ×", plain::count(finding.occurrences));
    let seen = tag("p").class("note").put("since ").put(parts::time(finding.since.as_deref())).put(times);
    let head = tag("div")
        .class("what")
        .put(parts::marked(state, &finding.severity))
        .put(tag("h3").put(parts::code(&finding.key)))
        .put(seen);
    tag("li")
        .put(head)
        .put(tag("p").put(remedy.meaning).put(" ").put(tag("strong").put(remedy.todo)))
        .put(all(remedy.commands(&finding.key).iter().map(|line| parts::command(line))))
        .into()
}
