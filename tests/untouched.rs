//! Birth untouched: the sources carry nothing of ours, and the daemon's role can write no table at all.

use crate::support::adopted::{TABLES, adopted};
use crate::support::fixture::{ALL_KINDS, SIGNALS, UNMAPPED};
use crate::support::sources::{register, rule, source};
use crate::support::{Daemon, Database, cli_with, connect, done};

const ROLES: &str = include_str!("../replication/roles.sql");
const TEARDOWN: &str = include_str!("../replication/teardown.sql");
const SOURCES: [&str; 5] =
    ["birth_registry", "registry_changelog", "pivot_definitions", "governance_ruleset", "event_outbox"];

/// Everything the catalogue says of a table: columns, indexes, triggers, rules, policies, constraints, options.
pub async fn catalogue(db: &Database, table: &str) -> String {
    let query = format!(
        "select jsonb_pretty(jsonb_build_object(
            'class', (select to_jsonb(c) - array['relpages', 'reltuples', 'relallvisible', 'relfrozenxid', 'relminmxid', 'relacl',
                                                 'relhasindex'] from pg_class c where c.oid = t.oid),
            'columns', (select jsonb_agg(to_jsonb(a) - array['attacl', 'attmissingval'] order by a.attnum) from pg_attribute a where a.attrelid = t.oid),
            'defaults', (select jsonb_agg(pg_get_expr(d.adbin, d.adrelid) order by d.adnum) from pg_attrdef d where d.adrelid = t.oid),
            'indexes', (select jsonb_agg(pg_get_indexdef(i.indexrelid) order by i.indexrelid) from pg_index i where i.indrelid = t.oid),
            'triggers', (select jsonb_agg(pg_get_triggerdef(g.oid) order by g.oid) from pg_trigger g where g.tgrelid = t.oid),
            'constraints', (select jsonb_agg(k.conname || pg_get_constraintdef(k.oid) order by k.oid) from pg_constraint k
                             where k.conrelid = t.oid or k.confrelid = t.oid),
            'rules', (select count(*) from pg_rewrite r where r.ev_class = t.oid),
            'policies', (select count(*) from pg_policy p where p.polrelid = t.oid),
            'statistics', (select count(*) from pg_statistic_ext s where s.stxrelid = t.oid)))
           from (select 'public.{table}'::regclass::oid as oid) t"
    );
    db.text(&query).await
}

/// Who may do what with a table or its columns, one privilege a line.
async fn privileges(db: &Database, table: &str) -> Vec<String> {
    let query = format!(
        "select format('%s %s %s', coalesce(a.grantee::regrole::text, '-'), a.privilege_type, '') as p
           from pg_class c cross join lateral aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
          where c.oid = 'public.{table}'::regclass
         union all
         select format('%s %s %s', a.grantee::regrole, a.privilege_type, t.attname)
           from pg_attribute t cross join lateral aclexplode(t.attacl) a
          where t.attrelid = 'public.{table}'::regclass order by 1"
    );
    db.texts(&query).await
}

/// A role that logs in and is a worker, named after its database because roles belong to the cluster.
async fn worker(db: &Database, attributes: &str) -> String {
    let role = format!("worker_{}", db.name);
    let create = format!("create role {role} login {attributes} in role gov_handoff_worker");
    db.client.batch_execute(&create).await.expect("a worker's role");
    db.client.batch_execute(ROLES).await.expect("replication/roles.sql");
    role
}

/// Runs a statement that must fail for lack of privilege.
async fn refused(client: &tokio_postgres::Client, statement: &str) {
    // In a transaction, because a lock needs one.
    let error = client.batch_execute(&format!("begin; {statement}")).await.expect_err(statement);
    client.batch_execute("rollback").await.expect("rollback");
    let code = error.code().map(tokio_postgres::error::SqlState::code);
    assert_eq!(code, Some("42501"), "{statement}: {error}");
}

async fn everything_is_handed_off(db: &Database) {
    let all = format!(
        "select (select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health') = {SIGNALS} \
         and (select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified') = {UNMAPPED}"
    );
    db.until(&all).await;
}

