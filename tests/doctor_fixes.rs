//! Every check of `doctor` can fail: a case breaks exactly one thing on a real server, exactly that check says so, and what
//! `doctor` prints, run as it is, puts it right.

use std::collections::{BTreeMap, BTreeSet};

use gov_handoff::core::doctor::CHECKS;
use gov_handoff::embedded::{Cluster, ClusterOptions, StopMode, Wanted};
use serde_json::Value;

use crate::dead_letters::{CURE, POISON, policy};
use crate::pooler::{Strips, pooler, through, transaction_pooler};
use crate::support::{
    Database, active_on, blocking, cli, cli_with, connect, done, migrated, options, private_cluster,
};

/// How a case is put right.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mend {
    /// By the SQL that is printed.
    Sql,
    /// By that SQL, and then a certifying pass of the daemon.
    SqlAndRun,
    /// By the command that is printed.
    Command,
    /// By neither, and why not.
    Neither(&'static str),
}

struct Case {
    check: &'static str,
    verdict: &'static str,
    /// Before anything is looked at.
    given: &'static str,
    breaks: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// Other checks that must say the same.
    also: &'static [&'static str],
    mend: Mend,
    /// Other tests use the server meanwhile.
    shared: bool,
}

const CASE: Case = Case {
    check: "",
    verdict: "warn",
    given: "",
    breaks: "",
    environment: &[],
    also: &[],
    mend: Mend::Sql,
    shared: true,
};
const ALONE: Case = Case { shared: false, ..CASE };

/// What other databases of a server change as well: a case on a shared server must not depend on it.
const OF_THE_SERVER: [&str; 5] =
    ["replication slots", "wal senders", "frontier", "prepared transactions", "connections"];

/// Checks that no case here breaks, and why. They are judged in `core/doctor/tests.rs`.
const REASONS: [(&str, &str); 2] = [
    ("server version", "there is no server older than 15 to run, and none newer than 18"),
    ("clocks", "the machine has one clock, which a test must not set"),
];

/// Cases on one database, one after the other, as a superuser. `{db}` is its name.
const CASES: [Case; 16] = [
    Case { check: "schemas", verdict: "fail", breaks: "create role \"odd {db}\"; grant create on schema gov_handoff to \"odd {db}\"", ..CASE },
    Case {
        check: "triggers",
        breaks: "create function public.\"look at\"() returns trigger language plpgsql as $$ begin return new; end $$;
                 create trigger look before insert on event_outbox for each row execute function public.\"look at\"()",
        ..CASE
    },
    Case {
        check: "triggers",
        breaks: "create role owner_{db}; create function public.listen() returns trigger language plpgsql set search_path = pg_catalog as $$ begin return new; end $$;
                 alter function public.listen() owner to owner_{db};
                 create trigger listen before insert on event_pending for each row execute function public.listen()",
        ..CASE
    },
    Case {
        check: "trigger routes",
        breaks: "create function public.tell() returns trigger language plpgsql as $$ begin insert into public.event_outbox (event_domain) values ('x'); return new; end $$;
                 create trigger \"it's told\" after insert on birth_registry for each row execute function public.tell()",
        ..CASE
    },
    Case { check: "trace columns", breaks: "alter table event_outbox drop column causation_id", ..CASE },
    Case { check: "shape", verdict: "fail", breaks: "alter table queue_heartbeat alter column executor_kind type varchar", ..CASE },
    Case { check: "shape", verdict: "fail", breaks: "drop index event_outbox_subject_once", ..CASE },
    Case { check: "shape", verdict: "fail", breaks: "alter table event_pending add column more int not null", ..CASE },
    Case {
        check: "sources",
        verdict: "fail",
        breaks: "select gov_handoff.gov_source_remove(worker_name, source_name) from gov_worker_cursor where metadata ? 'id'",
        mend: Mend::Command,
        ..CASE
    },
    Case {
        check: "migrations",
        verdict: "fail",
        breaks: concat!(include_str!("../migrations/0027_full_audit.down.sql"), "; delete from gov_schema_version where version = 27"),
        mend: Mend::Command,
        ..CASE
    },
    Case {
        check: "findings",
        verdict: "fail",
        breaks: "select gov_handoff.gov_finding_raise('handoff_missed', 'handoff_missed:it''s', 'high')",
        ..CASE
    },
    Case {
        check: "slots not in use",
        breaks: "select pg_create_logical_replication_slot('gov_handoff_was_{db}', 'pgoutput')",
        ..CASE
    },
    Case {
        check: "slot retention",
        breaks: "select pg_create_logical_replication_slot('gov_handoff_{db}', 'pgoutput')",
        also: &["max_slot_wal_keep_size"],
        ..CASE
    },
    Case {
        check: "executors",
        breaks: "select fn_executor_register('it''s', 'DOT', null); select fn_job_subscribe(p_executor_id => 'it''s', p_enabled => true)",
        ..CASE
    },
    Case {
        check: "first to break",
        breaks: "insert into job_deferred (due, job_id) values (now() - interval '1 hour', gen_random_uuid())",
        mend: Mend::Neither("what it takes depends on what runs out"),
        ..CASE
    },
    Case {
        check: "open id ranges",
        given: "update dot_config set value = '100000' where key = 'governance.holes.kept'",
        breaks: "insert into gov_worker_gap (worker_name, source_name, lo, hi, hot) \
                 select 'gov_handoff_intake', 'birth_registry', -3 * g, -3 * g, false from generate_series(1, 50010) g; \
                 delete from gov_worker_gap where source_name = 'birth_registry' and hi = 2147483647; \
                 insert into gov_worker_gap (worker_name, source_name, lo, hi) values ('gov_handoff_intake', 'birth_registry', 1, 2147483647)",
        mend: Mend::SqlAndRun,
        ..CASE
    },
];

