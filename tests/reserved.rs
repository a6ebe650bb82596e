//! Attacks by a place that is taken beforehand: keys and subjects under which only gov-handoff itself makes a job or an event.

use serde_json::json;
use tokio_postgres::Client;

use crate::adversary_queue::member;
use crate::read_state::feed;
use crate::support::{Database, migrated, text};

/// What an emitter is answered for an event that is nobody else's to emit.
async fn emits(client: &Client, kind: &str, table: &str, subject: &str) -> String {
    let item = json!([{"domain": "iu", "type": kind, "subject_table": table, "subject_ref": subject, "address": "a", "actor": "svc:a",
                       "source_system": "s"}]);
    let one =
        format!("select fn_event_emit('iu', '{kind}', '{table}', '{subject}', 'a', 'svc:a', 's') is null");
    let refused: bool = client.query_one(&one, &[]).await.expect("an answer").get(0);
    let many =
        format!("select outcome || ' ' || coalesce(reason, '') from fn_event_emit_many('{item}'::jsonb)");
    let answer = text(client, &many).await;
    assert_eq!(refused, answer.starts_with("refused"), "both gates: {answer}");
    answer
}

async fn events(db: &Database) -> String {
    let all = "select coalesce(string_agg(event_type || ' ' || actor_ref, ', ' order by event_type), '') from event_outbox \
               where event_domain = 'iu'";
    db.text(all).await
}

#[tokio::test]
async fn a_producer_that_takes_the_key_of_a_due_time_does_not_keep_the_job_from_being_made() {
    let db = migrated().await;
    let producer = member(&db, "producer", "p").await;
    db.sql(
        "select gov_handoff.gov_schedule_apply('{\"name\": \"s\", \"every\": \"1 hour\", \"executor\": \"Agent\", \"kind\": \"k\"}',
             '2025-06-01T00:00:00Z')",
    )
    .await;
    let item = "{\"kind\": \"k\", \"executor\": \"Agent\", \"key\": \"schedule:s:2025-06-01T01:00:00Z\"}";
    for gate in ["fn_job_enqueue_many", "fn_mot_graph_emit"] {
        let answer =
            text(&producer, &format!("select outcome || ' ' || reason from {gate}('[{item}]')")).await;
        assert!(answer.starts_with("refused reserved:"), "{gate}: {answer}");
    }
    let one = "select fn_job_enqueue('k', 'schedule:s:2025-06-01T01:00:00Z', 'Agent')";
    let refused = producer.query(one, &[]).await.expect_err("a reserved key");
    assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("GH003"));
    db.sql("select gov_handoff.gov_schedule_tick('2025-06-01T01:00:30Z', 10)").await;
    let jobs = "select string_agg(actor_ref || ' ' || idempotency_key, ', ') from job_queue";
    assert_eq!(db.text(jobs).await, "schedule:s schedule:s:2025-06-01T01:00:00Z");
    // A key that only speaks of schedules is anybody's.
    assert!(!text(&producer, "select fn_job_enqueue('k', 'a schedule:s', 'Agent')::text").await.is_empty());
}

#[tokio::test]
async fn a_producer_that_emits_a_roll_up_beforehand_swallows_no_pieces() {
    let db = migrated().await;
    let producer = member(&db, "producer", "p").await;
    db.sql(
        "insert into event_type_registry (event_domain, event_type, event_stream, active) values ('iu', 'moved', 'update', true);
         update event_type_registry set active = true where event_type = 'iu.rollup';
         insert into dot_config (key, value) values ('event.rollup.threshold.iu', '2');
         select fn_event_emit(p_domain => 'iu', p_type => 'moved', p_subject_table => 'piece', p_subject_ref => lpad(n::text, 32, '0')::uuid,
             p_address => 'piece://' || n, p_actor => 'svc:b', p_source_system => 's', p_correlation_id => 'c', p_lane => 'delayed')
           from generate_series(1, 2) n",
    )
    .await;
    // The name of the group and the ids of its pieces follow from what is emitted, so anybody can compute the roll-up's subject.
    let subject = "select md5(length(event_domain) || ':' || event_domain || length(group_ref) || ':' || group_ref || pending_id)::uuid::text \
                   from event_delayed";
    for subject in db.texts(subject).await {
        let answer = emits(&producer, "iu.rollup", "event_pending", &subject).await;
        assert!(answer.starts_with("refused reserved:"), "{answer}");
    }
    // About anything else it is a type like the others.
    let other = "7e57ed00-0000-4000-8000-000000000001";
    assert_eq!(text(&producer, &format!("select (fn_event_emit('iu', 'iu.rollup', 'mine', '{other}', 'a', 'svc:a', 's') is not null)::text")).await, "true");
    db.sql("select * from fn_event_worker_tick(clock_timestamp() + interval '1 hour')").await;
    assert_eq!(events(&db).await, "iu.rollup svc:a, iu.rollup svc:b");
    let of_pieces =
        "select safe_payload ->> 'count' from event_outbox where event_subject_table = 'event_pending'";
    assert_eq!(db.texts(of_pieces).await, ["2"]);
}

#[tokio::test]
async fn a_producer_that_emits_an_escalation_beforehand_silences_no_critical_event() {
    for active in [true, false] {
        let db = migrated().await;
        let producer = member(&db, "producer", "p").await;
        db.sql(&format!(
            "insert into event_type_registry (event_domain, event_type, event_stream, active) values
                 ('iu', 'down', 'alert', true), ('iu', 'down_unacked', 'alert', {active});
             insert into dot_config (key, value) values ('event.escalation.after', '5 minutes');
             select fn_event_emit(p_domain => 'iu', p_type => 'down', p_address => 'server://1', p_actor => 'svc:b', p_source_system => 's',
                 p_severity => 'critical')"
        ))
        .await;
        feed(&db.client).await;
        let event = db.text("select id::text from event_outbox where event_type = 'down'").await;
        let answer = emits(&producer, "down_unacked", "event_outbox", &event).await;
        assert!(answer.starts_with("refused reserved:"), "{answer}");
        for wait in ["0 s", "1 hour"] {
            db.sql(&format!("select * from fn_event_worker_tick(clock_timestamp() + interval '{wait}')"))
                .await;
        }
        let said = if active { "down svc:b, down_unacked svc:gov-handoff" } else { "down svc:b" };
        assert_eq!(events(&db).await, said);
        let waits = "select count(*) from event_pending where event_type_hint = 'down_unacked' and actor_ref = 'svc:gov-handoff'";
        assert_eq!(db.number(waits).await, i64::from(!active));
    }
}
