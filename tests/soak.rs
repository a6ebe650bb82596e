//! The soak in short: half a minute with every cadence sped up, so that what would grow over hours has turned often enough.
//! `make soak` is the long one.

use std::time::{Duration, Instant};

use gov_handoff::embedded::ClusterOptions;

use crate::support::process::{Registry, under_writers};
use crate::support::{options, private_cluster};

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
    let registry = Registry::on(&cluster).await;
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
