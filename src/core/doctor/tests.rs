//! Each judgement, on both sides of its limit.

use super::*;
use crate::core::worker_state::WorkerState;

#[test]
fn versions_and_levels() {
    assert_eq!(server_version(140_011).verdict, CheckState::Fail);
    assert_eq!(server_version(160_013), Check::ok("server version", "16.13"));
    assert_eq!(server_version(190_000).verdict, CheckState::Warn);
    assert_eq!(wal_level("logical", true, true).verdict, CheckState::Ok);
    assert_eq!(wal_level("replica", true, true).verdict, CheckState::Fail);
    assert_eq!(wal_level("replica", false, true).verdict, CheckState::Warn);
    assert_eq!(wal_level("replica", false, false).verdict, CheckState::Ok);
}

#[test]
fn room_is_needed_only_by_who_has_none() {
    assert_eq!(room("slots", "max", 9, 10, false).verdict, CheckState::Ok);
    assert_eq!(room("slots", "max", 10, 10, false).verdict, CheckState::Warn);
    assert_eq!(room("slots", "max", 10, 10, true).verdict, CheckState::Ok);
}

#[test]
fn a_slot_is_judged_by_its_share_and_by_who_reads_it() {
    assert_eq!(retained(49, 100, None, true).verdict, CheckState::Ok);
    assert_eq!(retained(50, 100, None, true).verdict, CheckState::Warn);
    assert_eq!(retained(1, 100, None, false).verdict, CheckState::Warn);
    let growing = retained(1 << 30, 4 << 30, Some(f64::from(1 << 20)), true);
    assert_eq!(growing.found, "1.0 GiB of 4.0 GiB, 51 min to go at the present rate");
    assert_eq!(seconds_left(10, 100, Some(0.0)), None);
    assert_eq!(seconds_left(200, 100, Some(10.0)), Some(0.0));
}

#[test]
fn the_servers_own_bound_may_be_too_low_or_missing_when_needed() {
    assert_eq!(keep_size(10, 100, true, true).verdict, CheckState::Warn);
    assert_eq!(keep_size(100, 100, true, false).verdict, CheckState::Ok);
    assert_eq!(keep_size(-1, 100, true, false).verdict, CheckState::Warn);
    assert_eq!(keep_size(-1, 100, false, false).verdict, CheckState::Ok);
    assert_eq!(keep_size(-1, 100, true, true).verdict, CheckState::Ok);
}

#[test]
fn holes_holders_and_clocks() {
    assert_eq!(holes("s", 50_000, 1, 60_000).verdict, CheckState::Ok);
    assert!(holes("s", 50_001, 1, 60_000).found.contains("about 250 ms a pass"));
    assert_eq!(holes("s", 50_001, 1, 60_000).verdict, CheckState::Warn);
    assert_eq!(frontier(None, 300.0).verdict, CheckState::Ok);
    assert_eq!(frontier(Some(("pid 1".into(), Some(1.0))), 300.0).verdict, CheckState::Ok);
    assert_eq!(frontier(Some(("pid 1".into(), Some(301.0))), 300.0).verdict, CheckState::Warn);
    assert_eq!(clocks(-5.1).verdict, CheckState::Warn);
    assert_eq!(clocks(4.9).verdict, CheckState::Ok);
}

#[test]
fn what_cannot_be_told_is_worse_than_well_and_better_than_a_warning() {
    assert!(CheckState::Ok < CheckState::CannotTell && CheckState::CannotTell < CheckState::Warn);
    assert!(CheckState::Warn < CheckState::Fail);
}

#[test]
fn a_stranger_may_create_beside_us_and_not_among_the_gates() {
    let somebody = ["app".to_owned()];
    assert_eq!(creators("gov_handoff", true, &[]).verdict, CheckState::Ok);
    assert_eq!(creators("gov_handoff", true, &somebody).verdict, CheckState::Fail);
    assert_eq!(creators("public", false, &somebody).verdict, CheckState::Ok);
    assert_eq!(creators("public", false, &["PUBLIC".to_owned()]).verdict, CheckState::Warn);
}

#[test]
fn a_trigger_inside_a_gate_belongs_to_somebody_trusted_and_names_its_schemas() {
    let told = |trusted, pinned| {
        let (table, trigger) = ("event_outbox".to_owned(), "t".to_owned());
        let (function, owner) = ("f()".to_owned(), "o".to_owned());
        foreign_trigger(&ForeignTrigger { table, trigger, function, owner, trusted, pinned })
    };
    assert_eq!(told(true, true), Check::ok("triggers", "t on event_outbox calls f() of o"));
    assert_eq!(told(false, true).verdict, CheckState::Warn);
    assert!(told(true, false).found.ends_with("without a search_path"));
}

