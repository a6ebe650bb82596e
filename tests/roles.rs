//! Who may do what: every table, view, sequence and function against a table of privileges, for each role. An object that is
//! in no line makes this fail, so that whoever adds one decides who may use it.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use crate::support::{Daemon, Database, cli, cli_with, connect, done, migrated, number, text};

const ROLES: &str = include_str!("../replication/roles.sql");
/// In the order of the columns of [`MAY`].
const WHO: [&str; 4] =
    ["gov_handoff_reader", "gov_handoff_worker", "gov_handoff_operator", "gov_handoff_observer"];

/// What each may: r select, c select on some columns, a insert, w update, d delete, x execute or use; - nothing.
const MAY: &str = "
approval_requests collection_registry dot_iu_runtime_lease event_read: - - - -
event_subscription event_actor_member event_actor event_addressee: - r r -
v_event_recipient v_event_actor_group v_event_known_actor: - r r r
event_resolution: - - - -
gov_subscription_enabled() gov_subscription_step() fn_event_recipients() gov_event_resolution(): - x x x
gov_member_set() gov_subscription_apply(): - - x -
gov_audit_write() gov_finding_emit() gov_gap_replace() gov_handoff_mark_new() gov_lease_fence(): - - - -
gov_handoff_advance() gov_handoff_capture() gov_handoff_emit() gov_handoff_mark(): - - - -
gov_handoff_drain_refused() gov_handoff_drain_some() gov_lease_or_operator(): - - - -
batches definitions rehearsals gov_definition_fence() gov_source_mapping() gov_source_renew(): - - - -
gov_source_version: - r r -
gov_lease_modes() gov_clock_mend() gov_source_bind() gov_source_open() gov_severity_rank() gov_watermark_ahead() gov_watermark_hold(): - - - -
gov_repair_total gov_certificate_log gov_source_table normative_registry: - - - -
governance_object_ownership iu_route_worker_cursor iu_sql_event_route consumer_registry: - - - -
job_queue job_transition job_evidence job_archive job_executor job_producer job_subscription job_dependency: - - r -
job_ready job_deferred job_claim: - - r -
job_transition_rule: - r r r
job_lane job_step job_lane_head job_lane_floor job_sweep job_overdue job_deadline job_running: - - - -
gov_job_transitions() gov_job_notify() gov_job_make_ready() gov_job_grants() gov_job_depend() gov_executor_own(): - - - -
gov_job_log() gov_job_groups() gov_job_uncount() gov_executor_patience() gov_job_mine() gov_job_answers(): - - - -
gov_job_pairs() gov_job_unblock() gov_job_free() gov_job_setting() gov_job_delay() gov_job_end_attempt(): - - - -
gov_job_dead_letter() gov_job_letter_close() gov_job_letter_resolve() gov_job_end(): - - - -
fn_job_claim() fn_job_start() fn_job_heartbeat() fn_job_complete() fn_job_fail() fn_job_release() fn_executor_heartbeat(): - - - -
fn_job_enqueue() fn_job_enqueue_many() fn_executor_register() fn_executor_disable() fn_job_subscribe() fn_job_producer_grant(): - - x -
fn_job_cancel() fn_job_supersede() fn_job_redrive() fn_job_clean(): - - x -
gov_job_rescue() gov_job_due() gov_job_deadlines() gov_job_rehome() gov_job_page_sweep() gov_job_tidy(): - - - -
gov_job_tick(): - x x -
gov_job_enqueue() gov_job_acyclic() gov_job_succeeded(): - - - -
fn_mot_graph_emit() fn_job_may_enqueue() fn_schedule_apply() fn_schedule_pause(): - - x -
queue_schedule gov_cron_field() gov_cron_value() gov_cron_times() gov_local_moment() gov_schedule_times() gov_schedule_next(): - - - -
gov_schedule_fire() gov_schedule_key() gov_schedule_grace() gov_schedule_tick() gov_schedule_fault() gov_schedule_write(): - - - -
gov_schedule_apply() gov_schedule_pause(): - - - -
v_queue_schedule: - r r r
v_job_lane v_executor_subscription_health v_job_overdue v_queue_health v_iu_event_backlog v_iu_route_dead_letter_open: - r r r
fn_queue_route_worker_health(): - x x x
gov_batches_alone() gov_job_settle() gov_sent() gov_sendable(): - - - -
gov_actor_bind(): - - x -
gov_config_interval() gov_finding_orphans() gov_lease_stolen() gov_watch_cadence(): - - - -
birth_registry governance_ruleset pivot_definitions registry_changelog: - c c -
gov_dead_letter_close() gov_dead_letter_watch() gov_retry_schedule(): - - - -
dot_config event_outbox event_pending event_type_registry gov_audit_name gov_retired_range gov_retired_signal gov_retired_total gov_reused_key: - r r -
gov_stream_position gov_worker_cursor gov_worker_frontier gov_worker_gap iu_route_dead_letter: - r r -
queue_heartbeat gov_worker_control: - r r -
v_gov_worker: - r r r
gov_source_boundary gov_backlog_range gov_backlog_key: - r r -
gov_backlog_staging gov_backlog_holds() gov_backlog_release() gov_backlog_yield() gov_source_bound(): - - - -
gov_backlog_begin() gov_backlog_stage() gov_backlog_forget(): - - x -
gov_backfill_page(): - x - -
v_gov_backlog: - r r r
gov_worker_page() gov_worker_summary(): - - - -
v_gov_full_audit v_gov_mode_history v_gov_feed v_gov_reader v_gov_letter: - r r r
gov_audit_gain() gov_audit_summary(): - - - -
gov_candidates_revalidate(): - x - -
gov_worker_pause(): - - x -
gov_worker_checkpoint(): - x - -
gov_candidate_group gov_candidate_state gov_invalidation system_issues: - r r -
gov_verdict_rule gov_scan_control gov_candidate_departure gov_verdict_tally measurement_registry: - r r -
gov_input_check gov_input_recheck: - r r -
gov_scan_divide() gov_scan_put() gov_scan_stale() gov_invalidation_expand() gov_input_put(): - x - -
gov_scan_shard() gov_ruleset_version(): - x x -
gov_rules_put() gov_input_check_set(): - - x -
gov_verdict_emit() gov_verdict_events() gov_input_recheck_note() gov_input_definition_changed(): - - - -
v_gov_dirty v_gov_coverage v_gov_dead_letter_open v_gov_certificate v_gov_candidate v_gov_group: - r r r
gov_candidate_seed() gov_groups_touch() gov_marks_put(): - - - -
gov_schema_version v_governance_candidate v_governance_certificate v_governance_group: - r r r
v_governance_certificate_history v_governance_dead_letter_open v_governance_finding: - r r r
v_governance_captured v_governance_repair: - r r r
v_governance_retry v_governance_source v_governance_stream v_governance_summary v_governance_worker: - r r r
gov_config_number() gov_dead_letter_put() gov_handoff_stage() gov_retry_again() gov_retry_done(): - x - -
gov_audit_note() gov_finding_sustain() gov_frontier_advance() gov_gap_cool(): - x - -
gov_heartbeat_emit() gov_lease_claim() gov_lease_renew() gov_stream_bind() gov_stream_confirm(): - x - -
gov_dead_letter_failed() gov_dead_letter_lease() gov_dead_letter_replayed() gov_dead_letter_resolve(): - - x -
gov_trust_set(): - - x -
gov_notices_retire() gov_outbox_retire() gov_pending_retire() gov_selftest_claim() gov_selftest_clean() gov_source_put() gov_source_remove() gov_type_set_active(): - - x -
gov_audit_checkpoint() gov_audit_finish() gov_certificate_put(): - x - -
fn_governance_watch() gov_finding_resolve(): - x x -
gov_finding_raise() gov_handoff_apply() gov_handoff_apply_one() gov_handoff_drain(): - x x -
gov_handoff_probe() gov_key_reused() gov_lease_resign() gov_trust_promote(): - x x -
fn_event_emit() fn_event_emit_many() gov_type_set_lane(): - - x -
gov_payload_violation() gov_address_violation() gov_time_of() gov_event_identity_new(): - - - -
gov_outbox_is_traced() gov_event_cycles() gov_emit_finding() gov_event_insert() gov_event_release() gov_event_release_some(): - - - -
feed gov_feed_note() gov_feed_lock() gov_feed_append() gov_feed_signals() gov_feed_retire(): - - - -
event_feed gov_feed_inbox gov_feed_state event_type_lane: - r r -
gov_feed_take() gov_feed_add(): - x - -
fn_event_feed() fn_event_feed_head(): - x x x
event_read_mark event_read_exception event_delivery event_delayed event_delayed_group event_routing event_routing_tally: - - r -
event_escalation event_consumed: - - r -
gov_feed_streams() gov_feed_types() gov_receivable() gov_received() gov_events_resolved() gov_unread_candidates() gov_unread() gov_unread_own() gov_actor_note(): - - - -
gov_read_compact() gov_event_deliver() gov_unsubscribed() gov_delayed_note() gov_config_duration() gov_debounce(): - - - -
gov_rollup_threshold() gov_tick_gather() gov_tick_delayed() gov_delayed_due() gov_delayed_take() gov_tick_routing() gov_tick_escalation() gov_tick_gate() gov_tick_jobs(): - - - -
gov_event_emit() gov_delayed_roll_up() gov_delayed_release() gov_escalate(): - - - -
gov_tick_page(): - x - -
fn_event_worker_tick(): - x x -
fn_event_unread() fn_event_unread_count() fn_event_mark_read() fn_event_mark_unread() fn_event_mark_all_read() fn_event_ack(): - - x -
fn_event_board() fn_event_consume_once(): - - x -
v_subscription_broadcast_used v_event_universal_board v_event_alerts_recent v_health_open_issues v_event_delayed: - r r r
v_event_unified: - r r r
fn_governance_route_worker_health() gov_captured() gov_dirty_groups() gov_handoff_identity(): - x x x
";

