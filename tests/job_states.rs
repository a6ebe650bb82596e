//! The nine states of a job: all 81 pairs. What is legal passes through its gate and no other; what is not is refused by the
//! database, also for a direct UPDATE and whatever the role.

use std::collections::BTreeSet;

use tokio_postgres::Client;

use crate::support::{Database, migrated};

const STATES: [&str; 9] = [
    "queued",
    "leased",
    "in_progress",
    "succeeded",
    "retry_waiting",
    "failed",
    "dead_letter",
    "cancelled",
    "cleaned",
];

/// Every gate that can move a job, as a statement about job `$id` with token `$token`.
const GATES: [(&str, &str); 11] = [
    ("fn_job_claim", "select count(*)::text from fn_job_claim('e', 10)"),
    ("fn_job_claim", "select count(*)::text from fn_job_claim('e', 10, '30 seconds', true)"),
    ("fn_job_start", "select min(outcome) from fn_job_start('{$id}', '{$token}')"),
    ("fn_job_complete", "select min(outcome) from fn_job_complete('{$id}', '{$token}')"),
    ("fn_job_fail", "select outcome from fn_job_fail('$id', $token, 'no')"),
    ("fn_job_fail", "select outcome from fn_job_fail('$id', $token, 'never', false)"),
    ("fn_job_release", "select min(outcome) from fn_job_release('{$id}', '{$token}')"),
    ("fn_job_cancel", "select outcome from fn_job_cancel('$id', 'because', 'op')"),
    ("fn_job_supersede", "select outcome from fn_job_supersede('$id', '$other', 'op')"),
    ("fn_job_redrive", "select min(outcome) from fn_job_redrive('{$id}', 'op')"),
    ("fn_job_clean", "select fn_job_clean(clock_timestamp() + interval '1 day', 1000)::text"),
];
const TICK: &str = "select gov_handoff.gov_job_tick(clock_timestamp() + interval '12 hours')::text";

/// A database with one executor, and a kind of job whose failures make no dead letters.
async fn queue() -> Database {
    let db = migrated().await;
    db.sql(
        "select fn_executor_register('e', 'Agent', 'op'), fn_job_subscribe('e', null, null, 0, 1000, true, 'op'), \
         fn_executor_heartbeat('e'); \
         insert into dot_config values ('event.retry.rests.dead_letter', '0')",
    )
    .await;
    db
}

/// A fresh job in this state, made through the gates. No other job can be claimed.
async fn job_in(db: &Database, state: &str, attempts: u32) -> (String, i64) {
    db.sql("truncate job_ready").await;
    let kind = if state == "failed" { "rests" } else { "k" };
    let enqueue = format!(
        "select fn_job_enqueue('{kind}', gen_random_uuid()::text, 'Agent', p_max_attempts => {attempts})::text"
    );
    let id = db.text(&enqueue).await;
    if state == "queued" {
        return (id, 0);
    }
    let token = db.number("select token from fn_job_claim('e', 1)").await;
    let call = async |gate: &str| {
        db.text(&gate.replace("$id", &id).replace("$token", &token.to_string())).await;
    };
    let start = "select min(outcome) from fn_job_start('{$id}', '{$token}')";
    let finish = "select min(outcome) from fn_job_complete('{$id}', '{$token}')";
    let refuse = "select outcome from fn_job_fail('$id', $token, 'never', false)";
    let steps: &[&str] = match state {
        "leased" => &[],
        "in_progress" => &[start],
        "succeeded" => &[start, finish],
        "retry_waiting" => &[start, "select outcome from fn_job_fail('$id', $token, 'no')"],
        "failed" | "dead_letter" => &[start, refuse],
        "cancelled" => &["select outcome from fn_job_cancel('$id', 'because', 'op')"],
        _ => &[start, finish, "select fn_job_clean(clock_timestamp() + interval '1 day', 1000)::text"],
    };
    for step in steps {
        call(step).await;
    }
    let found = db.text(&format!("select status from job_queue where id = '{id}'")).await;
    assert_eq!(found, state);
    (id, token)
}

async fn moves(db: &Database, id: &str) -> Vec<String> {
    let query = format!(
        "select from_status || ' ' || to_status from job_transition where job_id = '{id}' and from_status is not null order by seq"
    );
    db.texts(&query).await
}

