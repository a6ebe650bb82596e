//! Attacks on events and jobs by roles of the queue: what a producer, an executor or a reader could do to the others by holding
//! a transaction open, and by what it sends.

use tokio_postgres::Client;

use crate::read_state::feed;
use crate::support::{Database, active, active_of, blocking, cluster, connect, migrated, number, text};

const TICK: &str = "select gov_handoff.gov_job_tick()";

/// A login of this group, and its session. A statement that waits for somebody fails after ten seconds.
pub async fn member(db: &Database, group: &str, name: &str) -> Client {
    let role = format!("{name}_{}", db.name);
    db.sql(&format!("create role {role} login in role gov_handoff_{group}")).await;
    if group == "producer" {
        db.sql(&format!("select fn_job_producer_grant('{role}', 'Agent', true, 'op')")).await;
    }
    let client = connect(&db.url_as(&role)).await;
    client.batch_execute("set statement_timeout = '10s'").await.expect("a bound");
    client
}

/// An executor with a role of its own that has subscribed to the jobs of kind `k`.
async fn executor(db: &Database, name: &str) -> Client {
    let session = member(db, "executor", name).await;
    db.sql(&format!(
        "select fn_executor_register('{name}', 'Agent', 'op', '{name}_{}'), fn_job_subscribe('{name}', 'k', p_max_parallel => 100)",
        db.name
    ))
    .await;
    session.batch_execute(&format!("select fn_executor_heartbeat('{name}')")).await.expect("a heartbeat");
    session
}

async fn enqueue(client: &Client, key: &str, more: &str) {
    let call = format!(
        "select outcome from fn_job_enqueue_many(jsonb_build_array('{{\"kind\": \"k\", \"executor\": \"Agent\", \"key\": \"{key}\"}}'::jsonb || '{more}'))"
    );
    assert_eq!(text(client, &call).await, "done", "{key}");
}

