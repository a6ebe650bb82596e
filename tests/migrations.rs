//! Migrations: fresh, again, dry, adopted, refused, and the way back.

use crate::support::adopted::{TABLES, adopted};
use crate::support::fixture::{ALL_KINDS, LEAVE_ROOM, SIGNALS, UNMAPPED};
use crate::support::{
    Database, cli, cli_with, connect, done, fresh_database, migrated, number, options, private_cluster,
};
use crate::untouched::catalogue;

/// Every relation, function and type of the database, with its privileges.
pub async fn objects(db: &Database) -> Vec<String> {
    let query = "
        select 'class ' || c.oid::regclass::text || ' ' || c.relkind::text || ' ' || array(
                   select a::text from aclexplode(coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's'::\"char\" else 'r'::\"char\" end, c.relowner))) a
                    order by 1)::text
          from pg_class c
         where c.relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) and c.relkind not in ('t', 'i')
           and c.relnamespace::regnamespace::text not like 'pg_toast%'
        union all select 'index ' || pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indexrelid
         where c.relnamespace = 'public'::regnamespace
        union all select 'proc ' || p.oid::regprocedure::text from pg_proc p where p.pronamespace in (select n.oid from pg_namespace n where n.nspname in ('public', 'gov_handoff'))
        union all select 'type ' || t.oid::regtype::text from pg_type t where t.typnamespace = 'public'::regnamespace and t.typelem = 0
        union all select 'schema ' || nspname::text || ' ' || array(
                   select a::text from aclexplode(coalesce(nspacl, acldefault('n', nspowner))) a order by 1)::text from pg_namespace where nspname = 'public'
        union all select 'default ' || defaclrole::regrole::text || defaclacl::text from pg_default_acl
        union all select 'publication ' || pubname::text from pg_publication order by 1";
    db.texts(query).await
}

/// How many steps there are: a file each.
fn all() -> usize {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let names = std::fs::read_dir(folder).expect("migrations").map(|e| e.expect("a file").file_name());
    names.filter(|name| !name.to_string_lossy().ends_with(".down.sql")).count()
}

/// How many steps are said to be in this state.
fn steps(said: &str, state: &str) -> usize {
    said.lines().filter(|line| line.starts_with("00") && line.ends_with(state)).count()
}

#[tokio::test]
async fn a_fresh_database_is_migrated_once_and_again_changes_nothing() {
    let db = fresh_database(None).await;
    let empty = objects(&db).await;
    let status = done(&db.url, &["migrate", "status"]).await;
    assert_eq!(steps(&status, "pending"), all(), "{status}");
    let dry = done(&db.url, &["migrate", "--dry-run"]).await;
    assert_eq!(steps(&dry, "pending"), all(), "{dry}");
    assert!(dry.contains("birth_registry") && dry.contains("created"), "{dry}");
    assert_eq!(objects(&db).await, empty, "a dry run and a status write nothing");

    let first = done(&db.url, &["migrate"]).await;
    assert_eq!(steps(&first, "applied"), all(), "{first}");
    assert_eq!(first.matches("registered").count(), 5, "{first}");
    let there = objects(&db).await;
    let second = done(&db.url, &["migrate"]).await;
    assert_eq!(steps(&second, "current"), all(), "{second}");
    assert!(!second.contains("registered") && !second.contains("applied"), "{second}");
    assert_eq!(objects(&db).await, there);
    let status: serde_json::Value =
        serde_json::from_str(&done(&db.url, &["migrate", "status", "--json"]).await).expect("json");
    assert!(status.as_array().expect("steps").iter().all(|s| s["state"] == "current"), "{status}");
    let inactive =
        "select count(*) from event_type_registry where event_domain = 'governance' and not active";
    // One kind of finding is an event of the system's.
    let findings = i64::try_from(gov_handoff::core::finding::KINDS.len()).expect("few") - 1;
    // And the roll-ups of the domain, and verdicts that changed.
    assert_eq!(db.number(inactive).await, 12 + findings + 2, "types ship inactive");
}

