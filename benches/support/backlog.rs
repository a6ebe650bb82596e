//! A backlog of births, by polling and through the slot, against the server's own limits.

use crate::support::options::Options;
use crate::support::process::{Daemon, run};
use crate::support::report::{Goal, Report};
use crate::support::world::{World, births, settle};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use tokio_postgres::Client;

/// What the stream's backlog was committed in.
const TRANSACTION: u32 = 1_000;
/// The rival reader's slot.
const RIVAL: &str = "bench_rival";

/// Measures the poll backlog; returns the plain SQL's rows per second, which limits the stream too.
pub async fn poll(world: &World, options: &Options, report: &mut Report) -> f64 {
    let client = world.install("births").await;
    write(&client, options.rows, 50_000).await;
    settle(&client).await;
    drop(client);
    world.copy("births", "plain").await;
    let plain = world.client("plain").await;
    let took = plain_sql(&plain, options.rows).await;
    let limit = rate(options.rows, took);
    if options.wants("poll") {
        world.copy("births", "poll").await;
        let polled = world.client("poll").await;
        settle(&polled).await;
        let usage = Daemon::start(&world.url("poll"), &["run", "--once", "--mode", "poll"]).finish();
        assert_eq!(
            effects(&polled).await,
            effects(&plain).await,
            "polling and plain SQL had different effects"
        );
        report.add("poll backlog", "rows/s", rate(options.rows, usage.wall), limit, Goal::AtLeast(0.9));
        report.memory("poll backlog, memory", usage.resident_kib);
        drop(polled);
        world.drop("poll").await;
    }
    drop(plain);
    world.drop("plain").await;
    limit
}

pub async fn stream(world: &World, options: &Options, sql: f64, report: &mut Report) {
    let client = world.install("streamed").await;
    let url = world.url("streamed");
    run(&url, &["replication", "setup"]);
    let slot = "select pg_create_logical_replication_slot($1, 'pgoutput')::text";
    client.query_one(slot, &[&RIVAL]).await.expect("the rival's slot");
    write(&client, options.rows, TRANSACTION).await;
    settle(&client).await;
    let rival = rival(&url, &client).await.map(|took| rate(options.rows, took));
    let limit = match rival {
        Some(rival) => {
            report
                .note(format!("pg_recvlogical to /dev/null: {rival:.0} rows/s; plain SQL: {sql:.0} rows/s"));
            rival.min(sql)
        }
        None => {
            report.note("no pg_recvlogical here: the stream is held against plain SQL alone".to_owned());
            sql
        }
    };
    client.execute("select pg_drop_replication_slot($1)", &[&RIVAL]).await.expect("drop the rival's slot");
    settle(&client).await;
    let begun = SystemTime::now();
    let usage = Daemon::start(&url, &["run", "--once", "--mode", "stream"]).finish();
    // What counts is when the last birth's handoff is durable. A single run then compares with the tables, for which the
    // limit has no equal.
    let took = last_handoff(&client).await.duration_since(begun).expect("handed off after the start");
    report.note(format!(
        "stream backlog: durable after {:.1} s, compared with the tables after {:.1} s",
        took.as_secs_f64(),
        usage.wall.as_secs_f64()
    ));
    let counted = "select count(*) from event_outbox where safe_payload ->> 'captured_by' = 'stream'";
    let streamed: i64 = client.query_one(counted, &[]).await.expect("count").get(0);
    assert_eq!(streamed, i64::from(options.rows), "births that the stream handed off");
    report.add("stream backlog", "rows/s", rate(options.rows, took), limit, Goal::AtLeast(0.8));
    report.memory("stream backlog, memory", usage.resident_kib);
    run(&url, &["replication", "teardown"]);
    drop(client);
    world.drop("streamed").await;
}

async fn write(client: &Client, rows: u32, transaction: u32) {
    let mut from = 1;
    while from <= rows {
        let to = rows.min(from + transaction - 1);
        client.batch_execute(&births(from, to)).await.expect("write births");
        from = to + 1;
    }
}

async fn plain_sql(client: &Client, rows: u32) -> Duration {
    let tag = "select substr(replace(gov_handoff.gov_handoff_identity('birth_registry', 'int4', '1')::text, '-', ''), 1, 4)";
    let tag: String = client.query_one(tag, &[]).await.expect("the source's tag").get(0);
    client.batch_execute(&include_str!("plain.sql").replace("{tag}", &tag)).await.expect("the procedure");
    settle(client).await;
    let begun = Instant::now();
    client.batch_execute(&format!("call bench_plain({rows})")).await.expect("plain SQL");
    begun.elapsed()
}

/// Everything both ways have to agree on, boiled down to a few numbers.
async fn effects(client: &Client) -> Vec<String> {
    let query = "\
        select count(*)::text || ':' || coalesce(sum(hashtextextended(concat_ws(' ', id, event_type, event_subject_table, \
                   event_subject_ref, canonical_address, actor_ref, source_system, safe_payload, occurred_at), 0)), 0) \
          from event_outbox where event_subject_ref is not null \
        union all \
        select count(*)::text || ':' || coalesce(sum(hashtextextended(concat_ws(' ', event_id, event_domain, \
                   event_type, event_stream, event_severity, event_subject_table, event_subject_ref, actor_ref), 0)), 0) \
          from event_feed f where event_subject_ref is not null \
        union all \
        select count(*)::text || ':' || coalesce(sum(hashtextextended(concat_ws(' ', candidate_key, ruleset_version, \
                   object_type, group_key, dirty, dirty_reason, generation, last_occurred_at), 0)), 0) \
          from gov_candidate_state \
        union all \
        select concat_ws(' ', group_key, dims, dirty, dirty_reason, changes, last_occurred_at) \
          from gov_candidate_group \
        union all \
        select concat_ws(' ', last_watermark_ts, last_watermark_id, events_seen, attempts_written) \
          from gov_worker_cursor where source_name = 'birth_registry' \
         order by 1";
    client.query(query, &[]).await.expect("effects").iter().map(|row| row.get(0)).collect()
}

/// When the last of the handoffs was committed, by the server's clock, which is also ours.
async fn last_handoff(client: &Client) -> SystemTime {
    let query =
        "select max(pg_xact_commit_timestamp(xmin)) from event_outbox where event_subject_ref is not null";
    client.query_one(query, &[]).await.expect("a handoff").get(0)
}

/// How long PostgreSQL's own client takes to receive the same backlog and throw it away. `None`: it is not installed.
async fn rival(url: &str, client: &Client) -> Option<Duration> {
    let end = "select pg_current_wal_lsn()::text from pg_logical_emit_message(false, 'bench', 'the end')";
    let end: String = client.query_one(end, &[]).await.expect("the end of the log").get(0);
    let begun = Instant::now();
    let status = Command::new("pg_recvlogical")
        .args(["--dbname", url, "--slot", RIVAL, "--start", "--file", "/dev/null", "--no-loop"])
        .args(["--endpos", &end, "-o", "proto_version=1", "-o", "publication_names=gov_handoff"])
        .stdin(Stdio::null())
        .status()
        .ok()?;
    assert!(status.success(), "pg_recvlogical ended with {status}");
    Some(begun.elapsed())
}

fn rate(rows: u32, took: Duration) -> f64 {
    f64::from(rows) / took.as_secs_f64()
}
