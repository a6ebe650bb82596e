//! `gov-handoff run` as a child process that can be asked to end, killed, and read.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::program::command;
use super::{TestDb, connect, until};

/// How long a daemon may take to end; it promises ten seconds.
const FAREWELL: Duration = Duration::from_secs(30);

/// A running daemon. Dropping it kills it; its slot goes with the [`TestDb`].
pub struct Daemon {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Daemon {
    /// Starts `run` with these arguments; returns at once.
    pub fn start(url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let all = [&["run"], arguments].concat();
        let mut child =
            command(url, &all, environment).stdout(Stdio::null()).spawn().expect("the daemon starts");
        let said = Arc::new(Mutex::new(String::new()));
        let (pipe, kept) = (child.stderr.take().expect("stderr"), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let mut said = kept.lock().unwrap_or_else(PoisonError::into_inner);
                said.push_str(&line);
                said.push('\n');
            }
        });
        Self { child, said }
    }

    /// Starts it and waits until it captures in the way it was asked to: `stream` or `poll`.
    pub async fn running(db: &TestDb, mode: &str, environment: &[(&str, &str)]) -> Self {
        let daemon = Self::start(&db.url, &["--mode", mode], environment);
        daemon.captures(&db.url, if mode == "poll" { "poll" } else { "stream" }).await;
        daemon
    }

    /// Waits until this daemon, and no predecessor, says that it captures in this way.
    pub async fn captures(&self, url: &str, mode: &str) {
        let client = connect(url).await;
        let condition = format!(
            "select coalesce((select metadata ->> 'mode' = '{mode}' and (metadata ->> 'pid')::bigint = {} \
             and lease_owner is not null from queue_heartbeat where executor_name = 'gov_handoff_intake'), false)",
            self.pid()
        );
        until(&client, &condition).await;
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks it to end; gives its exit code. The shell's own `kill`, because sending signals needs unsafe code here.
    pub fn sigterm(&mut self) -> i32 {
        let kill = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.pid())]).status();
        assert!(kill.expect("sh runs").success(), "it was gone already: {}", self.log());
        self.exit_code()
    }

    /// Ends it without a farewell.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for it to end by itself.
    pub fn exit_code(&mut self) -> i32 {
        let deadline = Instant::now() + FAREWELL;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait for the daemon") {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "the daemon does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            eprintln!("--- the daemon said ---\n{}", self.log());
        }
    }
}
