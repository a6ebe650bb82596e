//! Consumers: an effect that happens once, the examples of docs/events.md, what is refused by name, and what producers and
//! executors may do.

use std::collections::BTreeSet;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::read_state::feed;
use crate::support::{Database, TemporaryFile, cli, connect, done, migrated};

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
    db.sql(example("sql", 1)).await;
    assert_eq!(db.number("select count(*) from letter").await, 1);
    db.sql("truncate event_consumed").await;
    db.sql(example("sql", 1)).await;
    assert_eq!(db.number("select count(*) from letter").await, 2);
    // The example in Rust is the function above.
    let shown = example("rust", 1);
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    assert!(
        squeezed(include_str!("consumers.rs")).contains(&squeezed(shown)),
        "docs/events.md shows another function"
    );
}

/// As docs/events.md has it.
async fn turn(client: &mut Client) -> Result<usize, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let after: i64 = transaction.query_one("select pos from mailer_position for update", &[]).await?.get(0);
    let events = transaction.query("select pos, event_id from fn_event_feed($1, 100)", &[&after]).await?;
    for event in &events {
        let id: Uuid = event.get(1);
        transaction.execute("insert into letter (event_id) values ($1)", &[&id]).await?;
    }
    if let Some(last) = events.last() {
        let pos: i64 = last.get(0);
        transaction.execute("update mailer_position set pos = $1", &[&pos]).await?;
    }
    transaction.commit().await?;
    Ok(events.len())
}

/// The nth example of a language in docs/events.md.
fn example(language: &str, n: usize) -> &'static str {
    let found = GUIDE.split(&format!("```{language}\n")).nth(n).and_then(|rest| rest.split("```").next());
    found.unwrap_or_else(|| panic!("no example {n} in {language}"))
}

