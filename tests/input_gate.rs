//! The input gate.

use crate::scan::{ALL, run_once};
use crate::support::{Daemon, Database, active, candidate_store_equals_model, cli, done};

async fn state(db: &Database, key: &str) -> String {
    db.text(&format!(
        "select input_quality_state || coalesce(' ' || input_reason, '') from gov_candidate_state where candidate_key = '{key}'"
    ))
    .await
}

async fn open(db: &Database) -> Vec<String> {
    db.texts("select coalesce_key from system_issues where issue_kind = 'input_rejected' and resolved_at is null order by 1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reason_rejects_and_a_check_that_is_switched_off_does_not() {
    let db = active().await;
    db.sql(
        "insert into birth_registry (entity_code, collection_name) values ('fine', 'c'), ('twice', 'c'), ('twice', 'c'), ('gone', 'c'),
            ('renamed', 'c')",
    )
    .await;
    let intake = [("GOV_HANDOFF_WORKERS", "gov_handoff_intake")];
    assert_eq!(
        crate::support::cli_with(&db.url, &["run", "--once", "--mode", "poll"], &intake).await.code,
        0
    );
    db.sql("delete from birth_registry where entity_code = 'gone'; update birth_registry set entity_code = 'other' where entity_code = 'renamed'")
        .await;
    let gate = [("GOV_HANDOFF_WORKERS", "gov_input_gate,gov_candidate_scan")];
    let ran = crate::support::cli_with(&db.url, &["run", "--once", "--mode", "poll"], &gate).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (key, said) in [
        ("c:fine", "ok"),
        ("c:twice", "rejected key_not_unique"),
        ("c:gone", "rejected source_row_missing"),
        ("c:renamed", "rejected address_missing"),
    ] {
        assert_eq!(state(&db, key).await, said, "{key}");
    }
    let all = ["address_missing", "key_not_unique", "source_row_missing"]
        .map(|code| format!("input_rejected:{code}:birth_registry"));
    assert_eq!(open(&db).await, all);
    assert_eq!(db.number("select rejected from gov_candidate_group").await, 3);

    for check in ["address_missing", "key_not_unique", "source_row_missing"] {
        assert!(done(&db.url, &["checks", "disable", check]).await.contains("checked again"));
        assert!(done(&db.url, &["checks", "disable", check]).await.contains("already"));
    }
    let ran = crate::support::cli_with(&db.url, &["run", "--once", "--mode", "poll"], &gate).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(
        db.number("select count(*) from gov_candidate_state where input_quality_state <> 'ok'").await,
        0
    );
    assert_eq!(open(&db).await, Vec::<String>::new(), "none is left");
    assert_eq!(db.text("select verdict from gov_candidate_group").await, "candidate");
    let unknown = cli(&db.url, &["checks", "disable", "taste"]).await;
    assert_eq!(unknown.code, 2, "{}", unknown.err);
    assert!(done(&db.url, &["checks", "list"]).await.contains("provenance_untrusted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_is_not_trusted_any_more_rejects_and_one_that_is_again_accepts() {
    let db = active().await;
    let sources = include_str!("../replication/sources.toml").replacen(
        "actor_ref = \"actor_ref\"\n",
        "actor_ref = \"actor_ref\"\ntrust = { by = \"source_system\", producers = [\"a\"] }\n",
        1,
    );
    crate::support::sources::register(&db.url, &sources).await;
    db.sql("insert into birth_registry (entity_code, collection_name, source_system) values ('x', 'c', 'a')")
        .await;
    run_once(&db).await;
    assert_eq!(state(&db, "c:x").await, "ok");
    for (verb, said) in [("revoke", "rejected provenance_untrusted"), ("grant", "ok")] {
        done(&db.url, &["trust", verb, "--source", "birth_registry", "--producer", "a"]).await;
        run_once(&db).await;
        assert_eq!(state(&db, "c:x").await, said, "{verb}");
        candidate_store_equals_model(&db).await;
    }
    // A rejected candidate is looked at again when another row comes.
    done(&db.url, &["trust", "revoke", "--source", "birth_registry", "--producer", "a"]).await;
    run_once(&db).await;
    db.sql("insert into registry_changelog (entity_type, entity_code, action, \"timestamp\") values ('c', 'x', 'recount', now())").await;
    run_once(&db).await;
    assert_eq!(state(&db, "c:x").await, "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_be_read_keeps_its_candidates_pending_and_costs_the_others_nothing() {
    let db = active().await;
    db.sql("insert into birth_registry (entity_code, collection_name) values ('x', 'c');
            insert into registry_changelog (entity_type, entity_code, action, \"timestamp\") values ('t', 'y', 'register', now())").await;
    let intake = [("GOV_HANDOFF_WORKERS", "gov_handoff_intake")];
    assert_eq!(
        crate::support::cli_with(&db.url, &["run", "--once", "--mode", "poll"], &intake).await.code,
        0
    );
    db.sql("alter table birth_registry rename to hidden_registry").await;
    let quick = [ALL, ("GOV_HANDOFF_POLL_INTERVAL", "50ms"), ("GOV_HANDOFF_LEASE_TTL", "1s")];
    let gate = [("GOV_HANDOFF_WORKERS", "gov_input_gate"), quick[1], quick[2]];
    let _daemon = Daemon::start(&db.url, &["--mode", "poll"], &gate);
    db.until("select input_quality_state = 'ok' from gov_candidate_state where candidate_key = 't:y'").await;
    db.until("select count(*) = 1 from system_issues where coalesce_key = 'source_unreadable:birth_registry:gate' and resolved_at is null").await;
    assert_eq!(state(&db, "c:x").await, "pending");
    db.sql("alter table hidden_registry rename to birth_registry").await;
    db.until("select input_quality_state = 'ok' from gov_candidate_state where candidate_key = 'c:x'").await;
    db.until("select count(*) = 0 from system_issues where coalesce_key = 'source_unreadable:birth_registry:gate' and resolved_at is null").await;
}
