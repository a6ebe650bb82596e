//! What the server may lack or refuse for a while: log space, connections, writes, time, a steady clock. Each delays
//! handoffs, can be seen, and passes without anybody's help: nothing missing, nothing twice.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gov_handoff::embedded::{Cluster, ClusterOptions};
use tokio_postgres::Client;

use crate::support::{
    Daemon, Database, PATIENCE, active, active_on, blocking, cli, connect, done, number, options,
    private_cluster, under_writers, until, within,
};

/// A server of its own, and the daemon under a role that is no superuser: those are spared some of this.
struct Server {
    daemon: Daemon,
    /// One that waits for the lease, where there is one: it has to live through the same.
    standby: Option<Daemon>,
    registry: Database,
    cluster: Arc<Cluster>,
}

impl Server {
    async fn start(settings: &[(&str, &str)], role: &str) -> Self {
        let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let cluster = Arc::new(private_cluster(ClusterOptions { settings, ..options() }).await);
        Self::on(cluster, role).await
    }

    /// `role` are statements about the role `worker`, before its first session.
    async fn on(cluster: Arc<Cluster>, role: &str) -> Self {
        let registry = active_on(&cluster).await;
        registry.sql("create role worker login replication in role gov_handoff_worker").await;
        registry.sql(role).await;
        done(&registry.url, &["replication", "setup"]).await;
        let url = registry.url_as("worker");
        let daemon = Daemon::eager(&url, "auto", &[("GOV_HANDOFF_RECONCILE_INTERVAL", "500ms")]);
        registry.until_streaming().await;
        registry.births("before", 20).await;
        registry.until_all_handed_off().await;
        Self { daemon, standby: None, registry, cluster }
    }

    async fn with_standby(mut self) -> Self {
        let url = self.registry.url_as("worker");
        self.standby = Some(Daemon::eager(&url, "auto", &[("GOV_HANDOFF_RECONCILE_INTERVAL", "500ms")]));
        let asks = "select count(*) from pg_stat_activity where application_name like 'gov-handoff keeper %'";
        until("the standby asks", async || self.registry.number(asks).await > 1).await;
        self
    }

    /// Waits until others have written so many more births.
    async fn until_written(&self, client: &Client, more: i64) {
        let births = "select count(*) from birth_registry";
        let before = number(client, births).await;
        until("births are written", async || number(client, births).await >= before + more).await;
    }

    /// By itself, without loss, by the stream again.
    async fn recovers(&mut self) {
        self.registry.births("after", 20).await;
        self.registry.until_all_handed_off().await;
        self.registry.until_streaming().await;
        for instance in self.standby.iter_mut().chain([&mut self.daemon]) {
            assert!(instance.has_ended().is_none(), "it gave up: {}", instance.log());
        }
    }

