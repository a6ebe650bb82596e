//! The gate for a lone signal has the effects of the general one.

use crate::support::{Daemon, Database, cli, done, migrated};

const BIRTHS: i32 = 6;
/// All that an apply leaves, but for clocks and for how often a shared row was touched.
const EFFECTS: &[&str] = &[
    "select jsonb_build_array(id, event_type, event_stream, event_severity, event_subject_table, event_subject_ref,
            canonical_address, actor_ref, source_system, safe_payload, occurred_at)::text
       from event_outbox where event_stream <> 'health' order by 1",
    "select jsonb_build_array(id, event_type_hint, entity_ref, canonical_address, capture_payload, last_error,
            processed_at is null)::text
       from event_pending where event_type_hint <> 'governance.handoff.certified' order by 1",
    "select jsonb_build_array(candidate_key, ruleset_version, object_type, group_key, dirty, dirty_reason,
            last_occurred_at, last_kind, source_name, source_key, born_key, key_conflict, retired, input_quality_state)::text
       from gov_candidate_state order by 1",
    "select jsonb_build_array(group_key, dims, dirty, dirty_reason, changes, last_occurred_at, last_kind)::text
       from gov_candidate_group order by 1",
    "select jsonb_build_array(last_watermark_ts, last_watermark_id, events_seen, attempts_written)::text
       from gov_worker_cursor where source_name = 'birth_registry'",
];

/// Births `1..=BIRTHS` of three objects, in transactions of `size`, each handed off before the next is written.
async fn written_by(size: i32) -> (Database, Daemon) {
    let db = migrated().await;
    let quiet = [("GOV_HANDOFF_RECONCILE_INTERVAL", "1h"), ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h")];
    let daemon = Daemon::running(&db, "stream", &quiet).await;
    for (first, active) in [(1, false), (BIRTHS / 2 + 1, true)] {
        if active {
            done(&db.url, &["types", "activate", "--all"]).await;
        }
        for from in (first..first + BIRTHS / 2).step_by(size.try_into().expect("a size")) {
            let births = format!(
                "insert into birth_registry (entity_code, collection_name, born_at, source_system, actor_ref)
                 select 'E' || n % 3, 'c', timestamptz '2026-01-01' + n * interval '1 hour', 'registrar', 'agent'
                   from generate_series({from}, {}) n",
                from + size - 1
            );
            db.client.batch_execute(&births).await.expect("births");
            let recorded = format!(
                "select (select count(*) from event_outbox where event_stream <> 'health')
                      + (select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified'
                            and processed_at is null) = {}",
                from + size - 1
            );
            db.until(&recorded).await;
        }
    }
    (db, daemon)
}

#[tokio::test]
async fn births_one_by_one_have_the_effects_of_births_in_one_transaction() {
    let ((lone, _first), (many, _second)) = tokio::join!(written_by(1), written_by(BIRTHS / 2));
    for query in EFFECTS {
        let (alone, together) = (lone.texts(query).await, many.texts(query).await);
        assert!(!alone.is_empty(), "{query}");
        assert_eq!(alone, together);
    }
}

/// The group was scanned clean in between: what was recorded before must not dirty it again.
#[tokio::test]
async fn a_lone_signal_delivered_again_marks_nothing() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let birth = "insert into birth_registry (entity_code, collection_name) values ('E', 'c')";
    db.client.batch_execute(birth).await.expect("a birth");
    let replay = ["replay", "--source", "birth_registry", "--from", "0"];
    assert_eq!(cli(&db.url, &replay).await.code, 1, "it was missing");
    let clean = "update gov_candidate_group set dirty = false; update gov_candidate_state set dirty = false";
    db.client.batch_execute(clean).await.expect("scanned clean");
    done(&db.url, &replay).await;
    let dirty = "select (select count(*) from gov_candidate_group where dirty or changes <> 1)
                      + (select count(*) from gov_candidate_state where dirty)";
    assert_eq!(db.number(dirty).await, 0);
    assert_eq!(db.number("select count(*) from event_outbox where event_stream <> 'health'").await, 1);
}

/// What the general gate leaves out, the gate for a lone signal leaves out too: retired signals, keys that another row took, and
/// rows that a former definition mapped.
#[tokio::test]
async fn a_lone_signal_is_left_out_where_many_would_be() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let term = db
        .number("select term from gov_handoff.gov_lease_claim('gov_handoff_intake', 'this test', interval '1 hour')")
        .await;
    let call = |version: &str, key: i32| {
        let identity =
            |kind: &str| format!("gov_handoff.gov_handoff_identity('birth_registry', 'int4', '{key}'{kind})");
        format!(
            "select (gov_handoff.gov_handoff_apply_one('gov_handoff_intake', 'this test', {term}, 'stream', 'birth_registry',
                 'birth_registry', 'governance.handoff.object_born', 'object_born', 'birth', 'info', {}, {}, true, 'o', 'o:{key}',
                 'o:{key}', 'g', '{key}', now(), 's', 'a', '{{}}', now(), '{key}', null, null, {version}, {key}))[1]",
            identity(", 'governance.handoff.object_born'"),
            identity("")
        )
    };
    let in_force = "(select version from gov_source_version where source_name = 'birth_registry')";
    db.sql(
        "insert into gov_retired_range (source_name, lo, hi) values ('birth_registry', 10, 20);
         insert into gov_retired_signal (id, source_name)
         values (gov_handoff.gov_handoff_identity('birth_registry', 'int4', '30', 'governance.handoff.object_born'), 'birth_registry');
         insert into gov_reused_key (subject, source_name)
         values (gov_handoff.gov_handoff_identity('birth_registry', 'int4', '40'), 'birth_registry')",
    )
    .await;
    for (key, emitted) in [(5, 1), (5, 0), (10, 0), (20, 0), (21, 1), (30, 0), (40, 0)] {
        assert_eq!(db.number(&call(in_force, key)).await, emitted, "{key}");
    }
    let marks = "select coalesce(sum(changes), 0)::bigint from gov_candidate_group";
    assert_eq!(db.number(marks).await, 2, "only what is emitted marks");
    let refused =
        db.client.query(&call("gen_random_uuid()", 6), &[]).await.expect_err("no definition in force");
    assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("GH004"));
}
