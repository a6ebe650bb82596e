//! `make soak`: an hour's births, and an hour's cadences, in fewer minutes. Nothing may grow but the record itself.
//!
//! ```text
//!  births     a million (300 a second for an hour), by four writers, some rolled back, one now and then committed late
//!  cadences   certificates, audit rows, heartbeats, passes behind the stream: as many as in an hour
//!  looked at  memory, sessions, files, retained log, our books, open findings; the second half against the first
//! ```
//!
//! The release binary as a child process, the embedded server with fsync and autovacuum on. Arguments (after `--`):
//! `--minutes N` (10; 60 is the hour itself), `--births N` a second of that hour (300). Exit code 1: something grows, or the
//! verdict over the tables is not clean.

#[path = "support/flat.rs"]
mod flat;

use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gov_handoff::embedded::{Cluster, ClusterOptions, Wanted};
use tokio_postgres::{Client, NoTls};

const WRITERS: u64 = 4;
/// Births in one transaction.
const EACH: u64 = 10;
const DATABASE: &str = "soak";

struct Options {
    minutes: u64,
    births: u64,
}

impl Options {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { minutes: 10, births: 300 };
        while let Some(arg) = args.next() {
            let mut number = || {
                let value = args.next().and_then(|text| text.parse::<u64>().ok()).filter(|n| *n > 0);
                value.ok_or_else(|| format!("{arg} needs a positive number"))
            };
            match arg.as_str() {
                "--minutes" => options.minutes = number()?.min(60),
                "--births" => options.births = number()?,
                // Cargo's own.
                "--bench" => {}
                other => return Err(format!("{other} is not known; there are --minutes N and --births N")),
            }
        }
        Ok(options)
    }

    /// What takes this long in an hour takes so long here.
    fn sped_up(&self, seconds: u64) -> String {
        format!("{}ms", (seconds * 1_000 * self.minutes / 60).max(100))
    }

    fn births_a_second(&self) -> u64 {
        self.births * 60 / self.minutes
    }
}

fn main() -> ExitCode {
    let options = match Options::from_args(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    // Log is let go at checkpoints; as many as in an hour.
    let checkpoints = (options.minutes * 5).max(30).to_string() + "s";
    let settings = [("checkpoint_timeout", checkpoints.as_str()), ("autovacuum_naptime", "5s")];
    let settings = settings.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
    let cluster =
        Cluster::start(ClusterOptions { version: Wanted::V16, settings, ..ClusterOptions::default() });
    let cluster = cluster.expect("the server starts");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if runtime.block_on(soak(&cluster, &options)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The daemon; killed when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

fn program(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gov-handoff"));
    command.args(arguments).env("DATABASE_URL", url).env("GOV_HANDOFF_LOG", "warn").stdin(Stdio::null());
    command.stdout(Stdio::null());
    command
}

async fn soak(cluster: &Cluster, options: &Options) -> bool {
    cluster.create_database(DATABASE, None).await.expect("a database");
    let url = cluster.url(DATABASE);
    for arguments in [&["migrate"][..], &["types", "activate", "--all"]] {
        assert!(program(&url, arguments).status().is_ok_and(|s| s.success()), "{arguments:?}");
    }
    let client = connect(&url).await;
    // As many holes as there are after a few minutes, so that the rest of the time shows whether they stay as many.
    let kept = "update dot_config set value = '20' where key = 'governance.holes.kept'";
    client.batch_execute(kept).await.expect(kept);
    let daemon = program(&url, &["run"])
        .env("GOV_HANDOFF_CERTIFY_INTERVAL", options.sped_up(60))
        .env("GOV_HANDOFF_RECONCILE_INTERVAL", options.sped_up(5))
        .env("GOV_HANDOFF_HEARTBEAT_INTERVAL", options.sped_up(60))
        .env("GOV_HANDOFF_AUDIT_INTERVAL", options.sped_up(300))
        .spawn();
    let daemon = Daemon(daemon.expect("the daemon starts"));
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let every = Duration::from_micros(1_000_000 * EACH * WRITERS / options.births_a_second().max(1));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            tokio::spawn(write(url.clone(), writer, every, Arc::clone(&stop), Arc::clone(&written)))
        })
        .collect();
    let (over, mut looks) = (Instant::now() + Duration::from_secs(options.minutes * 60), Vec::new());
    while Instant::now() < over {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let look = flat::look(&client, daemon.0.id()).await;
        if looks.len().is_multiple_of(30) {
            eprintln!("{:>5} s, {} births: {look:?}", looks.len(), written.load(Ordering::Relaxed));
        }
        looks.push(look);
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("a writer does not panic");
    }
    let clean = verdict(&client).await;
    let mut flat = true;
    println!("\n{:<24} {:>12} {:>12} {:>9}", "measure", "first half", "second half", "allowed");
    for half in flat::halves(&looks) {
        let word = if half.is_flat() { "flat" } else { "GROWS" };
        println!("{:<24} {:>12} {:>12} {:>+9} {word}", half.name, half.first, half.second, half.allowed);
        flat &= half.is_flat();
    }
    flat && clean
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    client
}

/// Births at a steady rate; of a hundred transactions two are rolled back and one commits late.
async fn write(url: String, writer: u64, every: Duration, stop: Arc<AtomicBool>, written: Arc<AtomicU64>) {
    let client = connect(&url).await;
    let births = format!(
        "insert into birth_registry (entity_code, collection_name) select 'w{writer}-' || g, 'c' || g % 20 from generate_series(1, {EACH}) g"
    );
    let mut due = tokio::time::interval(every);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for n in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        due.tick().await;
        let (end, pause) = match n % 100 {
            17 | 71 => ("rollback", 0),
            42 => ("commit", 300),
            _ => ("commit", 0),
        };
        client.batch_execute(&format!("begin; {births}")).await.expect("births");
        tokio::time::sleep(Duration::from_millis(pause)).await;
        client.batch_execute(end).await.expect(end);
        if end == "commit" {
            written.fetch_add(EACH, Ordering::Relaxed);
        }
    }
}

/// Every birth handed off once, soon after the last.
async fn verdict(client: &Client) -> bool {
    let sql = "select (select count(*) from birth_registry), count(*), count(distinct event_subject_ref) from event_outbox
                where event_type = 'governance.handoff.object_born'";
    let over = Instant::now() + Duration::from_secs(30);
    loop {
        let row = client.query_one(sql, &[]).await.expect("the verdict");
        let (births, signals, distinct): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if births == signals && signals == distinct || Instant::now() > over {
            println!("{births} births, {} missing, {} twice", births - distinct, signals - distinct);
            return births == distinct && signals == distinct;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
