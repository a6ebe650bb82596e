//! A backlog that is seeded: the sweep, against the same effects in plain SQL on one connection.

use crate::support::options::Options;
use crate::support::process::{Daemon, run};
use crate::support::report::{Goal, Report};
use crate::support::world::{World, births, settle};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Rows of one transaction of the backlog.
const TRANSACTION: u32 = 50_000;

pub async fn measure(world: &World, options: &Options, report: &mut Report) {
    let client = world.install("seeded").await;
    let url = world.url("seeded");
    run(&url, &["sources", "remove", "birth_registry"]);
    let mut from = 1;
    while from <= options.rows {
        let to = options.rows.min(from + TRANSACTION - 1);
        client.batch_execute(&births(from, to)).await.expect("write births");
        from = to + 1;
    }
    let begun = Instant::now();
    run(&url, &["sources", "apply"]);
    let registered = begun.elapsed();
    settle(&client).await;
    drop(client);
    world.copy("seeded", "seeded_plain").await;

    let plain = world.client("seeded_plain").await;
    plain.batch_execute(include_str!("plain_sweep.sql")).await.expect("the procedure");
    settle(&plain).await;
    let begun = Instant::now();
    plain.batch_execute(&format!("call bench_sweep({})", options.rows)).await.expect("plain SQL");
    let limit = begun.elapsed();

    let client = world.client("seeded").await;
    settle(&client).await;
    let begun = Instant::now();
    let sweep = Daemon::start(&url, &["backfill"]);
    let seeded = until_seeded(&client, begun).await;
    let usage = sweep.finish();
    assert_eq!(
        effects(&client).await,
        effects(&plain).await,
        "the sweep and plain SQL had different effects"
    );
    let rate = |took: Duration| f64::from(options.rows) / took.as_secs_f64();
    report.add("backlog sweep", "rows/s", rate(seeded), rate(limit), Goal::AtLeast(0.9));
    report.note(format!(
        "sweep: the boundary was read and registered in {:.1} s, seeding took {:.1} s of {:.1} s; the rest is the second reading",
        registered.as_secs_f64(),
        seeded.as_secs_f64(),
        usage.wall.as_secs_f64()
    ));
    report.memory("backlog sweep, memory", usage.resident_kib);
    drop((client, plain));
    world.drop("seeded").await;
    world.drop("seeded_plain").await;
}

/// How long it takes until every row of the backlog is marked.
async fn until_seeded(client: &Client, begun: Instant) -> Duration {
    let phase = "select coalesce(phase, '') in ('reconciling', 'incremental') from v_gov_backlog where source_name = 'birth_registry'";
    loop {
        if client.query_one(phase, &[]).await.expect("the phase").get(0) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(3_600), "the sweep does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What both ways have to agree on.
async fn effects(client: &Client) -> Vec<String> {
    let query = "\
        select count(*)::text || ':' || coalesce(sum(hashtextextended(concat_ws(' ', candidate_key, ruleset_version, \
                   object_type, group_key, dirty, dirty_reason, last_occurred_at, source_name, source_key, born_key), 0)), 0) \
          from gov_candidate_state \
        union all \
        select concat_ws(' ', group_key, dims, dirty, dirty_reason, changes, last_occurred_at) from gov_candidate_group \
         order by 1";
    client.query(query, &[]).await.expect("effects").iter().map(|row| row.get(0)).collect()
}
