//! The workers of the family, with the lease of each.

use super::html::Html;
use super::parts::{self, Heading};
use crate::core::standing::State;
use crate::store::overview::Overview;
use crate::store::worker::FamilyMember;

const COLUMNS: [Heading; 9] = [
    ("Worker", false),
    ("State", false),
    ("Lease held by", false),
    ("Term", true),
    ("Ticked", true),
    ("Rows", true),
    ("Effects", true),
    ("Dead", true),
    ("Phase", false),
];

pub fn section(board: &Overview) -> Html {
    let workers = &board.status.workers;
    let body = if workers.is_empty() {
        parts::empty("No worker has run here.").and(parts::command("gov-handoff run"))
    } else {
        parts::table("Workers, their state and their leases", &COLUMNS, workers.iter().map(row))
    };
    parts::section("workers", "Workers and leases", "One lease each; instances share them", body)
}

fn row(worker: &FamilyMember) -> Vec<Html> {
    let state = parts::marked(State::of_worker(worker.state), worker.state.name());
    let by = worker.paused_by.as_ref().map_or_else(String::new, |who| format!(" ({who})"));
    let why = worker.paused_because.as_ref().map(|why| parts::note(format!(" {why}{by}")));
    vec![
        parts::code(&worker.worker),
        state.and(why),
        worker.owner.as_deref().map_or_else(parts::nothing, parts::long),
        parts::maybe_count(worker.term),
        parts::ago(worker.tick_age_seconds),
        parts::maybe_count(worker.rows_seen),
        parts::maybe_count(worker.effects),
        parts::maybe_count(worker.dead_lettered),
        parts::maybe(worker.phase.as_deref()),
    ]
}
