//! What every gate does, asked of each gate that the catalogue has: it refuses a lease that is not held and a definition that
//! is not in force, and it locks the row of its lease before the rows of cursor and stream position.

use std::collections::BTreeMap;

use crate::support::{Database, active, connect, done};

/// Calls a gate with arguments that fit its types, and says which error it ended with. The names that matter get values that
/// matter: the lease, the definition, a source and a signal that exist.
const CALL: &str = r"
    create function pg_temp.refusal(p_gate oid, p_term bigint, p_version uuid) returns text language plpgsql as $$
    declare v_arguments text;
    begin
        select string_agg(format('%I => %s', a.name, case
                   when a.name = 'p_worker' and (select proname ~ '^gov_(scan|invalidation)_' from pg_proc where oid = p_gate)
                       then '''gov_candidate_scan'''
                   when a.name = 'p_worker' or a.name = 'p_cursor_worker' then '''gov_handoff_intake'''
                   when a.name = 'p_owner' then '''this test'''
                   when a.name = 'p_term' then p_term::text
                   when a.name like '%version' and a.type = 'uuid' then format('%L::uuid', p_version)
                   when a.name like '%version' and a.type = 'uuid[]' then format('array[%L::uuid]', p_version)
                   when a.name = 'p_boundary' then '(select boundary from public.gov_source_boundary where source_name = ''birth_registry'')'
                   when a.name = 'p_signals' then 'array(select id from public.event_outbox limit 1)'
                   when a.type = 'text' then format('%L', case a.name when 'p_source' then 'birth_registry' when 'r_source' then 'birth_registry'
                       when 'r_table' then 'birth_registry' when 'r_kind' then 'governance.handoff.object_born' when 'r_stream' then 'birth'
                       when 'r_severity' then 'info' when 'p_depth' then 'full' when 'c_id' then '1' when 's_key' then '1' when 'p_resolution' then 'discarded' when 'p_gate' then 'escalation' else 'x' end)
                   when a.type like '%[]' or a.type = 'jsonb' then format('''{}''::%s', a.type)
                   when a.type = 'uuid' then 'gen_random_uuid()'
                   when a.type = 'boolean' then 'false'
                   when a.type = 'pg_lsn' then '''0/1'''
                   when a.type = 'interval' then '''1 hour'''
                   when a.type like 'timestamp%' then 'now()'
                   else format('''1''::%s', a.type) end), ', ')
          into v_arguments
          from (select u.name, format_type(u.type, null) as type
                  from pg_proc p, unnest(p.proargnames[1:p.pronargs], p.proargtypes::oid[]) as u (name, type)
                 where p.oid = p_gate) a;
        execute format('select from gov_handoff.%s(%s)', (select proname from pg_proc where oid = p_gate), v_arguments);
        return 'none';
    exception when others then
        return case when sqlstate like 'GH%' then sqlstate else sqlstate || ' ' || sqlerrm end;
    end $$";

/// Every gate under a lease, and how its call ends.
async fn refusals(db: &Database, term: i64, version: &str, which: &str) -> BTreeMap<String, String> {
    db.sql(CALL).await;
    let ask = format!(
        "select p.proname || ' ' || pg_temp.refusal(p.oid, {term}, {version}) from pg_proc p
          where p.pronamespace = 'gov_handoff'::regnamespace and p.proargnames && '{{p_term}}' and {which}"
    );
    let said = db.texts(&ask).await;
    db.sql("drop function pg_temp.refusal").await;
    said.iter().filter_map(|line| line.split_once(' ')).map(|(g, e)| (g.to_owned(), e.to_owned())).collect()
}

/// A database in which this test holds the lease of the intake, in the term that is returned, and that has a signal.
async fn leased() -> (Database, i64) {
    let db = active().await;
    db.births("b", 1).await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    let claim =
        "select term from gov_handoff.gov_lease_claim('gov_handoff_intake', 'this test', interval '1 hour')";
    let term = db.number(claim).await;
    // The gates of the scan want its own lease. It has the same term here, one invalidation to expand, and a group that is past
    // its time.
    db.sql(&format!(
        "select gov_handoff.gov_lease_claim('gov_candidate_scan', 'this test', interval '1 hour');
         update queue_heartbeat set metadata = jsonb_set(metadata, '{{term}}', '{term}') where executor_name = 'gov_candidate_scan';
         insert into gov_invalidation (scope, kind, ruleset_version, source_name, source_key) values ('{{}}', 'governance.handoff.ruleset_changed', 1, 's', '1');
         update gov_candidate_group set dirty = false, stale_after = now() - interval '1 day'"
    ))
    .await;
    (db, term)
}

const IN_FORCE: &str = "(select version from gov_source_version where source_name = 'birth_registry')";

#[tokio::test(flavor = "multi_thread")]
async fn every_gate_refuses_a_lease_that_is_not_held() {
    let (db, term) = leased().await;
    // The first two do not raise: their answer is that the lease is not theirs. A tick without work writes nothing, and so has
    // nothing to fence.
    let asked = "p.proname not in ('gov_lease_renew', 'gov_lease_resign', 'gov_tick_page')";
    for lost in [term - 1, term + 1] {
        let found = refusals(&db, lost, IN_FORCE, asked).await;
        assert!(found.len() > 20, "{found:?}");
        let wrong: Vec<_> = found.iter().filter(|(_, error)| *error != "GH001").collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        for answer in ["gov_lease_renew", "gov_lease_resign"] {
            let ask = format!("select gov_handoff.{answer}('gov_handoff_intake', 'this test', {lost})::text");
            assert_eq!(db.text(&ask).await, "false", "{answer}");
        }
    }
    // The same calls under the lease that is held are not refused for it: the calls themselves are sound.
    let sound =
        refusals(&db, term, IN_FORCE, &format!("{asked} and p.proname <> 'gov_handoff_apply_one'")).await;
    let wrong: Vec<_> = sound.iter().filter(|(_, error)| error.starts_with("GH001")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_gate_that_records_refuses_a_definition_that_is_not_in_force() {
    let (db, term) = leased().await;
    let records =
        "exists (select from unnest(p.proargnames[1:p.pronargs], p.proargtypes::oid[]) as u (name, type)
                    where u.name like '%version' and u.type in ('uuid'::regtype, 'uuid[]'::regtype))";
    let found = refusals(&db, term, "gen_random_uuid()", records).await;
    for gate in [
        "gov_handoff_apply",
        "gov_frontier_advance",
        "gov_handoff_stage",
        "gov_dead_letter_put",
        "gov_certificate_put",
    ] {
        assert!(found.contains_key(gate), "{gate} is not told which definition mapped its rows");
    }
    let wrong: Vec<_> = found.iter().filter(|(_, error)| *error != "GH004").collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Every gate that locks a lease and then a cursor or a stream position, and a call of it. `$owner`, `$term` and `$version`
/// are filled in.
const GATES: [(&str, &str); 9] = [
    (
        "gov_audit_checkpoint",
        "('gov_handoff_intake', $owner, $term, 'birth_registry', 'full', '1', '{}', false, '{}', '{}')",
    ),
    (
        "gov_certificate_put",
        "('gov_handoff_intake', $owner, $term, 'gov_handoff_intake', 'birth_registry', '{}', false, $version)",
    ),
    (
        "gov_dead_letter_put",
        "('gov_handoff_intake', $owner, $term, 'birth_registry', gen_random_uuid(), gen_random_uuid(), 'l', 'c', 'd', 1, '{}', '{}', \
         $version)",
    ),
    (
        "gov_handoff_advance",
        "('gov_handoff_intake', $owner, $term, '{birth_registry}', array[now()], '{1}', '{1}', '{1}', null, '{}', '{}', '{}', '{}', \
         's', '0/3')",
    ),
    (
        "gov_handoff_apply_one",
        "('gov_handoff_intake', $owner, $term, 'poll', 'birth_registry', 'birth_registry', 'governance.handoff.object_born', \
         'object_born', 'birth', 'info', gen_random_uuid(), gen_random_uuid(), true, 'o', 'o:1', 'o:1', 'g', '1', now(), 's', 'a', \
         '{}', now(), '1', null, null, $version, 1)",
    ),
    ("gov_stream_bind", "('gov_handoff_intake', $owner, $term, 's', '1', 1, '0/2')"),
    ("gov_stream_confirm", "('gov_handoff_intake', $owner, $term, 's', '0/9')"),
    ("gov_worker_checkpoint", "('gov_handoff_intake', $owner, $term)"),
    ("gov_worker_page", "('gov_handoff_intake', $owner, $term, 'birth_registry', 1, 1, 0, true, true)"),
];

/// A database in which this test holds the lease of the intake, and the calls of all gates under that lease.
async fn calls() -> (Database, BTreeMap<&'static str, String>) {
    let db = active().await;
    db.sql(
        "insert into gov_stream_position (slot_name, system_identifier, timeline, durable_lsn) values ('s', '1', 1, '0/1');
         -- An audit keeps its place under the worker's name, whoever audits.
         insert into gov_worker_cursor (worker_name, source_name) values ('gov_periodic_full_audit', 'birth_registry')",
    )
    .await;
    let claim =
        "select term from gov_handoff.gov_lease_claim('gov_handoff_intake', 'this test', interval '1 hour')";
    let term = db.number(claim).await.to_string();
    let version =
        db.text("select version::text from gov_source_version where source_name = 'birth_registry'").await;
    let fill = |call: &str| {
        call.replace("$owner", "'this test'")
            .replace("$term", &term)
            .replace("$version", &format!("'{version}'"))
    };
    let calls =
        GATES.map(|(gate, call)| (gate, format!("begin; select gov_handoff.{gate}{}; commit", fill(call))));
    (db, BTreeMap::from(calls))
}

const WAITS: &str = "select exists (select from pg_stat_activity where application_name = 'the gate' and wait_event_type = 'Lock' \
                     and datname = current_database())";

async fn gate_session(db: &Database) -> tokio_postgres::Client {
    let client = connect(&db.url).await;
    client.batch_execute("set application_name = 'the gate'").await.expect("a name");
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_waits_for_a_cursor_or_a_position_holds_its_lease_already() {
    let (db, calls) = calls().await;
    let gates = db
        .texts(
            "select p.proname::text from pg_proc p
              where p.pronamespace = 'gov_handoff'::regnamespace and p.prosrc ~ 'gov_lease_fence|update public\\.queue_heartbeat'
                and p.prosrc ~ '(update|insert into|delete from) public\\.(gov_worker_cursor|gov_stream_position)'
                -- The one writes no row; the other removes the lease that it worked under.
                and p.proname not in ('gov_handoff_probe', 'gov_selftest_clean')
              order by 1",
        )
        .await;
    assert_eq!(gates, calls.keys().map(|gate| (*gate).to_owned()).collect::<Vec<_>>(), "a gate is not asked");
    for (gate, call) in calls {
        let holder = connect(&db.url).await;
        let hold =
            "begin; select from gov_worker_cursor for update; select from gov_stream_position for update";
        holder.batch_execute(hold).await.expect("the rows are held");
        let session = gate_session(&db).await;
        let called = tokio::spawn(async move { session.batch_execute(&call).await });
        db.until(WAITS).await;
        let lease =
            "select from queue_heartbeat where executor_name = 'gov_handoff_intake' for update nowait";
        let refused = db.client.batch_execute(lease).await;
        let code = refused.as_ref().err().and_then(tokio_postgres::Error::code);
        assert_eq!(code, Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE), "{gate}: {refused:?}");
        holder.batch_execute("rollback").await.expect("released");
        called.await.expect("no panic").unwrap_or_else(|e| panic!("{gate}: {e:?}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_written_while_the_checkpoint_waits_is_kept() {
    let (db, calls) = calls().await;
    let audit = connect(&db.url).await;
    audit
        .batch_execute(
            "begin; update gov_worker_cursor set last_run_summary = last_run_summary || '{\"certificate\": {\"taken_at\": \"now\"}}'
              where worker_name = 'gov_handoff_intake' and source_name = 'birth_registry'",
        )
        .await
        .expect("a certificate");
    let session = gate_session(&db).await;
    let call = calls["gov_worker_checkpoint"].clone();
    let called = tokio::spawn(async move { session.batch_execute(&call).await });
    db.until(WAITS).await;
    audit.batch_execute("commit").await.expect("kept");
    called.await.expect("no panic").expect("the checkpoint");
    let summary = "select last_run_summary #>> '{certificate,taken_at}' || ' ' || (last_run_summary ? 'batch_count') \
                     from gov_worker_cursor where worker_name = 'gov_handoff_intake' and source_name = 'birth_registry'";
    assert_eq!(db.text(summary).await, "now true");
}
