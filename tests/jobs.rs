//! Jobs: keys, claims and their tokens, limits, scopes, retries, dead letters, deadlines, roles, and what the tick finds.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::support::{Database, connect, done, migrated, number, text};

const REGISTER: &str = "select fn_executor_register('e', 'Agent', 'op'), fn_job_subscribe('e', 'k', null, 0, 1000000, true, 'op'), \
     fn_executor_heartbeat('e')";

async fn queue() -> Database {
    let db = migrated().await;
    db.sql(REGISTER).await;
    db
}

/// Enqueues `n` jobs of kind `k` with these keys and more parameters.
async fn enqueue(client: &Client, prefix: &str, n: u32, more: &str) {
    let call = format!(
        "select min(outcome) from fn_job_enqueue_many((select jsonb_agg(jsonb_build_object('kind', 'k', 'key', '{prefix}' || g, \
         'executor', 'Agent') || '{more}') from generate_series(1, {n}) g))"
    );
    assert_eq!(text(client, &call).await, "done");
}

async fn refused(client: &Client, statement: &str, code: &str) {
    let error = client.batch_execute(statement).await.expect_err(statement);
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some(code), "{statement}: {error}");
}

const TICK: &str = "select gov_handoff.gov_job_tick()";

#[tokio::test(flavor = "multi_thread")]
async fn one_key_from_twenty_sessions_is_one_job() {
    let db = queue().await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(connect(&db.url).await);
    }
    let calls = sessions.into_iter().map(|session| {
        tokio::spawn(
            async move { text(&session, "select fn_job_enqueue('k', 'the key', 'Agent')::text").await },
        )
    });
    let mut ids = BTreeSet::new();
    for call in calls {
        ids.insert(call.await.expect("an answer"));
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(db.number("select count(*) from job_queue").await, 1);
    assert_eq!(db.number("select count(*) from job_ready").await, 1);
    assert_eq!(db.number("select count(*) from job_transition").await, 1);
}

