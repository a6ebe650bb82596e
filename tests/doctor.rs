//! `doctor`: each trouble is named with what to do, well is well, and what one may not see is not guessed.

use gov_handoff::embedded::ClusterOptions;
use serde_json::Value;
use tokio_postgres::Client;

use crate::support::{
    Daemon, cli, cli_with, connect, done, fresh_database, migrated, options, private_cluster,
};

async fn sql(client: &Client, statement: &str) {
    client.batch_execute(statement).await.unwrap_or_else(|e| panic!("{statement}: {e:?}"));
}

/// What the doctor says, and its exit code.
struct Examined {
    code: i32,
    checks: Vec<(String, String, String)>,
    text: String,
}

impl Examined {
    async fn of(url: &str, environment: &[(&str, &str)]) -> Self {
        let ran = cli_with(url, &["doctor", "--json"], environment).await;
        let report: Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
        let word = |c: &Value, key: &str| c[key].as_str().unwrap_or_default().to_owned();
        let checks = report["checks"].as_array().expect("checks").iter();
        for c in report["checks"].as_array().expect("checks") {
            let advised = c["advice"].is_string();
            assert_eq!(advised, matches!(c["verdict"].as_str(), Some("warn" | "fail")), "what to do: {c}");
        }
        let checks =
            checks.map(|c| (word(c, "check"), word(c, "verdict"), word(c, "found"))).collect::<Vec<_>>();
        Self { code: ran.code, checks, text: ran.out }
    }

    /// Insists on the exit code.
    #[track_caller]
    fn ends(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }

    /// Insists on each check, verdict and what is said, among others of its name.
    #[track_caller]
    fn says(&self, expected: &[(&str, &str, &str)]) -> &Self {
        for (check, verdict, found) in expected {
            let hit = |(c, v, f): &(String, String, String)| c == check && v == verdict && f.contains(found);
            assert!(self.checks.iter().any(hit), "no {verdict} {check}: {found}\n{}", self.text);
        }
        self
    }