#[tokio::test]
async fn two_migrations_at_once_are_one() {
    let db = fresh_database(None).await;
    let (one, two) = tokio::join!(cli(&db.url, &["migrate"]), cli(&db.url, &["migrate"]));
    assert_eq!((one.code, two.code), (0, 0), "{}{}", one.err, two.err);
    assert_eq!(db.number("select count(*) from gov_schema_version").await, all() as i64);
    assert_eq!(db.number("select count(*) from gov_worker_cursor").await, 5);
}

#[tokio::test]
async fn the_way_back_refuses_with_a_count_and_then_leaves_nothing_of_ours() {
    let db = fresh_database(None).await;
    let empty = objects(&db).await;
    assert!(done(&db.url, &["migrate", "revert"]).await.contains("nothing to revert"));
    done(&db.url, &["migrate"]).await;
    // An empty one may go without asking.
    done(&db.url, &["migrate", "revert"]).await;
    assert_eq!(objects(&db).await, empty);

    done(&db.url, &["migrate"]).await;
    db.client.batch_execute(LEAVE_ROOM).await.expect("leave room for given ids");
    done(&db.url, &["types", "activate", "object_born"]).await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    let there = objects(&db).await;
    let refused = cli(&db.url, &["migrate", "revert"]).await;
    assert_eq!(refused.code, 1, "{}", refused.err);
    // Certificates are captured too, but they are no handoffs.
    let captured = SIGNALS - 5 + UNMAPPED;
    let counts = format!("5 recorded and {captured} captured handoffs, 0 dead letters and 29 source rows");
    assert!(refused.err.contains(&counts) && refused.err.contains("--discard"), "{}", refused.err);
    assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    assert_eq!(objects(&db).await, there, "refused is unchanged");
    done(&db.url, &["migrate", "revert", "--discard"]).await;
    assert_eq!(objects(&db).await, empty);
    // And forth again.
    done(&db.url, &["migrate"]).await;
    assert_eq!(objects(&db).await, there);
}

#[tokio::test]
async fn the_way_back_does_not_leave_a_slot_that_nobody_reads() {
    let db = fresh_database(None).await;
    let empty = objects(&db).await;
    done(&db.url, &["migrate"]).await;
    done(&db.url, &["replication", "setup"]).await;
    let there = objects(&db).await;
    for arguments in [&["migrate", "revert"][..], &["migrate", "revert", "--discard"]] {
        let refused = cli(&db.url, arguments).await;
        assert_eq!(refused.code, 1, "{}", refused.err);
        assert!(
            refused.err.contains(&db.slot()) && refused.err.contains("replication teardown"),
            "{}",
            refused.err
        );
        assert_eq!(objects(&db).await, there, "refused is unchanged");
    }
    // A slot of another name is somebody else's.
    done(&db.url, &["migrate", "revert", "--slot", "another"]).await;
    // Without tables to name the sources, and by two roles: who reads the slot owns no publication.
    let role = format!("reader_{}", db.name);
    db.sql(&format!("create role {role} login replication")).await;
    let reader = db.url_as(&role);
    let torn =
        cli_with(&db.url, &["replication", "teardown"], &[("GOV_HANDOFF_REPLICATION_URL", &reader)]).await;
    assert_eq!(torn.code, 0, "{}", torn.err);
    assert_eq!(objects(&db).await, empty);
    let left = "select count(*) from pg_replication_slots where database = current_database()";
    assert_eq!(db.number(left).await, 0);
}

