//! What the stream did not expect: each surprise leaves a finding and costs one source only. Its rows, written before, during
//! and after it, are all handed off, by themselves or once the operator has mended the cause; the others keep streaming.

use crate::support::sources::{register, rule, source};
use crate::support::{Daemon, Database, active, cli, under_writers, until};

/// A stream under way, whose keyset lane looks behind it only when the mode changes.
async fn streaming() -> (Database, Daemon) {
    let registry = active().await;
    let daemon = registry.daemon("auto", &[("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")]);
    registry.until_streaming().await;
    registry.births("before", 10).await;
    registry.until_all_handed_off().await;
    (registry, daemon)
}

async fn finish(registry: Database, mut daemon: Daemon) {
    registry.until_stream_is_past_now().await;
    registry.until_all_handed_off().await;
    assert!(daemon.has_ended().is_none(), "{}", daemon.log());
    drop(daemon);
}

/// Changes of another source come by the stream.
async fn until_the_others_stream(registry: &Database) {
    let streamed = "select count(*) from verify.handoffs where event_subject_table = 'registry_changelog'
                     and safe_payload ->> 'captured_by' = 'stream'";
    let before = registry.number(streamed).await;
    until("the others stream", async || {
        let change = "insert into registry_changelog (entity_type, entity_code, action) values ('collection', 'x', 'update')";
        registry.sql(change).await;
        registry.number(streamed).await >= before + 3
    })
    .await;
}

/// The finding has ended, and nobody had to say so.
async fn until_resolved(registry: &Database, kind: &str) {
    let open =
        format!("select count(*) from system_issues where issue_kind = '{kind}' and resolved_at is null");
    until(&format!("{kind} is resolved"), async || registry.number(&open).await == 0).await;
}

#[tokio::test]
async fn an_added_column_changes_nothing() {
    let (registry, daemon) = streaming().await;
    registry.sql("alter table birth_registry add column note text default 'n'").await;
    registry.births("after", 10).await;
    registry.until_all_handed_off().await;
    let others = "select count(*) from verify.handoffs where safe_payload ->> 'captured_by' <> 'stream'";
    assert_eq!(registry.number(others).await, 0, "all of it came by the stream");
    assert_eq!(registry.number("select count(*) from system_issues where severity <> 'info'").await, 0);
    finish(registry, daemon).await;
}

#[tokio::test]
async fn a_dropped_column_stops_the_source_until_its_definition_is_changed() {
    let (registry, daemon) = streaming().await;
    // A published column cannot go without the publication: `cascade` takes the table out of it.
    registry.sql("alter table birth_registry drop column source_system cascade").await;
    registry.births("after", 10).await;
    registry.until_finding("source_unreadable").await;
    until_the_others_stream(&registry).await;
    registry.until_stream_is_past_now().await;
    let sources = include_str!("../replication/sources.toml");
    let (births, rest) =
        sources.split_once("[[source]]\nname = \"registry_changelog\"").expect("two sources");
    let changed =
        births.replace(", \"source_system\"", "").replace("source_system = \"source_system\"\n", "");
    let text = format!("{changed}[[source]]\nname = \"registry_changelog\"{rest}");
    register(&registry.url, &text).await;
    registry.births("mended", 10).await;
    registry.until_all_handed_off().await;
    finish(registry, daemon).await;
}

#[tokio::test]
async fn a_renamed_table_is_left_to_the_tables_and_the_others_keep_streaming() {
    let (registry, daemon) = streaming().await;
    registry.sql("alter table birth_registry rename to births_old").await;
    let insert = "insert into births_old (entity_code, collection_name) values ('renamed', 'c')";
    registry.sql(insert).await;
    registry.until_finding("stream_unknown_relation").await;
    registry.sql(insert).await;
    until_the_others_stream(&registry).await;
    registry.until_finding("source_unreadable").await;
    // Once the publication is without it, too.
    registry.until_streaming().await;
    until_the_others_stream(&registry).await;
    registry.sql("alter table births_old rename to birth_registry").await;
    registry.births("back", 10).await;
    registry.until_all_handed_off().await;
    until_resolved(&registry, "stream_unknown_relation").await;
    until_resolved(&registry, "source_unreadable").await;
    assert!(cli(&registry.url, &["findings"]).await.code == 0, "nothing grave is open any more");
    finish(registry, daemon).await;
}

#[tokio::test]
async fn a_published_truncation_leaves_a_finding_and_the_stream_goes_on() {
    let (registry, daemon) = streaming().await;
    registry.sql("alter publication gov_handoff set (publish = 'insert, truncate')").await;
    let before = registry.number("select count(*) from verify.handoffs").await;
    registry.sql("truncate birth_registry").await;
    registry.until_finding("source_not_append_only").await;
    registry.births("after", 9).await;
    let all = "select count(*) from verify.handoffs";
    until("the births after it", async || registry.number(all).await == before + 12).await;
    let verdict = registry.verdict().await;
    // What was handed off stays handed off, although its rows are gone.
    assert_eq!((verdict.missing, verdict.twice, verdict.stray), (0, 0, before), "{verdict:?}");
    drop(daemon);
}

