//! The backlog: which rows were there when a source was registered, what becomes of them, and the sweep that seeds them.

use std::process::Stdio;

use gov_handoff::embedded::{Cluster, ClusterOptions};
use serde_json::Value;
use tokio_postgres::Client;

use crate::support::sources::register;
use crate::support::{
    Daemon, Database, Random, active, active_on, cli, cli_with, connect, done, options, private_cluster,
    program, seed, under_writers,
};

/// The tests run the sweep by its command; the daemon beside it is the intake alone.
const INTAKE: [(&str, &str); 2] =
    [("GOV_HANDOFF_WORKERS", "gov_handoff_intake"), ("GOV_HANDOFF_POLL_INTERVAL", "50ms")];
const SIGNALS: &str = "select count(*) from verify.handoffs where event_subject_table = 'birth_registry'";
/// Births whose object is no candidate.
const UNSEEDED: &str = "select count(*) from birth_registry b where not exists (
    select from gov_candidate_state c where c.candidate_key = b.collection_name || ':' || b.entity_code)";
/// How the births of one batch of codes stand: rows, and rows with a signal.
const OF: &str = "select count(*) || ' ' || count(*) filter (where exists (
    select from verify.handoffs h where h.event_subject_table = 'birth_registry' and h.safe_payload ->> 'source_key' = b.id::text
       and h.event_type = 'governance.handoff.object_born'))
    from birth_registry b where entity_code like ";
/// Births that are in the backlog and have a signal, or that are in neither place.
const NOT_IN_ONE_PLACE: &str = "select count(*) from birth_registry b where (
    exists (select from gov_source_boundary s join gov_backlog_range r on r.boundary = s.boundary
             where s.source_name = 'birth_registry' and b.id between r.lo and r.hi))
    = exists (select from verify.handoffs h where h.event_subject_table = 'birth_registry' and h.safe_payload ->> 'source_key' = b.id::text)";

/// A database in which the births are not registered yet.
async fn unregistered() -> Database {
    let db = active().await;
    remove_births(&db).await;
    db
}

/// A server with prepared transactions.
async fn preparing() -> Cluster {
    let settings = vec![("max_prepared_transactions".to_owned(), "5".to_owned())];
    private_cluster(ClusterOptions { settings, ..options() }).await
}

async fn remove_births(db: &Database) {
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
}

/// Births of one commit; a third of them are registered, and so would come to two signals.
async fn births(client: &Client, code: &str, n: i64) {
    let insert = format!(
        "insert into birth_registry (entity_code, collection_name, status, source_system) select '{code}' || g, 'c' || g % 5, \
         case when g % 3 = 0 then 'registered' end, 'importer' from generate_series(1, {n}) g"
    );
    client.batch_execute(&insert).await.expect("births");
}

async fn once(url: &str) {
    let ran = cli_with(url, &["run", "--once", "--mode", "poll"], &INTAKE).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
}

async fn backfilled(url: &str, arguments: &[&str]) -> Value {
    let ran = cli(url, &[&["backfill", "--json"], arguments].concat()).await;
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    serde_json::from_str(&ran.out).expect("json")
}

async fn audited(url: &str) -> Value {
    let ran = cli(url, &["audit", "--full", "--check", "--json"]).await;
    let value: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
    assert_eq!(ran.code, 0, "{value}");
    value
}

fn of_source(value: &Value, source: &str) -> Value {
    let all = value["sources"].as_array().expect("sources");
    all.iter().find(|s| s["source"] == source).unwrap_or_else(|| panic!("{source} of {value}")).clone()
}

