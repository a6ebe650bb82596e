//! Dead letters: rows and jobs that wait for an operator.

use super::html::Html;
use super::parts::{self, Heading};
use crate::core::remedy::quoted;
use crate::store::overview::{OpenLetter, Overview};

const COLUMNS: [Heading; 6] = [
    ("What", false),
    ("Of", false),
    ("Reason", false),
    ("Attempts", true),
    ("Since", false),
    ("Look at it", false),
];

pub fn section(board: &Overview) -> Html {
    let open = board.status.dead_letters + board.status.jobs.dead_letters;
    let shown = i64::try_from(board.letters.len()).unwrap_or(i64::MAX);
    let note = if open > shown {
        format!("The oldest {shown} of {}", parts::at_least(open, open >= 10_000))
    } else {
        String::new()
    };
    let body = if board.letters.is_empty() {
        parts::empty("No dead letter is open.")
    } else {
        parts::table("Open dead letters, the oldest first", &COLUMNS, board.letters.iter().map(row))
            .and(parts::command("gov-handoff dlq replay --all --dry-run"))
    };
    parts::section("letters", "Dead letters", &note, body)
}

fn row(letter: &OpenLetter) -> Vec<Html> {
    vec![
        parts::long(&letter.key),
        letter.source.as_deref().unwrap_or(&letter.worker).into(),
        parts::code(&letter.code),
        parts::count(i64::from(letter.attempts)),
        parts::time(letter.since.as_deref()),
        parts::command(&format!("gov-handoff dlq show {}", quoted(&letter.id))),
    ]
}