async fn with_roles() -> Database {
    let db = migrated().await;
    db.client.batch_execute(ROLES).await.expect("replication/roles.sql");
    db
}

/// Every object of the schema and what a role may do with it, as a line.
async fn rights(db: &Database) -> BTreeMap<String, String> {
    let query = "
        with who as (select r, n from unnest($1::text[]) with ordinality as w (r, n)),
        relations as (
            select c.relname::text as name, w.n,
                   concat(case when has_table_privilege(w.r, c.oid, 'select') then 'r'
                               when has_any_column_privilege(w.r, c.oid, 'select') then 'c' end,
                          case when has_any_column_privilege(w.r, c.oid, 'insert') then 'a' end,
                          case when has_any_column_privilege(w.r, c.oid, 'update') then 'w' end,
                          case when has_table_privilege(w.r, c.oid, 'delete') then 'd' end,
                          case when has_table_privilege(w.r, c.oid, 'truncate, references, trigger') then '!' end) as may
              from pg_class c, who w
             where c.relnamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace) and c.relkind in ('r', 'p', 'v', 'm', 'f')
        ), sequences as (
            select c.relname::text, w.n, case when has_sequence_privilege(w.r, c.oid, 'usage, select, update') then 'x' end
              from pg_class c, who w
             where c.relnamespace = 'public'::regnamespace and c.relkind = 'S'
        ), functions as (
            select p.proname::text || '()', w.n, case when has_function_privilege(w.r, p.oid, 'execute') then 'x' end
              from pg_proc p, who w
             where p.pronamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace)
        )
        select name, string_agg(coalesce(nullif(may, ''), '-'), ' ' order by n)
          from (table relations union all table sequences union all table functions) o group by name";
    let rows = db.client.query(query, &[&WHO.as_slice()]).await.expect("the catalogue");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn every_object_gives_each_role_what_the_table_says_and_no_more() {
    let db = with_roles().await;
    let found = rights(&db).await;
    let mut wanted = BTreeMap::new();
    for line in MAY.lines().filter(|l| !l.trim().is_empty()) {
        let (objects, may) = line.split_once(':').expect("a line of the table");
        for object in objects.split_whitespace() {
            let may = may.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(wanted.insert(object.to_owned(), may).is_none(), "{object} is there twice");
        }
    }
    let mut wrong = Vec::new();
    for (object, may) in &found {
        match wanted.remove(object) {
            Some(meant) if meant == *may => {}
            Some(meant) => wrong.push(format!("{object}: {may}, meant {meant}")),
            // Sequences are nobody's: every write is a gate's.
            None if object.ends_with("_seq") && may == "- - - -" => {}
            None => wrong.push(format!("{object}: {may}, and in no line of the table")),
        }
    }
    wrong.extend(wanted.keys().map(|object| format!("{object} is in the table and not in the database")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A role of this database that logs in and is a member of `group`; roles belong to the cluster.
async fn member(db: &Database, group: &str) -> String {
    let role = format!("{group}_{}", db.name);
    let create = format!("create role {role} login in role {group}");
    db.client.batch_execute(&create).await.expect("a role");
    db.url_as(&role)
}

async fn refused(client: &Client, statement: &str) {
    let error = client.batch_execute(statement).await.expect_err(statement);
    assert_eq!(
        error.code().map(tokio_postgres::error::SqlState::code),
        Some("42501"),
        "{statement}: {error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_sees_how_it_fares_and_touches_nothing() {
    let db = with_roles().await;
    done(&db.url, &["types", "activate", "object_born"]).await;
    let quick = [("GOV_HANDOFF_CERTIFY_INTERVAL", "300ms")];
    let _daemon = Daemon::running(&db, "stream", &quick).await;
    let insert = "insert into birth_registry (entity_code, collection_name) values ('a', 'laws')";
    db.client.batch_execute(insert).await.expect("a birth");
    db.until("select count(*) = 5 from v_governance_certificate").await;
    db.until("select exists (select from event_outbox where event_domain = 'governance')").await;
    let observer = member(&db, "gov_handoff_observer").await;
    let status = cli(&observer, &["status"]).await;
    assert!(status.err.is_empty() && status.out.contains("mode      stream"), "{}{}", status.out, status.err);
    assert!(
        status.out.contains("birth_registry") && status.out.contains("slot      gov_handoff_"),
        "{}",
        status.out
    );
    let raise = "select gov_handoff.gov_finding_raise('cursor_lag', 'cursor_lag:x', 'warning')";
    db.client.batch_execute(raise).await.expect("a finding");
    assert!(done(&observer, &["findings"]).await.contains("cursor_lag:x"));
    let certificates = done(&observer, &["certificates"]).await;
    assert!(certificates.contains("birth_registry") && certificates.contains("history"), "{certificates}");
    for forbidden in [
        &["watch", "--once"][..],
        &["types", "activate", "--all"],
        &["findings", "--resolve", "x"],
        &["sources", "remove", "birth_registry"],
        &["retire", "--before", "2026-01-01"],
    ] {
        let ran = cli(&observer, forbidden).await;
        assert_eq!(ran.code, 2, "{forbidden:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains("permission denied"), "{forbidden:?}: {}", ran.err);
    }
    let client = connect(&observer).await;
    for (view, rows) in
        [("v_governance_group", 1), ("v_governance_candidate", 1), ("v_governance_finding", 0)]
    {
        assert!(number(&client, &format!("select count(*) from {view}")).await >= rows, "{view}");
    }
    for statement in [
        "select id from birth_registry",
        "select id from event_outbox",
        "select metadata from gov_worker_cursor",
        "select dirty from gov_candidate_group",
        "select dirty from gov_candidate_state",
        "select detail from system_issues",
        "update system_issues set resolved_at = now()",
        "delete from v_governance_finding",
        "create table public.mine ()",
        "set role gov_handoff_owner",
    ] {
        refused(&client, statement).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_decides_and_cannot_be_the_daemon() {
    let db = with_roles().await;
    let operator = member(&db, "gov_handoff_operator").await;
    done(&operator, &["types", "activate", "object_born"]).await;
    done(&operator, &["watch", "--once"]).await;
    db.client
        .batch_execute("select gov_handoff.gov_finding_raise('handoff_lag', 'handoff_lag:x', 'high')")
        .await
        .expect("a finding");
    done(&operator, &["findings", "--resolve", "handoff_lag:x"]).await;
    let run = cli(&operator, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(run.code, 2, "{}{}", run.out, run.err);
    let client = connect(&operator).await;
    for statement in [
        "select gov_handoff.gov_lease_claim('gov_handoff_intake', 'me', '1 s')",
        "select gov_handoff.gov_finding_emit('x', 'x', 'info', 'raised', 1)",
        "select birth_payload from birth_registry",
        "update event_type_registry set active = true",
        "delete from event_outbox",
    ] {
        refused(&client, statement).await;
    }
}

/// Who holds the lease, and in which term, is no secret; it has to be of no use to anybody else.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_neither_resigns_nor_writes_under_the_daemons_lease() {
    let db = with_roles().await;
    let mut daemon = Daemon::running(&db, "poll", &[]).await;
    let operator = connect(&member(&db, "gov_handoff_operator").await).await;
    let held = "select format('%L, %L, %s', executor_name, lease_owner, metadata ->> 'term') from queue_heartbeat \
                where executor_name = 'gov_handoff_intake'";
    let lease = text(&operator, held).await;
    let nothing = "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', \
                   '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', null, '{}', '{}', '{}', '{}'";
    let one = "'s', 't', 'k', 'c', 'alert', 'info', gen_random_uuid(), gen_random_uuid(), false, 'o', 'r', 'a', 'g', '1', \
               now(), 'x', 'x', '{}', now(), '1'";
    for statement in [
        format!("select gov_handoff.gov_lease_resign({lease})"),
        format!(
            "select gov_handoff.gov_handoff_apply({lease}, 'replay', {nothing}, 'slot', 'FFFFFFFF/0', '{{}}', '{{}}')"
        ),
        format!(
            "select gov_handoff.gov_handoff_apply_one({lease}, 'replay', {one}, 'slot', 'FFFFFFFF/0', null, null)"
        ),
        format!(
            "select gov_handoff.gov_certificate_put({lease}, 'gov_handoff_intake', 'birth_registry', '{{}}', true, null)"
        ),
        format!("select gov_handoff.gov_dead_letter_failed({lease}, gen_random_uuid(), 'x', 'x')"),
    ] {
        refused(&operator, &statement).await;
    }
    assert_eq!(text(&operator, held).await, lease);
    // Under the lease that is an operator's, the position of a slot is still not an operator's to move.
    let own = "select format('%L, %L, %s', 'gov_handoff_dlq', owner, term) \
                 from gov_handoff.gov_dead_letter_lease('an operator', interval '1 minute')";
    let own = text(&operator, own).await;
    for statement in [
        format!(
            "select gov_handoff.gov_handoff_apply({own}, 'replay', {nothing}, 'slot', 'FFFFFFFF/0', '{{}}', '{{}}')"
        ),
        format!(
            "select gov_handoff.gov_handoff_apply_one({own}, 'replay', {one}, 'slot', 'FFFFFFFF/0', null, null)"
        ),
    ] {
        refused(&operator, &statement).await;
    }
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_reads_the_slot_for_a_worker_and_sees_no_table() {
    let db = with_roles().await;
    done(&db.url, &["replication", "setup"]).await;
    let (worker, reader) = (member(&db, "gov_handoff_worker").await, db.url_as("gov_handoff_reader"));
    let settings = [
        ("GOV_HANDOFF_REPLICATION_URL", reader.as_str()),
        ("GOV_HANDOFF_CREATE", "false"),
        ("GOV_HANDOFF_RECONCILE_INTERVAL", "1h"),
        ("GOV_HANDOFF_HEARTBEAT_INTERVAL", "200ms"),
    ];
    let mut daemon = Daemon::start(&worker, &["--mode", "stream"], &settings);
    daemon.captures(&db.url, "stream").await;
    let insert = "insert into birth_registry (entity_code, collection_name) values ('a', 'laws')";
    db.client.batch_execute(insert).await.expect("a birth");
    db.until("select exists (select from event_pending where capture_payload ->> 'captured_by' = 'stream')")
        .await;
    // The watch, the load, the lag and the heartbeat are the worker's as well.
    db.until("select metadata ? 'beat' and metadata ? 'lag_ms' from queue_heartbeat where executor_name = 'gov_handoff_intake'").await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert!(!daemon.log().contains("permission denied"), "{}", daemon.log());
    let alone = cli_with(&reader, &["run", "--mode", "stream"], &settings).await;
    assert_eq!(alone.code, 2, "{}{}", alone.out, alone.err);
    let client = connect(&reader).await;
    for statement in [
        "select id from birth_registry",
        "select id from event_outbox",
        "select * from v_governance_worker",
        "select fn_governance_watch()",
    ] {
        refused(&client, statement).await;
    }
}
