//! The latest certificate of each source.

use super::html::Html;
use super::parts::{self, Heading};
use crate::store::overview::Overview;
use serde_json::Value;

const COLUMNS: [Heading; 8] = [
    ("Source", false),
    ("Taken", false),
    ("By", false),
    ("Rows checked", true),
    ("Recorded", true),
    ("Repaired", true),
    ("Log position", false),
    ("Digest", false),
];

pub fn section(board: &Overview) -> Html {
    let certificates: Vec<_> = board.certificates.iter().filter(|c| c.is_object()).collect();
    let body = if certificates.is_empty() {
        parts::empty("No certificate has been taken yet.")
    } else {
        parts::table("The latest certificate of each source", &COLUMNS, certificates.into_iter().map(row))
            .and(parts::command("gov-handoff certificates --history 5"))
    };
    parts::section("certificates", "Certificates", "What the last pass over each source has proved", body)
}

fn row(certificate: &Value) -> Vec<Html> {
    let text = |name: &str| certificate[name].as_str();
    let number = |name: &str| certificate[name].as_i64();
    let repaired = certificate["repaired"].as_object();
    let repaired = repaired.map_or(0, |reasons| reasons.values().filter_map(Value::as_i64).sum());
    let taken = text("taken_at").map(to_the_second);
    vec![
        parts::code(text("source").unwrap_or("?")),
        parts::time(taken.as_deref()),
        parts::maybe(text("kind")),
        parts::maybe_count(number("rows_checked")),
        parts::maybe_count(number("already_recorded")),
        parts::count(repaired),
        text("lsn").map_or_else(parts::nothing, parts::code),
        text("digest").map_or_else(parts::nothing, parts::long),
    ]
}

/// However a time of UTC is written, as `2026-11-18T12:04:31Z`.
fn to_the_second(at: &str) -> String {
    at.chars().take(19).map(|c| if c == ' ' { 'T' } else { c }).chain(['Z']).collect()
}
