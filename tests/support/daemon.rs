//! `gov-handoff run` as a child process that can be signalled, killed, measured and read.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Database, Log, PATIENCE, connect, program, signal, until_true, within};

/// How long a daemon may take to end when it is asked; it promises ten seconds.
const FAREWELL: Duration = Duration::from_secs(30);

/// SIGABRT, by which a process ends at a failpoint.
const ABORTED: i32 = 6;

/// Settings of [`Daemon::eager`]: a killed daemon's lease expires soon, and a lost stream is tried again soon.
const EAGER: [(&str, &str); 2] = [("GOV_HANDOFF_LEASE_TTL", "1s"), ("GOV_HANDOFF_STREAM_RETRY", "500ms")];

/// A running daemon. Dropping it kills it. Declare it after its database, which gives the slots back when it is dropped.
pub struct Daemon {
    child: Child,
    log: Log,
    reader: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts `run` with these arguments; returns at once.
    pub fn start(url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_into(Log::new(), url, arguments, environment)
    }

    /// Starts `run` with a log that may have lines of others already.
    pub fn start_into(log: Log, url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = program(&[&["run"], arguments].concat(), environment);
        command.env("DATABASE_URL", url).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the daemon starts");
        let reader = Some(log.follow(child.stderr.take().expect("stderr")));
        Self { child, log, reader }
    }

    /// Starts `run` in this mode with a lease of a second; returns at once.
    pub fn eager(url: &str, mode: &str, environment: &[(&str, &str)]) -> Self {
        Self::start(url, &["--mode", mode], &[&EAGER, environment].concat())
    }

    /// Starts it and waits until it captures in the way it was asked to: `stream` or `poll`.
    pub async fn running(db: &Database, mode: &str, environment: &[(&str, &str)]) -> Self {
        let daemon = Self::start(&db.url, &["--mode", mode], environment);
        daemon.captures(&db.url, if mode == "poll" { "poll" } else { "stream" }).await;
        daemon
    }

    /// Waits until this daemon, and no predecessor, says that it captures in this way.
    pub async fn captures(&self, url: &str, mode: &str) {
        let condition = format!(
            "select coalesce((select metadata ->> 'mode' = '{mode}' and (metadata ->> 'pid')::bigint = {} \
             and lease_owner is not null from queue_heartbeat where executor_name = 'gov_handoff_intake'), false)",
            self.pid()
        );
        until_true(&connect(url).await, &condition).await;
    }

    /// Waits until its log says these words.
    pub async fn says(&self, words: &str) {
        within(
            PATIENCE,
            words,
            async || if self.log().contains(words) { Ok(()) } else { Err(self.log.tail(40)) },
        )
        .await;
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything that it has logged so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// The most memory that it ever had resident, in MiB.
    pub fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("/proc");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
        let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
        kib / 1024
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits until the process is stopped, as by a failpoint with `:stop`.
    pub async fn stops(&self) {
        let state = format!("/proc/{}/stat", self.pid());
        let stopped = || std::fs::read_to_string(&state).is_ok_and(|stat| stat.contains(") T "));
        let begun = std::time::Instant::now();
        while !stopped() {
            assert!(begun.elapsed().as_secs() < 60, "it was never stopped: {}", self.log());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Asks it to end and waits for that; returns its exit code, -1 if a signal ended it.
    pub async fn sigterm(&mut self) -> i32 {
        self.signal("TERM");
        self.end_within(FAREWELL, "asked to end").await.code().unwrap_or(-1)
    }

    /// Waits until it ends by itself.
    pub async fn end(&mut self, what: &str) -> ExitStatus {
        self.end_within(PATIENCE, what).await
    }

    /// Waits until it dies at its failpoint, and in no other way.
    pub async fn dies_at(&mut self, failpoint: &str) {
        let status = self.end(failpoint).await;
        assert_eq!(status.signal(), Some(ABORTED), "{failpoint}: {status}: {}", self.log());
    }

    async fn end_within(&mut self, limit: Duration, what: &str) -> ExitStatus {
        let log = self.log.clone();
        within(limit, &format!("{what}: the daemon ends"), async || {
            self.has_ended().ok_or_else(|| log.tail(60))
        })
        .await
    }

    /// Its exit status if it has ended. Its log is complete then.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("wait for the daemon")?;
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log's reader does not panic");
        }
        Some(status)
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.has_ended();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the daemon's log ends ---\n{}", self.log.tail(100));
        }
    }
}

impl Database {
    /// Starts an eager daemon ([`Daemon::eager`]) of this database; returns at once.
    pub fn daemon(&self, mode: &str, environment: &[(&str, &str)]) -> Daemon {
        Daemon::eager(&self.url, mode, environment)
    }

    /// Starts an eager daemon and waits until it captures in this way. `reconcile` is how often the tables are read behind
    /// a stream: `1h` leaves everything to the stream.
    pub async fn capturing(&self, mode: &str, reconcile: &str) -> Daemon {
        let daemon = self.daemon(mode, &[("GOV_HANDOFF_RECONCILE_INTERVAL", reconcile)]);
        daemon.captures(&self.url, mode).await;
        daemon
    }
}
