//! The program as a process of its own: started, killed, measured; and a verdict over its tables in SQL that shares
//! nothing with the product.

use std::fs::{self, File};
use std::future::Future;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gov_handoff::embedded::Cluster;
use tokio_postgres::Client;

use super::{blocking, cluster, connect};

/// Long enough for a loaded machine; a condition that holds is seen at once.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program with nothing of the caller's environment but what is given. The short lease lets a successor of a
/// killed process begin soon.
pub fn program(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gov-handoff"));
    command.args(arguments).env_clear().env("DATABASE_URL", url).env("GOV_HANDOFF_LEASE_TTL", "1s");
    command.current_dir(std::env::temp_dir()).stdin(Stdio::null());
    command
}

/// Runs a command to its end, whatever that is.
pub async fn run(url: &str, arguments: &[&str]) -> Output {
    let mut command = program(url, arguments);
    blocking(move || command.output()).await.expect("the program starts")
}

/// Runs a command that has to succeed.
pub async fn done(url: &str, arguments: &[&str]) -> String {
    let output = run(url, arguments).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} failed ({}): {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A running daemon; killed when dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub fn start(url: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!("gov-handoff-{}-{number}.log", std::process::id()));
        let mut command = program(url, arguments);
        command.envs(settings.iter().copied()).stdout(Stdio::null());
        let child =
            command.stderr(File::create(&log).expect("a log file")).spawn().expect("the program starts");
        Self { child, log }
    }

    /// `run` in the given mode, eager to try the stream again.
    pub fn daemon(url: &str, mode: &str, settings: &[(&str, &str)]) -> Self {
        let eager = [("GOV_HANDOFF_STREAM_RETRY", "500ms")];
        Self::start(url, &["run", "--mode", mode], &[&eager, settings].concat())
    }

    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait")
    }

    pub async fn end(&mut self, what: &str) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.has_ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "{what}: it still runs; its log: {}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, by the shell's own `kill`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -s {name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh").success(), "{kill}");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The most memory it ever had resident, in MiB.
    pub fn peak_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("/proc");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
        let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
        kib / 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let from = log.char_indices().rev().nth(3_000).map_or(0, |(at, _)| at);
            eprintln!("--- the daemon's log ends ---\n{}", &log[from..]);
        }
        let _ = fs::remove_file(&self.log);
    }
}

/// A migrated database whose signals are let out.
pub struct Registry {
    pub name: String,
    pub url: String,
    pub client: Client,
}

impl Registry {
    /// In the shared cluster.
    pub async fn new() -> Self {
        Self::on(blocking(cluster).await).await
    }