#[tokio::test]
async fn each_gate_makes_its_own_transitions_and_no_other() {
    let db = queue().await;
    let other = db.text("select fn_job_enqueue('other', 'other', 'DOT')::text").await;
    let mut seen = BTreeSet::new();
    for attempts in [1, 5] {
        for state in STATES {
            if state == "retry_waiting" && attempts == 1 {
                continue;
            }
            for (gate, call) in GATES.iter().copied().chain([("gov_job_tick", TICK)]) {
                let (id, token) = job_in(&db, state, attempts).await;
                let before = moves(&db, &id).await.len();
                let call =
                    call.replace("$id", &id).replace("$token", &token.to_string()).replace("$other", &other);
                db.text(&call).await;
                let made = moves(&db, &id).await.split_off(before);
                let mut at = state.to_owned();
                for step in &made {
                    let (from, to) = step.split_once(' ').expect("two states");
                    assert_eq!(from, at, "{gate} from {state}: {made:?}");
                    to.clone_into(&mut at);
                    seen.insert(format!("{step} {gate}"));
                }
                let now = db.text(&format!("select status from job_queue where id = '{id}'")).await;
                assert_eq!(now, at, "{gate} from {state}: the log says otherwise: {made:?}");
                db.sql("update queue_heartbeat set last_tick_at = clock_timestamp()").await;
            }
        }
    }
    let legal = "select r.from_status || ' ' || r.to_status || ' ' || g from job_transition_rule r, regexp_split_to_table(r.gates, ', ') g";
    let legal: BTreeSet<String> = db.texts(legal).await.into_iter().collect();
    assert_eq!(seen, legal);
}

/// An UPDATE that gives the row of a job in `to` what the constraints ask of it, so that only the transition can be refused.
fn update(id: &str, to: &str) -> String {
    let lease =
        if to == "leased" || to == "in_progress" { "'e#1', now()" } else { "null::text, null::timestamptz" };
    format!(
        "update job_queue set status = '{to}', (lease_owner, lease_until) = (select {lease}), attempts = 1, next_run_at = now() \
         where id = '{id}'"
    )
}

/// The SQLSTATE of a statement as a role; the transaction is rolled back.
async fn code(client: &Client, role: &str, statement: &str) -> String {
    client.batch_execute(&format!("begin; set local role {role}")).await.expect("a role");
    let code = match client.batch_execute(statement).await {
        Ok(()) => "00000".to_owned(),
        Err(error) => error.code().map_or_else(|| error.to_string(), |c| c.code().to_owned()),
    };
    client.batch_execute("rollback").await.expect("rollback");
    code
}

#[tokio::test]
async fn a_direct_update_changes_no_state_whatever_the_role() {
    let db = queue().await;
    let legal: BTreeSet<String> = db
        .texts("select from_status || ' ' || to_status from job_transition_rule")
        .await
        .into_iter()
        .collect();
    let mut pairs = 0;
    for from in STATES {
        let (id, _) = job_in(&db, from, 5).await;
        for to in STATES {
            pairs += 1;
            let statement = update(&id, to);
            for role in
                ["gov_handoff_worker", "gov_handoff_executor", "gov_handoff_operator", "gov_handoff_producer"]
            {
                assert_eq!(code(&db.client, role, &statement).await, "42501", "{role}: {from} -> {to}");
            }
            if from != to {
                assert_eq!(
                    code(&db.client, "postgres", &statement).await,
                    "GH003",
                    "a superuser: {from} -> {to}"
                );
            }
            // The gates' owner is held to the table as well: the table is enforced, and not only kept by its gates.
            let expected =
                if from == to || legal.contains(&format!("{from} {to}")) { "00000" } else { "GH003" };
            assert_eq!(
                code(&db.client, "gov_handoff_owner", &statement).await,
                expected,
                "the owner: {from} -> {to}"
            );
        }
    }
    assert_eq!(pairs, 81);
}

#[tokio::test]
async fn a_row_that_cannot_be_is_refused() {
    let db = migrated().await;
    for (columns, values) in [
        ("status", "'leased'"),
        ("status, lease_owner", "'leased', 'e#1'"),
        ("status, lease_owner, lease_until", "'queued', 'e#1', now()"),
        ("status", "'retry_waiting'"),
        ("status", "'succeeded'"),
        ("attempts, max_attempts", "6, 5"),
        ("attempts", "-1"),
        ("status", "'done'"),
        ("executor", "'MOT'"),
        ("safe_payload", "'{\"token\": 1}'"),
    ] {
        let insert = format!(
            "insert into job_queue (job_kind, idempotency_key, {columns}) values ('k', 'x', {values})"
        );
        let error = db.client.batch_execute(&insert).await.expect_err(&insert);
        assert_eq!(
            error.code().map(tokio_postgres::error::SqlState::code),
            Some("23514"),
            "{insert}: {error}"
        );
    }
    let id = db.text("select fn_job_enqueue('k', 'x', 'Agent')::text").await;
    for change in ["lease_owner = 'e#1', lease_until = now()", "attempts = 3", "id = gen_random_uuid()"] {
        let update = format!("update job_queue set {change} where id = '{id}'");
        assert!(db.client.batch_execute(&update).await.is_err(), "{update}");
    }
    assert_eq!(db.texts("select status from job_queue").await, ["queued"]);
}
