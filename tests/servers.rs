//! What happens to servers, with servers it happens to: a standby, a failover, a backup put back, a dump loaded elsewhere,
//! transaction ids half way round. Nothing is lost, nothing is handed off twice, and what cannot be trusted is compared again.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use gov_handoff::embedded::{Cluster, ClusterOptions, StopMode, Wanted};
use serde_json::Value;
use tokio_postgres::Client;

use crate::support::{
    Daemon, Database, active_as, active_on, blocking, cli, connect, done, options, private_cluster, texts,
    until_true,
};

const QUICK: [(&str, &str); 2] =
    [("GOV_HANDOFF_CERTIFY_INTERVAL", "500ms"), ("GOV_HANDOFF_RECONCILE_INTERVAL", "500ms")];

async fn stopped(cluster: &Arc<Cluster>) {
    let server = Arc::clone(cluster);
    blocking(move || server.stop(StopMode::Fast)).await.expect("stop");
}

async fn started(cluster: &Arc<Cluster>) {
    let server = Arc::clone(cluster);
    blocking(move || server.start_again()).await.expect("start");
}

async fn copied(cluster: &Arc<Cluster>, standby: bool) -> Arc<Cluster> {
    let server = Arc::clone(cluster);
    Arc::new(blocking(move || server.copy(standby)).await.expect("a copy starts"))
}

/// The same database on another server.
async fn there(registry: &Database, cluster: &Cluster) -> Database {
    Database::at(&registry.name, cluster.url(&registry.name)).await
}

/// Ends the way a supervisor ends it.
async fn finished(mut daemon: Daemon) {
    daemon.signal("TERM");
    daemon.end("told to end").await;
}

async fn audited(registry: &Database) {
    let audit = cli(&registry.url, &["audit", "--full", "--check"]).await;
    assert_eq!(audit.code, 0, "{}{}", audit.out, audit.err);
}

/// A daemon that has streamed so many births.
async fn streamed(registry: &Database, code: &str, births: u32) -> Daemon {
    let daemon = registry.daemon("auto", &QUICK);
    registry.until_streaming().await;
    registry.births(code, births).await;
    registry.until_all_handed_off().await;
    daemon
}

