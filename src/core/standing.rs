//! The verdict of `status`: one sentence that says how things stand, in one of four states.
//!
//! What is wrong comes first, then what is off on purpose, then what nobody can tell. Only if none of these is left is
//! everything in order.

use crate::core::plain::time as shown;
use crate::core::worker_state::WorkerState;
use serde::Serialize;

/// How something stands. The words are the same everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Ok,
    Wrong,
    /// An operator wants it so.
    Off,
    CannotTell,
}

impl State {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Wrong => "wrong",
            Self::Off => "off",
            Self::CannotTell => "cannot tell",
        }
    }

    /// For people.
    #[must_use]
    pub fn word(self) -> &'static str {
        if self == Self::Off { "off on purpose" } else { self.name() }
    }

    /// Of a command: 0 nothing to do, 1 something is wrong, 2 could not tell.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Ok | Self::Off => 0,
            Self::Wrong => 1,
            Self::CannotTell => 2,
        }
    }

    #[must_use]
    pub fn of_worker(state: WorkerState) -> Self {
        match state {
            WorkerState::Running => Self::Ok,
            WorkerState::Paused | WorkerState::Stopped => Self::Off,
            WorkerState::Silent => Self::Wrong,
            WorkerState::NeverRan => Self::CannotTell,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub state: State,
    pub sentence: String,
    /// Since when something is wrong or off, where that is known.
    pub since: Option<String>,
    /// Everything that was committed before this time is handed off.
    pub complete_through: Option<String>,
}

/// What the verdict is about. Times are in UTC, as `2026-11-18T12:04:31Z`.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub worker: String,
    /// Whether the lease is held and renewed; `None` if the worker has never run.
    pub alive: Option<bool>,
    pub last_tick: Option<String>,
    /// An operator has paused the worker, and why.
    pub paused: Option<String>,
    pub paused_at: Option<String>,
    pub sources: Vec<Proven>,
    pub dead_letters: i64,
    /// Since when the oldest of them waits.
    pub oldest_dead_letter: Option<String>,
    /// Open findings that are worse than information.
    pub findings: Vec<Open>,
}

/// What a source's latest certificate says.
#[derive(Debug, Clone)]
pub struct Proven {
    pub source: String,
    pub through: Option<String>,
    pub seconds_ago: Option<f64>,
}

#[derive(Debug, Clone)]
pub struct Open {
    pub kind: String,
    pub severity: String,
    pub since: String,
}

#[must_use]
pub fn judge(facts: &Facts) -> Verdict {
    let through = complete_through(facts);
    let done = through.as_ref().map_or("No source is proven complete yet", |(sentence, _)| sentence);
    let (state, sentence, since) = nobody_works(facts, done)
        .or_else(|| something_is_wrong(facts, done))
        .or_else(|| paused(facts, done))
        .unwrap_or_else(|| match &through {
            Some((sentence, _)) => (State::Ok, sentence.clone(), None),
            None => {
                (State::CannotTell, format!("Not proven yet: no certificate of {}", unproven(facts)), None)
            }
        });
    Verdict { state, sentence, since, complete_through: through.map(|(_, time)| time) }
}

/// State, sentence, and since when.
type Said = (State, String, Option<String>);

fn nobody_works(facts: &Facts, done: &str) -> Option<Said> {
    let worker = &facts.worker;
    match facts.alive {
        Some(true) => None,
        Some(false) => {
            let since = since(facts.last_tick.as_ref());
            let sentence =
                format!("Nothing is handed off{since}: nobody holds the lease of {worker}. {done}");
            Some((State::Wrong, sentence, facts.last_tick.clone()))
        }
        None => {
            let sentence = format!("Nothing is known yet: {worker} has never run here");
            Some((State::CannotTell, sentence, None))
        }
    }
}

fn something_is_wrong(facts: &Facts, done: &str) -> Option<Said> {
    if let Some(first) = facts.findings.iter().min_by(|a, b| a.since.cmp(&b.since)) {
        let count = facts.findings.len();
        let (are, s) = if count == 1 { ("is", "") } else { ("are", "s") };
        let sentence = format!(
            "{count} finding{s} {are} open, the oldest since {}: {} ({}). {done}",
            shown(&first.since),
            first.kind,
            first.severity
        );
        return Some((State::Wrong, sentence, Some(first.since.clone())));
    }
    if facts.dead_letters == 0 {
        return None;
    }
    let (rows, wait) = if facts.dead_letters == 1 {
        ("1 row".to_owned(), "waits as a dead letter")
    } else {
        (format!("{} rows", facts.dead_letters), "wait as dead letters")
    };
    let oldest = &facts.oldest_dead_letter;
    let sentence = format!("{rows} could not be handed off and {wait}{}. {done}", since(oldest.as_ref()));
    Some((State::Wrong, sentence, oldest.clone()))
}