    fn verdicts(&self, verdict: &str) -> Vec<&str> {
        self.checks.iter().filter(|c| c.1 == verdict).map(|c| c.0.as_str()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_daemon_is_found_well() {
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let _daemon = Daemon::running(&db, "auto", &[]).await;
    db.sql("insert into birth_registry (entity_code, collection_name) values ('a', 'laws')").await;
    db.until("select exists (select from event_outbox where event_domain = 'governance')").await;
    let found = Examined::of(&db.url, &[]).await;
    found.ends(0);
    assert_eq!(found.verdicts("fail"), Vec::<&str>::new(), "{}", found.text);
    // Tests connect as the superuser, and that is worth a word.
    assert_eq!(found.verdicts("warn"), ["role"], "{}", found.text);
    assert_eq!(found.verdicts("cannot_tell"), Vec::<&str>::new(), "{}", found.text);
    found.says(&[
        ("worker", "ok", "mode stream"),
        ("slot", "ok", "read"),
        ("slot retention", "ok", "of 4.0 GiB"),
        ("publication", "ok", "carries the sources"),
        ("migrations", "ok", "in force"),
        ("sources", "ok", "event_outbox: read by the frontier"),
        ("row security", "ok", "hides no source"),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_on_a_server_that_cannot_stream() {
    let settings = vec![
        ("max_prepared_transactions".to_owned(), "2".to_owned()),
        ("max_slot_wal_keep_size".to_owned(), "64MB".to_owned()),
    ];
    let poor =
        ClusterOptions { wal_level: "replica".to_owned(), max_replication_slots: 1, settings, ..options() };
    let cluster = private_cluster(poor).await;
    let url = cluster.url("postgres");
    let client = connect(&url).await;
    sql(
        &client,
        "select pg_create_physical_replication_slot('other'); create table t (i int); \
                  begin; insert into t values (1); prepare transaction 'forgotten'",
    )
    .await;
    let found = Examined::of(&url, &[]).await;
    found.ends(1).says(&[
        ("wal_level", "warn", "replica, so it polls"),
        ("replication", "warn", "wal_level is replica"),
        ("replication slots", "warn", "1 of 1 in use"),
        ("max_slot_wal_keep_size", "warn", "64.0 MiB, below our budget of 4.0 GiB"),
        ("prepared transactions", "warn", "'forgotten' of postgres in postgres"),
        ("frontier", "ok", "prepared transaction 'forgotten'"),
        ("migrations", "fail", "none is in force"),
    ]);
    // What to do is said once, and nothing is said about tables that are not there yet.
    for arguments in [&["doctor"][..], &["doctor", "--fix-sql"]] {
        let told = cli(&url, arguments).await;
        assert_eq!((told.code, told.out.matches("gov-handoff migrate").count()), (1, 1), "{}", told.out);
        assert!(told.out.lines().count() < 50 && !told.out.contains("no column"), "{}", told.out);
    }
    for check in ["shape", "sources", "workers", "first to break"] {
        assert!(found.checks.iter().all(|(name, ..)| name != check), "{check}: {}", found.text);
    }
    let strict = Examined::of(&url, &[("GOV_HANDOFF_MODE", "stream")]).await;
    strict.says(&[("wal_level", "fail", "cannot stream"), ("replication", "fail", "wal_level is replica")]);
    let polling = Examined::of(&url, &[("GOV_HANDOFF_MODE", "poll")]).await;
    polling.says(&[("wal_level", "ok", "replica"), ("replication", "ok", "not asked for")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_in_the_database_is_named() {
    let db = migrated().await;
    let role = format!("doc_{}", db.name);
    db.sql(include_str!("../replication/roles.sql")).await;
    let url = db.url_as(&role);
    db.sql(&format!(
            "create role {role} login in role gov_handoff_worker; \
             insert into registry_changelog (entity_type, entity_code, action) values ('law', 'x', 'register')"
        ),
    )
    .await;
    done(&url, &["run", "--once", "--mode", "poll"]).await;
    let before = Examined::of(&url, &[]).await;
    before.ends(0).says(&[
        ("role", "ok", "member of gov_handoff_worker, may run the daemon"),
        ("replication", "warn", "no REPLICATION"),
        ("publication", "warn", "does not exist, and the role does not own public.birth_registry"),
        ("worker", "warn", "ended"),
        ("event types", "warn", "object_registered is inactive, 1 captured"),
    ]);

    db.sql("alter table event_outbox drop column causation_id; \
         alter table queue_heartbeat alter column executor_kind type varchar; \
         alter table birth_registry enable row level security; \
         update gov_schema_version set checksum = 'x' where version = 3; \
         select gov_handoff.gov_finding_raise('slot_lost', 'slot_lost:x', 'warning'); \
         select gov_handoff.gov_finding_raise('handoff_missed', 'handoff_missed:x', 'high'); \
         insert into iu_route_dead_letter (worker_name, event_ref, event_domain, event_type, route_code, idempotency_key, \
             failure_code, failure_detail, attempts, event_snapshot) \
         values ('w', gen_random_uuid(), 'governance', 't', 'birth_registry', 'birth_registry:1', 'c', 'd', 1, '{}')",
    )
    .await;
    let after = Examined::of(&url, &[]).await;
    after.ends(1).says(&[
        ("trace columns", "warn", "no causation_id"),
        ("shape", "fail", "queue_heartbeat.executor_kind is character varying, expected text"),
        ("row security", "fail", "on public.birth_registry"),
        ("dead letters", "warn", "1 open"),
        ("findings", "warn", "slot_lost:x"),
        ("findings", "fail", "handoff_missed:x (high, x1)"),
    ]);
    Examined::of(&db.url, &[]).await.says(&[("migrations", "fail", "of another build: 3 (apply)")]);
    let people = cli(&db.url, &["doctor"]).await;
    assert!(people.out.contains("-> run the build that applied them"), "{}", people.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_see_is_told_so() {
    let db = migrated().await;
    let (eyes, nobody) = (format!("eyes_{}", db.name), format!("nobody_{}", db.name));
    db.sql(&format!(
        "create role {eyes} login in role gov_handoff_observer; create role {nobody} login; \
             insert into job_deferred (due, job_id) values (now() - interval '1 hour', gen_random_uuid()); \
             select gov_handoff.gov_finding_raise('slot_lost', 'slot_lost:x', 'warning')"
    ))
    .await;
    let found = Examined::of(&db.url_as(&eyes), &[]).await;
    found.ends(0).says(&[
        ("role", "warn", "gov_handoff_observer, may not run the daemon"),
        ("findings", "warn", "slot_lost:x"),
        ("migrations", "ok", "in force"),
        ("shape", "ok", "as the gates need them"),
        ("worker", "warn", "has never run"),
        ("first to break", "warn", "deferred jobs, now"),
    ]);
    let found = Examined::of(&db.url_as(&nobody), &[]).await;
    found.ends(0).says(&[
        ("server version", "ok", ""),
        ("sources", "cannot_tell", "no privilege"),
        ("findings", "cannot_tell", "no privilege"),
        ("first to break", "cannot_tell", "jobs"),
    ]);
    let people = cli(&db.url_as(&nobody), &["doctor"]).await.out;
    let told = people.lines().any(|l| l.contains(" jobs ") && l.contains("cannot tell: no privilege"));
    assert!(told, "{people}");
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_and_burnt_ids_are_counted_before_and_after_the_first_reading() {
    let db = migrated().await;
    db.sql(
        "insert into birth_registry (id, entity_code, collection_name) \
         select i, 'b', 'laws' from unnest(array[1, 2, 5, 6, 11]) i",
    )
    .await;
    let holes = "2 holes";
    let before = Examined::of(&db.url, &[]).await;
    before.says(&[("open id ranges", "ok", "birth_registry, not read yet: 2 holes (2 hot), 6 ids burnt")]);
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    let after = Examined::of(&db.url, &[]).await;
    after.says(&[("open id ranges", "ok", &format!("birth_registry: {holes} (2 hot), 6 ids burnt"))]);
    db.sql("update gov_worker_gap set hot = false where lo = 3").await;
    let cold = Examined::of(&db.url, &[]).await;
    cold.says(&[("open id ranges", "ok", &format!("birth_registry: {holes} (1 hot)"))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_grows_is_shown_with_its_budget_and_the_time_to_it() {
    let db = migrated().await;
    done(&db.url, &["replication", "setup"]).await;
    // As a daemon that died a minute ago has left it.
    db.sql("insert into queue_heartbeat (executor_name, executor_kind, last_tick_at, ticks_total, lease_owner, metadata) \
         values ('gov_handoff_intake', 'external_worker', now() - interval '1 minute', 7, 'pid-1', \
                 '{\"term\": 1, \"ttl_ms\": 15000, \"mode\": \"stream\", \"slot_budget\": 67108864, \"slot_rate\": 1048576}'); \
         select pg_logical_emit_message(true, 'fill', repeat('x', 8000000))",
    )
    .await;
    let found = Examined::of(&db.url, &[]).await;
    found.ends(1).says(&[
        ("slot retention", "warn", "MiB of 64.0 MiB"),
        ("slot retention", "warn", "s to go at the present rate, not read by anybody"),
        ("max_slot_wal_keep_size", "warn", "nobody reads the slot"),
        ("worker", "fail", "pid-1 holds the lease and is silent"),
    ]);
    let status = cli(&db.url, &["status"]).await.out;
    assert!(status.contains("of 65,536 KiB") && status.contains("s to go at this rate"), "{status}");
    let shown: Value = serde_json::from_str(&cli(&db.url, &["status", "--json"]).await.out).expect("json");
    let left = shown["stream"]["seconds_to_budget"].as_f64().expect("a time");
    assert!((1.0..64.0).contains(&left), "{left}");
    db.sql("select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database(); \
                     select pg_create_logical_replication_slot('gov_handoff_' || current_database(), 'test_decoding')").await;
    let taken = Examined::of(&db.url, &[]).await;
    taken.says(&[("slot", "fail", "is not ours")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_and_a_wrong_address_cannot_run() {
    let db = fresh_database(None).await;
    let tables = "select count(*) from pg_class where relnamespace = 'public'::regnamespace";
    assert_eq!(Examined::of(&db.url, &[]).await.code, 1);
    assert_eq!(db.number(tables).await, 0);
    let ran = cli("postgres://postgres@127.0.0.1:1/none", &["doctor"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_and_status_name_a_slot_that_is_not_in_use() {
    let db = migrated().await;
    let slot = format!("gov_handoff_was_{}", db.name);
    let well = Examined::of(&db.url, &[]).await;
    assert!(!well.text.contains("slots not in use"), "{}", well.text);
    db.sql(&format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')")).await;
    db.sql("select pg_logical_emit_message(true, 'fill', repeat('x', 2000000))").await;
    for mode in ["auto", "poll"] {
        let found = Examined::of(&db.url, &[("GOV_HANDOFF_MODE", mode)]).await;
        found.says(&[("slots not in use", "warn", &format!("{slot} retains"))]);
        let over = [("GOV_HANDOFF_MODE", mode), ("GOV_HANDOFF_WAL_BUDGET_MB", "1")];
        Examined::of(&db.url, &over).await.ends(1).says(&[("slots not in use", "fail", &slot)]);
    }
    let status = cli(&db.url, &["status"]).await.out;
    assert!(status.contains(&format!("{slot} not in use, retains")), "{status}");
    let shown: Value = serde_json::from_str(&cli(&db.url, &["status", "--json"]).await.out).expect("json");
    let listed = &shown["unused_slots"][0];
    assert_eq!(listed["slot"].as_str(), Some(slot.as_str()), "{shown}");
    assert!(listed["retained_bytes"].as_i64().is_some_and(|b| b > 1_900_000), "{shown}");
    db.sql(&format!("select pg_drop_replication_slot('{slot}')")).await;
    let shown: Value = serde_json::from_str(&cli(&db.url, &["status", "--json"]).await.out).expect("json");
    assert_eq!(shown["unused_slots"].as_array().map(Vec::len), Some(0), "{shown}");
    // The slot of a selftest is in use while the selftest ticks, and not in use once the selftest was killed.
    let slot = format!("gov_handoff_selftest_{}", db.name);
    db.sql(&format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')")).await;
    let tick = "insert into queue_heartbeat (executor_name, executor_kind, last_tick_at) \
                values ('gov_handoff_selftest', 'external_worker', now())";
    db.sql(tick).await;
    assert!(!cli(&db.url, &["status"]).await.out.contains(&slot));
    db.sql("update queue_heartbeat set last_tick_at = now() - interval '1 hour' where executor_name = 'gov_handoff_selftest'").await;
    let status = cli(&db.url, &["status"]).await.out;
    assert!(status.contains(&format!("{slot} not in use, retains")), "{status}");
    db.sql(&format!("select pg_drop_replication_slot('{slot}')")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_create_where_it_matters_and_whose_triggers_run_inside_the_gates_is_said() {
    let db = migrated().await;
    let sound = Examined::of(&db.url, &[]).await;
    sound.says(&[
        ("schemas", "ok", "gov_handoff: only its owner"),
        ("schemas", "ok", "public: only its owner"),
        ("triggers", "ok", "none of others"),
    ]);
    let stranger = format!("stranger_{}", db.name);
    db.sql(&format!(
            "create role {stranger}; grant create on schema gov_handoff to {stranger}; grant create on schema public to public;
             create function public.look() returns trigger language plpgsql as $$ begin return new; end $$;
             create function public.listen() returns trigger language plpgsql set search_path = pg_catalog as $$ begin return new; end $$;
             alter function public.listen() owner to {stranger};
             create trigger look before insert on event_outbox for each row execute function public.look();
             create trigger listen before insert on event_pending for each row execute function public.listen()"
        ),
    )
    .await;
    let found = Examined::of(&db.url, &[]).await;
    found.ends(1).says(&[
        ("schemas", "fail", &format!("gov_handoff: {stranger} may create")),
        ("schemas", "warn", "public: PUBLIC may create"),
        ("triggers", "warn", "look on event_outbox calls public.look() of postgres, without a search_path"),
        ("triggers", "warn", &format!("listen on event_pending calls public.listen() of {stranger}")),
    ]);
}
