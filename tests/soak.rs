//! The soak in short: half a minute with every cadence sped up, so that what would grow over hours has turned often enough.
//! `make soak` is the long one.

use std::time::{Duration, Instant};

use gov_handoff::embedded::ClusterOptions;

use crate::support::{active, active_on, connect, options, private_cluster, under_writers};

#[path = "../benches/support/flat.rs"]
mod flat;

const TIME: Duration = Duration::from_secs(32);
/// Sixty times as often as by default, or so.
const SPED_UP: [(&str, &str); 6] = [
    ("GOV_HANDOFF_CERTIFY_INTERVAL", "1s"),
    ("GOV_HANDOFF_RECONCILE_INTERVAL", "200ms"),
    ("GOV_HANDOFF_HEARTBEAT_INTERVAL", "1s"),
    ("GOV_HANDOFF_AUDIT_INTERVAL", "5s"),
    ("GOV_HANDOFF_LEASE_TTL", "3s"),
    ("GOV_HANDOFF_MODE", "auto"),
];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_record_grows_with_time() {
    let settings = vec![("autovacuum_naptime".to_owned(), "1s".to_owned())];
    let cluster = private_cluster(ClusterOptions { settings, ..options() }).await;
    let registry = active_on(&cluster).await;
    // The writers roll a sixth of their transactions back; the usual ten thousand holes would take hours.
    registry.sql("update dot_config set value = '50' where key = 'governance.holes.kept'").await;
    let daemon = registry.daemon("auto", &SPED_UP);
    registry.until_streaming().await;
    let mut looks = Vec::new();
    under_writers(&registry.url, 41, 3, async {
        let over = Instant::now() + TIME;
        while Instant::now() < over {
            looks.push(flat::look(&registry.client, daemon.pid()).await);
            // Log can be let go only at a checkpoint, which by itself comes every five minutes.
            if looks.len().is_multiple_of(8) {
                registry.sql("checkpoint").await;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    })
    .await;
    registry.until_all_handed_off().await;
    let halves = flat::halves(&looks);
    for half in &halves {
        println!("{:<24} {:>8} then {:>8}", half.name, half.first, half.second);
    }
    let grown: Vec<_> = halves.iter().filter(|half| !half.is_flat()).map(|half| half.name).collect();
    assert!(grown.is_empty(), "grows: {grown:?}");
    assert!(
        looks.iter().all(|look| look.sessions > 3 && look.resident_kib > 1_000),
        "it was there to be looked at"
    );
}

/// Certificates and letters lock the lease and a cursor, and so does every batch.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_and_batches_never_wait_for_each_other_in_a_circle() {
    let registry = active().await;
    // Time enough, between a certificate's lock of the cursor and whatever it locks next, for a batch to come in between.
    let slow = "create function verify.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.1); return null; end $$;
                create trigger slow after update on gov_worker_cursor for each row
                    when (new.last_run_summary is distinct from old.last_run_summary) execute function verify.slow();
                grant usage on schema verify to public";
    registry.sql(slow).await;
    let daemon = registry.daemon("auto", &[]);
    registry.until_streaming().await;
    let lone = "insert into birth_registry (entity_code, collection_name) values ('lone', 'c')";
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let url = registry.url.clone();
            tokio::spawn(async move {
                let client = connect(&url).await;
                let over = Instant::now() + Duration::from_secs(5);
                while Instant::now() < over {
                    client.batch_execute(lone).await.expect("a birth");
                }
            })
        })
        .collect();
    // As the daemon does it, under its lease, only more often.
    let put =
        "select gov_handoff.gov_certificate_put(executor_name, lease_owner, (metadata ->> 'term')::bigint, executor_name,
                   'birth_registry', jsonb_build_object('n', clock_timestamp()), false, null)
                 from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        registry.client.query_one(put, &[]).await.expect("a certificate");
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    registry.until_all_handed_off().await;
    // The victim's session tells when it has ended.
    let circles = "select deadlocks from pg_stat_database where datname = current_database()";
    assert!(!daemon.log().contains("deadlock"), "{}", daemon.log());
    assert_eq!(registry.number(circles).await, 0);
    drop(daemon);
}