/// What `doctor` says.
struct Told {
    code: i32,
    checks: Vec<Value>,
}

impl Told {
    async fn of(url: &str, environment: &[(&str, &str)]) -> Self {
        let ran = cli_with(url, &["doctor", "--json"], environment).await;
        let told: Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
        let checks = told["checks"].as_array().expect("checks").clone();
        for check in &checks {
            let name = check["check"].as_str().expect("a name");
            assert!(
                CHECKS.iter().any(|(known, why)| *known == name && check["why"] == *why),
                "{name} is in no list"
            );
        }
        Self { code: ran.code, checks }
    }

    /// The worst verdict of each check that is not well.
    fn unwell(&self) -> BTreeMap<String, String> {
        let rank = |v: &str| ["ok", "cannot_tell", "warn", "fail"].iter().position(|w| *w == v);
        let mut worst: BTreeMap<String, String> = BTreeMap::new();
        for check in self.checks.iter().filter(|c| c["verdict"] != "ok") {
            let (name, verdict) =
                (check["check"].as_str().expect("text"), check["verdict"].as_str().expect("text"));
            let known = worst.entry(name.to_owned()).or_insert_with(|| verdict.to_owned());
            if rank(verdict) > rank(known) {
                verdict.clone_into(known);
            }
        }
        worst
    }

    /// The statements for one check.
    fn sql(&self, check: &str) -> Vec<String> {
        let fixes = self.checks.iter().filter(|c| c["check"] == check && c["verdict"] != "ok");
        let texts = fixes.flat_map(|c| c["fix"]["sql"].as_array().cloned().unwrap_or_default());
        texts.map(|s| s.as_str().expect("a statement").to_owned()).collect()
    }

    fn command(&self, check: &str) -> String {
        let found = self.checks.iter().find(|c| c["check"] == check && c["fix"]["command"].is_string());
        found
            .and_then(|c| c["fix"]["command"].as_str())
            .unwrap_or_else(|| panic!("no command: {:?}", self.checks))
            .to_owned()
    }

    fn restarts(&self, check: &str) -> bool {
        self.checks.iter().any(|c| c["check"] == check && c["fix"]["restart"] == true)
    }
}

