//! Each state from the facts that lead to it, on both sides of its limit.

use super::*;

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn signal(n: u128) -> TracedSignal {
    TracedSignal {
        id: id(n),
        kind: String::from("governance.handoff.object_born"),
        address: "laws:a".to_owned(),
        group: Some("g".to_owned()),
        captured_by: Some("stream".to_owned()),
        recorded_at: Some(PgInstant::from_pg_micros(2_500_000)),
        transaction: Some(100),
        feed_position: Some(7),
    }
}

fn capture(n: u128, why: CaptureReason) -> TracedCapture {
    TracedCapture {
        id: id(n),
        kind: String::from("governance.handoff.object_registered"),
        address: "laws:a".to_owned(),
        group: None,
        captured_by: Some("poll".to_owned()),
        why,
        producer: Some("importer".to_owned()),
        captured_at: None,
        drained_at: None,
    }
}

/// A committed row that should have these signals; the daemon runs.
fn there(signals: &[u128]) -> TraceFacts {
    let expected = |n: &u128| ExpectedSignal { id: id(*n), kind: String::from("k") };
    TraceFacts {
        source: "births".to_owned(),
        row: Some(TracedRow {
            transaction: Some(50),
            committed_at: Some(PgInstant::from_pg_micros(2_000_000)),
            occurred_at: Some(PgInstant::from_pg_micros(1_000_000)),
            took_a_used_key: false,
        }),
        mapped: Some(TracedMapping::Signals(signals.iter().map(expected).collect())),
        hindrance: Hindrance {
            worker: "intake".to_owned(),
            state: WorkerState::Running,
            ..Hindrance::default()
        },
        ..TraceFacts::default()
    }
}

fn range(lo: i64, hi: i64) -> TracedRange {
    TracedRange { lo, hi, hot: false, tail: false, head: false, opened_at: None }
}

#[track_caller]
fn ends(facts: &TraceFacts, state: TraceState, says: &str) {
    let conclusion = facts.conclude();
    assert_eq!(conclusion.state, state, "{}", conclusion.sentence);
    assert!(conclusion.sentence.contains(says), "{}", conclusion.sentence);
}

#[test]
fn a_row_is_handed_off_when_all_its_signals_are_recorded() {
    let facts = TraceFacts { signals: vec![signal(1), signal(2)], ..there(&[1, 2]) };
    ends(
        &facts,
        TraceState::HandedOff,
        "2 signals, recorded by the stream at 2000-01-01T00:00:02.500000Z, 0.500 s after",
    );
    let mut half = TraceFacts { signals: vec![signal(1)], ..there(&[1, 2]) };
    ends(&half, TraceState::Waiting, "the intake has not come to it yet");
    half.captures = vec![capture(2, CaptureReason::InactiveType)];
    ends(
        &half,
        TraceState::Captured,
        "is inactive (1 of 2 signals are handed off); run `gov-handoff types activate",
    );
    half.captures[0].drained_at = Some(PgInstant::from_pg_micros(3));
    ends(&half, TraceState::Waiting, "has not come to it");
    half.retired_signals = vec![RetiredSignal { id: id(2), recorded_at: None }];
    ends(&half, TraceState::HandedOff, "one signal");
}

#[test]
fn a_row_that_took_a_used_key_is_not_excused_by_what_is_known_of_the_key() {
    let mut facts = TraceFacts {
        retired_key: Some(PgInstant::from_pg_micros(1)),
        backlog: Some(TracedBacklog { policy: Backlog::Seed, taken_at: None }),
        frontier: Some(900),
        ..there(&[1])
    };
    ends(&facts, TraceState::Retired, "retention has removed its signals");
    facts.row.as_mut().unwrap().took_a_used_key = true;
    ends(&facts, TraceState::Waiting, "the next certifying pass reads it");
}

#[test]
fn what_waits_says_for_what() {
    for (why, state, says) in [
        (CaptureReason::Untrusted, TraceState::Untrusted, "births does not trust the producer importer"),
        (CaptureReason::Unmapped, TraceState::Unmapped, "no rule of births matches"),
        (CaptureReason::RefusedByOutbox, TraceState::Staged, "the outbox rejected"),
    ] {
        let facts = TraceFacts { captures: vec![capture(1, why)], ..there(&[1]) };
        ends(&facts, state, says);
    }
    let mut facts = there(&[1]);
    facts.open_range = Some(range(40, 60));
    ends(&facts, TraceState::Waiting, "open range 40 to 60");
    facts.hindrance.source_unreadable = true;
    ends(&facts, TraceState::Waiting, "births cannot be read");
    facts.hindrance.state = WorkerState::Paused;
    ends(&facts, TraceState::Waiting, "intake is paused (no reason given); run `gov-handoff resume intake`");
    facts.hindrance.state = WorkerState::Stopped;
    ends(&facts, TraceState::Waiting, "no daemon runs intake (stopped)");
    facts.frontier = Some(50);
    ends(&facts, TraceState::Waiting, "no daemon runs");
    facts.frontier = Some(51);
    ends(&facts, TraceState::Missing, "below transaction 51");
}

