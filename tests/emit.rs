//! The emit gate, rule by rule: what becomes of an event, what is refused and leaves a finding, and who may emit.

use gov_handoff::core::payload;
use serde_json::{Value, json};

use crate::support::{Database, connect, done, fresh_database, migrated};

/// A database with the types of these tests: active, inactive, and active with the delayed lane.
async fn with_types() -> Database {
    let db = migrated().await;
    db.sql(
        "insert into event_type_registry (event_domain, event_type, event_stream, event_severity, active) values
             ('iu', 'draft_created', 'review', null, true), ('iu', 'version_applied', 'update', 'warning', true),
             ('dot', 'dot_failed', 'alert', 'critical', true), ('kg', 'edge_moved', 'update', null, true),
             ('iu', 'sleeping', 'update', null, false);
         select gov_handoff.gov_type_set_lane('kg', 'edge_moved', 'delayed')",
    )
    .await;
    db
}

/// One event that nothing is wrong with, about a subject of its own.
fn event(changes: Value) -> Value {
    let mut event = json!({
        "domain": "iu", "type": "draft_created", "subject_table": "unit_edit_draft", "address": "iu:1", "actor": "user:huyen",
        "source_system": "function", "payload": {"status": "open"},
    });
    for (key, value) in changes.as_object().expect("an object") {
        event[key] = value.clone();
    }
    event
}

