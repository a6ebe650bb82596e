//! Whoever looks on reads summaries: no page or healthcheck ever scans a source, the outbox or the candidates, so looking
//! costs the same on a million rows as on none.

use std::collections::BTreeMap;

use crate::support::{Database, cli, done, migrated};

/// How often each table was touched: scans, rows read by scans, scans by index, rows fetched by index.
async fn touched(db: &Database) -> BTreeMap<String, [i64; 4]> {
    // A session's counters are there when it is gone.
    db.until("select not exists (select from pg_stat_activity where datname = current_database() and application_name like 'gov-handoff%')").await;
    // Those of our own would be kept back for up to a second.
    db.client.batch_execute("select pg_stat_force_next_flush()").await.expect("flush");
    let query = "select relname::text, seq_scan, seq_tup_read, coalesce(idx_scan, 0), coalesce(idx_tup_fetch, 0) from pg_stat_user_tables";
    let rows = db.client.query(query, &[]).await.expect("the counters");
    rows.iter().map(|r| (r.get(0), [r.get(1), r.get(2), r.get(3), r.get(4)])).collect()
}

/// 001 §39.10, number 7.
#[tokio::test(flavor = "multi_thread")]
async fn no_ui_scan() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "object_born"]).await;
    let births = "insert into birth_registry (entity_code, collection_name, status) \
                  select 'e' || n, 'c' || n % 200, case when n % 3 = 0 then 'registered' end from generate_series(1, 6000) n; \
                  insert into registry_changelog (entity_type, entity_code, action) select 'law', 'l' || n, 'register' from generate_series(1, 500) n";
    db.client.batch_execute(births).await.expect("rows");
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(db.number("select count(*) from event_outbox where event_domain = 'governance'").await, 6_000);
    db.client.batch_execute("vacuum analyze").await.expect("vacuum");
    let before = touched(&db).await;
    for look in [
        &["status"][..],
        &["status", "--json"],
        &["metrics"],
        &["findings"],
        &["findings", "--all", "--json"],
        &["watch", "--once"],
        &["sources", "list"],
        &["certificates"],
    ] {
        let ran = cli(&db.url, look).await;
        assert!(ran.code < 2, "{look:?}: {}", ran.err);
    }
    let status = cli(&db.url, &["status"]).await.out;
    assert!(status.contains("waiting   3,00") && status.contains("dirty groups"), "{status}");
    // As a dashboard would.
    for look in [
        "select * from v_governance_worker",
        "select * from v_governance_source",
        "select * from v_governance_finding",
        "select * from v_governance_certificate",
        "select * from v_governance_stream",
        "select * from v_governance_summary",
        "select * from v_governance_captured",
        "select * from v_governance_certificate_history",
        "select fn_governance_route_worker_health()",
    ] {
        db.client.batch_execute(look).await.expect(look);
    }
    let after = touched(&db).await;
    for table in [
        "birth_registry",
        "registry_changelog",
        "pivot_definitions",
        "governance_ruleset",
        "event_outbox",
        "gov_candidate_state",
    ] {
        assert_eq!(after[table], before[table], "{table} was touched");
    }
    // What is open among these is counted by an index of what is open; their rows are not read.
    for table in ["event_pending", "gov_candidate_group"] {
        let ([scans, read, ..], [scans_before, read_before, ..]) = (after[table], before[table]);
        assert_eq!((scans, read), (scans_before, read_before), "{table} was scanned");
    }
}

/// The outbox may keep certificates for as long as an operator wants; onlookers have the latest thousand of each source.
#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_certificates_is_bounded_by_source() {
    let db = migrated().await;
    let put = "do $$
        begin
            perform gov_handoff.gov_lease_claim('gov_handoff_intake', 'me', '1 hour');
            for i in 1..1003 loop
                perform gov_handoff.gov_certificate_put('gov_handoff_intake', 'me', 1, 'gov_handoff_intake', 'birth_registry',
                    jsonb_build_object('source', 'birth_registry', 'taken_at', timestamptz '2026-01-01' + i * interval '1 s'), true, null);
            end loop;
            perform gov_handoff.gov_certificate_put('gov_handoff_intake', 'me', 1, 'gov_handoff_intake', 'pivot_definitions',
                '{\"source\": \"pivot_definitions\", \"taken_at\": \"2026-01-01\"}', true, null);
        end $$";
    db.client.batch_execute(put).await.expect("certificates");
    let kept =
        "select string_agg(format('%s %s %s', source_name, n, first), ', ' order by source_name) from (
        select source_name, count(*) as n, to_char(min(taken_at) at time zone 'UTC', 'MI:SS') as first
          from v_governance_certificate_history group by source_name) h";
    assert_eq!(db.text(kept).await, "birth_registry 1000 00:04, pivot_definitions 1 00:00");
    let shown = done(&db.url, &["certificates", "--history", "2", "--json"]).await;
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("json");
    assert_eq!(shown["history"].as_array().expect("history").len(), 2);
    assert_eq!(shown["history"][0]["source"], "birth_registry");
}
