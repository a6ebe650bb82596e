//! One run of the server process: start it, wait until it accepts connections, stop it.
//!
//! `postgres` is our direct child, without `pg_ctl` between, so its exit and status are seen at once.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::EmbeddedError;
use super::home::Home;

/// A generous limit, for crash recovery on a loaded machine. Only a broken server takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
const LOG_TAIL: usize = 2000;

/// How to end the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Waits for all clients to leave.
    Smart,
    /// Disconnects clients, writes a checkpoint.
    Fast,
    /// Exits without a checkpoint; the next start recovers.
    Immediate,
    /// `kill -9`: like a power failure, except that data buffered by the operating system is kept.
    Kill,
}

pub(super) struct Postmaster {
    child: Child,
    /// The position in the log file where this run begins.
    log_start: u64,
}

impl Postmaster {
    /// Starts the server of `home` and returns once it accepts connections.
    pub(super) fn start(bin_dir: &Path, home: &Home, port: u16) -> Result<Self, EmbeddedError> {
        let failed = || EmbeddedError::io(format!("could not write {}", home.log_path().display()));
        let log = OpenOptions::new().create(true).append(true).open(home.log_path()).map_err(failed())?;
        let log_start = log.metadata().map_err(failed())?.len();
        let second = log.try_clone().map_err(failed())?;
        let program = bin_dir.join("postgres");
        let child = home
            .account()
            .command(&program, home.path())
            .arg("-D")
            .arg(home.data_dir())
            .args(["-p", &port.to_string()])
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(second))
            .spawn()
            .map_err(EmbeddedError::io(format!("could not run {}", program.display())))?;
        let mut postmaster = Self { child, log_start };
        postmaster.wait_until_ready(home)?;
        Ok(postmaster)
    }

    fn wait_until_ready(&mut self, home: &Home) -> Result<(), EmbeddedError> {
        let pid_file = home.data_dir().join("postmaster.pid");
        let deadline = Instant::now() + PATIENCE;
        while !fs::read_to_string(&pid_file).is_ok_and(|text| says_ready(&text, self.pid())) {
            if let Some(status) =
                self.child.try_wait().map_err(EmbeddedError::io("could not wait for postgres"))?
            {
                return Err(EmbeddedError::ExitedEarly { status: status.to_string(), log: self.log(home) });
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return Err(self.too_slow("ready", home));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) fn stop(&mut self, mode: StopMode, home: &Home) -> Result<(), EmbeddedError> {
        // The process id of a child that has ended may belong to another process: never signal it.
        if self.is_running() {
            self.signal(mode)?;
        }
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() {
            if Instant::now() > deadline {
                return Err(self.too_slow("stopped", home));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn signal(&mut self, mode: StopMode) -> Result<(), EmbeddedError> {
        let name = match mode {
            StopMode::Smart => "TERM",
            StopMode::Fast => "INT",
            StopMode::Immediate => "QUIT",
            StopMode::Kill => return self.child.kill().map_err(EmbeddedError::io("could not kill postgres")),
        };
        // The shell's built-in kill, because slim images have no other and std cannot send these signals.
        Command::new("sh")
            .args(["-c", "kill -s \"$1\" \"$2\"", "sh", name, &self.pid().to_string()])
            .stderr(Stdio::null())
            .status()
            .map(drop)
            .map_err(EmbeddedError::io("could not run sh to signal postgres"))
    }

    fn too_slow(&self, expected: &'static str, home: &Home) -> EmbeddedError {
        EmbeddedError::TooSlow { expected, seconds: PATIENCE.as_secs(), log: self.log(home) }
    }

    fn log(&self, home: &Home) -> String {
        let mut text = Vec::new();
        let _ = File::open(home.log_path()).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.log_start))?;
            file.read_to_end(&mut text)
        });
        let tail = &text[text.len().saturating_sub(LOG_TAIL)..];
        String::from_utf8_lossy(tail).trim().to_owned()
    }
}

/// The eighth line of `postmaster.pid` is the status. The first line shows whether the file is from this run.
fn says_ready(pid_file: &str, pid: u32) -> bool {
    let mut lines = pid_file.lines();
    let ours = lines.next().and_then(|line| line.trim().parse().ok()) == Some(pid);
    ours && lines.nth(6).is_some_and(|status| status.trim() == "ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "71\n/d\n1700000000\n20001\n/s\n127.0.0.1\n 1 2\nready   \n";

    #[test]
    fn ready_is_read_from_the_file_of_this_run_only() {
        assert!(says_ready(FILE, 71));
        assert!(!says_ready(FILE, 72));
        assert!(!says_ready(&FILE.replace("ready", "starting"), 71));
        assert!(!says_ready("71\n/d\n", 71));
        assert!(!says_ready("", 71));
    }
}
