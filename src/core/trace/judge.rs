//! The judgement: which state the facts amount to, and the sentence that says so.

use crate::core::definition::Backlog;
use crate::core::worker_state::WorkerState;

use super::{CaptureReason, TraceEnd, TraceFacts, TraceState, TracedCapture, TracedLetter, TracedMapping};

pub(super) fn conclude(facts: &TraceFacts) -> TraceEnd {
    let found = match &facts.mapped {
        Some(TracedMapping::Excluded) => Some(excluded(facts)),
        Some(TracedMapping::Signals(expected)) => expected_signals(facts, expected),
        // Without a row, and for a row that cannot be handed off, what is recorded about the key speaks.
        Some(TracedMapping::Refused(_)) | None => recorded(facts),
    };
    found.unwrap_or_else(|| match &facts.row {
        Some(_) => unrecorded(facts),
        None => absent(facts),
    })
}

fn is(state: TraceState, sentence: impl Into<String>) -> TraceEnd {
    TraceEnd { state, sentence: sentence.into() }
}

fn excluded(facts: &TraceFacts) -> TraceEnd {
    is(
        TraceState::Excluded,
        format!("not handed off, on purpose: the definition of {} excludes this row", facts.source),
    )
}

/// A row with signals of its own: all of them have to be somewhere. `None` if one is nowhere.
fn expected_signals(facts: &TraceFacts, expected: &[super::ExpectedSignal]) -> Option<TraceEnd> {
    let recorded = |e: &&super::ExpectedSignal| facts.signals.iter().any(|s| s.id == e.id);
    let retired = |e: &&super::ExpectedSignal| {
        let key = facts.retired_key.is_some() && facts.row.as_ref().is_some_and(|r| !r.took_a_used_key);
        key || facts.retired_signals.iter().any(|r| r.id == e.id)
    };
    let open: Vec<_> = expected.iter().filter(|e| !recorded(e) && !retired(e)).collect();
    if open.is_empty() {
        return Some(if expected.iter().any(|e| recorded(&e)) { handed_off(facts) } else { gone(facts) });
    }
    if let Some(conclusion) = letter(facts).or_else(|| staged(facts)) {
        return Some(conclusion);
    }
    let waits =
        |e: &&super::ExpectedSignal| facts.captures.iter().find(|c| c.id == e.id && c.drained_at.is_none());
    if let Some(first) = open.iter().find_map(waits)
        && open.iter().all(|e| waits(e).is_some())
    {
        return Some(captured(facts, first, open.len(), expected.len()));
    }
    backlog(facts)
}

/// What is recorded about the key, whatever the row would map to.
fn recorded(facts: &TraceFacts) -> Option<TraceEnd> {
    if let Some(conclusion) = letter(facts).or_else(|| staged(facts)) {
        return Some(conclusion);
    }
    let mut waiting = facts.captures.iter().filter(|c| c.drained_at.is_none());
    if let Some(first) = waiting.next() {
        let open = 1 + waiting.count();
        return Some(captured(facts, first, open, open + facts.signals.len()));
    }
    if !facts.signals.is_empty() {
        return Some(handed_off(facts));
    }
    if facts.retired_key.is_some() || !facts.retired_signals.is_empty() {
        return Some(gone(facts));
    }
    backlog(facts)
}