#[tokio::test]
async fn a_live_substrate_is_adopted_works_and_outlives_the_way_back() {
    let db = adopted().await;
    let before = objects(&db).await;
    let mut shapes = Vec::new();
    for table in TABLES {
        shapes.push(catalogue(&db, table).await);
    }
    let said = done(&db.url, &["migrate"]).await;
    assert!(said.contains("adopted as it is: birth_registry"), "{said}");
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    let pending =
        "select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified'";
    assert_eq!(db.number(pending).await, SIGNALS + UNMAPPED);
    done(&db.url, &["types", "activate", "--all"]).await;
    let signals =
        "select count(*) from event_outbox where event_domain = 'governance' and event_stream <> 'health'";
    assert_eq!(db.number(signals).await, SIGNALS);
    // A row that the outbox refuses, in a dead-letter table without our constraints.
    db.client
        .batch_execute("alter table event_outbox add constraint t check (canonical_address <> 'c:poison')")
        .await
        .expect("refuse");
    db.client
        .batch_execute(
            "insert into birth_registry (id, entity_code, collection_name) values (90, 'poison', 'c')",
        )
        .await
        .expect("poison");
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    db.until("select count(*) = 1 from iu_route_dead_letter").await;
    db.client.batch_execute("alter table event_outbox drop constraint t").await.expect("as before");
    let status = cli(&db.url, &["status"]).await;
    assert!(status.code == 1 && status.out.contains("1 dead letters"), "{}{}", status.out, status.err);
    for (table, shape) in TABLES.iter().zip(&shapes) {
        assert_eq!(&catalogue(&db, table).await, shape, "{table} was altered");
    }

    // Nothing recorded is in a table that would go, so the way back need not be told.
    let back = cli(&db.url, &["migrate", "revert"]).await;
    assert_eq!(back.code, 0, "{}", back.err);
    assert_eq!(db.number(signals).await, SIGNALS, "what was recorded stays in the live tables");
    assert_eq!(db.number("select count(*) from birth_registry").await, 6);
    for (table, shape) in TABLES.iter().zip(&shapes) {
        assert_eq!(&catalogue(&db, table).await, shape, "{table} was altered by the way back");
    }
    assert_eq!(objects(&db).await, before);
    // And forth again, over what the first time left in the live tables: nothing twice.
    done(&db.url, &["migrate", "--backlog", "hand_off"]).await;
    done(&db.url, &["types", "activate", "--all"]).await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    assert_eq!(db.number(signals).await, SIGNALS + 1, "only the row that was refused before is new");
}

#[tokio::test]
async fn the_way_back_does_not_forget_what_was_retired_unless_told() {
    let db = adopted().await;
    done(&db.url, &["migrate"]).await;
    db.client.batch_execute(ALL_KINDS).await.expect("the fixture");
    done(&db.url, &["types", "activate", "--all"]).await;
    done(&db.url, &["run", "--mode", "poll", "--once"]).await;
    done(&db.url, &["audit", "--full"]).await;
    done(&db.url, &["retire", "--before", "2999-01-01"]).await;
    let refused = cli(&db.url, &["migrate", "revert"]).await;
    assert_eq!(refused.code, 1, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("were retired, which would be emitted again"), "{}", refused.err);
    assert!(refused.err.contains("--discard"), "{}", refused.err);
    let kept = "select count(*) from gov_retired_range";
    assert!(db.number(kept).await > 0);
    done(&db.url, &["migrate", "revert", "--discard"]).await;
}

#[tokio::test]
async fn a_live_table_of_another_shape_is_refused_by_name_and_nothing_is_changed() {
    let cases = [
        (
            "alter table event_outbox alter column safe_payload drop default, drop constraint event_outbox_safe_payload_check;
             alter table event_outbox alter column safe_payload type text",
            &["event_outbox.safe_payload is text, expected jsonb"][..],
        ),
        ("alter table event_pending drop column error_count", &["event_pending has no column error_count (integer)"]),
        (
            "alter table queue_heartbeat alter column metadata type text; alter table event_pending drop column last_error",
            &["queue_heartbeat.metadata is text, expected jsonb", "event_pending has no column last_error (text)"],
        ),
        (
            "alter table event_outbox add column event_subject_type text not null",
            &["event_outbox.event_subject_type is not null without a default"],
        ),
        (
            "drop index uq_event_outbox_subject_type",
            &["event_outbox.(event_domain, event_type, event_subject_table, event_subject_ref) is not unique"],
        ),
    ];
    for (change, words) in cases {
        let db = adopted().await;
        let checks = "select coalesce((select conname::text from pg_constraint where conrelid = 'event_outbox'::regclass
                       and pg_get_constraintdef(oid) like '%''body''%'), '')";
        let change = change.replace("event_outbox_safe_payload_check", &db.text(checks).await);
        db.client.batch_execute(&change).await.unwrap_or_else(|e| panic!("{change}: {e:?}"));
        let before = objects(&db).await;
        let refused = cli(&db.url, &["migrate"]).await;
        assert_eq!(refused.code, 2, "{change}: {}{}", refused.out, refused.err);
        for word in words {
            assert!(refused.err.contains(word), "{change}: {}", refused.err);
        }
        assert!(refused.err.contains("nothing was changed"), "{}", refused.err);
        assert_eq!(refused.err.trim_end().lines().count(), 1, "{}", refused.err);
        assert_eq!(objects(&db).await, before, "{change}");
    }
}