#[test]
fn a_dead_letter_is_about_the_row_unless_the_row_is_younger() {
    let mut letter = TracedLetter {
        id: id(9),
        code: "refused_by_database".to_owned(),
        attempts: 5,
        first_failed_at: PgInstant::from_pg_micros(1),
        last_failed_at: PgInstant::from_pg_micros(2_000_000),
        resolved_at: None,
        resolution: None,
        resolved_by: None,
    };
    let with = |letter: &TracedLetter| TraceFacts { letter: Some(letter.clone()), ..there(&[1]) };
    ends(&with(&letter), TraceState::DeadLetter, "rejected 5 times (refused_by_database)");
    letter.last_failed_at = PgInstant::from_pg_micros(999_999);
    ends(&with(&letter), TraceState::Waiting, "");
    letter.last_failed_at = PgInstant::from_pg_micros(2_000_000);
    (letter.resolution, letter.resolved_by) = (Some("discarded".to_owned()), Some("an".to_owned()));
    ends(&with(&letter), TraceState::SetAside, "was discarded by an");
    letter.resolution = Some("replayed".to_owned());
    ends(&with(&letter), TraceState::Waiting, "");
    // Its signals count more than a letter that was closed, or opened, before.
    ends(&TraceFacts { signals: vec![signal(1)], ..with(&letter) }, TraceState::HandedOff, "one signal");
    let refused =
        TraceFacts { mapped: Some(TracedMapping::Refused("oversized_address".to_owned())), ..with(&letter) };
    ends(&refused, TraceState::Waiting, "");
}

#[test]
fn without_a_row_the_books_speak() {
    let nobody = TraceFacts { source: "births".to_owned(), ..TraceFacts::default() };
    ends(&nobody, TraceState::NeverExisted, "as far as anything tells");
    let within = |range: TracedRange| TraceFacts { open_range: Some(range), ..nobody.clone() };
    ends(
        &within(TracedRange { tail: true, ..range(9, 99) }),
        TraceState::NeverExisted,
        "above all that were seen",
    );
    ends(
        &within(TracedRange { head: true, ..range(-9, 0) }),
        TraceState::NeverExisted,
        "below all that were seen",
    );
    ends(
        &within(TracedRange { head: true, tail: true, ..range(-9, 9) }),
        TraceState::NeverExisted,
        "was read yet",
    );
    ends(&within(TracedRange { hot: true, ..range(3, 4) }), TraceState::NotCommitted, "may commit this one");
    ends(&within(range(3, 4)), TraceState::NeverExisted, "rolled back, or its id was never used");
    let gone = TraceFacts { signals: vec![signal(1)], ..within(range(3, 4)) };
    ends(&gone, TraceState::HandedOff, "the row is no longer in its table");
    let seeded = TraceFacts {
        backlog: Some(TracedBacklog { policy: Backlog::Seed, taken_at: None }),
        ..nobody.clone()
    };
    ends(&seeded, TraceState::Seeded, "becomes a candidate");
    let skipped =
        TraceFacts { backlog: Some(TracedBacklog { policy: Backlog::Skip, taken_at: None }), ..nobody };
    ends(&skipped, TraceState::Skipped, "which is skipped");
}

#[test]
fn the_timeline_is_in_the_order_of_time_and_ends_with_what_has_none() {
    let mut facts = TraceFacts { signals: vec![signal(1)], ..there(&[1]) };
    facts.certificate = Some(TracedCertificate {
        kind: String::from("certify"),
        taken_at: Some(PgInstant::from_pg_micros(9_000_000)),
        frontier: 60,
        lsn: None,
        may_be_later: false,
    });
    facts.groups = vec![TracedGroup {
        group: "g".to_owned(),
        verdict: None,
        dirty: true,
        scanned_at: None,
        object: None,
    }];
    let line: Vec<_> = facts.timeline().into_iter().map(|e| e.what).collect();
    assert_eq!(line, ["committed", "recorded", "certified", "group"]);
}

#[test]
fn only_what_needs_nobody_is_settled() {
    assert!(
        TraceState::HandedOff.is_settled()
            && TraceState::Seeded.is_settled()
            && TraceState::Excluded.is_settled()
    );
    assert!(
        !TraceState::Waiting.is_settled()
            && !TraceState::NeverExisted.is_settled()
            && !TraceState::DeadLetter.is_settled()
    );
    assert_eq!(serde_json::to_value(TraceState::NeverExisted).unwrap(), TraceState::NeverExisted.name());
}