async fn begins(client: &Client, statement: &str) {
    client.batch_execute("begin").await.expect("a transaction");
    client.batch_execute(statement).await.unwrap_or_else(|e| panic!("{statement}: {e:?}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_names_jobs_as_dependencies_and_stays_idle_stops_no_executor() {
    let db = migrated().await;
    let producer = member(&db, "producer", "holder").await;
    let worker = executor(&db, "e").await;
    for key in ["first", "second", "retried"] {
        enqueue(&producer, key, "{}").await;
    }
    let claimed = "select job_id::text || '|' || token from fn_job_claim('e', 1)";
    let first = text(&worker, claimed).await;
    let (job, token) = first.split_once('|').expect("a job and its token");
    begins(
        &producer,
        "select fn_job_enqueue_many('[{\"kind\": \"k\", \"executor\": \"Agent\", \"key\": \"after\", \
         \"depends_on\": [\"first\", \"second\", \"retried\"]}]')",
    )
    .await;
    for call in [
        format!("select outcome from fn_job_start('{{{job}}}', '{{{token}}}')"),
        format!("select outcome from fn_job_heartbeat('e', '{{{job}}}', '{{{token}}}')"),
        format!("select outcome from fn_job_complete('{{{job}}}', '{{{token}}}')"),
    ] {
        assert_eq!(text(&worker, &call).await, "done", "{call}");
    }
    assert_eq!(number(&worker, "select count(*) from fn_job_claim('e', 10)").await, 2);
    producer.batch_execute("commit").await.expect("at last");
    // It waits for what had succeeded before its commit no longer, and for the others still.
    db.sql(TICK).await;
    let waits = "select count(*) from job_dependency";
    assert_eq!(db.number(waits).await, 2);
    db.sql("select fn_job_start(array_agg(id), array_agg(split_part(lease_owner, '#', 2)::bigint)) from job_queue where status = 'leased'")
        .await;
    db.sql("select fn_job_complete(array_agg(id), array_agg(split_part(lease_owner, '#', 2)::bigint)) from job_queue where status = 'in_progress'")
        .await;
    assert_eq!(db.number(waits).await, 0);
    assert_eq!(number(&worker, "select count(*) from fn_job_claim('e', 10)").await, 1, "the job that waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_completes_and_stays_idle_stops_no_other_that_unblocks_the_same_job() {
    let db = migrated().await;
    let producer = member(&db, "producer", "p").await;
    let (one, two) = (executor(&db, "one").await, executor(&db, "two").await);
    enqueue(&producer, "a", "{}").await;
    enqueue(&producer, "b", "{}").await;
    enqueue(&producer, "after", "{\"depends_on\": [\"a\", \"b\"]}").await;
    let mut runs = Vec::new();
    for (session, name) in [(&one, "one"), (&two, "two")] {
        let claimed =
            text(session, &format!("select job_id::text || '|' || token from fn_job_claim('{name}', 1)"))
                .await;
        let (job, token) = claimed.split_once('|').expect("a job and its token");
        let gate = |gate: &str| format!("select outcome from fn_job_{gate}('{{{job}}}', '{{{token}}}')");
        assert_eq!(text(session, &gate("start")).await, "done");
        runs.push(gate("complete"));
    }
    begins(&one, &runs[0]).await;
    assert_eq!(text(&two, &runs[1]).await, "done");
    one.batch_execute("commit").await.expect("at last");
    db.sql(TICK).await;
    assert_eq!(
        number(&two, "select count(*) from fn_job_claim('two', 10)").await,
        1,
        "the job that waited for both"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_claims_and_stays_idle_keeps_nobody_elses_jobs_from_their_rescue() {
    let db = migrated().await;
    let producer = member(&db, "producer", "p").await;
    let (idle, dead) = (executor(&db, "idle").await, executor(&db, "dead").await);
    for (session, name) in [(&idle, "idle"), (&dead, "dead")] {
        enqueue(&producer, name, "{}").await;
        let claim = format!("select count(*) from fn_job_claim('{name}', 1, interval '100 ms')");
        assert_eq!(number(session, &claim).await, 1);
    }
    begins(&idle, "select fn_job_claim('idle', 1)").await;
    db.until("select bool_and(lease_until < clock_timestamp()) from job_queue").await;
    db.sql(TICK).await;
    let rescued = "select string_agg(idempotency_key, ',') from job_queue where status = 'queued'";
    assert_eq!(db.text_if_any(rescued).await.as_deref(), Some("dead"));
    assert_eq!(db.number("select count(*) from system_issues where issue_kind = 'job_tick_failed'").await, 0);
    idle.batch_execute("commit").await.expect("at last");
    db.until("select gov_handoff.gov_job_tick() is not null and not exists (select from job_queue where status = 'leased')").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finding_that_somebody_holds_stops_no_executor_no_producer_and_no_tick() {
    let db = migrated().await;
    let (producer, other) = (member(&db, "producer", "p").await, member(&db, "producer", "q").await);
    let (one, two) = (executor(&db, "one").await, executor(&db, "two").await);
    let mut fails = Vec::new();
    for (session, name) in [(&one, "one"), (&two, "two")] {
        enqueue(&producer, name, "{}").await;
        let claimed =
            text(session, &format!("select job_id::text || '|' || token from fn_job_claim('{name}', 1)"))
                .await;
        let (job, token) = claimed.split_once('|').expect("a job and its token");
        assert_eq!(
            text(session, &format!("select outcome from fn_job_start('{{{job}}}', '{{{token}}}')")).await,
            "done"
        );
        fails.push(format!("select outcome from fn_job_fail('{job}', {token}, 'no', false)"));
    }
    begins(&one, &fails[0]).await;
    assert_eq!(text(&two, &fails[1]).await, "done");
    enqueue(&producer, "lost", "{\"max_attempts\": 1}").await;
    assert_eq!(number(&two, "select count(*) from fn_job_claim('two', 1, interval '100 ms')").await, 1);
    db.until("select lease_until < clock_timestamp() from job_queue where idempotency_key = 'lost'").await;
    db.sql(TICK).await;
    assert_eq!(db.text("select status from job_queue where idempotency_key = 'lost'").await, "dead_letter");
    // The finding of an event type, before it was ever raised.
    let emit = "select outcome from fn_event_emit_many('[{\"domain\": \"kg\", \"type\": \"unheard\", \"address\": \"a\", \"actor\": \"svc:a\", \
                \"source_system\": \"s\"}]')";
    begins(&producer, emit).await;
    assert_eq!(text(&other, emit).await, "captured");
    one.batch_execute("commit").await.expect("at last");
    assert_eq!(db.number("select count(*) from system_issues where coalesce_key = 'job_dlq'").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_acknowledges_and_stays_idle_stops_neither_the_routing_nor_the_jobs() {
    let db = migrated().await;
    db.sql(
        "insert into event_type_registry (event_domain, event_type, event_stream, active) values ('dot', 'failed', 'alert', true);
         insert into event_subscription (recipient_ref, event_domain) values ('user:an', 'dot'), ('user:binh', 'dot')",
    )
    .await;
    let (reader, producer) = (member(&db, "executor", "r").await, member(&db, "producer", "p").await);
    let emit = |n: u32| {
        format!(
            "select fn_event_emit('dot', 'failed', 'runs', '00000000-0000-4000-8000-00000000000{n}', 'dot:{n}', 'svc:x', 's', '{{}}', 'critical')::text"
        )
    };
    let event = text(&producer, &emit(1)).await;
    text(&producer, &emit(2)).await;
    feed(&db.client).await;
    begins(&reader, &format!("select fn_event_ack('user:an', '{event}')")).await;
    enqueue(&producer, "due", "{\"run_at\": \"2020-01-01\"}").await;
    let tick = connect(&db.url).await;
    tick.batch_execute("set statement_timeout = '10s'").await.expect("a bound");
    tick.batch_execute("select fn_event_worker_tick()").await.expect("the tick waits for no reader");
    assert_eq!(db.number("select through from event_routing").await, 2);
    assert_eq!(db.number("select count(*) from event_escalation where state = 'waiting'").await, 2);
    assert_eq!(
        db.number("select count(*) from event_delivery").await,
        2,
        "the recipients of the other event"
    );
    reader.batch_execute("commit").await.expect("at last");
    assert_eq!(
        db.number("select count(*) from event_delivery").await,
        4,
        "and those of this one, by who acknowledged it"
    );
}

/// Findings about emitters are closed after a day. A producer that holds one must not blind the watch over all workers.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_holds_an_old_finding_does_not_stop_the_watch() {
    let db = migrated().await;
    let producer = member(&db, "producer", "p").await;
    let emit = "select fn_event_emit_many('[{\"domain\": \"kg\", \"type\": \"t\", \"address\": \"a\", \"actor\": \"svc:a\", \
                \"source_system\": \"s\", \"payload\": {\"password\": \"x\"}}]')";
    producer.batch_execute(emit).await.expect("refused, with a finding");
    db.sql("update system_issues set last_seen_at = clock_timestamp() - interval '2 days' where issue_kind = 'queue.payload_violation'")
        .await;
    begins(&producer, emit).await;
    let watch = connect(&db.url).await;
    watch
        .batch_execute("set statement_timeout = '10s'; select fn_governance_watch()")
        .await
        .expect("the watch goes on");
}

/// An operator's gate that keeps batches out waits for others for a moment only, and a session that idles in it is ended.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_idles_in_a_gate_or_waits_in_it_stops_handoffs_for_seconds() {
    let db = active().await;
    let _daemon = db.capturing("poll", "1h").await;
    let operator = member(&db, "operator", "o").await;
    begins(&operator, "select gov_handoff.gov_type_set_active('governance.handoff.count_changed', false)")
        .await;
    db.births("b", 3).await;
    db.until_all_handed_off().await;
    assert!(operator.batch_execute("commit").await.is_err(), "the server ended the idle session");
    // A producer holds the finding that the activation would close.
    let producer = member(&db, "producer", "p").await;
    db.sql("insert into event_type_registry (event_domain, event_type, event_stream, active) values ('kg', 'new', 'update', false)").await;
    begins(&producer, "select fn_event_emit('kg', 'new', null, null, 'a', 'svc:a', 's')").await;
    let operator = member(&db, "operator", "o2").await;
    operator.batch_execute("set statement_timeout = 0").await.expect("as in psql");
    let _ = operator.batch_execute("select gov_handoff.gov_type_set_active('kg/new', true)").await;
    db.births("c", 3).await;
    db.until_all_handed_off().await;
}

/// Every gate that takes the lock of all batches alone bounds how long it waits and how long its caller may idle.
#[tokio::test]
async fn no_gate_takes_all_batches_without_a_bound() {
    let db = migrated().await;
    let bare = "select proname::text from pg_proc where pronamespace in ('gov_handoff'::regnamespace, 'public'::regnamespace)
                 and prosrc ~ 'lock table gov_handoff\\.batches in access exclusive' and proname <> 'gov_batches_alone'";
    assert_eq!(db.texts(bare).await, Vec::<String>::new());
    assert_eq!(db.number("select count(*) from pg_proc where prosrc ~ 'gov_batches_alone\\(\\)'").await, 8);
}

/// A byte of WIN1252 that no client that speaks UTF-8 can be sent.
const BYTE: &str = r"convert_from('\x81', 'SQL_ASCII')";

#[tokio::test(flavor = "multi_thread")]
async fn a_character_without_an_equivalent_stops_no_reader_of_the_feed_and_no_executor() {
    let cluster = blocking(cluster).await;
    let admin = connect(&cluster.url("postgres")).await;
    let name = "unsendable_queue";
    let create =
        format!("create database {name} encoding 'WIN1252' lc_collate 'C' lc_ctype 'C' template template0");
    admin.batch_execute(&create).await.expect("a WIN1252 database");
    let db = active_of(name, cluster.url(name)).await;
    let (producer, worker) = (member(&db, "producer", "p").await, executor(&db, "e").await);
    db.sql("insert into event_type_registry (event_domain, event_type, event_stream, active) values ('kg', 't', 'update', true)").await;
    // By the gates it is refused.
    let event = |address: &str| {
        format!(
            "select outcome from fn_event_emit_many(jsonb_build_array(jsonb_build_object('domain', 'kg', 'type', 't', \
        'address', {address}, 'actor', 'svc:a', 'source_system', 's')))"
        )
    };
    assert_eq!(text(&producer, &event(BYTE)).await, "refused");
    let job = |key: &str, payload: &str| {
        format!(
            "select outcome from fn_job_enqueue_many(jsonb_build_array(jsonb_build_object('kind', 'k', \
        'key', {key}, 'executor', 'Agent', 'payload', jsonb_build_object('x', {payload}))))"
        )
    };
    assert_eq!(text(&producer, &job(BYTE, "'x'")).await, "refused");
    assert_eq!(text(&producer, &job("'a'", BYTE)).await, "refused");
    assert_eq!(text(&producer, &job("'b'", "'é'")).await, "done");
    assert_eq!(number(&worker, "select count(*) from (select * from fn_job_claim('e', 10)) c").await, 1);
    // Whoever may write the tables past the gates costs readers that one event's text, and nothing behind it.
    assert_eq!(text(&producer, &event("'before'")).await, "emitted");
    db.sql(&format!(
        "insert into event_outbox (id, event_domain, event_type, event_stream, canonical_address, actor_ref, source_system)
         values (gen_random_uuid(), 'kg', 't', 'update', {BYTE}, 'svc:a', 's')"
    ))
    .await;
    feed(&db.client).await;
    assert_eq!(text(&producer, &event("'behind'")).await, "emitted");
    feed(&db.client).await;
    for read in ["fn_event_feed(0)", "fn_event_unread('user:an')", "fn_event_board('user:an')"] {
        let seen = db
            .client
            .query(&format!("select * from {read}"), &[])
            .await
            .unwrap_or_else(|e| panic!("{read}: {e:?}"));
        assert_eq!(seen.len(), 3, "{read}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_opens_a_lane_and_stays_idle_stops_no_other_producer() {
    let db = migrated().await;
    let (idle, other) = (member(&db, "producer", "idle").await, member(&db, "producer", "other").await);
    let worker = executor(&db, "e").await;
    begins(&idle, "select fn_job_enqueue('k', 'mine', 'Agent')").await;
    enqueue(&other, "theirs", "{}").await;
    idle.batch_execute("commit").await.expect("at last");
    db.sql(TICK).await;
    assert_eq!(number(&worker, "select count(*) from fn_job_claim('e', 10)").await, 2);
}

/// Which actor a session reads for is its own to say, unless an operator bound the actor to a role.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_reads_or_acknowledges_for_an_actor_that_is_bound_to_another_role() {
    let db = migrated().await;
    db.sql("insert into event_type_registry (event_domain, event_type, event_stream, active) values ('dot', 'failed', 'alert', true)").await;
    let (own, stranger) = (member(&db, "executor", "own").await, member(&db, "executor", "stranger").await);
    let operator = member(&db, "operator", "op").await;
    let bind = format!("select gov_handoff.gov_actor_bind('user:boss', 'own_{}')::text", db.name);
    assert!(stranger.batch_execute(&bind).await.is_err(), "an operator's to say");
    assert_eq!(text(&operator, &bind).await, "true");
    let event = db.text("select fn_event_emit('dot', 'failed', null, null, 'a', 'svc:a', 's')::text").await;
    feed(&db.client).await;
    for call in [
        "select count(*) from fn_event_unread('user:boss')".to_owned(),
        "select count(*) from fn_event_unread_count('user:boss')".to_owned(),
        "select count(*) from fn_event_board('user:boss')".to_owned(),
        format!("select fn_event_mark_read('user:boss', '{{{event}}}')"),
        format!("select fn_event_mark_unread('user:boss', '{{{event}}}')"),
        "select fn_event_mark_all_read('user:boss')".to_owned(),
        format!("select fn_event_ack('user:boss', '{event}')"),
    ] {
        let refused = stranger.batch_execute(&call).await.expect_err(&call);
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{call}");
        own.batch_execute(&call).await.unwrap_or_else(|e| panic!("{call}: {e:?}"));
    }
    stranger
        .batch_execute("select fn_event_mark_all_read('user:other')")
        .await
        .expect("nobody's in particular");
    let long = format!("select fn_event_mark_all_read('user:{}')", "x".repeat(600));
    assert!(stranger.batch_execute(&long).await.is_err(), "a name without an end");
}

/// What a caller of the queue's gates made in `public` or as temporary objects is never preferred to what the gate means.
#[tokio::test(flavor = "multi_thread")]
async fn no_gate_of_the_queue_touches_what_its_caller_made() {
    let db = migrated().await;
    db.sql("create table public.caught (who text, what text); grant insert on public.caught to public;
            insert into event_type_registry (event_domain, event_type, event_stream, active) values ('dot', 'failed', 'alert', true)")
        .await;
    let producer = member(&db, "producer", "p").await;
    let worker = executor(&db, "e").await;
    let operator = member(&db, "operator", "o").await;
    db.sql(&format!("grant create on schema public to p_{0}, e_{0}, o_{0}", db.name)).await;
    let event = "select fn_event_emit('dot', 'failed', 'runs', gen_random_uuid(), 'a', 'svc:a', 's', '{\"a\": [1]}', 'critical')";
    let emitted = text(&producer, &format!("{event}::text")).await;
    for (client, n) in [(&producer, 1), (&worker, 2), (&operator, 3)] {
        client.batch_execute(&TRAPS.replace("trap", &format!("trap{n}"))).await.expect("traps");
    }
    let calls = |gates: &[&str]| gates.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>();
    let of_consumers = [
        format!("select public.fn_event_mark_read('user:a', '{{{emitted}}}')"),
        format!("select public.fn_event_ack('user:a', '{emitted}')"),
        format!("select public.fn_event_consume_once('c', '{emitted}')"),
        "select public.fn_event_mark_all_read('user:a'); select * from public.fn_event_unread('user:a'); select * from public.fn_event_board('user:a')".to_owned(),
    ];
    let one = "pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object('kind', 'k', 'key', 'x', 'executor', 'Agent', 'payload', '{\"a\": [1]}'::pg_catalog.jsonb))";
    let of_producers = [
        event.replace("gen_random", "pg_catalog.gen_random").replace("select fn_", "select public.fn_"),
        format!("select public.fn_job_enqueue_many({one})"),
    ];
    let of_executors = calls(&[
        "select public.fn_executor_heartbeat('e')",
        "do $$ declare j record; begin
             select * into j from public.fn_job_claim('e', 1);
             perform public.fn_job_start(array[j.job_id], array[j.token]); perform public.fn_job_heartbeat('e', array[j.job_id], array[j.token]);
             perform public.fn_job_fail(j.job_id, j.token, 'no', false); end $$",
    ]);
    let of_operators = calls(&[
        "select public.fn_event_worker_tick()",
        "select gov_handoff.gov_job_tick()",
        "select public.fn_job_redrive(array(select id from public.job_queue), 'me')",
        "select public.fn_job_cancel(id, 'why', 'me') from public.job_queue",
        "select public.fn_job_clean('infinity')",
        "select gov_handoff.gov_actor_bind('user:z', null)",
        "select gov_handoff.gov_member_set('role:a', 'user:b', true, 'me')",
        "select gov_handoff.gov_type_set_lane('dot', 'failed', 'immediate')",
        "select gov_handoff.gov_notices_retire(pg_catalog.clock_timestamp(), 100)",
        "select public.fn_governance_watch(); select public.fn_queue_route_worker_health()",
    ]);
    for (client, gates) in [
        (&producer, [&of_producers[..], &of_consumers[..]].concat()),
        (&worker, [&of_executors[..], &of_consumers[..]].concat()),
        (&operator, [&of_operators[..], &of_consumers[..]].concat()),
    ] {
        for gate in gates {
            client.batch_execute(&gate).await.unwrap_or_else(|e| panic!("{gate}: {e:?}"));
        }
    }
    assert_eq!(
        db.texts("select distinct what || ' as ' || who from public.caught where who = 'gov_handoff_owner'")
            .await,
        Vec::<String>::new()
    );
    assert_eq!(
        db.number("select count(*) from public.job_transition where to_status = 'dead_letter'").await,
        1
    );
}

/// Operators, functions and casts of their own in `public`, tables with a trigger, functions and types in `pg_temp`.
const TRAPS: &str = "
    create function public.trap(what text) returns text language plpgsql as
        $$ begin insert into public.caught values (current_user, what); return what; end $$;
    create function public.trap_has(jsonb, text) returns boolean language sql as $$ select public.trap('?') is not null $$;
    create function public.trap_time(bigint, interval) returns interval language sql as $$ select public.trap('*')::interval $$;
    create function public.trap_same(uuid, text) returns boolean language sql as $$ select public.trap('=') is null $$;
    create function public.trap_fire() returns trigger language plpgsql as
        $$ begin perform public.trap(tg_relid::regclass::text); return new; end $$;
    do $do$
    declare t text;
    begin
        begin
            create operator public.? (leftarg = jsonb, rightarg = text, function = public.trap_has);
            create operator public.* (leftarg = bigint, rightarg = interval, function = public.trap_time);
            create operator public.= (leftarg = uuid, rightarg = text, function = public.trap_same);
        exception when duplicate_function then null;
        end;
        for t in select c.relname from pg_class c
                  where c.relkind in ('r', 'v') and c.relname <> 'caught'
                    and c.relnamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace)
        loop
            execute format('create temp table %I (x int default public.trap(''x'')::int)', t);
            execute format('create trigger spring before insert or update or delete on pg_temp.%I for each row execute function public.trap_fire()', t);
            execute format('grant all on pg_temp.%I to public', t);
        end loop;
    end $do$;
    create function pg_temp.clock_timestamp() returns timestamptz language sql as $$ select public.trap('clock')::timestamptz $$;
    create function pg_temp.gov_payload_violation(jsonb, int) returns text language sql as $$ select public.trap('payload') $$;
    create function pg_temp.fn_event_emit_many(jsonb) returns text language sql as $$ select public.trap('emit') $$;
    create type pg_temp.jsonb as (x int);
    create domain pg_temp.timestamptz as text check (public.trap('domain') is null);
    create domain pg_temp.uuid as text check (public.trap('domain') is null)";
