//! Schedules against a model in plain Rust that walks through time minute by minute: cron expressions in zones, gaps and folds,
//! policies for missed runs, changes of the timing, outages; exactly one job for each due time however many sessions tick.

use std::collections::BTreeSet;

use chrono::{DateTime, Datelike, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use serde_json::json;

use crate::support::{Database, connect, migrated};

/// What a timing says about local times; an interval counts from 1970.
#[derive(Clone, Copy)]
enum Timing {
    Cron(&'static str, fn(NaiveDateTime) -> bool),
    Every(i64),
}

const TIMINGS: [Timing; 8] = [
    Timing::Cron("*/20 * * * *", |t| t.minute() % 20 == 0),
    Timing::Cron("30 2 * * *", |t| (t.hour(), t.minute()) == (2, 30)),
    Timing::Cron("15 1-3 * * *", |t| (1..=3).contains(&t.hour()) && t.minute() == 15),
    Timing::Cron("0 9 * * mon-FRI", |t| {
        (t.hour(), t.minute()) == (9, 0) && t.weekday().num_days_from_monday() < 5
    }),
    // Either day: the 13th, and every Friday.
    Timing::Cron("5 0 13 * 5", |t| {
        (t.hour(), t.minute()) == (0, 5) && (t.day() == 13 || t.weekday().num_days_from_monday() == 4)
    }),
    // Both days: odd days that are Sundays.
    Timing::Cron("0 */6 */2 MAR,apr 7", |t| {
        t.hour() % 6 == 0
            && t.minute() == 0
            && t.day() % 2 == 1
            && t.weekday().num_days_from_sunday() == 0
            && [3, 4].contains(&t.month())
    }),
    Timing::Every(45),
    Timing::Every(7 * 60),
];
const ZONES: [&str; 3] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];
const POLICIES: [&str; 3] = ["coalesce", "skip", "catch_up"];
/// The latest due times that `catch_up` makes up.
const MADE_UP: usize = 6;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn local(zone: Tz, at: DateTime<Utc>) -> NaiveDateTime {
    at.naive_utc()
        + TimeDelta::seconds(zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc().into())
}

/// The due times in (from, to], by looking at every minute.
fn due(timing: Timing, zone: &str, from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let zone: Tz = zone.parse().expect("a zone");
    let minute = TimeDelta::minutes(1);
    let mut found = Vec::new();
    let mut now = from + minute - TimeDelta::seconds(i64::from(from.second()));
    while now <= to {
        let is_due = match timing {
            Timing::Every(minutes) => now.timestamp() % (minutes * 60) == 0,
            Timing::Cron(_, fits) => {
                let (here, before) = (local(zone, now), local(zone, now - minute));
                // The local times that this minute is responsible for: its own, unless it was there before, and those left out.
                let again = || (1..=240).any(|m| local(zone, now - minute * m) == here);
                let mut skipped = before + minute;
                let mut hit = fits(here) && !again();
                while skipped < here {
                    hit |= fits(skipped);
                    skipped += minute;
                }
                hit
            }
        };
        if is_due {
            found.push(now);
        }
        now += minute;
    }
    found
}

async fn apply(db: &Database, items: &serde_json::Value, now: DateTime<Utc>) -> Vec<String> {
    let query = "select outcome || ' ' || coalesce(reason, '') from gov_handoff.gov_schedule_apply($1::text::jsonb, $2::text::timestamptz)";
    let rows = db.client.query(query, &[&items.to_string(), &now.to_rfc3339()]).await.expect("an answer");
    rows.iter().map(|row| row.get(0)).collect()
}

async fn tick(db: &Database, now: DateTime<Utc>, limit: i32) -> i64 {
    let query = "select gov_handoff.gov_schedule_tick($1::text::timestamptz, $2)";
    db.client.query_one(query, &[&now.to_rfc3339(), &limit]).await.expect("a tick").get(0)
}

fn key(name: &str, due: DateTime<Utc>) -> String {
    format!("schedule:{name}:{}", due.format("%Y-%m-%dT%H:%M:%SZ"))
}

#[tokio::test]
async fn due_times_are_those_of_the_model_forward_and_backward() {
    let db = migrated().await;
    let mut compared = 0;
    // A gap, and a fold, of each zone; and two days on which nothing happens.
    for (zone, from, to) in [
        ("Europe/Berlin", "2025-03-29T12:00:00Z", "2025-03-31T00:00:00Z"),
        ("Europe/Berlin", "2025-10-25T12:00:00Z", "2025-10-26T12:00:00Z"),
        ("America/New_York", "2025-03-08T22:00:00Z", "2025-03-09T22:00:00Z"),
        ("America/New_York", "2025-11-01T22:00:00Z", "2025-11-02T22:00:00Z"),
        ("Australia/Lord_Howe", "2025-04-05T06:00:00Z", "2025-04-06T06:00:00Z"),
        ("Australia/Lord_Howe", "2025-10-04T06:00:00Z", "2025-10-05T06:00:00Z"),
        // A whole day that was left out.
        ("Pacific/Apia", "2011-12-29T00:00:00Z", "2011-12-31T20:00:00Z"),
        ("Asia/Kolkata", "2025-06-12T00:00:00Z", "2025-06-14T00:00:00Z"),
    ] {
        for timing in TIMINGS {
            let Timing::Cron(cron, _) = timing else { continue };
            let (from, to) = (at(from), at(to));
            let expected = due(timing, zone, from, to);
            for forward in [true, false] {
                let start = if forward { from } else { to };
                let query = format!(
                    "select extract(epoch from t.at)::bigint::text \
                       from gov_handoff.gov_cron_times('{cron}', '{zone}', '{start}', {forward}, 500) as t (at) \
                      where t.at > '{from}' and t.at <= '{to}' order by t.at"
                );
                let seconds = db.texts(&query).await;
                let found: Vec<_> = seconds
                    .iter()
                    .map(|text| DateTime::from_timestamp(text.parse().expect("seconds"), 0).expect("a time"))
                    .collect();
                assert_eq!(found, expected, "{cron} in {zone} from {from}, forward: {forward}");
            }
            compared += expected.len();
        }
    }
    assert!(compared > 500, "{compared}");
}

#[tokio::test]
async fn a_gap_is_due_right_after_it_and_a_fold_once() {
    let db = migrated().await;
    for (zone, from, expected) in [
        ("Europe/Berlin", "2025-03-29T12:00:00Z", "2025-03-30T01:00:00Z"),
        ("Europe/Berlin", "2025-10-25T12:00:00Z", "2025-10-26T00:30:00Z"),
        ("Europe/Berlin", "2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z"),
    ] {
        let query = format!(
            "select (gov_handoff.gov_schedule_next('30 2 * * *', null, '{zone}', now(), '{from}') = '{expected}')::text"
        );
        assert_eq!(db.text(&query).await, "true", "after {from}");
    }
    let leap = "select gov_handoff.gov_schedule_next('0 0 29 2 *', null, 'UTC', now(), '2096-03-01')::text";
    assert!(db.text(leap).await.starts_with("2104-02-29 00:00:00"));
}

/// One schedule of the table of combinations, and its model.
struct Case {
    name: String,
    timing: Timing,
    zone: &'static str,
    /// When the zone changes, and to which.
    moves: Option<(DateTime<Utc>, &'static str)>,
    policy: &'static str,
    decided: DateTime<Utc>,
    expected: BTreeSet<String>,
}

impl Case {
    fn item(&self) -> serde_json::Value {
        let mut item = json!({"name": self.name, "zone": self.zone, "missed": self.policy, "catch_up_limit": MADE_UP,
            "executor": "Agent", "kind": "k"});
        match self.timing {
            Timing::Cron(cron, _) => item["cron"] = cron.into(),
            Timing::Every(minutes) => item["every"] = format!("{minutes} minutes").into(),
        }
        item
    }

    /// Decides about everything up to `now`.
    fn settle(&mut self, now: DateTime<Utc>) {
        let due = due(self.timing, self.zone, self.decided, now);
        self.decided = now;
        let fired: &[_] = match self.policy {
            "catch_up" => &due[due.len().saturating_sub(MADE_UP)..],
            "coalesce" => &due[due.len().saturating_sub(1)..],
            _ => match due.last() {
                Some(last) if *last > now - TimeDelta::minutes(1) => &due[due.len() - 1..],
                _ => &[],
            },
        };
        self.expected.extend(fired.iter().map(|due| key(&self.name, *due)));
    }
}

fn cases(start: DateTime<Utc>, moves: [Option<DateTime<Utc>>; 3]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (t, timing) in TIMINGS.into_iter().enumerate() {
        for (z, zone) in ZONES.into_iter().enumerate() {
            for policy in POLICIES {
                for (m, moved) in moves.into_iter().enumerate() {
                    cases.push(Case {
                        name: format!("{t}_{z}_{policy}_{m}"),
                        timing,
                        zone,
                        moves: moved.map(|at| (at, ZONES[(z + 1) % ZONES.len()])),
                        policy,
                        decided: start,
                        expected: BTreeSet::new(),
                    });
                }
            }
        }
    }
    cases
}

/// Plays ticks at these times; each case changes its zone when its time has come.
async fn play(start: &str, ticks: &[&str], moves: [Option<DateTime<Utc>>; 3]) {
    let db = migrated().await;
    let start = at(start);
    let mut cases = cases(start, moves);
    let items: serde_json::Value = cases.iter().map(Case::item).collect();
    assert!(apply(&db, &items, start).await.iter().all(|answer| answer == "done created"));
    let mut now = start;
    for next in ticks.iter().map(|tick| at(tick)) {
        for moved in moves.into_iter().flatten().filter(|moved| *moved > now && *moved <= next) {
            let mut items = Vec::new();
            for case in &mut cases {
                if let Some((_, zone)) = case.moves.take_if(|(at, _)| *at == moved) {
                    case.settle(moved);
                    case.zone = zone;
                    items.push(case.item());
                }
            }
            let answers = apply(&db, &items.into(), moved).await;
            assert!(answers.iter().all(|answer| answer == "done changed"), "{answers:?}");
        }
        tick(&db, next, 100_000).await;
        cases.iter_mut().for_each(|case| case.settle(next));
        now = next;
    }
    let found: BTreeSet<String> =
        db.texts("select idempotency_key from job_queue").await.into_iter().collect();
    let expected: BTreeSet<String> = cases.into_iter().flat_map(|case| case.expected).collect();
    let (missing, extra): (Vec<_>, Vec<_>) =
        (expected.difference(&found).collect(), found.difference(&expected).collect());
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:?}, extra {extra:?}");
    assert!(expected.len() > 200, "{} runs", expected.len());
}

#[tokio::test]
async fn each_policy_and_zone_change_through_the_gaps_without_an_outage() {
    let ticks = [
        "2025-03-09T05:00:10Z",
        "2025-03-09T06:20:05Z",
        "2025-03-09T07:00:00Z",
        "2025-03-09T07:15:59Z",
        "2025-03-09T07:40:00Z",
        "2025-03-09T10:00:30Z",
    ];
    let moves = [None, Some(at("2025-03-09T06:30:00Z")), Some(at("2025-03-09T07:00:00Z"))];
    play("2025-03-09T04:30:00Z", &ticks, moves).await;
}

#[tokio::test]
async fn each_policy_and_zone_change_with_an_outage_over_a_gap() {
    let ticks = ["2025-03-29T23:00:10Z", "2025-03-30T07:00:30Z", "2025-03-30T09:00:00Z"];
    let moves = [None, Some(at("2025-03-30T00:30:00Z")), Some(at("2025-03-30T08:30:00Z"))];
    play("2025-03-29T22:00:00Z", &ticks, moves).await;
}

#[tokio::test]
async fn each_policy_and_zone_change_with_a_long_outage_over_gap_and_fold() {
    let ticks = ["2025-03-28T12:00:10Z", "2025-04-06T15:15:30Z", "2025-04-07T13:00:00Z"];
    let moves = [None, Some(at("2025-04-05T15:10:00Z")), Some(at("2025-04-06T20:00:00Z"))];
    play("2025-03-28T00:00:00Z", &ticks, moves).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_ticks_at_once_fire_once() {
    let db = migrated().await;
    let start = at("2025-06-01T00:00:00Z");
    let items: serde_json::Value = (0..5)
        .map(|n| {
            json!({"name": format!("s{n}"), "cron": "0 * * * *", "missed": "catch_up", "executor": "Agent", "kind": "k"})
        })
        .collect();
    apply(&db, &items, start).await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(connect(&db.url).await);
    }
    for hour in [5, 6, 20] {
        let now = start + TimeDelta::hours(hour);
        let calls = sessions.iter().map(|session| async move {
            let tick = "select gov_handoff.gov_schedule_tick($1::text::timestamptz, 1000)";
            session.query_one(tick, &[&now.to_rfc3339()]).await.expect("a tick");
        });
        futures_util::future::join_all(calls).await;
    }
    // Sessions that skipped rows of others have left nothing undone.
    assert_eq!(tick(&db, start + TimeDelta::hours(20), 1000).await, 0);
    assert_eq!(db.number("select count(*) from job_queue").await, 100);
    assert_eq!(db.number("select count(*) from job_ready").await, 100);
}

#[tokio::test]
async fn what_is_made_up_is_bounded_in_each_call_and_in_all() {
    let db = migrated().await;
    let item = json!({"name": "s", "every": "1 minute", "missed": "catch_up", "catch_up_limit": 25, "executor": "Agent", "kind": "k"});
    apply(&db, &item, at("2024-01-01T00:00:00Z")).await;
    let now = at("2025-01-01T00:00:00Z");
    let mut fired = Vec::new();
    while fired.len() < 10 {
        match tick(&db, now, 10).await {
            0 => break,
            n => fired.push(n),
        }
    }
    assert_eq!(fired, [10, 10, 5]);
    let first = db.text("select min(idempotency_key) from job_queue").await;
    assert_eq!(first, "schedule:s:2024-12-31T23:36:00Z");
}

#[tokio::test]
async fn a_schedule_that_fails_is_a_finding_and_stops_no_other() {
    let db = migrated().await;
    let start = at("2025-06-01T00:00:00Z");
    let item = |name: &str| json!({"name": name, "every": "1 hour", "executor": "Agent", "kind": "k"});
    apply(&db, &json!([item("bad"), item("good")]), start).await;
    // As after an update of the zones that took one away.
    db.sql(
        "update queue_schedule set every = null, cron = '0 * * * *', zone = 'No/Where' where name = 'bad'",
    )
    .await;
    for hour in 1..=3 {
        tick(&db, start + TimeDelta::hours(hour), 1).await;
        tick(&db, start + TimeDelta::hours(hour), 1).await;
    }
    assert_eq!(db.number("select count(*) from job_queue where actor_ref = 'schedule:good'").await, 3);
    assert_eq!(db.number("select count(*) from job_queue").await, 3);
    let finding =
        "select coalesce_key from system_issues where issue_kind = 'schedule_failed' and resolved_at is null";
    assert_eq!(db.texts(finding).await, ["schedule_failed:bad"]);
    assert!(db.text("select last_error from v_queue_schedule where name = 'bad'").await.contains("No/Where"));
    db.sql("update queue_schedule set zone = 'UTC' where name = 'bad'").await;
    tick(&db, start + TimeDelta::hours(4), 10).await;
    assert_eq!(db.number("select count(*) from job_queue where actor_ref = 'schedule:bad'").await, 1);
    assert!(db.texts(finding).await.is_empty());
}

#[tokio::test]
async fn a_pause_is_no_outage() {
    let db = migrated().await;
    let start = at("2025-06-01T00:00:00Z");
    let item =
        json!({"name": "s", "cron": "0 * * * *", "missed": "catch_up", "executor": "Agent", "kind": "k"});
    assert_eq!(apply(&db, &item, start).await, ["done created"]);
    let pause = async |paused: bool, hour: i64| -> bool {
        let now = (start + TimeDelta::minutes(hour * 60 + 30)).to_rfc3339();
        let query = "select gov_handoff.gov_schedule_pause('s', $1, 'op', $2::text::timestamptz)";
        db.client.query_one(query, &[&paused, &now]).await.expect("an answer").get(0)
    };
    assert!(pause(true, 1).await);
    assert!(!pause(true, 1).await, "paused already");
    tick(&db, start + TimeDelta::hours(3), 10).await;
    // What a file says about the schedule, but not about the pause, leaves it paused.
    assert_eq!(apply(&db, &item, start + TimeDelta::hours(3)).await, ["done unchanged"]);
    assert!(pause(false, 4).await);
    tick(&db, start + TimeDelta::hours(6), 10).await;
    assert_eq!(
        db.texts("select idempotency_key from job_queue order by 1").await,
        ["schedule:s:2025-06-01T05:00:00Z", "schedule:s:2025-06-01T06:00:00Z"]
    );
}

#[tokio::test]
async fn what_cannot_be_a_schedule_is_refused_with_its_reason_and_the_others_are_applied() {
    let db = migrated().await;
    let good = json!({"name": "good", "cron": "0 4 * * *", "zone": "Europe/Berlin", "executor": "Hermes", "kind": "k"});
    let mut items = vec![good.clone()];
    let mut expected = vec![String::from("done created")];
    for (setting, value, reason) in [
        ("cron", json!("0 4 * *"), "refused a cron expression has 5 fields"),
        ("cron", json!("60 4 * * *"), "refused the minute must be 0 to 59, not 60"),
        ("cron", json!("0 4-2 * * *"), "refused the range 4-2 of the hour runs backwards"),
        ("cron", json!("*/0 4 * * *"), "refused the step of */0 must be at least 1"),
        ("cron", json!("0 4 * foo *"), "refused the month must be 1 to 12, not foo"),
        ("cron", json!("0 4, * * *"), "refused the hour of a cron expression cannot be empty"),
        ("cron", json!("0 4 30 2 *"), "refused the cron expression 0 4 30 2 * is never due"),
        ("every", json!("1 hour"), "refused a schedule has either cron or every"),
        ("zone", json!("CET"), "refused not a zone: CET"),
        ("zone", json!("Europe/Nowhere"), "refused not a zone: Europe/Nowhere"),
        ("executor", json!("MOT"), "refused not a kind of executor: MOT"),
        ("missed", json!("ignore"), "refused missed must be coalesce, skip or catch_up"),
        ("payload", json!({"deep": {"body": "x"}}), "refused payload: "),
        ("catch_up_limit", json!(5000), "refused new row for relation"),
        ("catch_up_limit", json!("many"), "refused invalid input syntax"),
        ("cronn", json!("0 4 * * *"), "refused not a setting of a schedule: cronn"),
        ("name", json!("two words"), "refused a schedule needs a name of one word"),
        ("kind", json!(""), "refused a schedule needs a kind of job"),
    ] {
        let mut item = good.clone();
        item["name"] = "bad".into();
        item[setting] = value;
        items.push(item);
        expected.push(reason.to_owned());
    }
    items.push(json!("text"));
    expected.push(String::from("refused expected an object, found string"));
    let answers = apply(&db, &items.into(), Utc::now()).await;
    for (answer, expected) in answers.iter().zip(&expected) {
        assert!(answer.starts_with(expected), "{answer}, not {expected}");
    }
    assert_eq!(answers.len(), expected.len());
    assert_eq!(db.texts("select name from v_queue_schedule").await, ["good"]);
    let direct = "insert into queue_schedule (name, every, executor, job_kind, changed_by) values ('m', '1 day', 'MOT', 'k', 'x')";
    assert!(db.client.batch_execute(direct).await.is_err());
    // Through the gates, by the clock; the tick of the queue fires it.
    let every = r#"select outcome || ' ' || name from fn_schedule_apply('{"name": "e", "every": "1 second", "executor": "Agent", "kind": "k"}')"#;
    assert_eq!(db.text(every).await, "done e");
    db.sql("select gov_handoff.gov_job_tick(clock_timestamp() + interval '5 seconds')").await;
    assert_eq!(db.number("select count(*) from job_queue where job_kind = 'k'").await, 1);
    assert_eq!(db.text("select fn_schedule_pause('e', true, 'op')::text").await, "true");
    assert_eq!(db.text("select fn_schedule_pause('nobody', true, 'op')::text").await, "false");
}