    async fn sessions(&self) -> i64 {
        let query = "select count(*) from pg_stat_activity where usename = 'worker' and backend_type = 'client backend'";
        self.registry.number(query).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_for_a_while() {
    let mut server = Server::start(&[], "").await.with_standby().await;
    let registry = &server.registry;
    // Births go on: this session asks for writing.
    registry.sql("set default_transaction_read_only = off").await;
    registry.sql("alter system set default_transaction_read_only = on").await;
    registry.sql("select pg_reload_conf()").await;
    let reloaded =
        "select count(*) from pg_settings where name = 'default_transaction_read_only' and reset_val = 'on'";
    until("read-only", async || registry.number(reloaded).await == 1).await;
    server.daemon.says("read-only transaction").await;
    registry.births("meanwhile", 50).await;
    let silent = "select count(*) from v_governance_worker where not alive";
    until("it looks silent", async || registry.number(silent).await == 1).await;
    assert!(registry.verdict().await.missing > 0, "handed off although nothing may be written");
    // Whoever asks is told, though the watchdog cannot write it down.
    let status = cli(&registry.url, &["status"]).await;
    assert_eq!(status.code, 1, "{}", status.out);
    registry.sql("alter system reset default_transaction_read_only").await;
    registry.sql("select pg_reload_conf()").await;
    server.recovers().await;
}

/// Takes every connection there is, and every one that comes free.
fn hog(url: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut held: Vec<Client> = Vec::new();
        loop {
            match tokio_postgres::connect(&url, tokio_postgres::NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    held.push(client);
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_no_connection_left_for_a_while() {
    let server = Server::start(&[("max_connections", "25")], "create role hog login").await;
    let mut server = server.with_standby().await;
    let url = server.registry.url_as("hog");
    let hogs: Vec<_> = (0..3).map(|_| hog(url.clone())).collect();
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'worker'";
    let worker = server.registry.url_as("worker");
    until("the daemon has no session left and can have none", async || {
        server.registry.number(cut).await;
        let refused = tokio_postgres::connect(&worker, tokio_postgres::NoTls).await.is_err();
        refused && server.sessions().await == 0
    })
    .await;
    server.daemon.says("raise max_connections").await;
    server.registry.births("meanwhile", 50).await;
    let watch = async || cli(&server.registry.url, &["watch", "--once"]).await.code;
    until("the watchdog says so", async || watch().await == 1).await;
    assert!(server.registry.verdict().await.missing >= 50, "handed off without a connection");
    for hog in &hogs {
        hog.abort();
    }
    drop(hogs);
    server.recovers().await;
    until("the watchdog is content", async || {
        cli(&server.registry.url, &["watch", "--once"]).await.code == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_that_an_administrator_set_for_people_do_not_stop_the_daemon() {
    let low = "alter role worker set statement_timeout = '25ms'; alter role worker set lock_timeout = '5ms'; \
               alter role worker set idle_in_transaction_session_timeout = '25ms'";
    let mut server = Server::start(&[], low).await;
    // Batches that take longer than that.
    server.registry.births("many", 30_000).await;
    server.recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_ours_that_somebody_locks_delays_and_piles_up_no_sessions() {
    let mut server = Server::start(&[], "").await;
    let locker = connect(&server.registry.url).await;
    locker
        .batch_execute("begin; lock table gov_candidate_group in access exclusive mode")
        .await
        .expect("lock");
    server.registry.births("meanwhile", 50).await;
    // It waits five seconds for an answer, and then ten: a batch that took too long is given more time. What it has given up must
    // not go on waiting on the server, session after session.
    let forgotten = "select count(*) from pg_stat_activity where usename = 'worker' and state = 'active'
                        and backend_type = 'client backend' and query_start < clock_timestamp() - interval '12 s'";
    // Nothing is to be seen for as long as two such waits take; the log shows that there were two.
    let over = Instant::now() + Duration::from_secs(18);
    while Instant::now() < over || server.daemon.log().matches("WARN").count() < 2 {
        assert!(over.elapsed() < PATIENCE, "nothing is said: {}", server.daemon.log());
        assert_eq!(server.registry.number(forgotten).await, 0, "{}", server.daemon.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    locker.batch_execute("rollback").await.expect("unlock");
    server.recovers().await;
}

/// The server's clock stepped by moving what was written by it, for the writer that hangs: one that lives writes again.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_stepped_neither_stops_nor_doubles_anything() {
    let mut server = Server::start(&[], "").await;
    let url = server.registry.url_as("worker");
    let registry = &server.registry;
    let step = async |by: &str| {
        let update = format!(
            "update queue_heartbeat set last_tick_at = last_tick_at + interval '{by}' where executor_name = 'gov_handoff_intake'"
        );
        registry.sql(&update).await;
    };
    let sane = "select count(*) from queue_heartbeat where executor_name = 'gov_handoff_intake'
                 and abs(extract(epoch from clock_timestamp() - last_tick_at)) < 1";
    for by in ["1 hour", "-1 hour"] {
        step(by).await;
        registry.births("stepped", 20).await;
        registry.until_all_handed_off().await;
        until("it ticks by the clock as it is", async || registry.number(sane).await == 1).await;
    }
    let term = "select (metadata ->> 'term')::bigint from queue_heartbeat where executor_name = 'gov_handoff_intake'";
    let mut standby = Daemon::eager(&url, "auto", &[]);
    let waits = "select count(*) from pg_stat_activity where application_name like 'gov-handoff keeper %'";
    until("the standby asks", async || registry.number(waits).await > 1).await;
    for (by, which) in [("1 hour", true), ("-1 hour", false)] {
        let hung = if which { &server.daemon } else { &standby };
        let held = registry.number(term).await;
        hung.signal("STOP");
        step(by).await;
        let stepped = Instant::now();
        registry.births("hung", 20).await;
        until("another takes over", async || registry.number(term).await > held).await;
        assert!(stepped.elapsed() < Duration::from_secs(3), "{by}: after {:?}", stepped.elapsed());
        registry.until_all_handed_off().await;
        hung.signal("CONT");
        until("it notices", async || hung.log().contains("lease lost, standing by")).await;
    }
    // A worker that is dead, with nobody to take over, is not taken for alive until the clock has caught up.
    standby.kill();
    server.daemon.kill();
    step("1 hour").await;
    let watch = async || cli(&registry.url, &["watch", "--once"]).await.code;
    until("the watchdog says so", async || watch().await == 1).await;
}

/// The log on a small filesystem of its own; where none may be mounted, in a directory that nobody may write to. To the
/// server both are the same: it cannot make the next segment.
struct SmallLog {
    directory: PathBuf,
    mounted: bool,
}

fn sh(script: &str) -> bool {
    Command::new("sh").args(["-c", script]).status().is_ok_and(|status| status.success())
}

impl SmallLog {
    /// Of a stopped server.
    fn of(cluster: &Cluster) -> Self {
        let directory = cluster.data_dir().join("pg_wal");
        let at = directory.display();
        let mounted = sh(&format!(
            "mv {at} {at}.was && mkdir {at} && mount -t tmpfs -o size=128m tmpfs {at} 2>/dev/null"
        ));
        let moved = format!("cp -a {at}.was/. {at}/ && chown --reference={at}.was {at} && chmod 700 {at}");
        assert!(sh(&moved), "the log moves");
        Self { directory, mounted }
    }

    fn fill(&self) {
        let at = self.directory.display();
        if self.mounted {
            // Ends with an error, which is the point.
            sh(&format!("dd if=/dev/zero of={at}/filler bs=64k 2>/dev/null"));
        } else {
            assert!(sh(&format!("chmod 500 {at}")));
        }
    }

    fn clear(&self) {
        assert!(sh(&format!("rm -f {0}/filler && chmod 700 {0}", self.directory.display())));
    }
}

impl Drop for SmallLog {
    fn drop(&mut self) {
        if self.mounted {
            sh(&format!("umount -l {}", self.directory.display()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_no_room_for_its_log_for_a_while() {
    let settings = [("max_wal_size", "32MB"), ("min_wal_size", "32MB"), ("restart_after_crash", "on")];
    let settings = settings.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
    let cluster = Arc::new(private_cluster(ClusterOptions { settings, ..options() }).await);
    let of = Arc::clone(&cluster);
    let log = blocking(move || {
        of.stop(gov_handoff::embedded::StopMode::Fast).expect("stop");
        let log = SmallLog::of(&of);
        of.start_again().expect("start again");
        log
    })
    .await;
    let mut server = Server::on(cluster, "create table elsewhere (t text)").await.with_standby().await;
    // Unmounted before the server's directory is removed, however this ends.
    let log = log;
    let url = server.registry.url.clone();
    under_writers(&url, 17, 2, async {
        server.until_written(&connect(&url).await, 60).await;
        log.fill();
        let begun = Instant::now();
        let more = "insert into elsewhere select repeat(md5(g::text), 30) from generate_series(1, 5000) g";
        while server.registry.client.batch_execute(more).await.is_ok() {
            assert!(begun.elapsed() < PATIENCE, "the server never runs out of room");
        }
        let said = std::fs::read_to_string(server.cluster.log_path()).unwrap_or_default();
        let panic = if log.mounted { "No space left on device" } else { "Permission denied" };
        assert!(said.contains("PANIC") && said.contains(panic), "the server failed otherwise: {said}");
        for instance in server.standby.iter().chain([&server.daemon]) {
            instance.says("cannot connect").await;
        }
        log.clear();
        // An administrator who made room starts what has not come back by itself.
        let cluster = Arc::clone(&server.cluster);
        blocking(move || {
            let deadline = Instant::now() + PATIENCE;
            while cluster.pid().is_none() && cluster.start_again().is_err() {
                assert!(Instant::now() < deadline, "the server does not come back");
            }
        })
        .await;
        server.registry.client = reconnected(&url).await;
        server.until_written(&server.registry.client, 20).await;
    })
    .await;
    server.recovers().await;
}

async fn reconnected(url: &str) -> Client {
    within(PATIENCE, "the server comes back", async || {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.map_err(|e| e.to_string())?;
        tokio::spawn(connection);
        Ok(client)
    })
    .await
}

/// Somebody has a source or the changelog locked for minutes. What waits for it is ours to bound: no other source waits with it,
/// no session of ours piles up behind the lock, and the lease is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_somebody_has_locked_holds_up_nobody_else_and_gathers_no_sessions() {
    let registry = active().await;
    let quick = [
        ("GOV_HANDOFF_READ_TIMEOUT", "300ms"),
        ("GOV_HANDOFF_CERTIFY_INTERVAL", "100ms"),
        ("GOV_HANDOFF_LEASE_TTL", "3s"),
    ];
    let daemon = registry.daemon("poll", &quick);
    registry.births("before", 10).await;
    registry.until_all_handed_off().await;
    let other = connect(&registry.url).await;
    other
        .batch_execute("begin; lock table pivot_definitions in access exclusive mode")
        .await
        .expect("a lock");
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let end = Instant::now() + Duration::from_secs(8);
    let (mut most, mut round) = (0, 0);
    while Instant::now() < end {
        round += 1;
        registry.births(&format!("r{round}-"), 5).await;
        let begun = Instant::now();
        let off = "select count(*) from birth_registry b where not exists (select from verify.handoffs h \
                   where h.event_subject_table = 'birth_registry' and h.safe_payload ->> 'source_key' = b.id::text)";
        until("the births go on", async || registry.number(off).await == 0).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        most = most.max(registry.number(waiting).await);
    }
    assert!((1..=2).contains(&most), "{most} sessions wait behind the lock");
    other.batch_execute("rollback").await.expect("let go");
    registry.until_all_handed_off().await;
    assert!(!daemon.log().contains("lease lost"), "{}", daemon.log());
}

/// A dead letter leaves an audit row in the changelog, and is written while the lease's row is locked, for which every batch waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_changelog_that_somebody_has_locked_does_not_hold_up_births() {
    let registry = active().await;
    let daemon =
        registry.daemon("poll", &[("GOV_HANDOFF_LEASE_TTL", "3s"), ("GOV_HANDOFF_AUDIT_INTERVAL", "1h")]);
    registry.births("before", 10).await;
    registry.until_all_handed_off().await;
    let other = connect(&registry.url).await;
    // As an index that is being built does: it may be read, not written.
    other.batch_execute("begin; lock table registry_changelog in share mode").await.expect("a lock");
    // A blank reference violates the contract: a letter at once.
    registry.sql("insert into birth_registry (entity_code, collection_name) values (' ', ' ')").await;
    let letters = "select count(*) from iu_route_dead_letter where resolved_at is null";
    until("the letter", async || registry.number(letters).await == 1).await;
    registry.births("after", 10).await;
    let begun = Instant::now();
    let handed = "select count(*) from verify.handoffs where safe_payload ->> 'object_ref' like '%after%'";
    until("births go on", async || registry.number(handed).await >= 10).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    registry.until_finding("audit_row_refused").await;
    other.batch_execute("rollback").await.expect("let go");
    assert!(!daemon.log().contains("lease lost"), "{}", daemon.log());
}

/// What is usual in a database is not for us where it would weaken what we promise.
#[tokio::test(flavor = "multi_thread")]
async fn a_handoff_is_durable_when_it_is_acknowledged_whatever_is_usual_in_the_database() {
    let registry = active().await;
    registry
        .sql(&format!(
            "alter database {0} set synchronous_commit = off; alter database {0} set default_transaction_isolation = 'serializable';
             create table seen (settings text primary key); grant insert, select on seen to public;
             create function see() returns trigger language plpgsql as $$ begin
                 insert into public.seen values (current_setting('synchronous_commit') || ', ' || current_setting('transaction_isolation'))
                 on conflict do nothing; return new; end $$;
             create trigger see before insert on event_outbox for each row execute function see()",
            registry.name
        ))
        .await;
    for mode in ["poll", "stream"] {
        let daemon = registry.capturing(mode, "1h").await;
        registry.births(mode, 10).await;
        registry.until_all_handed_off().await;
        let by =
            format!("select count(*) from verify.handoffs where safe_payload ->> 'captured_by' = '{mode}'");
        assert_eq!(registry.number(&by).await, 13, "{mode}");
        drop(daemon);
    }
    assert_eq!(registry.texts("select settings from seen").await, ["on, read committed"]);
}

/// A batch that takes longer than a lease, such as one that dirties every group there is. It is one commit and cannot be halved.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_takes_longer_than_a_lease_is_handed_off_at_last() {
    let registry = active().await;
    registry
        .sql(
            "create function slow() returns trigger language plpgsql as $$ begin
                  if new.canonical_address like '%slow%' then perform pg_sleep(6); end if; return new; end $$;
              create trigger slow before insert on event_outbox for each row execute function slow()",
        )
        .await;
    for mode in ["poll", "stream"] {
        let settings = [("GOV_HANDOFF_LEASE_TTL", "1s"), ("GOV_HANDOFF_BATCH_ROWS", "50")];
        let daemon = registry.daemon(mode, &settings);
        registry.births(&format!("slow-{mode}"), 1).await;
        registry.births(&format!("quick-{mode}"), 5).await;
        registry.until_all_handed_off().await;
        assert!(!daemon.log().contains("lease lost"), "{}", daemon.log());
        drop(daemon);
    }
}