/// Four instances of one consumer, two as in SQL and two as in Rust, whose sessions are killed at random while events commit in
/// any order.
#[tokio::test(flavor = "multi_thread")]
async fn instances_of_a_consumer_with_a_position_of_its_own_act_once_on_each_event() {
    let db = migrated().await;
    db.sql("create table letter (event_id uuid not null)").await;
    let emit = "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system) \
                values ('dot', 'happened', 'update', 'a', 'svc:x', 'test')";
    // What was there before the consumer is not its own.
    db.sql(emit).await;
    feed(&db.client).await;
    db.sql(example("sql", 2)).await;
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    assert!(
        squeezed(include_str!("consumers.rs")).contains(&squeezed(example("rust", 2))),
        "docs/events.md shows another function"
    );
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::atomic::Ordering::Relaxed;
    let mut instances = Vec::new();
    for n in 0..4 {
        let (url, stop) = (db.url.clone(), std::sync::Arc::clone(&stop));
        instances.push(tokio::spawn(async move {
            while !stop.load(stopped) {
                let mut client = connect(&url).await;
                client.batch_execute("set application_name = 'consumer'").await.expect("a name");
                loop {
                    let turned = if n % 2 == 0 {
                        turn(&mut client).await.map(|_| ())
                    } else {
                        client.batch_execute(example("sql", 3)).await
                    };
                    if turned.is_err() || stop.load(stopped) {
                        break;
                    }
                }
            }
        }));
    }
    let late = connect(&db.url).await;
    for _ in 0..40 {
        late.batch_execute(&format!("begin; {emit}")).await.expect("an event that commits late");
        for _ in 0..5 {
            db.sql(emit).await;
            feed(&db.client).await;
        }
        late.batch_execute("commit").await.expect("commit");
        feed(&db.client).await;
        db.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'consumer' order by random() limit 1")
            .await;
    }
    db.until("select pos = 241 from mailer_position").await;
    stop.store(true, stopped);
    for instance in instances {
        instance.await.expect("an instance");
    }
    let wrong = "select (select count(*) from event_feed f where f.pos > 1 and (select count(*) from letter l where l.event_id = f.event_id) <> 1)
                      + (select count(*) from letter) - 240";
    assert_eq!(db.number(wrong).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_show_what_is_unread_and_for_whom_an_event_is() {
    let db = migrated().await;
    let file = TemporaryFile::new("subscriptions.toml", example("toml", 1));
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
    let unknown = cli(&db.url, &["events", "recipients", "00000000-0000-4000-8000-000000000000"]).await;
    assert!(
        unknown.code == 1 && unknown.err.contains("GH1807") && unknown.err.contains("there is no event"),
        "{}",
        unknown.err
    );
    // Reading makes nobody known, and a mistyped actor is told so.
    let known = db.number("select count(*) from event_actor").await;
    let mistyped = cli(&db.url, &["events", "unread", "--actor", "agent:codx"]).await;
    assert!(
        mistyped.code == 1 && mistyped.err.contains("GH1808: nobody is known as agent:codx"),
        "{}",
        mistyped.err
    );
    assert_eq!(db.number("select count(*) from event_actor").await, known);
    for command in [&["tail", "--no-follow"][..], &["unread", "--actor", "agent:codex"]] {
        let nowhere = cli(&db.url, &[&["events"], command, &["--domain", "nope"]].concat()).await;
        let said = "unknown domain nope; known are iu, piece, staging,";
        assert!(nowhere.code == 2 && nowhere.err.contains(said) && nowhere.out.is_empty(), "{}", nowhere.err);
    }
}

/// What a session got for a statement: its SQLSTATE, or what the first column of the first row says.
async fn answer(client: &Client, statement: &str) -> String {
    match client.simple_query(statement).await {
        Ok(rows) => rows
            .iter()
            .find_map(|row| match row {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .unwrap_or_else(|| "done".to_owned()),
        Err(e) => e.code().map_or_else(|| e.to_string(), |code| code.code().to_owned()),
    }
}

/// 003 §17.1, as far as a database can refuse, each by its name; docs/events.md lists the others. The first word: whose session.
/// A statement that starts with `+` is a step before.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    (
        "safe_payload with a body, past the gate",
        "owner",
        "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system, safe_payload) \
         values ('iu', 'said', 'comment', 'a', 'b', 'c', '{\"body\": 1}')",
        "23514",
    ),
    (
        "an event type that is not registered",
        "producer",
        "select outcome from fn_event_emit_many('[{\"domain\": \"iu\", \"type\": \"never_registered\", \"address\": \"a\", \
         \"actor\": \"user:an\", \"source_system\": \"t\"}]')",
        "captured",
    ),
    (
        "skipping idempotency, past the gate",
        "owner",
        "insert into event_outbox (event_domain, event_type, event_stream, event_subject_table, event_subject_ref, canonical_address, \
             actor_ref, source_system) \
         select 'iu', 'said', 'comment', 't', '7e57ed00-0000-4000-8000-000000000007', 'a', 'b', 'c' from generate_series(1, 2)",
        "23505",
    ),
    (
        "skipping idempotency, through the gate",
        "producer",
        "select string_agg(outcome, ' ') from fn_event_emit_many('[ \
             {\"domain\": \"iu\", \"type\": \"said\", \"subject_table\": \"t\", \"subject_ref\": \"7e57ed00-0000-4000-8000-000000000008\", \
              \"address\": \"a\", \"actor\": \"user:an\", \"source_system\": \"t\"}, \
             {\"domain\": \"iu\", \"type\": \"said\", \"subject_table\": \"t\", \"subject_ref\": \"7e57ed00-0000-4000-8000-000000000008\", \
              \"address\": \"a\", \"actor\": \"user:an\", \"source_system\": \"t\"}]')",
        "emitted known",
    ),
    (
        "an event that its own consumer emits again",
        "producer",
        "select split_part(reason, ':', 1) from fn_event_emit_many(jsonb_build_array(jsonb_build_object('domain', 'iu', 'type', 'said', \
             'subject_table', 't', 'subject_ref', '7e57ed00-0000-4000-8000-000000000008', 'address', 'a', 'actor', 'user:an', \
             'source_system', 't', 'causation_id', fn_event_emit('iu', 'said', 't', '7e57ed00-0000-4000-8000-000000000008', 'a', 'user:an', 't'))))",
        "cycle",
    ),
    ("emitting past the gate", "producer", "insert into event_outbox (event_domain) values ('iu')", "42501"),
    (
        "a lease passed by with an UPDATE",
        "executor",
        "update queue_heartbeat set lease_owner = 'me'",
        "42501",
    ),
    ("a job's lease passed by with an UPDATE", "executor", "update job_queue set status = 'leased'", "42501"),
    (
        "an illegal transition by the owner of the table",
        "owner",
        "update job_queue set status = 'succeeded' where status = 'queued'",
        "23514",
    ),
    (
        "a trigger on the outbox that acts",
        "producer",
        "create trigger acts after insert on event_outbox for each row execute function suppress_redundant_updates_trigger()",
        "42501",
    ),
    (
        "a dead letter replayed by a worker",
        "worker",
        "select gov_handoff.gov_dead_letter_replayed(null, null, null, null, null, null, null)",
        "42501",
    ),
    ("a job redriven by its executor", "executor", "select fn_job_redrive('{}', 'me')", "42501"),
    ("an outbox of one's own", "producer", "create table public.outbox_of_mine ()", "42501"),
    (
        "a domain of one's own",
        "producer",
        "select split_part(reason, ':', 1) from fn_event_emit_many('[{\"domain\": \"mine\", \"type\": \"said\", \"address\": \"a\", \
         \"actor\": \"user:an\", \"source_system\": \"t\"}]')",
        "malformed",
    ),
    (
        "a read of the queue without SKIP LOCKED",
        "executor",
        "select from job_queue where status = 'queued' limit 1 for update",
        "42501",
    ),
    (
        "a worker that nobody registered",
        "executor",
        "select fn_job_claim('nobody', 1, interval '1 minute')",
        "GH003",
    ),
    (
        "a worker that never beat",
        "executor",
        "select fn_job_claim('hermes', 1, interval '1 minute')",
        "42501",
    ),
    (
        "reading in the name of another, without a role",
        "stranger",
        "select fn_event_mark_all_read('user:an')",
        "42501",
    ),
];

#[tokio::test]
async fn each_anti_pattern_that_a_database_can_refuse_is_refused_by_name() {
    let db = migrated().await;
    db.sql(
        "insert into event_type_registry (event_domain, event_type, event_stream, active) values ('iu', 'said', 'comment', true);
         select fn_executor_register('hermes', 'Hermes', 'user:an');
         select fn_job_producer_grant('gov_handoff_producer', 'Hermes', true, 'user:an');
         select fn_job_enqueue('k', 'k:1', 'Hermes', p_domain => 'iu', p_actor => 'user:an')",
    )
    .await;
    let mut sessions = std::collections::BTreeMap::new();
    for who in ["producer", "executor", "worker", "stranger"] {
        let role = format!("patterns_{who}_{}", db.name);
        let member = if who == "stranger" { String::new() } else { format!(" in role gov_handoff_{who}") };
        db.sql(&format!("create role {role} login{member}")).await;
        sessions.insert(who, connect(&db.url_as(&role)).await);
    }
    sessions.insert("owner", connect(&db.url).await);
    for (pattern, who, statement, expected) in REFUSED {
        assert_eq!(answer(&sessions[who], statement).await, *expected, "{pattern}");
    }
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
        let emit = format!(
            "select split_part(reason, ':', 1) from fn_event_emit_many(jsonb_build_array(jsonb_build_object('domain', 'iu', 'type', 'said', \
             'address', 'a', 'actor', 'user:an', 'source_system', 't', 'payload', jsonb_build_object('deep', jsonb_build_object('{key}', 1)))))"
        );
        assert_eq!(answer(&sessions["producer"], &emit).await, "payload", "{key}");
        let past = format!(
            "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system, safe_payload) \
             values ('iu', 'said', 'comment', 'a', 'b', 'c', '{{\"{key}\": 1}}')"
        );
        assert_eq!(answer(&sessions["owner"], &past).await, "23514", "{key} past the gate");
    }
    drop(sessions);
    for who in ["producer", "executor", "worker", "stranger"] {
        db.sql(&format!("drop role patterns_{who}_{}", db.name)).await;
    }
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
        "fn_event_feed",
        "fn_event_feed_head",
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