fn paused(facts: &Facts, done: &str) -> Option<Said> {
    let (why, at) = (facts.paused.as_ref()?, &facts.paused_at);
    let sentence = format!("{} is paused on purpose{}: {why}. {done}", facts.worker, since(at.as_ref()));
    Some((State::Off, sentence, at.clone()))
}

fn unproven(facts: &Facts) -> String {
    let names: Vec<_> =
        facts.sources.iter().filter(|s| s.through.is_none()).map(|s| s.source.as_str()).collect();
    if names.is_empty() { "no source is registered".to_owned() } else { names.join(", ") }
}

fn since(at: Option<&String>) -> String {
    at.map_or_else(String::new, |at| format!(" since {}", shown(at)))
}

/// The sentence, and the time before which everything that was committed is handed off. `None` while a source has no
/// certificate.
fn complete_through(facts: &Facts) -> Option<(String, String)> {
    let times: Option<Vec<&str>> = facts.sources.iter().map(|s| s.through.as_deref()).collect();
    let oldest = times?.into_iter().min()?.to_owned();
    let ago = facts.sources.iter().filter_map(|s| s.seconds_ago).fold(0.0, f64::max);
    let sources = if facts.sources.len() == 1 {
        "1 source".to_owned()
    } else {
        format!("{} sources", facts.sources.len())
    };
    let sentence = format!(
        "Everything committed before {} is handed off ({sources}, proven {ago:.0} s ago)",
        shown(&oldest)
    );
    Some((sentence, oldest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> Facts {
        let proven = |source: &str, second: u32, ago| Proven {
            source: source.to_owned(),
            through: Some(format!("2026-11-18T12:04:{second}Z")),
            seconds_ago: Some(ago),
        };
        let sources = vec![proven("a", 31, 38.0), proven("b", 42, 27.0)];
        Facts { worker: "w".to_owned(), alive: Some(true), sources, ..Facts::default() }
    }

    #[test]
    fn in_order_is_said_only_if_every_source_is_proven() {
        let verdict = judge(&well());
        assert_eq!(verdict.state, State::Ok);
        assert_eq!(
            verdict.sentence,
            "Everything committed before 2026-11-18 12:04:31 UTC is handed off (2 sources, proven 38 s ago)"
        );
        assert_eq!(verdict.complete_through.as_deref(), Some("2026-11-18T12:04:31Z"));
        let mut facts = well();
        facts.sources[1].through = None;
        let verdict = judge(&facts);
        assert_eq!((verdict.state, verdict.complete_through), (State::CannotTell, None));
        assert!(verdict.sentence.ends_with("no certificate of b"), "{}", verdict.sentence);
        assert_eq!(judge(&Facts { sources: vec![], ..well() }).state, State::CannotTell);
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_else() {
        let open = |kind: &str, since: &str| Open {
            kind: kind.into(),
            severity: "high".into(),
            since: since.into(),
        };
        let findings = vec![open("late", "2026-11-18T12:00:01Z"), open("early", "2026-11-18T11:00:00Z")];
        let wrong = [
            (
                Facts { alive: Some(false), last_tick: Some("2026-11-18T12:05:00Z".into()), ..well() },
                "nobody holds the lease",
            ),
            (
                Facts { findings: findings.clone(), paused: Some("night".into()), ..well() },
                "2 findings are open, the oldest since 2026-11-18 11:00:00 UTC: early (high)",
            ),
            (
                Facts { dead_letters: 3, oldest_dead_letter: Some("2026-11-18T12:03:00Z".into()), ..well() },
                "3 rows could not be handed off and wait as dead letters since 2026-11-18 12:03:00 UTC",
            ),
        ];
        for (facts, says) in wrong {
            let verdict = judge(&facts);
            assert!(verdict.state == State::Wrong && verdict.sentence.contains(says), "{verdict:?}");
            assert!(verdict.sentence.contains("Everything committed before"), "{verdict:?}");
        }
        assert_eq!(judge(&Facts { findings, ..well() }).since.as_deref(), Some("2026-11-18T11:00:00Z"));
        assert_eq!(judge(&Facts { alive: None, ..well() }).state, State::CannotTell);
        assert_eq!(judge(&Facts { paused: Some("night".into()), ..well() }).state, State::Off);
    }

    #[test]
    fn the_exit_code_agrees_with_the_words() {
        assert_eq!(
            [State::Ok, State::Off, State::Wrong, State::CannotTell].map(State::exit_code),
            [0, 0, 1, 2]
        );
        assert_eq!(
            ["running", "paused", "stopped", "silent", "odd"]
                .map(WorkerState::of)
                .map(State::of_worker)
                .map(State::name),
            ["ok", "off", "off", "wrong", "cannot tell"]
        );
    }
}
