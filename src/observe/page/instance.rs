//! The process that answers: its loops.

use super::View;
use super::html::{Html, tag};
use super::parts::{self, Heading};
use crate::core::plain;
use crate::core::standing::State;
use crate::observe::api::LoopShown;

const COLUMNS: [Heading; 3] = [("Loop", false), ("State", false), ("Turned", true)];

pub fn section(view: &View<'_>) -> Html {
    let instance = view.instance;
    let stalled = instance.loops.iter().filter(|turning| turning.stalled).count();
    let said = match stalled {
        0 => format!("{} loops turn", instance.loops.len()),
        n => format!("{n} of {} loops no longer turn", instance.loops.len()),
    };
    let list = tag("details").flag("open", stalled > 0).put(tag("summary").put(said)).put(parts::table(
        "Loops of this process",
        &COLUMNS,
        instance.loops.iter().map(row),
    ));
    let note = format!("gov-handoff {}, process {}", instance.version, instance.pid);
    parts::section("instance", "This instance", &note, list.into())
}

fn row(turning: &LoopShown) -> Vec<Html> {
    let (state, word) = if turning.stalled { (State::Wrong, "stalled") } else { (State::Ok, "turns") };
    vec![
        parts::code(&turning.name),
        parts::marked(state, word),
        (plain::age(turning.age_seconds) + " ago").into(),
    ]
}
