//! Finding what is unread costs what is unread: a thousand unread events among a hundred thousand, and among five million.
//!
//! Three readers have the same thousand events to read. One has read everything before them. One has read everything but them,
//! and marked them as unread again, all over the feed. One never read anything, and subscribes to their type alone.

use crate::support::options::Options;
use crate::support::report::{Goal, Report};
use crate::support::world::{World, settle};
use std::time::Instant;
use tokio_postgres::Client;

const FEW: u32 = 100_000;
const UNREAD: u32 = 1_000;
const ROUNDS: usize = 41;

/// Reader, and what is measured.
const READERS: [(&str, &str, &str); 3] = [
    ("user:behind", "unread, read up to there", "unread count, read up to there"),
    ("user:again", "unread, marked unread again", "unread count, marked unread again"),
    ("user:new", "unread, one type of many", "unread count, one type of many"),
];

pub async fn measure(world: &World, options: &Options, report: &mut Report) {
    let many = if options.quick { 500_000 } else { 5_000_000 };
    let (small, large) = (world.install("brief").await, world.install("long").await);
    for (client, events) in [(&small, FEW), (&large, many)] {
        write(client, events).await;
        settle(client).await;
    }
    for (actor, first, count) in READERS {
        let page = format!("select count(*) from fn_event_unread('{actor}', p_limit => 100)");
        let all = format!("select coalesce(sum(unread), 0)::bigint from fn_event_unread_count('{actor}')");
        for (measure, query, expected) in [(first, &page, 100), (count, &all, i64::from(UNREAD))] {
            let [few, many] = asked(&small, &large, query, expected).await;
            report.add(measure, "ms", many, few, Goal::AtMost(1.5));
        }
    }
    report.note(format!(
        "unread: {UNREAD} unread events of {FEW} and of {many}; no table was read from end to end"
    ));
    drop((small, large));
    world.drop("brief").await;
    world.drop("long").await;
}

/// Events and their positions, as the feed would have given them. The last thousand are of another type and the unread ones of
/// two readers; those that are marked again are spread.
async fn write(client: &Client, events: u32) {
    client
        .batch_execute(
            "insert into event_subscription (recipient_ref, event_domain) values ('user:behind', 'dot'), ('user:again', 'dot'); \
             insert into event_subscription (recipient_ref, event_domain, event_type) values ('user:new', 'dot', 'rare')",
        )
        .await
        .expect("subscriptions");
    for from in (1..=events).step_by(500_000) {
        let to = events.min(from + 499_999);
        let seen = events - UNREAD;
        let insert = format!(
            "with event as ( \
                 insert into event_outbox (id, event_domain, event_type, event_stream, event_severity, canonical_address, actor_ref, \
                     source_system) \
                 select lpad(to_hex(i), 32, '0')::uuid, 'dot', case when i > {seen} then 'rare' else 'happened' end, 'update', 'info', \
                        'dot://' || i, 'svc:x', 'bench' from generate_series({from}, {to}) i) \
             insert into event_feed (pos, event_id, event_domain, event_type, event_stream, event_severity, actor_ref) \
             select i, lpad(to_hex(i), 32, '0')::uuid, 'dot', case when i > {seen} then 'rare' else 'happened' end, 'update', 'info', 'svc:x' \
               from generate_series({from}, {to}) i"
        );
        client.batch_execute(&insert).await.expect("write events");
    }
    let read = format!(
        "select fn_event_mark_all_read('user:behind', {}), fn_event_mark_all_read('user:again'), \
                fn_event_mark_unread('user:again', array(select event_id from event_feed where pos % ({events} / {UNREAD}) = 0))",
        events - UNREAD
    );
    client.batch_execute(&read).await.expect("read");
}

/// The medians of one question to both, in milliseconds, asked in turns. No table may be read from end to end for it.
async fn asked(small: &Client, large: &Client, query: &str, expected: i64) -> [f64; 2] {
    let mut took = [Vec::new(), Vec::new()];
    let before = [scanned(small).await, scanned(large).await];
    for _ in 0..ROUNDS {
        for (client, took) in [small, large].into_iter().zip(&mut took) {
            let begun = Instant::now();
            let found: i64 = client.query_one(query, &[]).await.expect("unread").get(0);
            took.push(begun.elapsed().as_secs_f64() * 1_000.0);
            assert_eq!(found, expected, "{query}");
        }
    }
    assert_eq!(
        [scanned(small).await, scanned(large).await],
        before,
        "a table was read from end to end: {query}"
    );
    took.map(|mut took| {
        took.sort_by(f64::total_cmp);
        took[took.len() / 2]
    })
}

/// Sequential scans of outbox and feed so far.
async fn scanned(client: &Client) -> i64 {
    client.batch_execute("select pg_stat_force_next_flush()").await.expect("flush the statistics");
    let scans = "select sum(seq_scan)::bigint from pg_stat_user_tables where relname in ('event_outbox', 'event_feed')";
    client.query_one(scans, &[]).await.expect("the statistics").get(0)
}