#[tokio::test]
async fn the_sources_catalogue_is_the_same_before_and_after_migrate_and_run() {
    let db = adopted().await;
    let mut before = Vec::new();
    for table in TABLES {
        before.push((table, catalogue(&db, table).await, privileges(&db, table).await));
    }
    done(&db.url, &["migrate"]).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let mut daemon = Daemon::running(&db, "auto", &[]).await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    everything_is_handed_off(&db).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    for (table, catalogue_before, privileges_before) in before {
        assert_eq!(catalogue(&db, table).await, catalogue_before, "{table}");
        let mut added = privileges(&db, table).await;
        added.retain(|p| !privileges_before.contains(p));
        if table == "registry_changelog" {
            // The audit rows: written by the owner of the gates, whom nobody can become.
            assert_eq!(added, ["gov_handoff_owner INSERT "]);
        } else if SOURCES.contains(&table) && table != "event_outbox" {
            assert!(added.is_empty(), "{table}: {added:?}");
        }
        // The queue itself: written by the owner of the gates, read by our other roles, nothing else.
        let beyond = |p: &&String| !(p.starts_with("gov_handoff_owner ") || p.ends_with(" SELECT "));
        assert_eq!(added.iter().find(beyond), None, "{table}");
    }
    let members = "select count(*) from pg_auth_members where roleid = 'gov_handoff_owner'::regrole";
    assert_eq!(db.number(members).await, 0, "nobody can become the owner of the gates");
}

#[tokio::test]
async fn the_workers_role_can_write_and_lock_nothing_and_yet_hands_everything_off() {
    let db = adopted().await;
    done(&db.url, &["migrate"]).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let role = worker(&db, "").await;
    let quick = [
        ("GOV_HANDOFF_AUDIT_INTERVAL", "200ms"),
        ("GOV_HANDOFF_LEASE_TTL", "1s"),
        ("GOV_HANDOFF_CERTIFY_INTERVAL", "200ms"),
    ];
    let mut daemon = Daemon::start(&db.url_as(&role), &["--mode", "poll"], &quick);
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    everything_is_handed_off(&db).await;
    // Proof is its work too, and the second pass, which has a frontier, asks for more than the first.
    let certified_by_frontier = "select count(*) = (select count(*) from gov_worker_cursor where worker_name = 'gov_handoff_intake') \
         from gov_worker_cursor where last_run_summary #>> '{certificate,full}' = 'false'";
    db.until(certified_by_frontier).await;
    // The chores are its work too: an audit row of each source that saw rows.
    db.until(
        "select count(distinct entity_code) >= 4 from registry_changelog where source_system = 'gov-handoff'",
    )
    .await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert!(!daemon.log().contains("permission denied"), "{}", daemon.log());
    done(&db.url_as(&role), &["audit", "--full"]).await;

    let client = connect(&db.url_as(&role)).await;
    let columns = "select c.relname::text || ' ' || min(quote_ident(a.attname)) from pg_class c join pg_attribute a on a.attrelid = c.oid
                    and a.attnum > 0 and a.attgenerated = '' and a.attidentity = ''
                    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') group by c.relname order by 1";
    let tables = db.texts(columns).await;
    assert!(tables.len() > 25, "{tables:?}");
    for line in &tables {
        let (table, column) = line.split_once(' ').expect("two words");
        refused(&client, &format!("insert into public.{table} default values")).await;
        refused(&client, &format!("update public.{table} set {column} = null")).await;
        refused(&client, &format!("delete from public.{table}")).await;
        refused(&client, &format!("truncate public.{table}")).await;
        for mode in ["row exclusive", "share", "exclusive", "access exclusive"] {
            refused(&client, &format!("lock table public.{table} in {mode} mode")).await;
        }
    }
    for content in [
        "select birth_payload from birth_registry",
        "select * from birth_registry",
        "select old_value from registry_changelog",
        "select new_value from registry_changelog",
        "select definition from pivot_definitions",
        "select rules from governance_ruleset",
        "lock table birth_registry in access share mode",
        "lock table registry_changelog in access share mode",
        "create table public.mine ()",
        "set role gov_handoff_owner",
    ] {
        refused(&client, content).await;
    }
    // Gates are for their users: a worker activates no type and defines no source.
    refused(&client, "select gov_handoff.gov_type_set_active('governance.handoff.object_born', false)").await;
    refused(&client, "select gov_handoff.gov_source_remove('gov_handoff_intake', 'birth_registry')").await;
    refused(&client, "select gov_handoff.gov_gap_replace('w', 's', '{}', '{}', '{}', '{}')").await;

    db.client.batch_execute("drop publication if exists gov_handoff").await.expect("none");
    db.client.batch_execute(TEARDOWN).await.expect("replication/teardown.sql");
    for table in ["birth_registry", "registry_changelog", "pivot_definitions", "governance_ruleset"] {
        let left = privileges(&db, table).await;
        assert!(!left.iter().any(|p| p.starts_with("gov_handoff_worker")), "{table}: {left:?}");
    }
}

