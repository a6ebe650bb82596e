//! The history of modes, and why each was taken.

use super::html::{Html, all, tag};
use super::parts;
use crate::store::overview::{ModeChange, Overview};

pub fn section(board: &Overview) -> Html {
    let body = if board.mode_history.is_empty() {
        parts::empty("No mode has been reported yet.")
    } else {
        tag("ol").class("modes").put(all(board.mode_history.iter().map(one))).into()
    };
    parts::section("modes", "Mode history", "The newest first", body)
}

fn one(change: &ModeChange) -> Html {
    let reason = change.reason.as_deref().map(|reason| tag("p").class("note").put(reason));
    tag("li")
        .put(parts::time(Some(&change.at)))
        .put(" ")
        .put(tag("strong").put(change.mode.as_deref().unwrap_or("unknown")))
        .put(reason)
        .into()
}
