//! The sources: up to when each is complete, and what it brought.

use super::html::Html;
use super::parts::{self, Heading};
use crate::core::plain;
use crate::core::standing::State;
use crate::store::overview::Overview;
use crate::store::status::SourceStatus;

const COLUMNS: [Heading; 9] = [
    ("Source", false),
    ("State", false),
    ("Complete through", false),
    ("Proven", false),
    ("Rows", true),
    ("Signals", true),
    ("Dead", true),
    ("Open ranges", true),
    ("Backlog", false),
];

pub fn section(board: &Overview) -> Html {
    let sources = &board.status.sources;
    let body = if sources.is_empty() {
        parts::empty("No source is registered.").and(parts::command("gov-handoff migrate"))
    } else {
        parts::table(
            "Sources, up to when each is complete, and what it brought",
            &COLUMNS,
            sources.iter().map(row),
        )
    };
    parts::section("sources", "Sources", "What was committed before “complete through” is handed off", body)
}

fn row(source: &SourceStatus) -> Vec<Html> {
    let through = source.complete_through.as_deref();
    let hot =
        (source.hot_ranges > 0).then(|| parts::note(format!(" {} hot", plain::count(source.hot_ranges))));
    vec![
        parts::code(&source.source),
        parts::mark(if through.is_some() { State::Ok } else { State::CannotTell }),
        if through.is_some() { parts::time(through) } else { "not proven yet".into() },
        parts::ago(source.proven_seconds_ago),
        parts::count(source.rows_seen),
        parts::count(source.signals),
        parts::count(source.dead_lettered),
        parts::count(source.open_ranges).and(hot),
        match (&source.backlog, source.backlog_rows) {
            (Some(policy), Some(rows)) if rows > 0 => format!("{policy} {}", plain::count(rows)).into(),
            _ => parts::nothing(),
        },
    ]
}