/// How many births the backlog has, and how many kills the sweep survives. `make full` runs it with as many births as production
/// has: `GOV_HANDOFF_TEST_BACKLOG_ROWS=1037724`.
fn size() -> (i64, u64) {
    let rows = std::env::var("GOV_HANDOFF_TEST_BACKLOG_ROWS").ok().and_then(|text| text.parse().ok());
    (rows.unwrap_or(30_000), 20)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_is_killed_again_and_again_seeds_every_row_once_while_births_go_on() {
    let (rows, kills) = size();
    let seed = seed();
    let cluster = preparing().await;
    let db = active_on(&cluster).await;
    remove_births(&db).await;
    births(&db.client, "old", rows).await;
    // Open at the registration: a transaction with savepoints, and a prepared one.
    let open = connect(&db.url).await;
    open.batch_execute("begin; savepoint a").await.expect("begin");
    births(&open, "open_a", 10).await;
    open.batch_execute("rollback to a; savepoint b").await.expect("savepoints");
    births(&open, "open_b", 10).await;
    open.batch_execute("release b").await.expect("release");
    let prepared = connect(&db.url).await;
    prepared.batch_execute("begin; savepoint a").await.expect("begin");
    births(&prepared, "prepared", 10).await;
    let name = "backlog";
    prepared.batch_execute(&format!("release a; prepare transaction '{name}'")).await.expect("prepare");
    births(&db.client, "last", 7).await;

    let definition = include_str!("../replication/sources.toml").replacen(
        "backlog = \"seed\"",
        "backlog = \"seed\"\nbatch_size = 2000",
        1,
    );
    register(&db.url, &definition).await;
    let mut daemon = Daemon::running(&db, "poll", &INTAKE).await;
    let pages = u64::try_from(rows / 2_000).expect("small") * 2;
    let begun = std::time::Instant::now();
    let sweeping = async {
        let mut random = Random::new(seed);
        let mut died = 0;
        for kill in 0..kills {
            let place = ["backfill_after_read", "backfill_before_commit", "backfill_after_commit"]
                [usize::try_from(kill % 3).expect("small")];
            let failpoint = format!("{place}:{}", 1 + random.below((pages / kills).max(1)));
            let mut command = program(&["backfill"], &[("GOV_HANDOFF_FAILPOINT", &failpoint)]);
            command.env("DATABASE_URL", &db.url).stdout(Stdio::null()).stderr(Stdio::null());
            let status = tokio::task::spawn_blocking(move || command.status()).await;
            died += u64::from(!status.expect("no panic").expect("the sweep runs").success());
            births(&db.client, &format!("during{kill}_"), 5).await;
        }
        assert!(died * 10 >= kills * 8, "{died} of {kills} kills, seed {seed}");
        open.batch_execute("commit").await.expect("the open transaction");
        db.sql(&format!("commit prepared '{name}'")).await;
        println!("{died} of {kills} kills after {:.1} s", begun.elapsed().as_secs_f64());
        backfilled(&db.url, &[]).await
    };
    let swept = sweeping.await;
    println!("{rows} births seeded and compared in {:.1} s", begun.elapsed().as_secs_f64());
    assert_eq!(swept[0]["phase"], "incremental", "{swept}");
    births(&db.client, "after", 5).await;
    let late = i64::try_from(kills).expect("small") * 5 + 10 + 10 + 5;
    db.until(&format!(
        "select ({}) >= {late}",
        SIGNALS.replace("count(*)", "count(distinct event_subject_ref)")
    ))
    .await;

    assert_eq!(db.number(UNSEEDED).await, 0, "seed {seed}");
    let objects = "select count(distinct (collection_name, entity_code)) from birth_registry";
    let candidates = db.number("select count(*) from gov_candidate_state").await;
    assert_eq!(candidates, db.number(objects).await, "seed {seed}");
    let twice = "select count(*) from (select from gov_candidate_state group by candidate_key, ruleset_version having count(*) > 1) t";
    assert_eq!(db.number(twice).await, 0);
    assert_eq!(
        db.text(&format!("{OF} 'old%'")).await,
        format!("{rows} 0"),
        "no signal for a row of the backlog"
    );
    assert_eq!(db.text(&format!("{OF} 'last%'")).await, "7 0");
    for (code, n) in [
        ("open\\_b%", 10),
        ("prepared%", 10),
        ("after%", 5),
        ("during%", i64::try_from(kills).expect("small") * 5),
    ] {
        assert_eq!(db.text(&format!("{OF} '{code}'")).await, format!("{n} {n}"), "{code}, seed {seed}");
    }
    assert_eq!(db.number(NOT_IN_ONE_PLACE).await, 0);
    // The books agree: the certificate of the sweep, the audit, and the checkpoint of its pages.
    let certificates: Value =
        serde_json::from_str(&done(&db.url, &["certificates", "--json"]).await).expect("json");
    let latest = certificates["latest"].as_array().expect("certificates");
    let sweep = latest.iter().find(|c| c["kind"] == "backfill").expect("the sweep's certificate");
    assert_eq!(sweep["rows"].as_i64(), Some(rows + 7), "{sweep}");
    assert_eq!((sweep["candidates"].as_i64(), &sweep["gone"]), (Some(rows + 7), &Value::from(0)), "{sweep}");
    assert_eq!(sweep["repaired"], serde_json::json!({}), "{sweep}");
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    let audit = of_source(&audited(&db.url).await, "birth_registry");
    assert_eq!(audit["audit"]["backlog"].as_i64(), Some(rows + 7), "{audit}");
    let batches = "select last_run_summary ->> 'rows_seen' from gov_worker_cursor where worker_name = 'gov_backfill_sweep'";
    assert!(db.text_if_any(batches).await.is_some(), "a checkpoint");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_under_writers_leaves_every_row_in_one_place() {
    let seed = seed();
    for round in 0..3 {
        let db = unregistered().await;
        under_writers(&db.url, seed.wrapping_add(round), 3, async {
            db.until("select count(*) > 60 from birth_registry").await;
            done(&db.url, &["sources", "apply"]).await;
            let boundary = "select row_count from gov_source_boundary where source_name = 'birth_registry'";
            assert!(db.number(boundary).await > 0, "seed {seed}");
            once(&db.url).await;
        })
        .await;
        once(&db.url).await;
        let wrong = db.number(NOT_IN_ONE_PLACE).await;
        assert_eq!(wrong, 0, "round {round}, seed {seed}");
        backfilled(&db.url, &[]).await;
        assert_eq!(db.number(UNSEEDED).await, 0, "round {round}, seed {seed}");
        audited(&db.url).await;
    }
}

/// Two sources whose keys have no ranges.
const KEYED: &str = r#"
[[source]]
name = "by_uuid"
id = { column = "id", type = "uuid" }
order = { column = "at", type = "timestamptz" }
columns = ["id", "code", "at"]
backlog = "skip"
[[source.rule]]
kind = "governance.handoff.object_born"
object_type = "thing"
object_ref = "thing:{code}"
group = [["object_class", "thing"]]

[[source]]
name = "by_text"
id = { column = "id", type = "text" }
columns = ["id", "code"]
backlog = "seed"
[[source.rule]]
kind = "governance.handoff.object_born"
object_type = "word"
object_ref = "word:{code}"
group = [["object_class", "word"]]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn keys_without_ranges_have_an_exact_boundary_that_outlives_a_rewrite() {
    let cluster = preparing().await;
    let db = active_on(&cluster).await;
    db.sql(
        "create table by_uuid (id uuid primary key default gen_random_uuid(), code text, at timestamptz default now());
         create table by_text (id text primary key, code text);
         insert into by_uuid (code) select 'u' || g from generate_series(1, 900) g;
         insert into by_text select 'k' || g, 't' || g from generate_series(1, 900) g",
    )
    .await;
    let write = |code: &str| {
        format!(
            "insert into by_uuid (code) values ('{code}_u'); insert into by_text values ('{code}', '{code}_t');"
        )
    };
    let open = connect(&db.url).await;
    open.batch_execute(&format!("begin; savepoint a; {} release a", write("open"))).await.expect("open");
    let name = "keys";
    let prepared = connect(&db.url).await;
    prepared
        .batch_execute(&format!(
            "begin; savepoint a; {} release a; prepare transaction '{name}'",
            write("prepared")
        ))
        .await
        .expect("prepare");
    // Committed above the xmin of the snapshot, and visible in it.
    db.sql(&write("visible")).await;
    register(&db.url, KEYED).await;
    open.batch_execute("commit").await.expect("commit");
    db.sql(&format!("commit prepared '{name}'")).await;
    db.sql(&write("after")).await;
    let signals = "select string_agg(safe_payload ->> 'object_ref', ' ' order by safe_payload ->> 'object_ref') from verify.handoffs";
    let late = "thing:after_u thing:open_u thing:prepared_u word:after_t word:open_t word:prepared_t";
    once(&db.url).await;
    assert_eq!(db.text(signals).await, late);
    // Every row is new to a frontier that is lost or of another file, and is compared.
    db.sql("vacuum full by_text").await;
    db.sql("vacuum full by_uuid").await;
    once(&db.url).await;
    db.sql("update gov_worker_frontier set system_identifier = 'another'").await;
    once(&db.url).await;
    assert_eq!(db.text(signals).await, late);
    let audit = audited(&db.url).await;
    for source in ["by_uuid", "by_text"] {
        assert_eq!(of_source(&audit, source)["audit"]["backlog"].as_i64(), Some(901), "{audit}");
    }
    let swept = backfilled(&db.url, &[]).await;
    assert_eq!(
        (&swept[0]["source"], swept.as_array().map(Vec::len)),
        (&Value::from("by_text"), Some(1)),
        "{swept}"
    );
    assert_eq!(db.number("select count(*) from gov_candidate_state where object_type = 'word'").await, 904);
    assert_eq!(db.number("select count(*) from gov_candidate_state where object_type = 'thing'").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_older_than_the_registration_brings_the_backlog_and_nothing_is_emitted() {
    let db = active().await;
    done(&db.url, &["replication", "setup"]).await;
    // Lone rows, and a batch of them: the two gates.
    for n in 0..3 {
        births(&db.client, &format!("lone{n}_"), 1).await;
    }
    births(&db.client, "many", 40).await;
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    done(&db.url, &["sources", "apply"]).await;
    let mut daemon = Daemon::running(&db, "stream", &INTAKE).await;
    births(&db.client, "new", 1).await;
    db.until(&format!("select ({SIGNALS}) >= 1")).await;
    births(&db.client, "newer", 3).await;
    db.until(&format!("select ({SIGNALS}) >= 5")).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert_eq!(db.text(&format!("{OF} 'new%'")).await, "4 4");
    assert_eq!(db.text(&format!("{OF} 'lone%'")).await, "3 0");
    assert_eq!(db.text(&format!("{OF} 'many%'")).await, "40 0");
    let audit = of_source(&audited(&db.url).await, "birth_registry");
    assert_eq!(audit["audit"]["backlog"].as_i64(), Some(43), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_the_backlog_that_cannot_be_handed_off_gets_no_letter() {
    let db = active().await;
    done(&db.url, &["replication", "setup"]).await;
    // One row that the mapping refuses, because it carries contents; one that the database refuses, because no index holds
    // such an address.
    db.sql(
        "insert into birth_registry (entity_code, collection_name) values ('{\"body\": \"x\"}', 'c'),
             ((select string_agg(md5(i::text), '') from generate_series(1, 600) i), 'c')",
    )
    .await;
    births(&db.client, "old", 3).await;
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    done(&db.url, &["sources", "apply"]).await;
    let mut daemon = Daemon::running(&db, "stream", &INTAKE).await;
    births(&db.client, "new", 1).await;
    db.until(&format!("select ({SIGNALS}) >= 1")).await;
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
    assert_eq!(db.number("select count(*) from iu_route_dead_letter").await, 0);
    audited(&db.url).await;
    // The sweep sets it aside, and goes on.
    let ran = cli(&db.url, &["backfill"]).await;
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let finding = "select detail ->> 'refused' from system_issues where coalesce_key = 'backlog_not_seeded:birth_registry' and resolved_at is null";
    assert_eq!(db.text(finding).await, "2");
    assert_eq!(db.number(UNSEEDED).await, 2);
    assert_eq!(db.number("select count(*) from iu_route_dead_letter").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_is_lost_is_found_by_another_reading_and_a_deleted_row_is_counted() {
    let db = unregistered().await;
    births(&db.client, "old", 60).await;
    done(&db.url, &["sources", "apply"]).await;
    backfilled(&db.url, &[]).await;
    db.sql("delete from gov_candidate_state where candidate_key in ('c1:old1', 'c2:old2'); delete from birth_registry where entity_code = 'old9'").await;
    let changes = "select sum(generation)::bigint from gov_candidate_group";
    let before = db.number(changes).await;
    // A sweep that is done reads nothing again by itself.
    backfilled(&db.url, &[]).await;
    assert_eq!(db.number(UNSEEDED).await, 2);
    backfilled(&db.url, &["--again"]).await;
    assert_eq!(db.number(UNSEEDED).await, 0);
    assert_eq!(db.number(changes).await, before + 2, "only what was lost is marked");
    let latest = "select certificate ->> 'gone' || ' ' || (certificate #>> '{repaired,lost_candidate}') || ' ' || (certificate ->> 'rows') \
                    from v_governance_certificate where worker_name = 'gov_backfill_sweep'";
    assert_eq!(db.text(latest).await, "1 2 59");
    assert_eq!(db.number(SIGNALS).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_hands_a_stretch_of_the_backlog_off_once() {
    let db = unregistered().await;
    births(&db.client, "old", 30).await;
    let first = db.number("select min(id)::bigint from birth_registry").await;
    done(&db.url, &["sources", "apply"]).await;
    let replay = async |from: i64, to: i64| {
        let (from, to) = ((first + from).to_string(), (first + to).to_string());
        let ran =
            cli(&db.url, &["replay", "--source", "birth_registry", "--from", &from, "--to", &to, "--json"])
                .await;
        let value: Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
        value["emitted"].as_i64().expect("a number")
    };
    // Ten rows, of which every third has two signals; then one row, which is a batch of its own.
    assert_eq!(replay(9, 18).await, 10 + 3);
    assert_eq!(replay(9, 18).await, 0);
    assert_eq!(replay(27, 27).await, 1);
    let held = "select string_agg((lo - $0) || '..' || (hi - $0), ' ' order by lo) from gov_backlog_range"
        .replace("$0", &first.to_string());
    assert_eq!(db.text(&held).await, "0..8 19..26 28..29");
    once(&db.url).await;
    assert_eq!(db.number(SIGNALS).await, 14);
    let audit = of_source(&audited(&db.url).await, "birth_registry");
    assert_eq!(audit["audit"]["backlog"].as_i64(), Some(19), "{audit}");
    assert_eq!(db.number(NOT_IN_ONE_PLACE).await, 0);
    // What it handed off is missed when it is lost.
    db.sql(&format!("delete from event_outbox where safe_payload ->> 'source_key' = '{}'", first + 12)).await;
    assert_eq!(cli(&db.url, &["audit", "--full"]).await.code, 1);
    assert_eq!(db.number(SIGNALS).await, 14);
    backfilled(&db.url, &[]).await;
    assert_eq!(db.number(UNSEEDED).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_holds_also_when_the_source_is_removed_and_registered_again() {
    let db = unregistered().await;
    births(&db.client, "old", 20).await;
    let dry = done(&db.url, &["sources", "apply", "--dry-run"]).await;
    assert!(dry.contains("source birth_registry: 20 rows exist and would be seeded as candidates"), "{dry}");
    assert_eq!(
        db.number("select count(*) from gov_source_boundary where source_name = 'birth_registry'").await,
        0
    );
    done(&db.url, &["sources", "apply"]).await;
    let again = done(&db.url, &["sources", "apply", "--backlog", "hand_off"]).await;
    assert!(again.contains("source birth_registry: `hand_off` changes nothing"), "{again}");
    once(&db.url).await;
    assert_eq!(db.number(SIGNALS).await, 0);
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    births(&db.client, "between", 6).await;
    done(&db.url, &["sources", "apply", "--backlog", "skip"]).await;
    for _ in 0..2 {
        once(&db.url).await;
        assert_eq!(db.text(&format!("{OF} 'old%'")).await, "20 0");
        assert_eq!(db.text(&format!("{OF} 'between%'")).await, "6 6");
    }
    let shown: Value =
        serde_json::from_str(&done(&db.url, &["sources", "list", "--json"]).await).expect("json");
    let births =
        shown.as_array().and_then(|all| all.iter().find(|s| s["name"] == "birth_registry")).expect("births");
    assert_eq!(
        (&births["boundary"]["policy"], &births["boundary"]["rows"]),
        (&"seed".into(), &20.into()),
        "{births}"
    );
    let status = cli(&db.url, &["status"]).await.out;
    assert!(status.contains("seed 20"), "{status}");
    backfilled(&db.url, &[]).await;
    assert_eq!(db.number(UNSEEDED).await, 0);
    audited(&db.url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_have_the_backlog_handed_off_and_a_skipped_one_emits_nothing() {
    let db = active().await;
    for source in ["birth_registry", "registry_changelog"] {
        done(&db.url, &["sources", "remove", source]).await;
    }
    births(&db.client, "old", 9).await;
    db.sql("insert into registry_changelog (entity_type, entity_code, action) select 'species', 'x' || g, 'retire' from generate_series(1, 5) g").await;
    let said: Value = serde_json::from_str(
        &done(&db.url, &["sources", "apply", "--backlog", "hand_off", "--dry-run", "--json"]).await,
    )
    .expect("json");
    let births =
        said.as_array().and_then(|all| all.iter().find(|s| s["source"] == "birth_registry")).expect("births");
    assert_eq!(
        (&births["backlog"]["policy"], &births["backlog"]["rows"]),
        (&"hand_off".into(), &9.into()),
        "{said}"
    );
    // Each as its definition says, except for the one that is named.
    let file = crate::support::TemporaryFile::new("births.toml", include_str!("../replication/sources.toml"));
    done(&db.url, &["sources", "apply", file.path()]).await;
    once(&db.url).await;
    assert_eq!(db.number("select count(*) from verify.handoffs").await, 0);
    assert_eq!(backfilled(&db.url, &[]).await[0]["candidates"], 9);
    let audit = audited(&db.url).await;
    assert_eq!(of_source(&audit, "registry_changelog")["audit"]["backlog"], 5, "{audit}");
    assert_eq!(db.number("select count(*) from gov_candidate_state where object_type = 'species'").await, 0);

    let db = unregistered().await;
    self::births(&db.client, "old", 9).await;
    done(&db.url, &["sources", "apply", "--backlog", "hand_off"]).await;
    once(&db.url).await;
    assert_eq!(db.number(SIGNALS).await, 12);
    assert_eq!(backfilled(&db.url, &[]).await, serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_set_up_before_there_was_a_choice_goes_on_handing_off() {
    let db = active().await;
    // As it was before this step: nothing was decided, and the definition says nothing.
    db.sql("delete from gov_source_boundary; update gov_worker_cursor set metadata = metadata - 'backlog'")
        .await;
    births(&db.client, "old", 9).await;
    let said = done(&db.url, &["sources", "apply"]).await;
    assert!(said.contains("source birth_registry changed") && !said.contains("seeded"), "{said}");
    once(&db.url).await;
    assert_eq!(db.number(SIGNALS).await, 12);
    done(&db.url, &["sources", "remove", "birth_registry"]).await;
    births(&db.client, "more", 9).await;
    done(&db.url, &["sources", "apply"]).await;
    once(&db.url).await;
    assert_eq!(db.number(SIGNALS).await, 24);
    audited(&db.url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_backlog_becomes_no_candidate_until_its_producer_is_trusted() {
    let db = unregistered().await;
    births(&db.client, "old", 12).await;
    db.sql("update birth_registry set source_system = 'stranger' where id % 4 = 0").await;
    let strangers = db.number("select count(*) from birth_registry where source_system = 'stranger'").await;
    let definition = include_str!("../replication/sources.toml").replacen(
        "backlog = \"seed\"",
        "backlog = \"seed\"\ntrust = { producers = [\"importer\"] }",
        1,
    );
    register(&db.url, &definition).await;
    let ran = cli(&db.url, &["backfill"]).await;
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert_eq!(db.number(UNSEEDED).await, strangers);
    assert_eq!(
        db.number("select count(*) from event_pending").await,
        0,
        "a row of the backlog is not captured"
    );
    done(&db.url, &["trust", "grant", "--source", "birth_registry", "--producer", "stranger"]).await;
    backfilled(&db.url, &[]).await;
    assert_eq!(db.number(UNSEEDED).await, 0);
    assert_eq!(db.number("select count(*) from verify.handoffs").await, 0);
    let open =
        "select count(*) from system_issues where issue_kind = 'backlog_not_seeded' and resolved_at is null";
    assert_eq!(db.number(open).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_follows_the_sweep_of_a_daemon() {
    let db = unregistered().await;
    births(&db.client, "old", 9_000).await;
    done(&db.url, &["sources", "apply"]).await;
    let slow = [("GOV_HANDOFF_WORKERS", "gov_backfill_sweep"), ("GOV_HANDOFF_BACKFILL_RATE", "6000")];
    let mut daemon = Daemon::start(&db.url, &["--mode", "poll"], &slow);
    db.until("select exists (select from queue_heartbeat where executor_name = 'gov_backfill_sweep' and lease_owner is not null)").await;
    let refused = cli(&db.url, &["backfill", "--limit-rate", "5"]).await;
    assert!(refused.code != 0 && refused.err.contains("has the lease of the sweep"), "{}", refused.err);
    assert_eq!(backfilled(&db.url, &[]).await[0]["phase"], "incremental");
    assert_eq!(db.number(UNSEEDED).await, 0);
    let unknown = cli(&db.url, &["backfill", "--source", "nothing"]).await;
    assert_eq!(unknown.code, 2, "{}", unknown.err);
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_birth_never_waits_for_the_reading_of_a_backlog() {
    let db = unregistered().await;
    births(&db.client, "old", 100).await;
    // Two sessions register at once, with a birth that is open, and one that wants to alter the table behind both.
    let open = connect(&db.url).await;
    open.batch_execute("begin").await.expect("begin");
    births(&open, "open", 1).await;
    let (one, two) = tokio::join!(cli(&db.url, &["sources", "apply"]), cli(&db.url, &["sources", "apply"]));
    assert_eq!((one.code, two.code), (0, 0), "{}{}", one.err, two.err);
    open.batch_execute("commit").await.expect("the registration waited for nothing");
    assert_eq!(db.number("select count(*) from gov_backlog_staging").await, 0);
    let left = "select count(*) from gov_backlog_range r where not exists (select from gov_source_boundary b where b.boundary = r.boundary)";
    assert_eq!(db.number(left).await, 0, "what was staged and not adopted is gone");
    once(&db.url).await;
    assert_eq!(db.text(&format!("{OF} 'open%'")).await, "1 1");
    assert_eq!(db.text(&format!("{OF} 'old%'")).await, "100 0");
}