async fn emit(db: &Database, events: &[Value]) -> Vec<(String, Option<String>, String)> {
    let query = "select outcome, event_id::text, coalesce(reason, '') from fn_event_emit_many($1) order by n";
    let rows = db.client.query(query, &[&json!(events)]).await.expect("emitted");
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

const SUBJECT: &str = "00000000-0000-4000-8000-000000000001";

#[tokio::test]
async fn each_rule_gives_its_outcome_and_its_reason() {
    let db = with_types().await;
    let numbers = |n: usize| Value::from((0..n).collect::<Vec<_>>());
    let cases: Vec<(Value, &str, &str)> = vec![
        (event(json!({})), "emitted", ""),
        (event(json!({"subject_ref": SUBJECT})), "emitted", ""),
        (event(json!({"subject_ref": SUBJECT})), "known", ""),
        (event(json!({"subject_ref": SUBJECT, "type": "version_applied"})), "emitted", ""),
        (event(json!({"subject_ref": SUBJECT, "subject_table": "another"})), "emitted", ""),
        (event(json!({"type": "sleeping"})), "captured", "type is not active"),
        (event(json!({"type": "unheard_of"})), "captured", "type is not registered"),
        (event(json!({"lane": "delayed"})), "delayed", ""),
        (event(json!({"domain": "kg", "type": "edge_moved"})), "delayed", ""),
        (event(json!({"domain": "kg", "type": "edge_moved", "lane": "immediate"})), "emitted", ""),
        (event(json!({"domain": "mot"})), "refused", "malformed: domain"),
        (event(json!({"type": " "})), "refused", "malformed: type"),
        (event(json!({"address": ""})), "refused", "malformed: address"),
        (event(json!({"actor": null})), "refused", "malformed: actor"),
        (event(json!({"source_system": " "})), "refused", "malformed: source_system"),
        (event(json!({"severity": "fatal"})), "refused", "malformed: severity"),
        (event(json!({"lane": "slow"})), "refused", "malformed: lane"),
        (event(json!({"subject_ref": "7"})), "refused", "malformed: subject_ref"),
        (event(json!({"causation_id": "x"})), "refused", "malformed: causation_id"),
        (event(json!({"occurred_at": "yesterday or so"})), "refused", "malformed: occurred_at"),
        (event(json!({"payload": [1]})), "refused", "malformed: payload"),
        (event(json!({"actor": "a".repeat(501)})), "refused", "malformed: type, subject_table"),
        (json!(7), "refused", "malformed: expected an object"),
        (
            event(json!({"domain": "governance", "type": "governance.handoff.object_born"})),
            "refused",
            "reserved",
        ),
        (event(json!({"domain": "system", "type": "queue_worker_silent"})), "refused", "reserved"),
        (event(json!({"payload": {"a": {"b": [{"Token": 1}]}}})), "refused", "payload: forbidden_key:token"),
        (event(json!({"payload": {"embedding": []}})), "refused", "payload: forbidden_key:embedding"),
        (event(json!({"payload": {"a": "token", "b": ["body"]}})), "emitted", ""),
        (event(json!({"payload": {"v": numbers(33)}})), "refused", "payload: vector"),
        (event(json!({"payload": {"v": numbers(32)}})), "emitted", ""),
        (event(json!({"payload": {"deep": [{"v": numbers(40)}]}})), "refused", "payload: vector"),
        (event(json!({"payload": {"s": "x".repeat(10_240)}})), "refused", "payload: long_text"),
        (event(json!({"payload": {"s": "x".repeat(10_239)}})), "emitted", ""),
        (event(json!({"payload": {"x".repeat(10_240): 1}})), "refused", "payload: long_text"),
        (event(json!({"address": r#"{"body": 1}"#})), "refused", "payload: forbidden_key:body"),
        (event(json!({"address": "[Draft] chapter 12"})), "emitted", ""),
    ];
    let events: Vec<_> = cases.iter().map(|(event, ..)| event.clone()).collect();
    for (found, (event, outcome, reason)) in emit(&db, &events).await.iter().zip(&cases) {
        assert_eq!(
            found.0,
            *outcome,
            "{found:?}: {}",
            &event.to_string()[..event.to_string().len().min(200)]
        );
        assert!(found.2.starts_with(reason) && found.2.is_empty() == reason.is_empty(), "{found:?}");
        assert_eq!(found.1.is_none(), *outcome == "refused", "{found:?}");
    }
    // What was refused is nowhere, what was emitted is in the outbox, and the feed hears of that and nothing else.
    let emitted = cases.iter().filter(|(_, outcome, _)| *outcome == "emitted").count();
    let there = "select count(*) from event_outbox";
    assert_eq!(db.number(there).await, i64::try_from(emitted).expect("few"));
    let noted = "select count(distinct event_id) from gov_feed_inbox join event_outbox on id = event_id";
    assert_eq!(db.number(noted).await, db.number(there).await);
    assert_eq!(db.number("select count(*) from event_pending").await, 4);
    assert_eq!(
        db.number("select count(*) from event_pending where event_type_hint = 'event.delayed'").await,
        2
    );
    // One finding for each kind and type, also after the same again.
    emit(&db, &events).await;
    let findings = db
        .texts("select coalesce_key from system_issues where resolved_at is null and issue_kind ~ 'queue|unregistered' order by 1")
        .await;
    assert_eq!(
        findings,
        [
            "handoff_unregistered_type:iu/sleeping",
            "handoff_unregistered_type:iu/unheard_of",
            "queue.emit_refused:governance/governance.handoff.object_born",
            "queue.emit_refused:system/queue_worker_silent",
            "queue.nvsz_violation:iu/draft_created",
            "queue.payload_violation:iu/draft_created",
        ]
    );
}

#[tokio::test]
async fn stream_severity_and_lane_come_from_the_registration_unless_the_event_says_otherwise() {
    let db = with_types().await;
    emit(
        &db,
        &[
            event(json!({"domain": "dot", "type": "dot_failed", "address": "a"})),
            event(json!({"domain": "dot", "type": "dot_failed", "address": "b", "severity": "info",
                         "occurred_at": "2020-01-02T03:04:05Z", "correlation_id": "run 7"})),
        ],
    )
    .await;
    let found = "select concat_ws(' ', event_stream, event_severity, delivery_lane, correlation_id, occurred_at at time zone 'UTC')
                   from event_outbox where canonical_address = ";
    assert!(db.text(&format!("{found}'a'")).await.starts_with("alert critical immediate 20"));
    assert_eq!(db.text(&format!("{found}'b'")).await, "alert info immediate run 7 2020-01-02 03:04:05");
    // One event has a function of its own, and a refusal is an answer.
    let one =
        "select fn_event_emit('iu', 'draft_created', 't', $1::text::uuid, 'iu:9', 'user:x', 'svc')::text";
    let id: String = db.client.query_one(one, &[&SUBJECT]).await.expect("emitted").get(0);
    assert_eq!(db.text("select id::text from event_outbox where canonical_address = 'iu:9'").await, id);
    assert_eq!(
        db.text_if_any("select fn_event_emit('iu', 'draft_created', null, null, 'iu:9', 'u', 's', '{\"secret\": 1}')::text").await,
        None
    );
    let no_list = db.client.query("select fn_event_emit_many('{}')", &[]).await.expect_err("no list");
    assert!(no_list.to_string().contains("db error"), "{no_list}");
}

#[tokio::test]
async fn the_finding_about_a_refused_payload_outlives_the_answer() {
    let db = with_types().await;
    let client = connect(&db.url).await;
    client
        .batch_execute(
            "begin;
             select fn_event_emit('iu', 'draft_created', null, null, 'iu:1', 'u', 's', '{\"vector\": [1]}');
             commit",
        )
        .await
        .expect("an answer, not an exception");
    assert_eq!(db.number("select count(*) from event_outbox").await, 0);
    assert_eq!(
        db.text("select coalesce_key from system_issues").await,
        "queue.nvsz_violation:iu/draft_created"
    );
    // It is resolved when nothing was refused for a day.
    db.sql("select fn_governance_watch(clock_timestamp() + interval '25 hours')").await;
    assert_eq!(db.number("select count(*) from system_issues where resolved_at is null").await, 0);
}

#[tokio::test]
async fn an_activated_type_drains_its_captures_under_the_same_ids() {
    let db = with_types().await;
    let captured = emit(
        &db,
        &[
            event(json!({"type": "sleeping", "subject_ref": SUBJECT, "address": "now"})),
            event(json!({"type": "sleeping", "address": "later", "lane": "delayed"})),
        ],
    )
    .await;
    let again =
        emit(&db, &[event(json!({"type": "sleeping", "subject_ref": SUBJECT, "address": "now"}))]).await;
    assert_eq!((again[0].0.as_str(), &again[0].1), ("captured", &captured[0].1));
    let listed = done(&db.url, &["types", "list"]).await;
    assert!(listed.contains("iu/sleeping"), "{listed}");
    done(&db.url, &["types", "activate", "iu/sleeping"]).await;
    let moved = "select concat_ws(' ', id, event_domain, event_type, event_stream, actor_ref, source_system) from event_outbox";
    let id = captured[0].1.clone().expect("an id");
    assert_eq!(db.text(moved).await, format!("{id} iu sleeping update user:huyen function"));
    assert_eq!(db.number("select count(*) from gov_feed_inbox").await, 1);
    // The other goes on waiting, in the delayed lane.
    let waits = "select event_type_hint || ' ' || id from event_pending where processed_at is null";
    assert_eq!(db.text(waits).await, format!("event.delayed {}", captured[1].1.clone().expect("an id")));
    let key = "select count(*) from system_issues where resolved_at is null and coalesce_key = 'handoff_unregistered_type:iu/sleeping'";
    assert_eq!(db.number(key).await, 0);
    let known =
        emit(&db, &[event(json!({"type": "sleeping", "subject_ref": SUBJECT, "address": "now"}))]).await;
    assert_eq!((known[0].0.as_str(), &known[0].1), ("known", &captured[0].1));
}

#[tokio::test]
async fn a_chain_of_causes_that_comes_back_to_its_event_is_refused() {
    let db = with_types().await;
    let say = async |kind: &str, address: &str, cause: Option<&String>| {
        let said =
            emit(&db, &[event(json!({"type": kind, "address": address, "causation_id": cause}))]).await;
        said[0].clone()
    };
    let first = say("draft_created", "iu:1", None).await;
    let second = say("version_applied", "iu:1", first.1.as_ref()).await;
    let circle = say("draft_created", "iu:1", second.1.as_ref()).await;
    assert_eq!(circle.0, "refused", "{circle:?}");
    assert!(circle.2.starts_with("cycle:"), "{circle:?}");
    // About another subject it is another event.
    assert_eq!(say("draft_created", "iu:2", second.1.as_ref()).await.0, "emitted");
    // A captured event is a link as well.
    let waiting = say("sleeping", "iu:1", second.1.as_ref()).await;
    assert_eq!(waiting.0, "captured");
    assert_eq!(say("version_applied", "iu:1", waiting.1.as_ref()).await.0, "refused");
    // With a subject, an event may not be its own cause; said again with its first cause, it is known.
    let subject = |cause: Option<&String>| event(json!({"subject_ref": SUBJECT, "causation_id": cause}));
    let own = emit(&db, &[subject(first.1.as_ref())]).await[0].clone();
    assert_eq!(emit(&db, &[subject(first.1.as_ref())]).await[0].0, "known");
    assert_eq!(emit(&db, &[subject(own.1.as_ref())]).await[0].0, "refused");
    // A chain has an end.
    let mut last = first.1.clone();
    for n in 0..40 {
        let link = say("draft_created", &format!("chain:{n}"), last.as_ref()).await;
        if n < 31 {
            assert_eq!(link.0, "emitted", "{n}");
        }
        if link.0 == "refused" {
            assert!(n >= 31, "{n}: {link:?}");
            return;
        }
        last = link.1;
    }
    panic!("a chain of 40 causes was accepted");
}

#[tokio::test]
async fn an_outbox_without_causes_takes_events_all_the_same() {
    let db = fresh_database(None).await;
    db.sql(
        "create table event_outbox (id uuid primary key default gen_random_uuid(), event_domain text not null, event_type text not null,
             event_stream text not null, event_severity text, delivery_lane text not null default 'immediate', event_subject_table text,
             event_subject_ref uuid, canonical_address text not null, actor_ref text not null, source_system text not null,
             correlation_id text, payload_classification text not null default 'safe_metadata', safe_payload jsonb not null default '{}',
             occurred_at timestamptz not null default now(), created_at timestamptz not null default now());
         create unique index on event_outbox (event_domain, event_type, event_subject_table, event_subject_ref)
             where event_subject_ref is not null;
         create table event_type_registry (event_domain text, event_type text, event_stream text not null, active boolean not null,
             primary key (event_domain, event_type));
         insert into event_type_registry values ('iu', 'draft_created', 'review', true)",
    )
    .await;
    done(&db.url, &["migrate"]).await;
    let first = emit(&db, &[event(json!({}))]).await;
    let caused = emit(&db, &[event(json!({"causation_id": first[0].1}))]).await;
    assert_eq!(caused[0].0, "emitted", "{caused:?}");
    let doctor = crate::support::cli(&db.url, &["doctor"]).await;
    assert!(doctor.out.contains("causation"), "{}", doctor.out);
}

#[tokio::test]
async fn addresses_are_searched_as_the_intake_searches_them() {
    let db = migrated().await;
    let long = format!("[{}]", vec!["1.5"; 15].join(","));
    for text in [
        r#"{"password": "x"}"#,
        r#"{"a": {"b": [{"c": 1, "PassWord": "x"}]}}"#,
        r#"{"a": {"embedding": []}}"#,
        r#"{"kind": "password", "a": ["body"]}"#,
        "body: x",
        "[Draft] chapter 12",
        "{}",
        "[1, 2, 3]",
        &long,
        &format!("[{}]", vec!["-2"; 16].join(", ")),
        &format!("{{\"x\": [{}]}}", vec!["7"; 40].join(",")),
    ] {
        let found: Option<String> = db
            .client
            .query_one("select gov_handoff.gov_address_violation($1)", &[&text])
            .await
            .expect("an answer")
            .get(0);
        assert_eq!(found.is_some(), payload::violation(text).is_some(), "{text}: {found:?}");
    }
}

#[tokio::test]
async fn a_thousand_events_are_few_statements_and_two_calls_at_once_do_not_deadlock() {
    let db = with_types().await;
    let list = "(select jsonb_agg(jsonb_build_object('domain', 'iu', 'type', 'draft_created', 'subject_table', 't', 'subject_ref',
                     md5(g::text)::uuid, 'address', 'iu:' || g, 'actor', 'a', 'source_system', 's') order by md5(g::text || $1))
                   from generate_series(1, 1000) g)";
    let call = |order: &'static str| {
        let url = db.url.clone();
        async move {
            let client = connect(&url).await;
            let query = format!("select outcome from fn_event_emit_many({list})");
            let rows = client.query(&query, &[&order]).await.expect("no deadlock");
            rows.iter().filter(|row| row.get::<_, String>(0) == "emitted").count()
        }
    };
    let (one, other, third) = tokio::join!(call("x"), call("y"), call("z"));
    assert_eq!(one + other + third, 1_000, "each event was emitted by one call");
    assert_eq!(db.number("select count(*) from event_outbox").await, 1_000);
}

