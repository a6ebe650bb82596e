//! The slot, the publication and the server behind them: one that is not ours, and one that was made again.

use crate::support::{Daemon, active, cli, cli_with, connect, done, until};

const QUICK: [(&str, &str); 2] =
    [("GOV_HANDOFF_STREAM_RETRY", "300ms"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "300ms")];

/// A sibling database with the same tables looks right in every way. Its rows would be recorded under our rows' identities.
#[tokio::test]
async fn a_stream_from_another_database_is_refused_and_nothing_is_made_there() {
    let (registry, other) = (active().await, active().await);
    let made = "select count(*) from pg_replication_slots where database = current_database()";
    let made = async || other.number(made).await;
    let elsewhere = [QUICK[0], QUICK[1], ("GOV_HANDOFF_REPLICATION_URL", other.url.as_str())];
    let refused = cli_with(&registry.url, &["run", "--mode", "stream"], &elsewhere).await;
    assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("another server or database"), "{}", refused.err);

    let daemon = registry.daemon("auto", &elsewhere);
    registry.until_finding("handoff_fallback").await;
    other.births("theirs", 30).await;
    registry.births("ours", 20).await;
    registry.until_all_handed_off().await;
    let status = cli(&registry.url, &["status"]).await.out;
    assert!(status.contains("another server or database"), "{status}");
    assert_eq!(made().await, 0);
    assert_eq!(other.number("select count(*) from pg_publication").await, 0);
    drop(daemon);
}

/// Of several hosts the stream is read from the one that is written to, wherever that stands in the list.
#[tokio::test]
async fn of_several_hosts_the_one_that_is_written_to_is_streamed_from() {
    let registry = active().await;
    // Nobody listens at the first.
    let (host, port) =
        registry.url.rsplit_once('/').map(|(h, _)| h).and_then(|h| h.rsplit_once(':')).expect("a port");
    let several = format!("{host}:1,127.0.0.1:{port}/{}", registry.name);
    let client = connect(&several).await;
    client.batch_execute("select 1").await.expect("the driver takes the second");
    let daemon = Daemon::eager(&several, "auto", &QUICK);
    registry.until_streaming().await;
    registry.births("by the second", 10).await;
    registry.until_all_handed_off().await;
    drop(daemon);
}

/// A slot decodes with the catalogue of its time, and the publication of that time is gone: it stops at the same place for
/// ever, however right the publication looks by now.
#[tokio::test]
async fn a_publication_that_was_dropped_and_made_again_gets_a_slot_that_can_see_it() {
    let registry = active().await;
    let daemon = registry.daemon("auto", &QUICK);
    registry.until_streaming().await;
    registry.births("before", 10).await;
    registry.until_all_handed_off().await;
    drop(daemon);
    // As a DBA might: what is written in between was decoded by nobody.
    registry.sql("drop publication gov_handoff").await;
    registry.births("between", 10).await;
    let made =
        "create publication gov_handoff for table birth_registry (id, entity_code) with (publish = 'insert')";
    registry.sql(made).await;
    done(&registry.url, &["replication", "setup"]).await;
    let daemon = registry.daemon("auto", &QUICK);
    registry.births("after", 10).await;
    registry.until_all_handed_off().await;
    registry.until_streaming().await;
    registry.births("streamed", 10).await;
    until("it streams on", async || {
        registry
            .number(
                "select count(*) from verify.handoffs where safe_payload ->> 'captured_by' = 'stream' \
                     and safe_payload ->> 'object_ref' like '%streamed%'",
            )
            .await
            > 0
    })
    .await;
    registry.until_all_handed_off().await;
    drop(daemon);
}