/// Insists that the case changed its check, and what must change with it, and nothing else.
#[track_caller]
fn exactly(case: &Case, before: &Told, after: &Told) {
    let (was, is) = (before.unwell(), after.unwell());
    let changed: BTreeSet<&str> = is
        .iter()
        .filter(|(name, verdict)| was.get(*name) != Some(verdict))
        .filter(|(name, _)| !case.shared || !OF_THE_SERVER.contains(&name.as_str()))
        .map(|(name, _)| name.as_str())
        .collect();
    let meant: BTreeSet<&str> = case.also.iter().copied().chain([case.check]).collect();
    assert_eq!(changed, meant, "{}: {:#?}", case.breaks, after.checks);
    assert_eq!(is[case.check], case.verdict, "{}: {:#?}", case.breaks, after.checks);
    assert_eq!(after.code, i32::from(is.values().any(|v| v == "fail")), "the exit code agrees");
}

/// Runs what was printed, as a superuser, and insists that the check is as it was before. Returns what is said then.
async fn mended(db: &Database, url: &str, case: &Case, before: &Told, broken: Told) -> Told {
    let check = case.check;
    match case.mend {
        Mend::Neither(why) => {
            assert!(!why.is_empty() && broken.sql(check).is_empty(), "{check}");
            return broken;
        }
        Mend::Command => {
            let command = broken.command(check);
            let arguments: Vec<_> = command.split(' ').skip(1).collect();
            done(&db.url, &arguments).await;
        }
        Mend::Sql | Mend::SqlAndRun => {
            let statements = broken.sql(check);
            assert!(!statements.is_empty(), "{check}: no SQL: {:#?}", broken.checks);
            for statement in &statements {
                db.sql(statement).await;
            }
            if case.mend == Mend::SqlAndRun {
                let _daemon = db.daemon("poll", &[("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms")]);
                db.until("select count(*) < 20000 from gov_worker_gap").await;
            }
        }
    }
    let after = Told::of(url, case.environment).await;
    assert_eq!(after.unwell().get(check), before.unwell().get(check), "{check} stays: {:#?}", after.checks);
    after
}