#[tokio::test]
async fn a_producer_emits_and_does_nothing_else() {
    let db = with_types().await;
    let role = format!("producer_{}", db.name);
    db.sql(&format!("create role {role} login in role gov_handoff_producer")).await;
    let producer = connect(&db.url_as(&role)).await;
    let emitted =
        "select fn_event_emit('iu', 'draft_created', null, null, 'iu:1', 'user:x', 's') is not null";
    assert!(producer.query_one(emitted, &[]).await.expect("emits").get::<_, bool>(0));
    // Everything else that our two schemas have.
    let more = "with who as (select 'gov_handoff_producer'::text as r)
        select coalesce(string_agg(x.name, ' ' order by x.name), '') from (
            select c.relname::text as name from pg_class c, who
             where c.relnamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace) and c.relkind in ('r', 'p', 'v', 'm', 'S')
               and case when c.relkind = 'S' then has_sequence_privilege(r, c.oid, 'usage, select, update')
                        else has_any_column_privilege(r, c.oid, 'select, insert, update')
                             or has_table_privilege(r, c.oid, 'delete, truncate, trigger') end
            union all
            select p.proname::text from pg_proc p, who
             where p.pronamespace in ('public'::regnamespace, 'gov_handoff'::regnamespace)
               and has_function_privilege(r, p.oid, 'execute')) x
         -- Producers of jobs have a test of their own. Producers are readers too, by functions.
         where x.name !~ 'job' and x.name <> 'fn_mot_graph_emit'
           and x.name !~ '^fn_event_(ack|board|consume_once|feed|feed_head|mark_all_read|mark_read|mark_unread|recipients|unread|unread_count)$'";
    assert_eq!(db.text(more).await, "fn_event_emit fn_event_emit_many");
    for statement in [
        "insert into event_outbox (event_domain, event_type, event_stream, canonical_address, actor_ref, source_system) \
         values ('iu', 'x', 'review', 'a', 'a', 'a')",
        "select * from event_outbox",
        "select * from event_feed",
        "select gov_handoff.gov_feed_note('{}')",
    ] {
        let refused = producer.batch_execute(statement).await.expect_err(statement);
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{statement}");
    }
}
