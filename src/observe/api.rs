//! `GET /api/status`: what the page shows, as JSON. docs/api.md describes it, and a test holds the two together.

use crate::core::standing::{State, Verdict};
use crate::observe::history::{History, KEPT, Moment};
use crate::pulse::LoopSeen;
use crate::store::overview::Overview;
use serde::Serialize;
use std::collections::VecDeque;

/// Grows only if a key is renamed or removed, or changes its meaning.
const SCHEMA: u32 = 1;

/// The process that answers.
#[derive(Debug, Serialize)]
pub struct Instance {
    pub version: &'static str,
    pub pid: u32,
    pub loops: Vec<LoopShown>,
}

#[derive(Debug, Serialize)]
pub struct LoopShown {
    #[serde(rename = "loop")]
    pub name: String,
    pub age_seconds: f64,
    pub stalled: bool,
}

impl Instance {
    pub fn of(loops: &[LoopSeen]) -> Self {
        let shown = |seen: &LoopSeen| LoopShown {
            name: seen.name.clone(),
            age_seconds: seen.age.as_secs_f64(),
            stalled: seen.stalled,
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            loops: loops.iter().map(shown).collect(),
        }
    }
}

#[derive(Serialize)]
struct StatusAnswer<'a> {
    schema: u32,
    instance: &'a Instance,
    verdict: &'a Verdict,
    /// Why there is no newer look than the one that follows.
    error: Option<&'a str>,
    #[serde(flatten)]
    board: Option<&'a Overview>,
    history: Past<'a>,
}

#[derive(Serialize)]
struct Past<'a> {
    seconds: u64,
    samples: &'a VecDeque<Moment>,
}

pub fn answer(
    board: Option<&Overview>,
    error: Option<&str>,
    verdict: &Verdict,
    history: &History,
    instance: &Instance,
) -> String {
    let past = Past { seconds: KEPT.as_secs(), samples: history.samples() };
    let answer = StatusAnswer { schema: SCHEMA, instance, verdict, error, board, history: past };
    // Every key is a text, so this cannot fail; if it could, nothing would be worth more than saying so.
    serde_json::to_string(&answer).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
}

/// The verdict while the database cannot be asked.
pub fn blind(why: &str) -> Verdict {
    Verdict {
        state: State::CannotTell,
        sentence: format!("Nothing can be told now: {why}"),
        since: None,
        complete_through: None,
    }
}