#[tokio::test]
async fn a_role_that_may_only_replicate_streams_what_an_owner_set_up() {
    let db = adopted().await;
    done(&db.url, &["migrate"]).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    let role = worker(&db, "replication").await;
    let theirs = [("GOV_HANDOFF_CREATE", "false"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "1h")];
    let early = cli_with(&db.url_as(&role), &["run", "--mode", "stream"], &theirs).await;
    assert_eq!(early.code, 2);
    assert!(
        early.err.contains("publication gov_handoff does not exist")
            && early.err.contains("replication setup"),
        "{}",
        early.err
    );
    // It may make a slot, and not a publication of tables that are not its own.
    let own = cli_with(&db.url_as(&role), &["run", "--mode", "stream"], &[]).await;
    assert_eq!(own.code, 2);
    assert!(own.err.contains("may not create publication"), "{}", own.err);

    done(&db.url, &["replication", "setup"]).await;
    let mut daemon = Daemon::start(&db.url_as(&role), &["--mode", "stream"], &theirs);
    daemon.captures(&db.url, "stream").await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    everything_is_handed_off(&db).await;
    let who = "select distinct safe_payload ->> 'captured_by' from event_outbox where event_domain = 'governance' and event_stream <> 'health'";
    assert_eq!(db.texts(who).await, ["stream"]);
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert!(!daemon.log().contains("permission denied"), "{}", daemon.log());
}

#[tokio::test]
async fn the_sql_for_a_dba_is_what_the_program_does_itself() {
    let db = adopted().await;
    done(&db.url, &["migrate"]).await;
    let printed = done(&db.url, &["replication", "sql"]).await;
    let statement = |text: &str| {
        let lines =
            text.lines().filter(|l| !l.starts_with("--")).map(str::trim).collect::<Vec<_>>().join(" ");
        lines.trim().to_owned()
    };
    let file = include_str!("../replication/publication.sql");
    let (publication, _slot) = printed.split_at(printed.find("-- After the publication").expect("a slot"));
    assert_eq!(
        statement(file),
        statement(publication),
        "replication/publication.sql is out of date:\n{printed}"
    );
    db.client.batch_execute(file).await.expect("replication/publication.sql");
    db.client.batch_execute(include_str!("../replication/slot.sql")).await.expect("replication/slot.sql");
    let setup = done(&db.url, &["replication", "setup"]).await;
    assert!(setup.contains("is there"), "{setup}");
    let mut daemon = Daemon::start(&db.url, &["--mode", "stream"], &[("GOV_HANDOFF_CREATE", "false")]);
    daemon.captures(&db.url, "stream").await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    db.client.batch_execute(TEARDOWN).await.expect("replication/teardown.sql");
    let left = format!("select count(*) from pg_replication_slots where slot_name = '{}'", db.slot());
    assert_eq!(db.number(&left).await, 0);
    assert_eq!(db.number("select count(*) from pg_publication").await, 0);
}

/// A source beside the default ones.
const OWN: &str = "create table public.own (id int primary key, code text)";

#[tokio::test]
async fn the_sql_for_a_dba_follows_what_is_there() {
    let db = adopted().await;
    done(&db.url, &["migrate"]).await;
    let printed = async || done(&db.url, &["replication", "sql"]).await;
    // A DBA's client sends each statement by itself, and a transaction that has written makes no slot.
    let follow = async |sql: &str| {
        let (publication, slot) = sql.split_at(sql.find("\ncommit;").expect("a block") + "\ncommit;".len());
        db.sql(publication).await;
        db.sql(slot).await;
    };
    let streams = async || {
        let mut daemon = Daemon::start(&db.url, &["--mode", "stream"], &[("GOV_HANDOFF_CREATE", "false")]);
        daemon.captures(&db.url, "stream").await;
        assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    };
    let first = printed().await;
    assert!(first.starts_with("begin;\ncreate publication"), "{first}");
    follow(&first).await;
    streams().await;

    db.sql(OWN).await;
    let sources = include_str!("../replication/sources.toml");
    let own = source("own", "int4", &["id", "code"])
        + "exclude = [{ column = \"code\", equals = \"not this\" }]\n"
        + &rule("object_born", "own", "own:{code}", ["scope", "own"]);
    register(&db.url, &format!("{sources}\n{own}")).await;
    let second = printed().await;
    assert!(second.starts_with("begin;\nalter publication") && second.contains("\"own\""), "{second}");
    assert!(!second.contains("create publication") && !second.contains("replication_slot("), "{second}");
    assert!(second.contains(&format!("-- Slot {} exists", db.slot())), "{second}");
    follow(&second).await;
    streams().await;

    // A publication that is younger than the slot is of no use to it.
    db.sql("drop publication gov_handoff").await;
    let third = printed().await;
    assert!(
        third.contains("create publication") && third.contains("select pg_drop_replication_slot("),
        "{third}"
    );
    follow(&third).await;
    streams().await;
}