#[tokio::test]
async fn a_source_that_lacks_a_default_column_leaves_no_half_of_the_defaults() {
    let db = adopted().await;
    db.client.batch_execute("alter table registry_changelog rename actor_ref to who; alter table registry_changelog add actor_ref text;
                             alter table pivot_definitions drop column actor_ref").await.expect("alter");
    let refused = cli(&db.url, &["migrate"]).await;
    assert_eq!(refused.code, 2, "{}", refused.out);
    assert!(refused.err.contains("public.pivot_definitions has no column actor_ref"), "{}", refused.err);
    assert_eq!(db.number("select count(*) from gov_worker_cursor").await, 0);
    // Mended, the same command does the rest.
    db.client.batch_execute("alter table pivot_definitions add column actor_ref text").await.expect("mend");
    assert_eq!(done(&db.url, &["migrate"]).await.matches("registered").count(), 5);
}

#[tokio::test]
async fn a_step_of_another_build_is_not_built_upon() {
    let db = migrated().await;
    db.client
        .batch_execute("update gov_schema_version set checksum = 'of another' where version = 3")
        .await
        .expect("update");
    let refused = cli(&db.url, &["migrate"]).await;
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("migration 3 (apply) was applied by another build"), "{}", refused.err);
}

/// Whoever owns a database need not be a superuser to have us in it, and is nobody more for it afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_who_is_no_superuser_migrates_and_cannot_become_the_owner_of_the_gates() {
    // Roles belong to the cluster, and on the shared one somebody else has made them.
    let cluster = private_cluster(options()).await;
    let admin = connect(&cluster.url("postgres")).await;
    admin.batch_execute("create role landlord login createrole").await.expect("a role");
    admin.batch_execute("create database house owner landlord").await.expect("a database");
    let url = cluster.url("house").replacen("postgres@", "landlord@", 1);
    done(&url, &["migrate", "--dry-run"]).await;
    let first = done(&url, &["migrate"]).await;
    assert_eq!(steps(&first, "applied"), all(), "{first}");
    done(&url, &["types", "activate", "--all"]).await;
    let client = connect(&url).await;
    client
        .batch_execute("create role daemon login in role gov_handoff_worker")
        .await
        .expect("a daemon's role");
    let roles = include_str!("../replication/roles.sql");
    client.batch_execute(roles).await.expect("it may not make the reader, and grants all the same");
    client
        .batch_execute("insert into birth_registry (entity_code, collection_name) values ('a', 'c')")
        .await
        .expect("a birth");
    let daemon = cluster.url("house").replacen("postgres@", "daemon@", 1);
    done(&daemon, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(
        number(&client, "select count(*) from event_outbox where event_subject_ref is not null").await,
        1
    );
    let becomes = client.batch_execute("set role gov_handoff_owner").await;
    assert!(becomes.is_err(), "the migrating role can become the owner of the gates");
    let creates = "select has_schema_privilege('gov_handoff_owner', 'public', 'create')::int::bigint";
    assert_eq!(number(&client, creates).await, 0);
    done(&url, &["migrate", "revert", "--discard"]).await;
}