#[tokio::test]
async fn an_unknown_table_in_the_publication_is_found_and_taken_out() {
    let (registry, daemon) = streaming().await;
    registry.sql("create table stranger (id int primary key, secret text)").await;
    registry.sql("alter publication gov_handoff add table stranger").await;
    registry.sql("begin; insert into stranger values (1, 'canary-4711'); insert into birth_registry (entity_code, collection_name) values ('beside', 'c'); commit").await;
    registry.until_finding("stream_unknown_relation").await;
    registry.births("after", 10).await;
    registry.until_all_handed_off().await;
    assert!(!daemon.log().contains("canary-4711"));
    until_resolved(&registry, "stream_unknown_relation").await;
    finish(registry, daemon).await;
}

#[tokio::test]
async fn a_publication_dropped_under_the_stream_is_found_and_made_again() {
    let (registry, daemon) = streaming().await;
    registry.sql("drop publication gov_handoff").await;
    registry.births("after", 10).await;
    registry.until_finding("handoff_fallback").await;
    registry.births("later", 10).await;
    registry.until_all_handed_off().await;
    until("the publication is there again", async || {
        registry.number("select count(*) from pg_publication where pubname = 'gov_handoff'").await == 1
    })
    .await;
    registry.until_streaming().await;
    registry.births("again", 10).await;
    finish(registry, daemon).await;
}

#[tokio::test]
async fn a_slot_dropped_under_the_stream_is_made_again_and_the_gap_is_closed() {
    let (registry, daemon) = streaming().await;
    let slot = registry.slot();
    registry
        .sql(&format!(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{slot}'"
        ))
        .await;
    let drop = format!(
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{slot}' and not active"
    );
    until("the slot is dropped", async || {
        registry.births("meanwhile", 1).await;
        registry.client.batch_execute(&drop).await.is_ok() && {
            registry
                .number(&format!("select count(*) from pg_replication_slots where slot_name = '{slot}'"))
                .await
                == 0
        }
    })
    .await;
    registry.births("after", 10).await;
    registry.until_all_handed_off().await;
    finish(registry, daemon).await;
}

#[tokio::test]
async fn a_source_redefined_under_load_does_not_hold_the_slot_back() {
    let registry = active().await;
    registry.sql("alter table birth_registry add column extra text").await;
    let daemon = registry.daemon("auto", &[("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")]);
    registry.until_streaming().await;
    let sources = include_str!("../replication/sources.toml");
    let wider = sources.replacen("\"status\", ", "\"status\", \"extra\", ", 1);
    under_writers(&registry.url, 1, 3, async {
        // Rows written before the publication follows the definition are decoded in their old shape.
        for text in [wider.as_str(), sources, &wider] {
            register(&registry.url, text).await;
            registry.until_stream_is_past_now().await;
        }
    })
    .await;
    registry.until_finding("stream_column_mismatch").await;
    until_resolved(&registry, "stream_column_mismatch").await;
    finish(registry, daemon).await;
}

#[tokio::test]
async fn a_truncation_of_several_tables_names_each() {
    let (registry, daemon) = streaming().await;
    registry.sql("alter publication gov_handoff set (publish = 'insert, truncate')").await;
    registry.sql("begin; insert into pivot_definitions (pivot_code) values ('p'); truncate birth_registry, pivot_definitions; commit").await;
    registry.until_finding("source_not_append_only").await;
    let named = registry
        .text("select detail ->> 'table' from system_issues where issue_kind = 'source_not_append_only'")
        .await;
    assert!(named.contains("public.birth_registry") && named.contains("public.pivot_definitions"), "{named}");
    drop(daemon);
}

#[tokio::test]
async fn a_source_that_cannot_be_published_is_read_from_its_table_and_the_others_are_streamed() {
    let registry = active().await;
    registry
        .sql(
            "create table derived (id int primary key, a text, b text generated always as (upper(a)) stored);
              create unlogged table forgetful (id int primary key, a text)",
        )
        .await;
    let sources = source("derived", "int4", &["id", "a", "b"])
        + &rule("object_born", "d", "d:{id}", ["b", "{b}"])
        + &source("forgetful", "int4", &["id", "a"])
        + &rule("object_born", "f", "f:{id}", ["a", "{a}"]);
    register(&registry.url, &sources).await;
    let daemon = registry.capturing("stream", "1h").await;
    registry.births("born", 10).await;
    registry.sql("insert into derived values (1, 'x'); insert into forgetful values (1, 'y')").await;
    registry.births("again", 10).await;
    registry.until_all_handed_off().await;
    let by = |tables: &str, how: &str| {
        format!(
            "select count(*) from verify.handoffs where event_subject_table in ({tables})
              and safe_payload ->> 'captured_by' {how} 'stream'"
        )
    };
    until("the others are read", async || registry.number(&by("'derived', 'forgetful'", "<>")).await == 2)
        .await;
    assert_eq!(registry.number(&by("'birth_registry'", "<>")).await, 0);
    let blamed =
        "select count(*) from system_issues where issue_kind in ('handoff_missed', 'handoff_fallback')";
    assert_eq!(registry.number(blamed).await, 0);
    drop(daemon);
}