/// The paths that recorded the signals, each once, in the order in which they did.
fn paths(facts: &TraceFacts) -> String {
    let mut signals: Vec<_> = facts.signals.iter().collect();
    signals.sort_by_key(|s| s.recorded_at);
    let mut paths: Vec<&str> = Vec::new();
    for signal in signals {
        let path = signal.captured_by.as_deref().map_or("an unknown path", path_in_words);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths.join(" and ")
}

/// The path in a signal's payload, in words.
fn path_in_words(path: &str) -> &str {
    match path {
        "stream" => "the stream",
        "poll" => "polling",
        "reconcile" => "the keyset pass behind the stream",
        "certify" => "the certifying pass",
        "retry" => "a retry",
        "replay" => "an operator's replay",
        "audit" => "an audit",
        other => other,
    }
}

fn handed_off(facts: &TraceFacts) -> TraceEnd {
    let count = match facts.signals.len() {
        1 => "one signal".to_owned(),
        n => format!("{n} signals"),
    };
    let last = facts.signals.iter().filter_map(|s| s.recorded_at).max();
    let at = last.map(|at| format!(" at {at}")).unwrap_or_default();
    let committed = facts.row.as_ref().and_then(|row| row.committed_at);
    let after = match (committed, last) {
        (Some(from), Some(to)) => {
            // For people to read: far below 2^53.
            #[allow(clippy::cast_precision_loss)]
            let seconds = to.as_pg_micros().saturating_sub(from.as_pg_micros()).max(0) as f64 / 1e6;
            format!(", {seconds:.3} s after its commit")
        }
        _ => String::new(),
    };
    let row = if facts.row.is_none() { "; the row is no longer in its table" } else { "" };
    is(TraceState::HandedOff, format!("handed off: {count}, recorded by {}{at}{after}{row}", paths(facts)))
}

fn gone(facts: &TraceFacts) -> TraceEnd {
    let at = facts.retired_key.or_else(|| facts.retired_signals.iter().filter_map(|r| r.recorded_at).max());
    let at = at.map(|at| format!(" by {at}")).unwrap_or_default();
    is(TraceState::Retired, format!("handed off{at}; retention has removed its signals since"))
}

fn letter(facts: &TraceFacts) -> Option<TraceEnd> {
    let letter = facts.letter.as_ref().filter(|l| concerns_this_row(facts, l))?;
    let times = if letter.attempts == 1 { "once".to_owned() } else { format!("{} times", letter.attempts) };
    match letter.resolution.as_deref() {
        None => Some(is(
            TraceState::DeadLetter,
            format!(
                "not handed off: the row is a dead letter, rejected {times} ({}); run `gov-handoff dlq show {}`",
                letter.code, letter.id
            ),
        )),
        // A replayed letter says nothing: its signals are recorded, or missing.
        Some("replayed") => None,
        Some(resolution) => {
            let by = letter.resolved_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
            Some(is(
                TraceState::SetAside,
                format!("not handed off, on purpose: its dead letter ({}) was {resolution}{by}", letter.code),
            ))
        }
    }
}

/// A row that was written after the last failure took the key of the row that the letter is about.
fn concerns_this_row(facts: &TraceFacts, letter: &TracedLetter) -> bool {
    let written = facts.row.as_ref().and_then(|row| row.occurred_at);
    written.is_none_or(|at| at <= letter.last_failed_at)
}

fn staged(facts: &TraceFacts) -> Option<TraceEnd> {
    let staged = facts.staged.as_ref()?;
    let why = staged.last_error.as_deref().unwrap_or("no reason recorded");
    let next =
        staged.next_attempt_at.map(|at| format!("; the next attempt is due at {at}")).unwrap_or_default();
    let because = match staged.attempts {
        0 => format!("waiting for its turn ({why})"),
        1 => format!("waiting because the database rejected it once ({why})"),
        n => format!("waiting because the database rejected it {n} times ({why})"),
    };
    Some(is(TraceState::Staged, format!("{because}{next}")))
}

fn captured(facts: &TraceFacts, capture: &TracedCapture, open: usize, all: usize) -> TraceEnd {
    let of =
        if open < all { format!(" ({} of {all} signals are handed off)", all - open) } else { String::new() };
    let kind = &capture.kind;
    match capture.why {
        CaptureReason::InactiveType => is(
            TraceState::Captured,
            format!(
                "waiting because the type {kind} is inactive{of}; run `gov-handoff types activate {kind}`"
            ),
        ),
        CaptureReason::Untrusted => {
            let producer = capture.producer.as_deref().unwrap_or("unknown");
            is(
                TraceState::Untrusted,
                format!(
                    "waiting because {} does not trust the producer {producer}{of}; see `gov-handoff trust grant --help`",
                    facts.source
                ),
            )
        }
        CaptureReason::Unmapped => is(
            TraceState::Unmapped,
            format!(
                "waiting because no rule of {} matches the row{of}; add a rule and replay it",
                facts.source
            ),
        ),
        CaptureReason::RefusedByOutbox => is(
            TraceState::Staged,
            format!("waiting because the outbox rejected {kind} when it was drained{of}"),
        ),
    }
}

fn backlog(facts: &TraceFacts) -> Option<TraceEnd> {
    let backlog = facts.backlog.as_ref()?;
    if facts.row.as_ref().is_some_and(|row| row.took_a_used_key) {
        return None;
    }
    let at = backlog.taken_at.map(|at| format!(" of {at}")).unwrap_or_default();
    let boundary = format!("the row lies before the boundary{at} of {}", facts.source);
    Some(match backlog.policy {
        Backlog::Seed => {
            let candidate = match facts.groups.iter().find_map(|g| g.object.as_ref()) {
                Some(object) => format!("its object {} is a candidate", object.address),
                None => "its object becomes a candidate when the sweep has come to it".to_owned(),
            };
            is(TraceState::Seeded, format!("not handed off, on purpose: {boundary}, and {candidate}"))
        }
        _ => is(TraceState::Skipped, format!("not handed off, on purpose: {boundary}, which is skipped")),
    })
}

/// The row is there, and something of it is recorded nowhere.
fn unrecorded(facts: &TraceFacts) -> TraceEnd {
    let hindrance = &facts.hindrance;
    let transaction = facts.row.as_ref().and_then(|row| row.transaction);
    let below = matches!((transaction, facts.frontier), (Some(row), Some(frontier)) if row < frontier);
    if below && !facts.row.as_ref().is_some_and(|row| row.took_a_used_key) {
        return is(
            TraceState::Missing,
            format!(
                "missing: everything below transaction {} is said to be handed off, and a signal of this row is nowhere; \
                 run `gov-handoff audit --full`, which hands it off",
                facts.frontier.unwrap_or_default()
            ),
        );
    }
    let because = match hindrance.state {
        WorkerState::Paused => {
            let why = hindrance.paused_because.as_deref().unwrap_or("no reason given");
            format!("{} is paused ({why}); run `gov-handoff resume {}`", hindrance.worker, hindrance.worker)
        }
        WorkerState::Running if hindrance.source_unreadable => {
            format!("{} cannot be read; run `gov-handoff findings --kind source_unreadable`", facts.source)
        }
        WorkerState::Running => match &facts.open_range {
            Some(range) if range.tail => {
                "the intake has not come to it yet; its id is above all that were seen".to_owned()
            }
            Some(range) => format!(
                "the intake has not come to it yet; its id is in the open range {} to {}",
                range.lo, range.hi
            ),
            None => "the intake has not come to it yet; the next certifying pass reads it".to_owned(),
        },
        state => format!("no daemon runs {} ({}); start `gov-handoff run`", hindrance.worker, state.name()),
    };
    is(TraceState::Waiting, format!("waiting because {because}"))
}

/// There is no row, and nothing is recorded about its key.
fn absent(facts: &TraceFacts) -> TraceEnd {
    match &facts.open_range {
        Some(range) if range.tail && range.head => is(
            TraceState::NeverExisted,
            "never existed: no row with this key is committed, and nothing of the source was read yet",
        ),
        Some(range) if range.tail => is(
            TraceState::NeverExisted,
            "never existed: no row with this key was ever committed; its id is above all that were seen",
        ),
        Some(range) if range.head => is(
            TraceState::NeverExisted,
            "never existed: no row with this key was ever committed; its id is below all that were seen",
        ),
        Some(range) if range.hot => is(
            TraceState::NotCommitted,
            "not committed: higher ids are, and a transaction that is still open may commit this one; \
             if it does, the intake reads it",
        ),
        Some(_) => is(
            TraceState::NeverExisted,
            "never existed: higher ids are committed and no transaction is open that could still commit this one; \
             it was rolled back, or its id was never used",
        ),
        None => is(
            TraceState::NeverExisted,
            "never existed, as far as anything tells: no row has this key, and nothing is recorded about it; of a key \
             without open id ranges, a row that was rolled back cannot be told from one that never was",
        ),
    }
}