#[test]
fn a_pooler_is_known_by_what_it_shares_and_a_timeout_by_what_it_takes() {
    assert_eq!(pooler(7, 7, Some(8), 5432, Some(5432)).verdict, CheckState::Ok);
    assert!(pooler(7, 7, Some(8), 6432, Some(5432)).found.contains("forwards port 6432"));
    assert_eq!(pooler(7, 7, Some(7), 5432, None).verdict, CheckState::Fail);
    assert_eq!(pooler(7, 9, None, 5432, None).verdict, CheckState::Fail);
    assert_eq!(idle_slot_timeout(None).verdict, CheckState::Ok);
    assert_eq!(idle_slot_timeout(Some(0.0)).verdict, CheckState::Ok);
    assert_eq!(idle_slot_timeout(Some(3_600.0)).verdict, CheckState::Warn);
    assert_eq!(idle_slot_timeout(Some(604_800.0)).verdict, CheckState::Ok);
    assert_eq!(disk(5, 5).verdict, CheckState::Ok);
    assert_eq!(disk(4, 5).verdict, CheckState::Warn);
    assert!(executor("e", None).found.contains("never heard of"));
}

#[test]
fn what_breaks_first_is_named_first_with_its_time() {
    use forecast::{Supplies, first_to_break, rank, when};
    let mut s = Supplies {
        retained: Some(0),
        budget: 10 << 30,
        log_rate: Some(f64::from(1 << 20)),
        safe_wal_size: Some(1 << 30),
        xid_age: Some(1_000),
        deferred: Some(3),
        ..Supplies::default()
    };
    let ranked = rank(&s);
    let order: Vec<_> = ranked.iter().map(|s| s.what).collect();
    assert_eq!(order, ["safe_wal_size", "WAL budget", "transaction ids", "deferred jobs"]);
    assert_eq!(when(&ranked[0]), "in 17 min");
    assert_eq!(when(&ranked[3]), "no date");
    assert_eq!(first_to_break(&ranked).verdict, CheckState::Warn);
    // The budget is given up at 80 %: 8 GiB at a MiB a second.
    assert_eq!(ranked[1].in_seconds, Some(8_192.0));
    s.log_rate = Some(0.0);
    assert_eq!(first_to_break(&rank(&s)).verdict, CheckState::Ok);
    s.deferred_late = Some(61.0);
    assert_eq!(when(&rank(&s)[0]), "now");
    assert_eq!(first_to_break(&[]).verdict, CheckState::CannotTell);
    // What could not be asked is told. It may be the first, unless something else breaks soon.
    let unknown = vec![("jobs", "no privilege".to_owned())];
    assert_eq!(
        first_to_break(&rank(&Supplies { unknown: unknown.clone(), ..s.clone() })).verdict,
        CheckState::Warn
    );
    let ranked = rank(&Supplies { unknown, deferred_late: None, ..s });
    assert_eq!(ranked.last().map(|s| s.found.as_str()), Some("cannot tell: no privilege"));
    assert_eq!(first_to_break(&ranked), Check::cannot_tell("first to break", "jobs"));
}

#[test]
fn a_worker_that_does_not_run_is_named_with_its_state() {
    let member = |name: &str, state, by: Option<&str>| (name.to_owned(), state, by.map(str::to_owned));
    let (running, paused) =
        (member("a", WorkerState::Running, None), member("b", WorkerState::Paused, Some("huyen")));
    assert_eq!(workers(std::slice::from_ref(&running)), Check::ok("workers", "1 of 1 run"));
    assert_eq!(workers(&[running.clone(), paused.clone()]).found, "1 of 2 run: b paused by huyen");
    for (state, told) in [
        (WorkerState::Stopped, "c stopped, b paused by huyen"),
        (WorkerState::Silent, "c silent, b paused by huyen"),
        (WorkerState::NeverRan, "c never ran, b paused by huyen"),
    ] {
        let check = workers(&[running.clone(), paused.clone(), member("c", state, None)]);
        assert_eq!((check.verdict, check.found), (CheckState::Warn, format!("1 of 3 run: {told}")));
    }
}

#[test]
fn only_what_is_wrong_is_to_be_fixed() {
    let fix = Fix::sql(vec!["x".to_owned()]);
    assert_eq!(Check::ok("slot", "well").fixed_by(fix.clone()).fix, None);
    assert_eq!(Check::warn("slot", "a", "b").fixed_by(fix.clone()).fix, Some(fix));
    assert_eq!(Check::ok("slot", "well").why, "the stream is read from this slot");
}