/// Plays one case. `before` is what was said before it, and what is returned was said after it.
async fn played(db: &Database, url: &str, case: &Case, before: &Told) -> Told {
    db.sql(&case.breaks.replace("{db}", &db.name)).await;
    let broken = Told::of(url, case.environment).await;
    exactly(case, before, &broken);
    mended(db, url, case, before, broken).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_check_of_the_database_fails_by_itself_and_is_put_right_by_what_is_printed() {
    let db = migrated().await;
    let mut before = Told::of(&db.url, &[]).await;
    for case in &CASES {
        if case.check == "open id ranges" {
            db.sql(case.given).await;
            done(&db.url, &["run", "--once", "--mode", "poll"]).await;
            before = Told::of(&db.url, &[]).await;
        }
        before = played(&db, &db.url, case, &before).await;
    }
}

/// What a role lacks.
#[tokio::test(flavor = "multi_thread")]
async fn each_check_of_the_role_fails_by_itself_and_is_put_right_by_what_is_printed() {
    let db = migrated().await;
    let role = format!("Who's \"{}\"", db.name);
    let quoted = format!("\"{}\"", role.replace('"', "\"\""));
    db.sql(include_str!("../replication/roles.sql")).await;
    db.sql(&format!(
        "create role {quoted} login replication in role gov_handoff_worker, gov_handoff_operator"
    ))
    .await;
    let url = db.url_as(&role.replace(' ', "%20").replace('"', "%22"));
    done(&db.url, &["replication", "setup"]).await;
    // A source that was never read is counted by the doctor itself, and would be hidden as well.
    db.sql("insert into birth_registry (entity_code, collection_name) values ('a', 'laws')").await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    let breaks = |text: &str| -> &'static str { Box::leak(text.replace("{role}", &quoted).into_boxed_str()) };
    for case in [
        Case { check: "role", breaks: breaks("revoke gov_handoff_worker from {role}"), ..CASE },
        Case { check: "replication", breaks: breaks("alter role {role} noreplication"), ..CASE },
        Case {
            check: "publication",
            breaks: "alter publication gov_handoff drop table birth_registry",
            ..CASE
        },
        Case { check: "publication", breaks: "drop publication gov_handoff", ..CASE },
        Case {
            check: "row security",
            verdict: "fail",
            breaks: "alter table birth_registry enable row level security",
            ..CASE
        },
        Case {
            check: "slot",
            environment: &[("GOV_HANDOFF_CREATE", "false")],
            breaks: "select pg_drop_replication_slot('gov_handoff_' || current_database())",
            ..CASE
        },
    ] {
        let before = Told::of(&url, case.environment).await;
        played(&db, &url, &case, &before).await;
    }
}

/// What waits for an operator, and workers, beside a daemon that runs.
#[tokio::test(flavor = "multi_thread")]
async fn each_check_of_the_daemon_fails_by_itself_and_is_put_right_by_what_is_printed() {
    let polls: &[(&str, &str)] = &[("GOV_HANDOFF_MODE", "poll")];
    let db = migrated().await;
    done(&db.url, &["types", "activate", "--all"]).await;
    done(&db.url, &["types", "deactivate", "governance.handoff.object_born"]).await;
    let mut daemon = db.daemon("poll", &[]);
    daemon.captures(&db.url, "poll").await;
    let pause = Case {
        check: "workers",
        environment: polls,
        breaks: "select gov_handoff.gov_worker_pause(p_worker => 'gov_handoff_intake', p_paused => true, p_actor => 'x', p_reason => 'y')",
        ..CASE
    };
    let before = Told::of(&db.url, polls).await;
    let before = played(&db, &db.url, &pause, &before).await;
    db.sql("insert into birth_registry (entity_code, collection_name) values ('a', 'laws')").await;
    db.until(
        "select exists (select from event_pending where event_type_hint = 'governance.handoff.object_born')",
    )
    .await;
    let inactive = Case { check: "event types", environment: polls, ..CASE };
    let broken = Told::of(&db.url, polls).await;
    exactly(&inactive, &before, &broken);
    let before = mended(&db, &db.url, &inactive, &before, broken).await;

    db.sql(POISON).await;
    db.sql(&policy(1, 1, 1)).await;
    db.sql("insert into birth_registry (entity_code, collection_name) values ('poison', 'laws')").await;
    db.until("select exists (select from iu_route_dead_letter where resolved_at is null)").await;
    let letters =
        Case { check: "dead letters", environment: polls, also: &["findings"], mend: Mend::Command, ..CASE };
    let letters = Case { verdict: "warn", ..letters };
    let broken = Told::of(&db.url, polls).await;
    exactly(&letters, &before, &broken);
    db.sql(CURE).await;
    mended(&db, &db.url, &letters, &before, broken).await;

    let before = Told::of(&db.url, polls).await;
    daemon.kill();
    db.until("select not alive from v_governance_worker where worker_name = 'gov_handoff_intake'").await;
    let dead = Case { check: "worker", verdict: "fail", environment: polls, also: &["workers"], ..CASE };
    let broken = Told::of(&db.url, polls).await;
    exactly(&dead, &before, &broken);
    assert_eq!(broken.command("worker"), "gov-handoff run");
    let again = db.daemon("poll", &[]);
    again.captures(&db.url, "poll").await;
    assert_eq!(Told::of(&db.url, polls).await.unwell(), before.unwell());
}

/// Restarts it, and waits until it answers.
async fn restarted(cluster: &std::sync::Arc<Cluster>, db: &mut Database) {
    let server = std::sync::Arc::clone(cluster);
    blocking(move || server.restart(StopMode::Fast)).await.expect("restarted");
    db.reconnect().await;
}

/// Settings of a whole server.
#[tokio::test(flavor = "multi_thread")]
async fn each_check_of_the_server_fails_by_itself_and_is_put_right_by_what_is_printed() {
    let settings = vec![("max_prepared_transactions".to_owned(), "5".to_owned())];
    let cluster = std::sync::Arc::new(private_cluster(ClusterOptions { settings, ..options() }).await);
    let mut db = active_on(&cluster).await;
    let reload = "select pg_reload_conf()";
    let set =
        |setting: &str| -> &'static str { Box::leak(format!("alter system set {setting}").into_boxed_str()) };
    let all = &[("GOV_HANDOFF_WORKERS", "all")];
    db.sql("select pg_create_physical_replication_slot('other')").await;
    let (before, before_all) = (Told::of(&db.url, &[]).await, Told::of(&db.url, all).await);
    // One restart mends a case and breaks the next one: then the next one alone is unwell.
    for case in [
        Case { check: "wal_level", breaks: set("wal_level = 'replica'"), also: &["replication"], ..ALONE },
        Case { check: "replication slots", breaks: set("max_replication_slots = 1"), ..ALONE },
        Case { check: "wal senders", breaks: set("max_wal_senders = 0"), ..ALONE },
        Case { check: "connections", breaks: set("max_connections = 12"), environment: all, ..ALONE },
        Case { check: "max_slot_wal_keep_size", breaks: set("max_slot_wal_keep_size = '64MB'"), ..ALONE },
    ] {
        db.sql(case.breaks).await;
        restarted(&cluster, &mut db).await;
        let broken = Told::of(&db.url, case.environment).await;
        exactly(&case, if case.environment.is_empty() { &before } else { &before_all }, &broken);
        let statements = broken.sql(case.check);
        assert!(!statements.is_empty(), "{}", case.check);
        for statement in &statements {
            db.sql(statement).await;
        }
        assert_eq!(broken.restarts(case.check), case.check != "max_slot_wal_keep_size");
    }
    db.until("select current_setting('max_slot_wal_keep_size') <> '64MB'").await;
    let after = Told::of(&db.url, &[]).await;
    assert_eq!(after.unwell(), before.unwell(), "{:#?}", after.checks);
    // Without a bound of the server the slot may take all of its budget.
    db.sql("alter system reset max_slot_wal_keep_size").await;
    db.sql(reload).await;
    db.until("select current_setting('max_slot_wal_keep_size') = '-1'").await;

    let huge = Case {
        check: "disk for the log",
        environment: &[("GOV_HANDOFF_WAL_BUDGET_MB", "8000000000")],
        ..ALONE
    };
    let broken = Told::of(&db.url, huge.environment).await;
    assert_eq!(
        broken.unwell().get("disk for the log").map(String::as_str),
        Some("warn"),
        "{:#?}",
        broken.checks
    );
    mended(&db, &db.url, &huge, &before, broken).await;

    let prepared = Case {
        check: "prepared transactions",
        breaks: "begin; create table kept_open (n int); prepare transaction 'it''s \"odd\"\n; drop table x'",
        ..ALONE
    };
    let before = Told::of(&db.url, &[]).await;
    played(&db, &db.url, &prepared, &before).await;

    let patient = &[("GOV_HANDOFF_CERTIFY_INTERVAL", "100ms")];
    let before = Told::of(&db.url, patient).await;
    let holder = connect(&db.url).await;
    holder
        .batch_execute(
            "begin; insert into birth_registry (entity_code, collection_name) values ('open', 'laws')",
        )
        .await
        .expect("open");
    db.until("select exists (select from pg_stat_activity where backend_xid is not null and xact_start < clock_timestamp() - interval '0.6 s')").await;
    let open = Case { check: "frontier", environment: patient, ..ALONE };
    let broken = Told::of(&db.url, patient).await;
    exactly(&open, &before, &broken);
    mended(&db, &db.url, &open, &before, broken).await;

    // The same database on a standby. Nothing that is run there can put it right.
    let before = Told::of(&db.url, &[]).await;
    let server = std::sync::Arc::clone(&cluster);
    let copied = move || {
        server.stop(StopMode::Fast)?;
        let standby = server.copy(true);
        server.start_again()?;
        standby
    };
    let standby = blocking(copied).await.expect("a standby");
    let elsewhere = Case { check: "primary", verdict: "fail", also: &["replication"], ..ALONE };
    let told = Told::of(&standby.url(&db.name), &[]).await;
    exactly(&elsewhere, &before, &told);
    assert!(told.sql("primary").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_the_server_takes_away_when_it_is_idle_is_named() {
    let wanted = ClusterOptions { version: Wanted::V18, ..options() };
    let cluster = private_cluster(wanted).await;
    let db = active_on(&cluster).await;
    let case = Case { check: "idle_replication_slot_timeout", ..ALONE };
    let before = Told::of(&db.url, &[]).await;
    db.sql("alter system set idle_replication_slot_timeout = '1h'").await;
    db.sql("select pg_reload_conf()").await;
    db.until("select current_setting('idle_replication_slot_timeout') = '1h'").await;
    let broken = Told::of(&db.url, &[]).await;
    exactly(&case, &before, &broken);
    mended(&db, &db.url, &case, &before, broken).await;
}

/// A pooler that drops what our sessions ask for, and one that shares a server's session between clients.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_would_make_rows_invisible_is_named() {
    let db = migrated().await;
    let drops = Told::of(&through(&db.url, pooler(Strips::Every).await), &[]).await;
    assert_eq!((drops.code, drops.checks.len()), (1, 1));
    assert_eq!(
        drops.unwell().get("session settings").map(String::as_str),
        Some("fail"),
        "{:#?}",
        drops.checks
    );
    let before = Told::of(&db.url, &[]).await;
    let shares = Told::of(&through(&db.url, transaction_pooler().await), &[]).await;
    exactly(&Case { check: "pooler", verdict: "fail", ..CASE }, &before, &shares);
}

#[test]
fn every_check_has_a_case_or_a_reason_why_it_has_none() {
    // The cases of the other tests of this file, which are not in a table because each needs a server of its own.
    const OTHERS: [&str; 21] = [
        "role",
        "replication",
        "publication",
        "row security",
        "slot",
        "workers",
        "event types",
        "dead letters",
        "worker",
        "wal_level",
        "replication slots",
        "wal senders",
        "connections",
        "max_slot_wal_keep_size",
        "disk for the log",
        "prepared transactions",
        "frontier",
        "idle_replication_slot_timeout",
        "session settings",
        "pooler",
        "primary",
    ];
    let text = include_str!("doctor_fixes.rs");
    let played = |name: &str| {
        text.contains(&format!("check: \"{name}\"")) || text.contains(&format!("get(\"{name}\")"))
    };
    for (name, _) in CHECKS {
        let reason = REASONS.iter().any(|(check, why)| *check == name && !why.is_empty());
        assert!(reason != (played(name)), "{name} needs a case, or a reason why it has none");
        assert!(reason || OTHERS.contains(&name) || CASES.iter().any(|c| c.check == name), "{name}");
    }
}

/// What `--fix-sql` prints may be piped into psql: a name with a line break ends no comment.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_printed_is_statements_and_comments() {
    let db = migrated().await;
    db.sql("select gov_handoff.gov_finding_raise('slot_lost', E'slot_lost:a\\ndrop table birth_registry;', 'warning')").await;
    let told = Told::of(&db.url, &[]).await;
    let printed = cli(&db.url, &["doctor", "--fix-sql"]).await.out;
    // What the other tests run as they found it in JSON is what is printed here.
    let statements: Vec<_> = told.unwell().keys().flat_map(|check| told.sql(check)).collect();
    assert!(!statements.is_empty() && statements.iter().all(|s| printed.contains(s)), "{statements:?}");
    let broken: Vec<_> = printed.lines().filter(|l| l.starts_with("drop table")).collect();
    // Only inside the literal, where it is text.
    assert_eq!(broken, ["drop table birth_registry;', 'seen by an operator');"], "{printed}");
    let statements: Vec<_> = printed.lines().filter(|l| !l.starts_with("--")).collect();
    db.sql(&statements.join("\n")).await;
    assert_eq!(db.number("select count(*) from system_issues where resolved_at is null").await, 0);
    assert_eq!(db.number("select count(*) from pg_class where relname = 'birth_registry'").await, 1);
}
