//! Consumers: an effect that happens once, the examples of docs/events.md, what is refused by name, and what producers and
//! executors may do.

use std::collections::BTreeSet;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::read_state::feed;
use crate::support::{Database, TemporaryFile, cli, connect, done, migrated, number};

const EVENT: &str = "7e57ed00-0000-4000-8000-000000000001";
const GUIDE: &str = include_str!("../docs/events.md");

/// As docs/events.md has it.
async fn act(client: &mut Client, event: Uuid) -> Result<bool, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let first: bool =
        transaction.query_one("select fn_event_consume_once('mailer', $1)", &[&event]).await?.get(0);
    if first {
        transaction.execute("insert into letter (event_id) values ($1)", &[&event]).await?;
    }
    transaction.commit().await?;
    Ok(first)
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_consumers_of_one_event_act_once_and_a_rollback_gives_it_back() {
    let db = migrated().await;
    db.sql("create table letter (event_id uuid not null)").await;
    let event: Uuid = EVENT.parse().expect("an id");
    db.sql(&format!("begin; select fn_event_consume_once('mailer', '{EVENT}'); rollback")).await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(connect(&db.url).await);
    }
    let acts = sessions.iter_mut().map(|session| act(session, event));
    let acted = futures_util::future::join_all(acts).await;
    assert_eq!(acted.into_iter().filter(|a| matches!(a, Ok(true))).count(), 1);
    // The example in SQL finds that it was done.
    let example =
        GUIDE.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the example in SQL");
    db.sql(example).await;
    assert_eq!(db.number("select count(*) from letter").await, 1);
    db.sql("truncate event_consumed").await;
    db.sql(example).await;
    assert_eq!(db.number("select count(*) from letter").await, 2);
    // The example in Rust is the function above.
    let shown = GUIDE
        .split("```rust\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the example in Rust");
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    assert!(
        squeezed(include_str!("consumers.rs")).contains(&squeezed(shown)),
        "docs/events.md shows another function"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_show_what_is_unread_and_for_whom_an_event_is() {
    let db = migrated().await;
    let file =
        GUIDE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the example file");
    let file = TemporaryFile::new("subscriptions.toml", file);
    assert_eq!(cli(&db.url, &["subscriptions", "check", file.path()]).await.code, 1);
    let dry = done(&db.url, &["subscriptions", "apply", file.path(), "--dry-run"]).await;
    assert!(dry.contains("added") && dry.contains("nothing was changed"), "{dry}");
    assert_eq!(db.number("select count(*) from event_subscription").await, 0);
    done(&db.url, &["subscriptions", "apply", file.path()]).await;
    assert_eq!(cli(&db.url, &["subscriptions", "check", file.path()]).await.code, 0);
    let listed = done(&db.url, &["subscriptions", "list"]).await;
    assert!(listed.contains("role:workflow_admin") && listed.contains("muted"), "{listed}");
    db.sql(&format!(
        "insert into event_outbox (id, event_domain, event_type, event_stream, canonical_address, actor_ref, source_system) values
             ('{EVENT}', 'staging', 'marked', 'birth', 'staging://1', 'svc:x', 'test'),
             (gen_random_uuid(), 'dot', 'ran', 'update', 'dot://1', 'svc:x', 'test')"
    ))
    .await;
    feed(&db.client).await;
    let unread = done(&db.url, &["events", "unread", "--actor", "agent:codex"]).await;
    assert!(unread.contains("staging://1") && unread.contains(EVENT), "{unread}");
    let to = done(&db.url, &["events", "recipients", EVENT]).await;
    assert!(to.contains("agent:codex") && to.contains("role:workflow_admin"), "{to}");
    let wrong = cli(&db.url, &["events", "recipients", "7"]).await;
    assert!(wrong.code == 2 && wrong.err.contains("expected the id of an event"), "{}", wrong.err);
}

/// 003 §17.1, as far as a database can refuse; docs/events.md lists the others.
#[tokio::test]
async fn what_a_database_can_refuse_is_refused() {
    let db = migrated().await;
    db.sql("create role consumers_stranger login; insert into event_type_registry (event_domain, event_type, event_stream, active) values ('iu', 'said', 'comment', true)").await;
    let emit = async |payload: &str, kind: &str| {
        let call = format!(
            "select outcome || ' ' || coalesce(reason, '') from fn_event_emit_many(jsonb_build_array(jsonb_build_object('domain', 'iu', \
             'type', '{kind}', 'address', 'a', 'actor', 'user:an', 'source_system', 't', 'payload', '{payload}'::jsonb)))"
        );
        db.text(&call).await
    };
    for key in [
        "body",
        "content",
        "raw",
        "vector",
        "embedding",
        "secret",
        "token",
        "password",
        "ssn",
        "personal_data",
    ] {
        let said = emit(&format!("{{\"deep\": {{\"{key}\": 1}}}}"), "said").await;
        assert!(said.starts_with("refused payload:"), "{key}: {said}");
        let past = format!(
            "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system, safe_payload) \
             values ('iu', 'said', 'comment', 'a', 'b', 'c', '{{\"{key}\": 1}}')"
        );
        assert!(db.client.batch_execute(&past).await.is_err(), "{key} past the gate");
    }
    assert!(emit("{}", "never_registered").await.starts_with("captured"), "an unregistered type");
    let stranger = connect(&db.url_as("consumers_stranger")).await;
    for statement in [
        "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system) values ('iu', 'said', 'comment', 'a', 'b', 'c')",
        "update queue_heartbeat set lease_owner = 'me'",
        "update event_read_mark set through = 9",
        "select fn_event_emit('iu', 'said')",
        "select fn_event_mark_all_read('user:an')",
        "create table public.outbox_of_mine ()",
    ] {
        let refused = stranger.batch_execute(statement).await.expect_err(statement);
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{statement}");
    }
    assert_eq!(number(&stranger, "select 1::bigint").await, 1);
}

/// What the roles of SPEC §15 may call; every other function of ours, and every table, is closed to them.
#[tokio::test]
async fn producers_and_executors_may_do_what_the_table_says_and_nothing_else() {
    let db: Database = migrated().await;
    let functions = async |role: &str| -> BTreeSet<String> {
        let query = format!(
            "select p.proname::text from pg_proc p where p.pronamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace) \
             and has_function_privilege('{role}', p.oid, 'execute')"
        );
        db.texts(&query).await.into_iter().collect()
    };
    let (producer, executor) =
        (functions("gov_handoff_producer").await, functions("gov_handoff_executor").await);
    let has = |of: &BTreeSet<String>, names: &[&str]| names.iter().all(|name| of.contains(*name));
    let read = [
        "fn_event_unread",
        "fn_event_mark_read",
        "fn_event_ack",
        "fn_event_recipients",
        "fn_event_consume_once",
    ];
    assert!(has(&producer, &read) && has(&executor, &read));
    assert!(has(&producer, &["fn_event_emit", "fn_event_emit_many", "fn_job_enqueue"]));
    assert!(has(
        &executor,
        &[
            "fn_job_claim",
            "fn_job_start",
            "fn_job_heartbeat",
            "fn_job_complete",
            "fn_job_fail",
            "fn_job_release"
        ]
    ));
    for operators in [
        "fn_job_subscribe",
        "fn_executor_register",
        "fn_job_redrive",
        "gov_type_set_active",
        "gov_member_set",
        "gov_subscription_apply",
        "fn_event_worker_tick",
    ] {
        assert!(
            !producer.contains(operators) && !executor.contains(operators),
            "{operators} is an operator's"
        );
    }
    assert!(!producer.contains("fn_job_claim"), "a producer cannot claim");
    assert!(!executor.contains("fn_event_emit"), "an executor reports through its job");
    let tables = "select count(*) from pg_class c, unnest(array['gov_handoff_producer', 'gov_handoff_executor']) as r (role) \
                  where c.relnamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace) and c.relkind in ('r', 'v') \
                    and (has_any_column_privilege(r.role, c.oid, 'insert, update') or has_table_privilege(r.role, c.oid, 'delete, truncate'))";
    assert_eq!(db.number(tables).await, 0, "nobody writes a table");
}

#[tokio::test]
async fn a_trigger_that_writes_to_the_queue_and_has_no_route_is_named() {
    let db = migrated().await;
    db.sql(
        "create table piece (id int);
         create function piece_moved() returns trigger language plpgsql as $$
         begin insert into public.event_outbox (event_domain) values ('iu'); return new; end $$;
         create trigger tell after insert on piece for each row execute function piece_moved()",
    )
    .await;
    let doctor = cli(&db.url, &["doctor"]).await;
    assert!(doctor.out.contains("trigger tell on public.piece writes to the queue"), "{}", doctor.out);
    db.sql(
        "insert into iu_sql_event_route (route_code, source_object_kind, source_object, sql_event, target_event_domain, \
             target_event_type, target_event_stream) values ('r', 'trigger', 'tell', 'insert', 'iu', 'moved', 'update')",
    )
    .await;
    let doctor = cli(&db.url, &["doctor"]).await;
    assert!(!doctor.out.contains("trigger tell on public.piece"), "{}", doctor.out);
}
