//! What causes a slow pace, how long it lasts, and what is deferred.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits {
        lock_waits: 10,
        standby_lag: 1 << 30,
        slow_read: SECOND * 2,
        storm_share: 0.5,
        storm_floor: 100,
        pause: Duration::from_millis(250),
        off_peak: vec![],
    }
}

#[test]
fn each_limit_has_its_own_cause_and_at_the_limit_there_is_none() {
    let calm =
        Load { lock_waits: 10, standby_lag: Some(1 << 30), slowest_read: SECOND * 2, ..Load::default() };
    assert_eq!(causes(&calm, &limits()), []);
    let one = |load: Load| causes(&load, &limits());
    assert_eq!(one(Load { blocked_by_us: 1, ..Load::default() }), [Cause::BlockedByUs(1)]);
    assert_eq!(one(Load { lock_waits: 11, ..Load::default() }), [Cause::LockWaits(11)]);
    let lag = (1 << 30) + 1;
    assert_eq!(one(Load { standby_lag: Some(lag), ..Load::default() }), [Cause::StandbyLag(lag)]);
    assert_eq!(one(Load { slowest_read: SECOND * 3, ..Load::default() }), [Cause::SlowRead(SECOND * 3)]);
}

#[test]
fn a_storm_needs_a_share_and_a_number() {
    let storm = |marked, seen| is_storm(marked, seen, &limits());
    assert!(!storm(99, 99), "small systems do not cry");
    assert!(!storm(100, 200), "half is not more than half");
    assert!(storm(101, 200));
    assert!(!storm(5_000, 100_000), "many of very many");
    assert_eq!(storm_pause(Duration::from_millis(20), &limits()), Duration::from_millis(180));
    assert_eq!(storm_pause(SECOND, &limits()), limits().pause);
}

#[test]
fn a_pace_outlasts_its_cause_for_a_moment_and_then_ends() {
    let (mut governor, start) = (Governor::default(), Instant::now());
    let load = Load { lock_waits: 99, ..Load::default() };
    let slow = governor.decide(&load, &limits(), start, 0);
    assert_eq!((slow.pause, slow.causes.clone()), (limits().pause, vec![Cause::LockWaits(99)]));
    assert!(slow.reason().unwrap().contains("99 sessions wait for locks"));
    let quiet = Load::default();
    assert_eq!(governor.decide(&quiet, &limits(), start + LINGER - SECOND, 0), slow);
    assert_eq!(governor.decide(&quiet, &limits(), start + LINGER, 0), Pace::default());
}

#[test]
fn heavy_work_waits_for_the_load_to_pass_but_not_for_ever() {
    let (mut governor, start) = (Governor::default(), Instant::now());
    let load = Load { blocked_by_us: 1, ..Load::default() };
    assert!(governor.decide(&load, &limits(), start, 0).deferred.is_some());
    assert!(governor.decide(&load, &limits(), start + PATIENCE - SECOND, 0).deferred.is_some());
    let late = governor.decide(&load, &limits(), start + PATIENCE, 0);
    assert!(late.deferred.is_none() && late.pause > Duration::ZERO, "{late:?}");
}

#[test]
fn off_peak_windows_may_cross_midnight() {
    let night = OffPeakWindow::parse("22:00-06:30").unwrap();
    assert_eq!(night.to_string(), "22:00-06:30");
    let inside = |h: u16, m: u16| night.contains(h * 60 + m);
    assert!(inside(22, 0) && inside(23, 59) && inside(0, 0) && inside(6, 29));
    assert!(!inside(6, 30) && !inside(21, 59) && !inside(12, 0));
    let noon = OffPeakWindow::parse("12:00 - 13:00").unwrap();
    assert!(noon.contains(12 * 60) && !noon.contains(13 * 60) && !noon.contains(0));
    for wrong in ["", "22:00", "24:00-01:00", "1:60-2:00", "a-b", "05:00-05:00"] {
        assert_eq!(OffPeakWindow::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn outside_the_windows_heavy_work_waits_and_batches_do_not() {
    let limits = Limits { off_peak: vec![OffPeakWindow::parse("22:00-06:00").unwrap()], ..limits() };
    let mut governor = Governor::default();
    assert!(Pace::first(&limits).deferred.is_some(), "not even before the first look");
    let noon = governor.decide(&Load::default(), &limits, Instant::now(), 12 * 60);
    assert_eq!(noon.pause, Duration::ZERO);
    assert!(noon.reason().unwrap().contains("22:00-06:00 UTC"));
    assert_eq!(governor.decide(&Load::default(), &limits, Instant::now(), 23 * 60), Pace::default());
}

#[test]
fn a_lane_rests_in_proportion_to_what_it_does_and_never_longer_than_it_may() {
    let slow = Pace { pause: Duration::from_millis(250), ..Pace::default() };
    assert_eq!(
        slow.rest_after(Duration::from_millis(1)),
        Duration::from_millis(9),
        "a lone birth is no load"
    );
    assert_eq!(slow.rest_after(Duration::from_millis(20)), Duration::from_millis(180));
    assert_eq!(slow.rest_after(SECOND), Duration::from_millis(250));
    assert_eq!(slow.rest_after(Duration::MAX), Duration::from_millis(250));
    assert_eq!(Pace::default().rest_after(SECOND), Duration::ZERO, "at full speed there is no rest");
}

#[test]
fn one_slow_read_may_be_our_own_absence_and_two_in_a_row_are_load() {
    let (mut reads, limit) = (ReadTimes::default(), SECOND * 2);
    reads.note(SECOND * 9, limit);
    assert_eq!(reads.slowest(), Duration::ZERO);
    reads.note(limit, limit);
    reads.note(SECOND * 3, limit);
    assert_eq!(reads.slowest(), Duration::ZERO, "one in between was fast");
    reads.note(SECOND * 4, limit);
    assert_eq!(reads.slowest(), SECOND * 4, "of those in a row");
    reads.note(SECOND, limit);
    assert_eq!(reads.slowest(), Duration::ZERO);
}