#[tokio::test]
async fn what_is_rolled_back_leaves_nothing() {
    let db = queue().await;
    db.sql("begin").await;
    enqueue(&db.client, "a", 3, r#"{"deadline_at": "2030-01-01"}"#).await;
    enqueue(&db.client, "b", 3, r#"{"run_at": "2029-01-01"}"#).await;
    db.sql("rollback").await;
    let left = "select (select count(*) from job_queue) + (select count(*) from job_ready) + (select count(*) from job_deferred) \
         + (select count(*) from job_deadline) + (select count(*) from job_transition)";
    assert_eq!(db.number(left).await, 0);
}

#[tokio::test]
async fn an_executor_that_dies_ten_times_leaves_a_dead_letter_and_a_redrive_runs_the_job_once_more() {
    let db = queue().await;
    let id = db.text("select fn_job_enqueue('k', 'x', 'Agent', p_max_attempts => 10)::text").await;
    for death in 1..=10 {
        db.sql("select fn_executor_heartbeat('e')").await;
        assert_eq!(db.number("select attempt::bigint from fn_job_claim('e', 1)").await, death);
        db.sql(&format!("select fn_job_start('{{{id}}}', array(select max(token) from job_claim))")).await;
        // Far enough ahead for the lease, and then for the delay before the next attempt.
        db.sql("select gov_handoff.gov_job_tick(clock_timestamp() + interval '31 seconds')").await;
        db.sql("select gov_handoff.gov_job_tick(clock_timestamp() + interval '2 minutes')").await;
    }
    assert_eq!(db.text("select status from job_queue").await, "dead_letter");
    let letter =
        "select d.attempts::bigint from v_iu_route_dead_letter_open v join iu_route_dead_letter d using (id)";
    assert_eq!(db.number(letter).await, 10);
    let history = "select count(*) from job_transition where to_status = 'leased'";
    assert_eq!(db.number(history).await, 10);
    assert_eq!(db.number("select count(*) from job_transition where reason = 'lease expired'").await, 11);
    assert_eq!(db.number("select count(*) from fn_job_claim('e', 1)").await, 0);
    assert_eq!(db.text(&format!("select min(outcome) from fn_job_redrive('{{{id}}}', 'op')")).await, "done");
    let token = db.number("select token from fn_job_claim('e', 5)").await;
    db.sql(&format!(
        "select fn_job_start('{{{id}}}', '{{{token}}}'), fn_job_complete('{{{id}}}', '{{{token}}}')"
    ))
    .await;
    assert_eq!(db.number("select count(*) from job_transition where to_status = 'succeeded'").await, 1);
    assert_eq!(db.text("select resolution from iu_route_dead_letter").await, "replayed");
    assert_eq!(db.number("select count(*) from fn_job_claim('e', 5)").await, 0);
    assert_eq!(
        db.number("select count(*) from system_issues where issue_kind = 'job_dlq' and resolved_at is null")
            .await,
        0
    );
}

#[tokio::test]
async fn a_claim_that_is_over_finishes_nothing() {
    let db = queue().await;
    let id = db.text("select fn_job_enqueue('k', 'x', 'Agent')::text").await;
    let old = db.number("select token from fn_job_claim('e', 1)").await;
    let early = format!("select outcome from fn_job_complete('{{{id}}}', '{{{old}}}')");
    assert_eq!(db.text(&early).await, "refused", "leased and not started");
    db.sql("select gov_handoff.gov_job_tick(clock_timestamp() + interval '31 seconds')").await;
    let new = db.number("select token from fn_job_claim('e', 1)").await;
    assert!(new > old);
    for gate in [
        "start('{$id}', '{$old}')",
        "complete('{$id}', '{$old}')",
        "release('{$id}', '{$old}')",
        "fail('$id', $old, 'x')",
        "heartbeat('e', '{$id}', '{$old}')",
    ] {
        let gate = gate.replace("$id", &id).replace("$old", &old.to_string());
        assert_eq!(db.text(&format!("select outcome from fn_job_{gate}")).await, "stale", "{gate}");
    }
    assert_eq!(db.text(&format!("select outcome from fn_job_start('{{{id}}}', '{{{new}}}')")).await, "done");
    assert_eq!(
        db.text(&format!("select outcome from fn_job_complete('{{{id}}}', '{{{new}}}')")).await,
        "done"
    );
    assert_eq!(
        db.text(&format!("select outcome from fn_job_complete('{{{id}}}', '{{{new}}}')")).await,
        "stale"
    );
}

#[tokio::test]
async fn a_heartbeat_keeps_a_job_past_its_lease_and_a_silent_executor_loses_it_before() {
    let db = queue().await;
    let id = db.text("select fn_job_enqueue('k', 'x', 'Agent')::text").await;
    let token = db.number("select token from fn_job_claim('e', 1, '10 seconds')").await;
    let beat = format!("select outcome from fn_job_heartbeat('e', '{{{id}}}', '{{{token}}}', '50 seconds')");
    assert_eq!(db.text(&beat).await, "done");
    let later = |seconds: u32| {
        format!("select gov_handoff.gov_job_tick(clock_timestamp() + interval '{seconds} seconds')")
    };
    db.sql(&later(20)).await;
    assert_eq!(db.text("select status from job_queue").await, "leased");
    db.sql(&format!("select fn_job_heartbeat('e', '{{{id}}}', '{{{token}}}', '1 hour')")).await;
    db.sql(&later(90)).await;
    assert_eq!(db.text("select status from job_queue").await, "queued", "silent for longer than a minute");
    assert_eq!(db.number("select running from job_running order by seq desc limit 1").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_whoever_claims_at_once() {
    let db = queue().await;
    db.sql("select fn_job_subscribe('e', 'k', null, 0, 3, true, 'op')").await;
    enqueue(&db.client, "a", 60, "{}").await;
    let mut claimers = Vec::new();
    for _ in 0..8 {
        let session = connect(&db.url).await;
        claimers.push(tokio::spawn(async move {
            for _ in 0..10 {
                session.batch_execute("select fn_job_claim('e', 2)").await.expect("a claim");
                let over = number(&session, "select count(*) from job_queue where status = 'leased'").await;
                assert!(over <= 3, "{over} at once");
            }
        }));
    }
    for claimer in claimers {
        claimer.await.expect("a claimer");
    }
    assert_eq!(db.number("select count(*) from job_queue where status = 'leased'").await, 3);
    db.sql("select fn_job_release(array(select unnest(job_ids) from job_claim), array(select token from job_claim, unnest(job_ids)))")
        .await;
    assert_eq!(db.number("select count(*) from fn_job_claim('e', 60)").await, 3);
}

#[tokio::test]
async fn an_executor_gets_what_it_subscribed_to_and_the_highest_priority_first() {
    let db = queue().await;
    db.sql(
        "select fn_job_subscribe('e', 'k', 'iu', 5, 2, true, 'op'); \
         select fn_job_enqueue('other', 'o', 'Agent'), fn_job_enqueue('k', 'dot', 'DOT'), \
                fn_job_enqueue('k', 'low', 'Agent', 'iu', p_priority => 1), fn_job_enqueue('k', 'a', 'Agent'), \
                fn_job_enqueue('k', 'b', 'Agent', p_priority => 9), fn_job_enqueue('k', 'c', 'Agent', 'dot', p_priority => 3), \
                fn_job_enqueue('k', 'x', 'Agent', 'iu', p_priority => 6), fn_job_enqueue('k', 'y', 'Agent', 'iu', p_priority => 7), \
                fn_job_enqueue('k', 'z', 'Agent', 'iu', p_priority => 8)",
    )
    .await;
    let claimed = "select string_agg(q.idempotency_key, ' ' order by c.n) \
         from fn_job_claim('e', 10) with ordinality as c (job_id, token, a, b, d, f, g, h, i, n) join job_queue q on q.id = c.job_id";
    // The subscription to `iu` decides about its jobs: its limit of two and its floor hold, whatever the wider one allows.
    assert_eq!(db.text(claimed).await, "z y b c a");
}

#[tokio::test]
async fn nothing_that_is_not_an_executor_is_one_anywhere() {
    let db = queue().await;
    for statement in [
        "insert into job_queue (job_kind, idempotency_key, executor) values ('k', 'm', 'MOT')",
        "insert into queue_heartbeat (executor_name, executor_kind) values ('m', 'MOT')",
        "insert into consumer_registry (consumer_name, executor) values ('m', 'MOT')",
        "insert into job_subscription (executor_id, executor_kind, registered_by) values ('m', 'MOT', 'x')",
        "select fn_executor_register('m', 'MOT', 'x')",
        "select fn_executor_register('m', 'future_MOT_executor', 'x')",
        "select fn_executor_register('MOT', 'Agent', 'x')",
        "insert into job_producer (role_name, executor_kind, granted_by) values ('m', 'MOT', 'x')",
        "insert into job_lane (executor, job_kind, priority) values ('MOT', 'k', 0)",
    ] {
        refused(&db.client, statement, "23514").await;
    }
    refused(&db.client, "select fn_job_enqueue('k', 'm', 'MOT')", "GH003").await;
    refused(&db.client, "select fn_job_claim('nobody', 1)", "GH003").await;
    db.sql(
        "select fn_executor_register('mute', 'Agent', 'op'), fn_job_subscribe('mute', 'k', p_actor => 'op')",
    )
    .await;
    // Bound to no role before its first heartbeat.
    refused(&db.client, "select fn_job_claim('mute', 1)", "42501").await;
    db.sql("select fn_executor_register('mute', 'Agent', 'op', 'gov_handoff_executor')").await;
    refused(&db.client, "select fn_job_claim('mute', 1)", "GH003").await;
    db.sql("select fn_executor_disable('e', 'op')").await;
    refused(&db.client, "select fn_job_claim('e', 1)", "GH003").await;
}

#[tokio::test]
async fn each_role_of_the_queue_does_its_own_part_and_no_other() {
    let db = queue().await;
    let role = async |group: &str, name: &str| {
        let role = format!("{name}_{}", db.name);
        db.sql(&format!("create role {role} login in role {group}")).await;
        let client = connect(&db.url_as(&role)).await;
        (role, client)
    };
    let (producer, p) = role("gov_handoff_producer", "p").await;
    let (_, one) = role("gov_handoff_executor", "one").await;
    let (_, two) = role("gov_handoff_executor", "two").await;
    refused(&p, "select fn_job_enqueue('k', 'x', 'Agent')", "42501").await;
    db.sql(&format!("select fn_job_producer_grant('{producer}', 'Agent', true, 'op')")).await;
    let id = text(&p, "select fn_job_enqueue('k', 'x', 'Agent')::text").await;
    refused(&p, "select fn_job_enqueue('k', 'y', 'DOT')", "42501").await;
    for statement in [
        "select fn_job_claim('e', 1)",
        "select fn_executor_heartbeat('e')",
        "insert into job_queue (job_kind, idempotency_key) values ('k', 'z')",
        "select fn_job_cancel(gen_random_uuid(), 'x', 'x')",
    ] {
        refused(&p, statement, "42501").await;
    }
    db.sql(
        "select fn_executor_register('one', 'Agent', 'op'), fn_job_subscribe('one', 'k', p_actor => 'op')",
    )
    .await;
    one.batch_execute("select fn_executor_heartbeat('one')").await.expect("its own");
    refused(&two, "select fn_executor_heartbeat('one')", "42501").await;
    refused(&two, "select fn_job_claim('one', 1)", "42501").await;
    let token = number(&one, "select token from fn_job_claim('one', 1)").await;
    for (gate, expected) in [("start", "refused"), ("release", "refused"), ("complete", "refused")] {
        let call = format!("select outcome from fn_job_{gate}('{{{id}}}', '{{{token}}}')");
        assert_eq!(text(&two, &call).await, expected, "{gate}");
    }
    for statement in [
        "select fn_job_enqueue('k', 'x', 'Agent')",
        "select fn_job_subscribe('one', 'other')",
        "select fn_executor_register('three', 'Agent', 'x')",
        "update job_queue set priority = 1",
        "select fn_job_redrive('{}', 'x')",
        "delete from job_ready",
    ] {
        refused(&one, statement, "42501").await;
    }
    assert_eq!(
        text(&one, &format!("select outcome from fn_job_start('{{{id}}}', '{{{token}}}')")).await,
        "done"
    );
}

#[tokio::test]
async fn a_job_that_somebody_inserted_is_found_and_runs() {
    let db = queue().await;
    db.sql(
        "insert into job_queue (job_kind, executor, idempotency_key) select 'k', 'Agent', 'direct' || g from generate_series(1, 5) g; \
         insert into job_queue (job_kind, executor, idempotency_key, next_run_at) values ('k', 'Agent', 'later', '2099-01-01')",
    )
    .await;
    assert_eq!(db.number("select count(*) from fn_job_claim('e', 10)").await, 0);
    db.sql(TICK).await;
    db.sql(TICK).await;
    assert_eq!(db.number("select count(*) from fn_job_claim('e', 10)").await, 5);
    assert_eq!(db.number("select count(*) from job_deferred").await, 1);
    assert_eq!(db.number("select count(*) from job_transition where to_status = 'queued'").await, 6);
}

#[tokio::test]
async fn an_entry_that_commits_behind_the_head_is_claimed_all_the_same() {
    let db = queue().await;
    enqueue(&db.client, "first", 1, "{}").await;
    let late = connect(&db.url).await;
    late.batch_execute("begin; select fn_job_enqueue('k', 'late', 'Agent')")
        .await
        .expect("an open transaction");
    enqueue(&db.client, "a", 200, "{}").await;
    for _ in 0..10 {
        db.sql("select fn_job_claim('e', 20)").await;
    }
    assert!(db.number("select coalesce(max(head), 0) from job_lane_head").await > 2, "the head has moved");
    db.sql(TICK).await;
    enqueue(&db.client, "b", 50, "{}").await;
    late.batch_execute("commit").await.expect("commit");
    let key = "select count(*) from fn_job_claim('e', $n) c join job_queue q on q.id = c.job_id where q.idempotency_key = 'late'";
    assert_eq!(db.number(&key.replace("$n", "5")).await, 0, "a full claim starts at the head");
    db.sql(TICK).await;
    assert_eq!(db.number(&key.replace("$n", "100")).await, 1);
    // And without a tick: a claim that goes short looks before the head.
    late.batch_execute(
        "begin; select fn_job_enqueue('k', 'late', 'Agent'), fn_job_enqueue('k', 'later', 'Agent')",
    )
    .await
    .expect("open");
    enqueue(&db.client, "c", 200, "{}").await;
    for _ in 0..10 {
        db.sql("select fn_job_claim('e', 20)").await;
    }
    late.batch_execute("commit").await.expect("commit");
    assert_eq!(db.number("select count(*) from fn_job_claim('e', 100)").await, 1);
}

#[tokio::test]
async fn a_deadline_that_passes_is_raised_once_and_resolved_when_the_job_ends() {
    let db = queue().await;
    db.sql(
        "select fn_job_enqueue('k', 'x', 'Agent', p_deadline_at => clock_timestamp() + interval '1 hour')",
    )
    .await;
    db.sql(TICK).await;
    assert_eq!(db.number("select count(*) from v_job_overdue").await, 0);
    for _ in 0..3 {
        db.sql("select gov_handoff.gov_job_tick(clock_timestamp() + interval '2 hours')").await;
    }
    assert_eq!(db.number("select count(*) from v_job_overdue").await, 1);
    let raised =
        "select occurrence_count from system_issues where issue_kind = 'job_overdue' and resolved_at is null";
    assert_eq!(db.number(raised).await, 1);
    db.sql("select fn_job_cancel(id, 'too late', 'op') from job_queue").await;
    db.sql(TICK).await;
    assert_eq!(
        db.number(
            "select count(*) from system_issues where issue_kind = 'job_overdue' and resolved_at is null"
        )
        .await,
        0
    );
}

#[tokio::test]
async fn a_refusal_is_a_dead_letter_at_once_and_contents_are_refused() {
    let db = queue().await;
    let id = db.text("select fn_job_enqueue('k', 'x', 'Agent')::text").await;
    let token = db.number("select token from fn_job_claim('e', 1)").await;
    db.sql(&format!(
        "select fn_job_start('{{{id}}}', '{{{token}}}'), fn_job_fail('{id}', {token}, 'malformed', false)"
    ))
    .await;
    assert_eq!(
        db.text("select failure_code || ' ' || failure_detail from iu_route_dead_letter").await,
        "refused malformed"
    );
    db.sql(&format!("select fn_job_cancel('{id}', 'not needed', 'op')")).await;
    assert_eq!(db.text("select resolution from iu_route_dead_letter").await, "discarded");
    let many = r#"select string_agg(outcome, ' ') from fn_job_enqueue_many('[
        {"kind": "k", "key": "1", "executor": "Agent", "payload": {"deep": [{"Body": 1}]}},
        {"kind": "k", "key": "2", "executor": "Agent", "payload": {"ref": "piece:1"}},
        {"kind": "k", "key": "3", "executor": "Agent", "payload": {"token": "t"}}]')"#;
    assert_eq!(db.text(many).await, "refused done refused");
    let long = "select coalesce(fn_job_enqueue('k', 'long', 'Agent', p_payload => jsonb_build_object('a', repeat('x', 20000)))::text, 'null')";
    assert_eq!(db.text(long).await, "null");
    assert_eq!(
        db.number("select count(*) from system_issues where issue_kind = 'queue.payload_violation'").await,
        1
    );
}

#[tokio::test]
async fn a_job_waits_for_the_jobs_it_depends_on() {
    let db = queue().await;
    let graph = r#"select string_agg(outcome, ' ') from fn_job_enqueue_many('[
        {"kind": "k", "key": "a", "executor": "Agent"}, {"kind": "k", "key": "b", "executor": "Agent"},
        {"kind": "k", "key": "c", "executor": "Agent", "depends_on": ["a", "b"]}]')"#;
    assert_eq!(db.text(graph).await, "done done done");
    let finish = "with c as (select array_agg(job_id) as ids, array_agg(token) as tokens from fn_job_claim('e', 1)), \
         s as (select count(*) from c, fn_job_start(c.ids, c.tokens)) select ids[1]::text || ' ' || tokens[1] from c, s";
    for expected in ["a", "b", "c"] {
        let claimed = db.text(finish).await;
        let (id, token) = claimed.split_once(' ').expect("job and token");
        assert_eq!(
            db.text(&format!("select idempotency_key from job_queue where id = '{id}'")).await,
            expected
        );
        db.sql(&format!("select fn_job_complete('{{{id}}}', '{{{token}}}')")).await;
    }
}

#[tokio::test]
async fn cleaned_jobs_leave_for_the_archive_and_their_keys_stay_taken() {
    let db = queue().await;
    let id = db.text("select fn_job_enqueue('k', 'x', 'Agent')::text").await;
    db.sql("select fn_job_cancel(id, 'no', 'op') from job_queue").await;
    assert_eq!(db.number("select fn_job_clean(clock_timestamp() + interval '1 second')").await, 1);
    db.sql(TICK).await;
    assert_eq!(db.text("select status from job_queue").await, "cleaned");
    db.sql("select gov_handoff.gov_job_tick(clock_timestamp() + interval '2 days')").await;
    assert_eq!(db.number("select count(*) from job_queue").await, 0);
    assert_eq!(db.text("select fn_job_enqueue('k', 'x', 'Agent')::text").await, id);
    assert_eq!(db.number("select count(*) from job_queue").await, 0);
}

/// The shortest of several claims of ten jobs, each rolled back.
async fn claim_time(client: &Client) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..25 {
        client.batch_execute("begin").await.expect("begin");
        let started = Instant::now();
        let n = number(client, "select count(*) from fn_job_claim('e', 10)").await;
        best = best.min(started.elapsed());
        assert_eq!(n, 10);
        client.batch_execute("rollback").await.expect("rollback");
    }
    best
}

#[tokio::test]
async fn a_hundred_thousand_jobs_that_it_may_not_claim_do_not_slow_an_executor() {
    let db = queue().await;
    enqueue(&db.client, "mine", 500, "{}").await;
    db.sql("vacuum analyze").await;
    let before = claim_time(&db.client).await;
    let mine =
        |enabled: bool| format!("select fn_job_subscribe('e', 'k', null, 0, 1000000, {enabled}, 'op')");
    db.sql(&mine(false)).await;
    db.sql("select fn_job_subscribe('e', 'full', null, 0, 1, true, 'op'), fn_job_enqueue('full', 'full', 'Agent', p_priority => 100)")
        .await;
    assert_eq!(db.text("select job_kind from fn_job_claim('e', 1)").await, "full");
    db.sql(&mine(true)).await;
    enqueue(&db.client, "gate", 1, r#"{"kind": "other"}"#).await;
    for more in [
        r#"{"kind": "other", "priority": 100}"#,
        r#"{"kind": "full", "priority": 100}"#,
        r#"{"run_at": "2099-01-01", "priority": 100}"#,
        r#"{"depends_on": ["gate1"], "priority": 100}"#,
    ] {
        for batch in 0..10 {
            enqueue(&db.client, &format!("{batch}{more}").replace('"', ""), 2500, more).await;
        }
    }
    db.sql("vacuum analyze").await;
    let after = claim_time(&db.client).await;
    assert!(after <= before.mul_f64(1.3) + Duration::from_micros(300), "{before:?} without, {after:?} with");
}

#[tokio::test]
async fn the_letters_of_jobs_are_decided_by_the_commands_for_all_letters() {
    let db = queue().await;
    enqueue(&db.client, "a", 2, "{}").await;
    db.sql("select fn_job_claim('e', 2)").await;
    db.sql("select fn_job_start(array(select unnest(job_ids) from job_claim), array(select token from job_claim, unnest(job_ids)))").await;
    db.sql("select fn_job_fail(u, token, 'no', false) from job_claim, unnest(job_ids) u").await;
    let listed = done(&db.url, &["dlq", "list", "--source", "job_queue"]).await;
    assert!(listed.contains("job_queue") && listed.contains("refused"), "{listed}");
    let letter = db.text("select id::text from iu_route_dead_letter order by id limit 1").await;
    done(&db.url, &["dlq", "replay", "--id", &letter]).await;
    done(&db.url, &["dlq", "discard", "--source", "job_queue", "--reason", "not needed"]).await;
    assert_eq!(db.texts("select status from job_queue order by 1").await, ["cancelled", "queued"]);
    assert_eq!(
        db.texts("select resolution from iu_route_dead_letter order by 1").await,
        ["discarded", "replayed"]
    );
}