async fn slot_lost(registry: &Database) -> String {
    registry.until_finding("slot_lost").await;
    registry.text("select detail ->> 'reason' from system_issues where issue_kind = 'slot_lost'").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_refused_and_once_promoted_carries_on() {
    let primary = Arc::new(private_cluster(options()).await);
    let mut registry = active_on(&primary).await;
    stopped(&primary).await;
    let standby = copied(&primary, true).await;
    started(&primary).await;
    registry.reconnect().await;
    let daemon = streamed(&registry, "before", 20).await;

    let second = there(&registry, &standby).await;
    assert_eq!(second.number("select pg_is_in_recovery()::int::bigint").await, 1);
    for arguments in [
        &["run", "--mode", "poll"][..],
        &["run", "--mode", "auto"],
        &["run", "--mode", "stream", "--once"],
        &["audit", "--full"],
        &["audit", "--check"],
        &["replay", "--source", "birth_registry", "--from", "1"],
    ] {
        let refused = cli(&second.url, arguments).await;
        assert_eq!(refused.code, 2, "{arguments:?}: {}{}", refused.out, refused.err);
        assert!(refused.err.contains("the server is a standby"), "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains("connect to the primary"), "{arguments:?}: {}", refused.err);
    }
    let doctor = cli(&second.url, &["doctor"]).await;
    assert_eq!(doctor.code, 1, "{}", doctor.err);
    assert!(doctor.out.contains("the server is a standby"), "{}", doctor.out);

    // Births that nobody has handed off when the primary dies, but that its standby has.
    drop(daemon);
    registry.births("orphaned", 30).await;
    let here = registry.text("select pg_current_wal_lsn()::text").await;
    second.until(&format!("select pg_last_wal_replay_lsn() >= '{here}'")).await;
    let server = Arc::clone(&primary);
    blocking(move || server.stop(StopMode::Kill)).await.expect("kill");
    assert!(second.client.query_one("select pg_promote()", &[]).await.expect("promote").get::<_, bool>(0));
    second.births("promoted", 30).await;
    let daemon = second.daemon("auto", &QUICK);
    second.until_streaming().await;
    second.births("streamed", 30).await;
    second.until_all_handed_off().await;
    let why = slot_lost(&second).await;
    assert!(why.contains("another timeline"), "{why}");
    assert_eq!(second.verdict().await.expected, 20 + 6 + 3 * (30 + 10));
    finished(daemon).await;
    audited(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_falls_behind_slows_us_down_until_it_has_caught_up() {
    let primary = Arc::new(private_cluster(options()).await);
    let mut registry = active_on(&primary).await;
    stopped(&primary).await;
    let standby = copied(&primary, true).await;
    started(&primary).await;
    registry.reconnect().await;
    let second = there(&registry, &standby).await;
    registry.until("select exists (select from pg_stat_replication where state = 'streaming')").await;
    let daemon = registry.daemon("auto", &[&QUICK[..], &[("GOV_HANDOFF_MAX_STANDBY_LAG_MB", "1")]].concat());
    registry.until_streaming().await;
    let ever = "select count(*) from system_issues where issue_kind = 'handoff_throttled'";
    assert_eq!(registry.number(ever).await, 0, "a standby that keeps up is no load");

    second.sql("select pg_wal_replay_pause()").await;
    registry
        .sql("create table elsewhere as select repeat(md5(g::text), 30) as t from generate_series(1, 4000) g")
        .await;
    let open = "from system_issues where issue_kind = 'handoff_throttled' and resolved_at is null
                 and detail ->> 'reason' like 'resting up to 250 ms before each batch: a standby is % MiB behind%'";
    registry.until(&format!("select exists (select {open})")).await;
    let status = cli(&registry.url, &["status"]).await;
    assert!(
        status.out.contains("pace      resting") && status.out.contains("a standby is "),
        "{}",
        status.out
    );
    // Slower, and still all of them.
    registry.births("meanwhile", 20).await;
    registry.until_all_handed_off().await;
    assert_eq!(registry.number(&format!("select count(*) {open}")).await, 1);

    second.sql("select pg_wal_replay_resume()").await;
    registry
        .until("select resolved_at is not null from system_issues where issue_kind = 'handoff_throttled'")
        .await;
    registry.until("select metadata ->> 'pace_reason' is null from queue_heartbeat where executor_name = 'gov_handoff_intake'").await;
    assert!(!cli(&registry.url, &["status"]).await.out.contains("a standby is "));
    finished(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_put_back_goes_on_from_where_it_was_taken() {
    let server = Arc::new(private_cluster(options()).await);
    let mut registry = active_on(&server).await;
    let daemon = streamed(&registry, "before", 30).await;
    finished(daemon).await;
    registry.births("unread", 30).await;
    stopped(&server).await;
    let backup = copied(&server, false).await;
    started(&server).await;
    // What happens after the backup is lost with the server; its ids come again, for other births.
    registry.reconnect().await;
    let daemon = streamed(&registry, "gone", 50).await;
    drop(daemon);

    let restored = there(&registry, &backup).await;
    restored.births("again", 60).await;
    let daemon = restored.daemon("auto", &QUICK);
    restored.until_streaming().await;
    restored.births("streamed", 30).await;
    restored.until_all_handed_off().await;
    let addresses = "select count(*) from verify.handoffs where canonical_address like '%:gone%'";
    assert_eq!(restored.number(addresses).await, 0);
    finished(daemon).await;
    audited(&restored).await;
}

/// Every table of ours, row by row, as a dump would carry it; through files in a directory that both servers may use.
async fn load(from: &Client, to: &Client, directory: &Path) {
    let tables = "select relname::text from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' \
                  order by relname";
    let tables = texts(from, tables).await;
    let empty = format!("set session_replication_role = replica; truncate {}", tables.join(", "));
    to.batch_execute(&empty).await.expect("empty tables");
    for table in tables {
        let file = directory.join(&table);
        from.batch_execute(&format!("copy {table} to '{}'", file.display())).await.expect("dumped");
        to.batch_execute(&format!("copy {table} from '{}'", file.display())).await.expect("loaded");
    }
    let sequences = "select setval(pg_get_serial_sequence('birth_registry', 'id'), max(id)) from birth_registry; \
                     select setval(pg_get_serial_sequence('registry_changelog', 'id'), max(id) + 1) from registry_changelog; \
                     reset session_replication_role";
    to.batch_execute(sequences).await.expect("the next ids");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_loaded_into_another_server_is_compared_in_full() {
    let (old, new) = (private_cluster(options()).await, private_cluster(options()).await);
    let registry = active_on(&old).await;
    let daemon = streamed(&registry, "before", 30).await;
    finished(daemon).await;
    registry.births("unread", 30).await;
    let elsewhere = active_as(&new, &registry.name).await;
    load(&registry.client, &elsewhere.client, &old.socket_dir()).await;
    let identifier = "select system_identifier::text from pg_control_system()";
    let (here, there) = (registry.text(identifier).await, elsewhere.text(identifier).await);
    assert_ne!(here, there);
    elsewhere.births("after", 30).await;
    // By polling first, which brings the frontier over; the stream still remembers the other server.
    let daemon = elsewhere.daemon("poll", &QUICK);
    let compared = format!(
        "select exists (select from event_outbox where event_type = 'governance.handoff.certified' \
             and event_subject_table = 'birth_registry' and safe_payload ->> 'full' = 'true' \
             and safe_payload ->> 'rows_checked' = '90' and safe_payload ->> 'system_identifier' = '{there}')"
    );
    elsewhere.until(&compared).await;
    elsewhere.until_all_handed_off().await;
    finished(daemon).await;
    let daemon = elsewhere.daemon("auto", &QUICK);
    elsewhere.until_streaming().await;
    elsewhere.births("streamed", 30).await;
    elsewhere.until_all_handed_off().await;
    let why = slot_lost(&elsewhere).await;
    assert!(why.contains("another server"), "{why}");
    finished(daemon).await;
    audited(&elsewhere).await;
}

/// Not everybody has every server; who says that it is there, as `.ci/run` does, wants to see it used.
fn left_out(why: &str) {
    assert!(std::env::var_os("GOV_HANDOFF_REQUIRE_15").is_none(), "{why}");
    println!("{why}: left out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frontier_half_way_round_is_compared_in_full() {
    // Only a whole installation can set transaction ids forward; the embedded servers bring none of its tools.
    let fifteen = ClusterOptions { version: Wanted::V15, ..options() };
    let Ok(cluster) = blocking(move || Cluster::start(fifteen)).await else {
        return left_out("no PostgreSQL 15 here");
    };
    // Beside the program itself, which may be met through a link.
    let postgres = cluster.bin_dir().join("postgres").canonicalize().expect("the server's program");
    let tool = postgres.with_file_name("pg_resetwal");
    if !tool.is_file() {
        return left_out("no pg_resetwal here");
    }
    let cluster = Arc::new(cluster);
    let mut registry = active_on(&cluster).await;
    let certificate = async |registry: &Database| -> Value {
        let daemon = registry.daemon("poll", &QUICK);
        let taken = "select coalesce((select last_run_summary #>> '{certificate,taken_at}' from gov_worker_cursor \
                     where source_name = 'birth_registry' and worker_name = 'gov_handoff_intake'), '')";
        let before = registry.text(taken).await;
        registry.until(&format!("select ({taken}) > '{before}'")).await;
        registry.until_all_handed_off().await;
        finished(daemon).await;
        let all = done(&registry.url, &["certificates", "--json"]).await;
        let all: Value = serde_json::from_str(&all).expect("json");
        let history = all["history"].as_array().expect("history").iter();
        history.filter(|c| c["source"] == "birth_registry").cloned().collect()
    };
    registry.births("before", 30).await;
    let first = certificate(&registry).await;
    assert_eq!(first[0]["full"], false, "registering the source certified it up to its boundary: {first}");
    registry.births("next", 30).await;
    let second = certificate(&registry).await;
    assert_eq!(second[0]["full"], false, "{second}");

    stopped(&cluster).await;
    // 1,600,000,000 further; the status of the transactions there is in a file that has to be there.
    let forward = format!(
        "set -e; dd if=/dev/zero of={0}/pg_xact/05F5 bs=262144 count=1 2>/dev/null; \
         chown --reference={0}/PG_VERSION {0}/pg_xact/05F5; \
         setpriv --reuid=$(stat -c %u {0}/PG_VERSION) --regid=$(stat -c %g {0}/PG_VERSION) --clear-groups \
             {1} -x 1600000000 -D {0}",
        cluster.data_dir().display(),
        tool.display()
    );
    let reset = Command::new("sh").args(["-c", &forward]).current_dir("/").output().expect("sh");
    assert!(reset.status.success(), "{}", String::from_utf8_lossy(&reset.stderr));
    started(&cluster).await;
    registry.reconnect().await;
    let next = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    assert!(registry.number(next).await >= 1_600_000_000);
    registry.births("after", 30).await;
    let third = certificate(&registry).await;
    assert_eq!(third[0]["full"], true, "{third}");
    assert_eq!(third[0]["rows_checked"], 90, "{third}");
    audited(&registry).await;
}

/// A limit for whole transactions that a database has for its people, which PostgreSQL 17 brought.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_timeout_of_the_database_is_not_for_us() {
    let seventeen = ClusterOptions { version: Wanted::V17, ..options() };
    let cluster = private_cluster(seventeen).await;
    let registry = active_on(&cluster).await;
    registry.sql(&format!("alter database {} set transaction_timeout = '500ms'", registry.name)).await;
    let patient = [
        ("GOV_HANDOFF_LEASE_TTL", "15s"),
        ("GOV_HANDOFF_CERTIFY_INTERVAL", "1h"),
        ("GOV_HANDOFF_RECONCILE_INTERVAL", "1h"),
    ];
    let daemon = registry.daemon("auto", &patient);
    registry.until_streaming().await;
    // By a session that was made before the limit.
    registry.sql("begin; lock table event_outbox in share mode").await;
    let writer = connect(&registry.url).await;
    let birth = "insert into birth_registry (entity_code, collection_name) values ('a', 'c')";
    writer.batch_execute(birth).await.expect("a birth");
    let waits = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%gov_handoff_apply%'
                    and xact_start < clock_timestamp() - interval '1 second')";
    // Not by the one that holds the lock: in a transaction the list of sessions stays as it was first seen.
    until_true(&writer, waits).await;
    registry.sql("rollback").await;
    registry.until_all_handed_off().await;
    assert!(!daemon.log().contains("WARN"), "{}", daemon.log());
    finished(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_can_follow_a_failover_from_seventeen_on_whoever_makes_it() {
    for (version, failover) in [(Wanted::V16, None), (Wanted::V17, Some("true"))] {
        let wanted = ClusterOptions { version, ..options() };
        let cluster = private_cluster(wanted).await;
        let registry = active_on(&cluster).await;
        let printed = done(&registry.url, &["replication", "sql"]).await;
        // A transaction that has written makes no slot; a DBA's client sends each statement by itself.
        let (publication, slot) = printed.split_at(printed.find("-- After the publication").expect("a slot"));
        let made_by = async |statements: &str| {
            registry.sql(statements).await;
            // Older servers have no such column.
            let of = format!(
                "select to_jsonb(s) ->> 'failover' from pg_replication_slots s where slot_name = '{}'",
                registry.slot()
            );
            assert_eq!(registry.text_if_any(&of).await.as_deref(), failover, "{statements}");
            registry.drop_slots().await;
        };
        registry.sql(publication).await;
        made_by(slot).await;
        made_by(include_str!("../replication/slot.sql")).await;
        done(&registry.url, &["replication", "setup"]).await;
        made_by("select 1").await;
    }
}