    pub async fn on(cluster: &Cluster) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        Self::on_as(cluster, &format!("registry_{}", COUNTER.fetch_add(1, Ordering::Relaxed))).await
    }

    /// Under a name that another server may have too.
    pub async fn on_as(cluster: &Cluster, name: &str) -> Self {
        cluster.create_database(name, None).await.expect("create a database");
        Self::made(name, cluster.url(name)).await
    }

    /// Of an empty database, however it was made.
    pub async fn made(name: &str, url: String) -> Self {
        done(&url, &["migrate"]).await;
        done(&url, &["types", "activate", "--all"]).await;
        let client = connect(&url).await;
        // Signals about rows; certificates and heartbeats are about ourselves.
        let handoffs = "create schema verify; create view verify.handoffs as select * from event_outbox
            where event_domain = 'governance' and event_type not in ('governance.handoff.certified', 'governance.handoff.heartbeat')";
        client.batch_execute(handoffs).await.expect("the view of the verdict");
        Self { name: name.to_owned(), url, client }
    }

    pub fn slot(&self) -> String {
        format!("gov_handoff_{}", self.name)
    }

    pub fn daemon(&self, mode: &str, settings: &[(&str, &str)]) -> Process {
        Process::daemon(&self.url, mode, settings)
    }

    /// A daemon that captures in this way, once it does. `reconcile` is how often the tables are read behind a stream: `1h`
    /// leaves everything to it.
    pub async fn capturing(&self, mode: &str, reconcile: &str) -> Process {
        let daemon = self.daemon(mode, &[("GOV_HANDOFF_RECONCILE_INTERVAL", reconcile)]);
        self.until_mode(mode).await;
        daemon
    }

    pub async fn sql(&self, statements: &str) {
        self.client.batch_execute(statements).await.unwrap_or_else(|e| panic!("{statements}: {e:?}"));
    }

    pub async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}")).get(0)
    }

    pub async fn text(&self, query: &str) -> Option<String> {
        let row = self.client.query_opt(query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
        row.and_then(|row| row.get(0))
    }

    /// The first column, a text, of every row.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        super::texts(&self.client, query).await
    }

    pub async fn mode(&self) -> Option<String> {
        self.text(
            "select metadata ->> 'mode' from queue_heartbeat where executor_name = 'gov_handoff_intake'",
        )
        .await
    }

    pub async fn until_mode(&self, wanted: &str) {
        until(&format!("mode {wanted}"), async || self.mode().await.as_deref() == Some(wanted)).await;
    }

    /// The slot delivers to a client.
    pub async fn until_streaming(&self) {
        let slot = self.slot();
        until("the slot is active", async || {
            let query =
                format!("select count(*) from pg_replication_slots where slot_name = '{slot}' and active");
            self.number(&query).await == 1
        })
        .await;
        self.until_mode("stream").await;
    }

    /// The slot has let go of everything committed before now: no surprise holds it back.
    pub async fn until_stream_is_past_now(&self) {
        let here = self.text("select pg_current_wal_insert_lsn()::text").await.expect("a position");
        self.births("passing", 1).await;
        let slot = self.slot();
        let past = format!(
            "select count(*) from pg_replication_slots where slot_name = '{slot}' and confirmed_flush_lsn >= '{here}'"
        );
        until("the stream goes on", async || self.number(&past).await == 1).await;
    }

    pub async fn births(&self, code: &str, n: u32) {
        let insert = "insert into birth_registry (entity_code, collection_name, status) select $1::text || g, 'c' || g % 5, \
                      case when g % 3 = 0 then 'registered' end from generate_series(1, $2::int) g";
        self.client.execute(insert, &[&code, &i32::try_from(n).expect("small")]).await.expect("births");
    }

    pub async fn verdict(&self) -> Verdict {
        verdict(&self.client).await
    }

    /// Waits until everything committed is handed off, then insists that nothing is twice or out of nowhere.
    pub async fn until_all_handed_off(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let verdict = self.verdict().await;
            assert_eq!((verdict.twice, verdict.stray, verdict.marks_off), (0, 0, 0), "{verdict:?}");
            if verdict.missing == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "{verdict:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn until_finding(&self, kind: &str) {
        until(&format!("finding {kind}"), async || {
            self.number(&format!("select count(*) from system_issues where issue_kind = '{kind}'")).await > 0
        })
        .await;
    }

    /// Gives the slots of this database back; the shared cluster has few.
    pub async fn drop_slots(&self) {
        let ours = "select count(*) from pg_replication_slots where database = current_database() and active";
        until("the slots are let go", async || self.number(ours).await == 0).await;
        self.sql("select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()")
            .await;
    }
}

/// What the tables say. Only births, changes of collections and retirements are written by these tests, so the
/// expectation needs no rule engine.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    pub expected: i64,
    /// Committed, and neither signalled, captured nor set aside.
    pub missing: i64,
    pub twice: i64,
    /// Signals for which there is no row.
    pub stray: i64,
    /// How far the group counters are from the signals: a signal marks its group once.
    pub marks_off: i64,
}

