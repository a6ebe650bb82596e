//! The facts in the order of time.

use super::{CaptureReason, TraceFacts, TracedMapping};
use crate::core::definition::Backlog;
use crate::core::time::PgInstant;
use serde::Serialize;

/// One line of the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<PgInstant>,
    pub what: &'static str,
    pub detail: String,
}

pub(super) fn of(facts: &TraceFacts) -> Vec<TimelineEntry> {
    let mut entries = row(facts);
    entries.extend(backlog(facts));
    entries.extend(captures(facts));
    entries.extend(failures(facts));
    entries.extend(signals(facts));
    entries.extend(afterwards(facts));
    // Stable: what has the same time, or none, keeps the order in which it happens.
    entries.sort_by_key(|e| (e.at.is_none(), e.at));
    entries
}

fn entry(at: Option<PgInstant>, what: &'static str, detail: impl Into<String>) -> TimelineEntry {
    TimelineEntry { at, what, detail: detail.into() }
}

fn row(facts: &TraceFacts) -> Vec<TimelineEntry> {
    let Some(row) = &facts.row else {
        return vec![entry(None, "row", "no committed row has this key now")];
    };
    let by = row.transaction.map_or_else(|| "an old transaction".to_owned(), |t| format!("transaction {t}"));
    let mut entries = vec![match row.committed_at {
        Some(at) => entry(Some(at), "committed", format!("by {by}")),
        None => entry(None, "row", format!("there, written by {by}; the server does not keep commit times")),
    }];
    if row.took_a_used_key {
        entries.push(entry(
            None,
            "key",
            "another row had this key before; this row has identities of its own",
        ));
    }
    match &facts.mapped {
        Some(TracedMapping::Excluded) => entries.push(entry(None, "mapped", "excluded by the definition")),
        Some(TracedMapping::Refused(code)) => {
            entries.push(entry(None, "mapped", format!("cannot be handed off: {code}")));
        }
        Some(TracedMapping::Signals(_)) | None => {}
    }
    entries
}

fn backlog(facts: &TraceFacts) -> Option<TimelineEntry> {
    let backlog = facts.backlog.as_ref()?;
    let what = if backlog.policy == Backlog::Seed { "seeded as a candidate" } else { "skipped" };
    Some(entry(
        backlog.taken_at,
        "boundary",
        format!("{} was registered with this row in its backlog, which is {what}", facts.source),
    ))
}

fn captures(facts: &TraceFacts) -> Vec<TimelineEntry> {
    let mut entries = Vec::new();
    for capture in &facts.captures {
        let why = match capture.why {
            CaptureReason::InactiveType => "its type is inactive".to_owned(),
            CaptureReason::Untrusted => {
                format!("the producer {} is not trusted", capture.producer.as_deref().unwrap_or("unknown"))
            }
            CaptureReason::Unmapped => "no rule matches".to_owned(),
            CaptureReason::RefusedByOutbox => "the outbox rejected it".to_owned(),
        };
        let by = capture.captured_by.as_deref().unwrap_or("an unknown path");
        let now = if capture.drained_at.is_some() { "was" } else { "is" };
        // Once it is drained, the reason that is kept is the last one, and no longer says why it was captured.
        let why = if capture.drained_at.is_some() { String::new() } else { format!(", because {why}") };
        entries.push(entry(
            capture.captured_at,
            "captured",
            format!("{} {now} captured by {by}{why}", capture.kind),
        ));
        if let Some(at) = capture.drained_at {
            entries.push(entry(Some(at), "drained", format!("{} left the captures", capture.kind)));
        }
    }
    entries
}

fn failures(facts: &TraceFacts) -> Vec<TimelineEntry> {
    let mut entries = Vec::new();
    if let Some(staged) = &facts.staged {
        let why = staged.last_error.as_deref().unwrap_or("no reason recorded");
        entries.push(entry(
            staged.staged_at,
            "staged",
            format!("rejected {} times so far: {why}", staged.attempts),
        ));
        if let Some(at) = staged.next_attempt_at {
            entries.push(entry(Some(at), "retry", "the next attempt is due"));
        }
    }
    if let Some(letter) = &facts.letter {
        entries.push(entry(
            Some(letter.first_failed_at),
            "dead letter",
            format!("{}, {} attempts, letter {}", letter.code, letter.attempts, letter.id),
        ));
        if letter.resolved_at.is_some() {
            let by = letter.resolved_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
            let resolution = letter.resolution.as_deref().unwrap_or("closed");
            entries.push(entry(letter.resolved_at, "letter", format!("{resolution}{by}")));
        }
    }
    entries
}

fn signals(facts: &TraceFacts) -> Vec<TimelineEntry> {
    let mut entries = Vec::new();
    for signal in &facts.signals {
        let by = signal.captured_by.as_deref().unwrap_or("an unknown path");
        let position = match signal.feed_position {
            Some(position) => format!("feed position {position}"),
            None => "it waits for its feed position".to_owned(),
        };
        entries.push(entry(
            signal.recorded_at,
            "recorded",
            format!("{} for {}, by {by}, signal {}, {position}", signal.kind, signal.address, signal.id),
        ));
    }
    if let Some(at) = facts.retired_key {
        entries.push(entry(Some(at), "retired", "retention removed every signal of this key"));
    }
    for signal in &facts.retired_signals {
        entries.push(entry(
            signal.recorded_at,
            "retired",
            format!("retention removed the signal {} that was recorded by then", signal.id),
        ));
    }
    entries
}

fn afterwards(facts: &TraceFacts) -> Vec<TimelineEntry> {
    let mut entries = Vec::new();
    if let Some(range) = &facts.open_range {
        let temperature = if range.hot { "hot" } else { "cold" };
        let place = if range.tail { ", the tail" } else { "" };
        entries.push(entry(
            None,
            "open range",
            format!(
                "{} to {}, {temperature}{place}: the keyset pass has not handed this id off",
                range.lo, range.hi
            ),
        ));
    }
    if let Some(c) = &facts.certificate {
        let lsn = c.lsn.as_deref().map(|lsn| format!(" and {lsn}")).unwrap_or_default();
        let first =
            if c.may_be_later { "by then at the latest" } else { "the first certificate that covers it" };
        entries.push(entry(
            c.taken_at,
            "certified",
            format!("{first} ({}): complete through transaction {}{lsn}", c.kind, c.frontier),
        ));
    }
    for group in &facts.groups {
        let verdict = group.verdict.as_deref().unwrap_or("no verdict yet");
        let dirty = if group.dirty { ", waits for a scan" } else { "" };
        entries.push(entry(None, "group", format!("{}: {verdict}{dirty}", group.group)));
        if let Some(object) = &group.object {
            let verdict = object.verdict.as_deref().unwrap_or("no verdict yet");
            let input = match &object.input_reason {
                Some(reason) => format!("{} ({reason})", object.input),
                None => object.input.clone(),
            };
            entries.push(entry(None, "object", format!("{}: input {input}, {verdict}", object.address)));
        }
    }
    let (muted, heard): (Vec<_>, Vec<_>) = facts.recipients.iter().partition(|r| r.muted);
    if !heard.is_empty() {
        entries.push(entry(None, "recipients", listed(&heard)));
    }
    if !muted.is_empty() {
        entries.push(entry(None, "muted for", listed(&muted)));
    }
    entries
}

/// The first few, and how many more there are.
fn listed(recipients: &[&super::TracedRecipient]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<_> = recipients.iter().take(SHOWN).map(|r| format!("{} ({})", r.actor, r.step)).collect();
    let more = recipients.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}
