//! What the looks behind the intake cost: the certifying pass against a bare count of the same table, and the incremental
//! pass as the table grows.
//!
//! The passes are the daemon's own, measured by itself (its debug log) while a thousand births are written for each. The
//! rows that were there before are declared handed off, by closing their id ranges and setting the frontier, instead of
//! being handed off: no pass reads their signals, and ten million would take minutes.

use crate::support::options::Options;
use crate::support::process::Daemon;
use crate::support::report::{Goal, Report};
use crate::support::world::{World, births, settle};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// New births for each pass.
const NEW: u32 = 1_000;
const ROUNDS: usize = 9;
const PATIENCE: Duration = Duration::from_secs(120);
const CERTIFYING: &str = "certifying pass";
const INCREMENTAL: &str = "keyset pass";

pub async fn measure(world: &World, options: &Options, report: &mut Report) {
    let client = world.install("passes").await;
    let mut sizes = vec![options.rows / 10, options.rows];
    if !options.quick {
        sizes.push(options.rows * 10);
    }
    let mut incremental = Vec::new();
    for rows in sizes {
        grow(&client, rows, rows > options.rows).await;
        incremental.push((rows, passes_of(world, &client, INCREMENTAL).await));
        if rows == options.rows {
            certifying(world, &client, report).await;
        }
    }
    for (name, new) in [("incremental pass, idle", 0), ("incremental pass, new rows", u64::from(NEW))] {
        let of = |passes: &[Measured]| median(passes.iter().filter(|p| p.rows == new).map(|p| p.millis));
        for (rows, passes) in &incremental {
            report.note(format!("{name}: {:.2} ms at {rows} rows", of(passes)));
        }
        let (smallest, largest) = (&incremental[0].1, &incremental[incremental.len() - 1].1);
        report.add(name, "ms", of(largest), of(smallest), Goal::AtMost(1.5));
    }
    drop(client);
    world.drop("passes").await;
}

async fn certifying(world: &World, client: &Client, report: &mut Report) {
    let passes = passes_of(world, client, CERTIFYING).await;
    let with_new: Vec<_> = passes.iter().filter(|p| p.rows >= u64::from(NEW)).collect();
    let pass = median(with_new.iter().map(|p| p.millis));
    let (alone, parallel) = (count(client, 0).await, count(client, 2).await);
    report.note(format!(
        "certifying pass: {pass:.1} ms with its count; select count(*) by one process {alone:.1} ms, to which the ratio is {:.2}",
        pass / alone
    ));
    // As the server counts by default, with two more processes: so does the pass.
    report.add("certifying pass", "ms", pass, parallel, Goal::AtMost(2.0));
}

/// One pass as the daemon has measured it.
struct Measured {
    rows: u64,
    millis: f64,
}

/// Runs the daemon and writes births until enough passes of the kind have met them.
async fn passes_of(world: &World, client: &Client, kind: &str) -> Vec<Measured> {
    let log = std::env::temp_dir().join(format!("gov-handoff-bench-{}.log", std::process::id()));
    // The shortest interval that the daemon takes for a reason to certify; it stretches it by itself.
    let interval = if kind == CERTIFYING { "100ms" } else { "1h" };
    let daemon = Daemon::start_logged(
        &world.url("passes"),
        &["run", "--mode", "poll"],
        &log,
        "gov_handoff::capture=debug",
        &[("GOV_HANDOFF_CERTIFY_INTERVAL", interval)],
    );
    let deadline = Instant::now() + PATIENCE;
    // Past the first passes, which fill caches and make plans.
    let with_new = |log: &PathBuf| read(log, kind).iter().filter(|p| p.rows >= u64::from(NEW)).count();
    for round in 0..ROUNDS + 2 {
        write(client).await;
        while with_new(&log) <= round {
            assert!(Instant::now() < deadline, "no {kind} of {NEW} births came");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    drop(daemon);
    let mut passes = read(&log, kind);
    let _ = std::fs::remove_file(&log);
    let first = passes.iter().position(|p| p.rows >= u64::from(NEW)).map_or(0, |at| at + 1);
    passes.split_off(first)
}

fn read(log: &PathBuf, kind: &str) -> Vec<Measured> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let line = |line: &str| -> Option<Measured> {
        let fields = serde_json::from_str::<Value>(line).ok()?["fields"].take();
        let ours = fields["message"] == kind && fields["source"] == "birth_registry";
        let millis = |name: &str| fields[name].as_f64().or_else(|| fields[name].as_str()?.parse().ok());
        let pass = Measured { rows: fields["rows"].as_u64()?, millis: millis("micros")? / 1_000.0 };
        ours.then_some(pass)
    };
    text.lines().filter_map(line).collect()
}

/// Adds births up to `rows`, all of them declared handed off. Thin ones have no payload: the incremental pass does not look
/// at them, and writing them is most of what this takes.
async fn grow(client: &Client, rows: u32, thin: bool) {
    let there: i64 =
        client.query_one("select count(*) from birth_registry", &[]).await.expect("count").get(0);
    let mut from = u32::try_from(there).expect("few") + 1;
    while from <= rows {
        let to = rows.min(from + 99_999);
        let insert = if thin { without_payload(from, to) } else { births(from, to) };
        client.batch_execute(&insert).await.expect("write births");
        from = to + 1;
    }
    let declare = "\
        update gov_worker_gap set lo = (select max(id) + 1 from birth_registry) \
         where source_name = 'birth_registry' and hi = (select max(hi) from gov_worker_gap); \
        insert into gov_worker_gap (worker_name, source_name, lo, hi, hot) \
        select 'gov_handoff_intake', 'birth_registry', -2147483648, 0, false on conflict do nothing; \
        insert into gov_worker_frontier (worker_name, source_name, frontier, system_identifier, relation, filenode) \
        select 'gov_handoff_intake', 'birth_registry', pg_snapshot_xmin(pg_current_snapshot()), system_identifier::text, \
               'birth_registry'::regclass, pg_relation_filenode('birth_registry') \
          from pg_control_system() \
        on conflict (worker_name, source_name) do update set frontier = excluded.frontier";
    client.batch_execute(declare).await.expect("declare them handed off");
    settle(client).await;
}

fn without_payload(from: u32, to: u32) -> String {
    format!(
        "insert into birth_registry (entity_code, collection_name) \
         select 'E' || i, 'c' || i % 20 from generate_series({from}, {to}) i"
    )
}

async fn write(client: &Client) {
    let next: i32 =
        client.query_one("select max(id) + 1 from birth_registry", &[]).await.expect("next").get(0);
    let next = u32::try_from(next).expect("positive");
    client.batch_execute(&births(next, next + NEW - 1)).await.expect("write births");
}

/// Milliseconds of a sequential count, without the indexes that would make it another thing.
async fn count(client: &Client, workers: u32) -> f64 {
    let set = format!(
        "set enable_indexonlyscan = off; set enable_indexscan = off; set enable_bitmapscan = off; \
         set max_parallel_workers_per_gather = {workers}"
    );
    client.batch_execute(&set).await.expect("settings");
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        client.query_one("select count(*) from birth_registry", &[]).await.expect("count");
        took.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    client.batch_execute("reset all").await.expect("settings");
    median(took.into_iter())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    assert!(!values.is_empty(), "nothing was measured");
    values[values.len() / 2]
}
