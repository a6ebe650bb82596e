//! A scan costs what is dirty: a thousand dirty groups among ten thousand, and among a million.
//!
//! The groups are written as a scan would have left them, each with one accepted member. Judging a million groups first would
//! take longer than all measures.

use crate::support::options::Options;
use crate::support::process::{Daemon, run};
use crate::support::report::{Goal, Report};
use crate::support::world::{World, settle};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const DIRTY: u32 = 1_000;
const FEW: u32 = 10_000;
const ROUNDS: usize = 15;
const PATIENCE: Duration = Duration::from_secs(120);

pub async fn measure(world: &World, options: &Options, report: &mut Report) {
    let many = if options.quick { 100_000 } else { 1_000_000 };
    let (small, large) = (world.install("few").await, world.install("many").await);
    for (client, database, groups) in [(&small, "few", FEW), (&large, "many", many)] {
        write(client, groups).await;
        settle(client).await;
        // Once before it counts: plans and caches.
        let daemon = scanning(world, database);
        scan(client, groups).await;
        drop(daemon);
    }
    // In turns, so that whatever else the machine does meets both alike.
    let daemons = [scanning(world, "few"), scanning(world, "many")];
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        took[0].push(scan(&small, FEW).await);
        took[1].push(scan(&large, many).await);
    }
    drop(daemons);
    let [few, all] = took.map(middle);
    report.note(format!("scan: {DIRTY} dirty groups of {FEW} and of {many}, each with one member"));
    report.add("scan of 1,000 dirty groups", "ms", all, few, Goal::AtMost(1.5));
    drop((small, large));
    world.drop("few").await;
    world.drop("many").await;
}

fn scanning(world: &World, database: &str) -> Daemon {
    let url = world.url(database);
    run(&url, &["run", "--once", "--mode", "poll", "--workers", "gov_candidate_scan"]);
    let daemon = ["run", "--mode", "poll", "--workers", "gov_candidate_scan"];
    Daemon::start_with(&url, &daemon, &[("GOV_HANDOFF_POLL_INTERVAL", "10ms")])
}

async fn write(client: &Client, groups: u32) {
    let born = "'governance.handoff.object_born'";
    for from in (1..=groups).step_by(100_000) {
        let to = groups.min(from + 99_999);
        let insert = format!(
            "insert into gov_candidate_group (group_key, dims, dirty, dirty_reason, dirtied_at, changes, last_occurred_at, last_kind, \
                 members, accepted, verdict, verdict_rule, scanned_version, scanned_at, stale_after, scan_version, scan_mark, scan_key) \
             select 'g=' || lpad(i::text, 8, '0'), jsonb_build_object('g', i::text), false, {born}, now(), 1, now(), {born}, 1, 1, \
                    'single', 'one_accepted', gov_handoff.gov_ruleset_version(), now(), now() + interval '7 days', \
                    gov_handoff.gov_ruleset_version(), 1, 'o:' || i \
               from generate_series({from}, {to}) i; \
             insert into gov_candidate_state (candidate_key, ruleset_version, object_type, group_key, group_mark, dirty, dirty_reason, \
                 dirtied_at, last_occurred_at, last_kind, source_name, source_key, input_quality_state, input_checked_at, \
                 candidate_verdict, verdict_rule, scanned_group, counted_as, scanned_at, stale_after) \
             select 'o:' || i, gov_handoff.gov_ruleset_version(), 'o', 'g=' || lpad(i::text, 8, '0'), 1, false, {born}, now(), now(), \
                    {born}, 'birth_registry', i::text, 'ok', now(), 'accepted', 'object_accepted', 'g=' || lpad(i::text, 8, '0'), \
                    'accepted', now(), now() + interval '7 days' \
               from generate_series({from}, {to}) i"
        );
        client.batch_execute(&insert).await.expect("write groups");
    }
}

/// Marks a thousand groups, far from each other, and waits until none is dirty. Milliseconds from the commit of the marks.
async fn scan(client: &Client, groups: u32) -> f64 {
    let mark = format!(
        "select gov_handoff.gov_marks_put(gov_handoff.gov_ruleset_version(), array_agg(m.g), array_agg(jsonb_build_object('g', m.i::text)), \
                array_agg(now()), array_agg(m.kind), array_agg(1), array_agg('o:' || m.i), array_agg('o'::text), array_agg(m.g), \
                array_agg('birth_registry'::text), array_agg(m.i::text), array_agg(m.kind), array_agg(now())) \
           from (select i, 'g=' || lpad(i::text, 8, '0') as g, 'governance.handoff.count_changed' as kind \
                   from generate_series(1, {groups}, {}) i) m",
        groups / DIRTY
    );
    client.batch_execute(&mark).await.expect("mark groups");
    let begun = Instant::now();
    let clean = "select not exists (select from gov_candidate_group where dirty)";
    while !client.query_one(clean, &[]).await.expect("whether groups are dirty").get::<_, bool>(0) {
        assert!(begun.elapsed() < PATIENCE, "the groups stay dirty");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    begun.elapsed().as_secs_f64() * 1_000.0
}

fn middle(mut took: Vec<f64>) -> f64 {
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}