pub async fn verdict(client: &Client) -> Verdict {
    let sql = "with expected (kind, tbl, key) as (
        select 'object_born', 'birth_registry', id::text from birth_registry
        union all select 'object_registered', 'birth_registry', id::text from birth_registry where status = 'registered'
        union all select 'collection_changed', 'registry_changelog', id::text from registry_changelog
            where entity_type = 'collection' and source_system is distinct from 'gov-handoff'
        union all select 'object_retired', 'registry_changelog', id::text from registry_changelog
            where action = 'retire' and source_system is distinct from 'gov-handoff'
    ), recorded as (
        select substr(event_type, 20) as kind, event_subject_table as tbl, safe_payload ->> 'source_key' as key,
               event_subject_ref as ref
          from verify.handoffs
        union all
        select substr(event_type_hint, 20), entity_table, capture_payload ->> 'source_key', entity_ref
          from event_pending where event_domain = 'governance' and processed_at is null
           and event_type_hint <> 'governance.handoff.retry'
    ), dead as (
        select route_code as tbl, substr(idempotency_key, length(route_code) + 2) as key from iu_route_dead_letter
    )
    select (select count(*) from expected),
           (select count(*) from (select * from expected except select kind, tbl, key from recorded) m
             where not exists (select from dead d where d.tbl = m.tbl and d.key = m.key)),
           (select coalesce(sum(n - 1), 0)::bigint from (select count(*) as n from recorded group by kind, tbl, key) x)
         + (select coalesce(sum(n - 1), 0)::bigint from (select count(*) as n from recorded group by kind, ref) x),
           (select count(*) from (select kind, tbl, key from recorded where tbl in ('birth_registry', 'registry_changelog')
                                  except select * from expected) s),
           (select coalesce(sum(changes), 0)::bigint from gov_candidate_group) - (select count(*) from recorded)";
    let row = client.query_one(sql, &[]).await.expect("verdict");
    Verdict {
        expected: row.get(0),
        missing: row.get(1),
        twice: row.get(2),
        stray: row.get(3),
        marks_off: row.get(4),
    }
}

/// Awaits a condition; a test that waits in vain says for what.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Numbers from a printed seed, so that a failing run can be had again.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// One random transaction of births and changes: plain, rolled back, with savepoints, or committed late. Whether it
/// came through does not matter: the verdict asks the tables.
pub async fn write_something(client: &Client, dice: &mut Dice) -> Result<(), tokio_postgres::Error> {
    let n = 1 + dice.below(8);
    let births = format!(
        "insert into birth_registry (entity_code, collection_name, status) select 'r' || g, 'c' || g % 3, \
         case when g % 2 = 0 then 'registered' end from generate_series(1, {n}) g;"
    );
    let change = "insert into registry_changelog (entity_type, entity_code, action) values ('collection', 'x', 'retire');";
    let pause = Duration::from_millis(dice.below(400));
    match dice.below(6) {
        0 | 1 => client.batch_execute(&births).await,
        2 => client.batch_execute(&format!("begin; {births} {change} rollback;")).await,
        3 => {
            let nested = format!(
                "begin; savepoint a; {births} rollback to a; {change} savepoint b; {births} release b; commit;"
            );
            client.batch_execute(&nested).await
        }
        4 => {
            client.batch_execute(&format!("begin; {births} savepoint late; {change}")).await?;
            tokio::time::sleep(pause).await;
            client.batch_execute("commit").await
        }
        _ => client.batch_execute(&format!("{change} {births}")).await,
    }
}

/// Writes from `writers` connections until `done` ends, reconnecting whenever the server goes away.
pub async fn under_writers<T>(url: &str, seed: u64, writers: u64, work: impl Future<Output = T>) -> T {
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let url = url.to_owned();
            tokio::spawn(async move {
                let mut dice = Dice::new(seed.wrapping_mul(31).wrapping_add(writer * 7_919 + 3));
                loop {
                    let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await
                    else {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    };
                    tokio::spawn(connection);
                    while write_something(&client, &mut dice).await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(dice.below(15))).await;
                    }
                }
            })
        })
        .collect();
    let outcome = work.await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    for task in tasks {
        let _ = task.await;
    }
    outcome
}

pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970");
    let chosen = std::env::var("GOV_HANDOFF_TEST_SEED").ok().and_then(|text| text.parse().ok());
    chosen.unwrap_or_else(|| u64::from(now.subsec_nanos()))
}
