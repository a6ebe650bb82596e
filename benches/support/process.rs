//! The product as a child process, watched for memory from outside.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The kernel keeps the high-water mark; it has only to be read once more before the process is gone.
const SAMPLE: Duration = Duration::from_millis(20);

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub wall: Duration,
    /// Highest resident memory, in KiB.
    pub resident_kib: u64,
}

pub struct Daemon {
    child: Child,
    begun: Instant,
}

fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gov-handoff"));
    command.args(args).env("DATABASE_URL", url).env("GOV_HANDOFF_LOG", "warn").stdin(Stdio::null());
    // The intake alone, unless a measure asks for others: what is measured is the intake's work.
    command.env("GOV_HANDOFF_WORKERS", "gov_handoff_intake");
    command
}

/// Runs a command of the product to its end; what it says is shown only if it fails.
pub fn run(url: &str, args: &[&str]) {
    let output = command(url, args).output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "gov-handoff {} failed: {said}", args.join(" "));
}

impl Daemon {
    pub fn start(url: &str, args: &[&str]) -> Self {
        Self::start_with(url, args, &[])
    }

    pub fn start_with(url: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let begun = Instant::now();
        let mut command = command(url, args);
        let child =
            command.envs(env.iter().copied()).stdout(Stdio::null()).spawn().expect("the binary starts");
        Self { child, begun }
    }

    /// The same with a log of what it measures itself, one JSON document a line.
    pub fn start_logged(url: &str, args: &[&str], log: &Path, filter: &str, env: &[(&str, &str)]) -> Self {
        let begun = Instant::now();
        let file = File::create(log).expect("a log file");
        let mut command = command(url, args);
        command
            .env("GOV_HANDOFF_LOG", filter)
            .env("GOV_HANDOFF_LOG_FORMAT", "json")
            .envs(env.iter().copied());
        let child = command.stdout(Stdio::null()).stderr(file).spawn().expect("the binary starts");
        Self { child, begun }
    }

    /// Waits for it to end by itself.
    pub fn finish(mut self) -> Usage {
        let mut resident_kib = 0;
        let status = loop {
            resident_kib = resident_kib.max(self.resident_kib());
            match self.child.try_wait().expect("a child to wait for") {
                Some(status) => break status,
                None => std::thread::sleep(SAMPLE),
            }
        };
        let wall = self.begun.elapsed();
        assert!(status.success(), "gov-handoff ended with {status}");
        Usage { wall, resident_kib }
    }

    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
