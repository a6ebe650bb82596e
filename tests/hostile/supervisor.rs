//! The daemon as a supervisor runs it: started again whenever it ends, killed, stopped and asked to end on purpose.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::support::{Daemon, Log};

/// How often a supervisor looks.
const WATCH: Duration = Duration::from_millis(50);
/// The daemon promises to end within ten seconds of being asked.
const FAREWELL: Duration = Duration::from_secs(12);

const SETTINGS: [(&str, &str); 4] = [
    // A killed daemon's lease must expire within the time that the suite allows for everything.
    ("GOV_HANDOFF_LEASE_TTL", "1s"),
    // Certifying passes happen within a short run.
    ("GOV_HANDOFF_CERTIFY_INTERVAL", "3s"),
    // The operators' tables have thousands of groups, and each change of a ruleset dirties all: a storm, in which every lane
    // pauses on purpose (`findings` tests that). Here the pauses would hide which session delays which.
    ("GOV_HANDOFF_STORM_FLOOR", "1000000000"),
    // Full audits come again and again, beside those of the operators.
    ("GOV_HANDOFF_AUDIT_EVERY", "8s"),
];

pub struct Supervisor {
    url: String,
    mode: &'static str,
    workers: String,
    log: Log,
    state: Mutex<State>,
}

struct State {
    daemon: Daemon,
    /// Not to be started again: the run is over.
    over: bool,
    /// The daemon's last words each time it ended without having been asked.
    gave_up: Vec<String>,
}

impl Supervisor {
    /// `workers`: as `--workers` has it.
    pub fn start(url: &str, mode: &'static str, workers: &str) -> Arc<Self> {
        let (log, workers) = (Log::new(), workers.to_owned());
        let state = State { daemon: started(&log, url, mode, &workers), over: false, gave_up: Vec::new() };
        let supervisor = Arc::new(Self { url: url.to_owned(), mode, workers, log, state: Mutex::new(state) });
        let watched = Arc::downgrade(&supervisor);
        std::thread::spawn(move || {
            while let Some(supervisor) = watched.upgrade() {
                if !supervisor.look() {
                    return;
                }
                drop(supervisor);
                std::thread::sleep(WATCH);
            }
        });
        supervisor
    }

    /// Starts the daemon again if it has ended. False when there is nothing left to do.
    fn look(&self) -> bool {
        let mut state = self.state();
        if state.over {
            return false;
        }
        if let Some(status) = state.daemon.has_ended() {
            state.gave_up.push(self.log.tail(1));
            self.note(&format!("it ended by itself: {status}"));
            self.again(&mut state);
        }
        true
    }

    pub fn kill(&self) {
        let mut state = self.state();
        state.daemon.kill();
        self.note("killed");
        self.again(&mut state);
    }

    pub fn terminate(&self) {
        let mut state = self.state();
        self.note("asked to end");
        // It may have ended by itself a moment ago.
        if state.daemon.has_ended().is_none() {
            state.daemon.signal("TERM");
        }
        let asked = Instant::now();
        while state.daemon.has_ended().is_none() {
            assert!(asked.elapsed() < FAREWELL, "the daemon does not end when asked:\n{}", self.log.tail(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        self.again(&mut state);
    }

    /// Stops it as a debugger or a frozen container would, then lets it go on.
    pub fn freeze(&self, time: Duration) {
        let mut state = self.state();
        if state.daemon.has_ended().is_some() {
            return;
        }
        self.note("frozen");
        state.daemon.signal("STOP");
        std::thread::sleep(time);
        state.daemon.signal("CONT");
        self.note("thawed");
    }

    /// The last lines of its log, for a failure.
    pub fn log(&self, lines: usize) -> String {
        self.log.tail(lines)
    }

    pub fn gave_up(&self) -> Vec<String> {
        self.state().gave_up.clone()
    }

    pub fn note(&self, text: &str) {
        self.log.note(text);
    }

    pub fn end(&self) {
        let mut state = self.state();
        state.over = true;
        state.daemon.kill();
    }

    fn again(&self, state: &mut State) {
        state.daemon = started(&self.log, &self.url, self.mode, &self.workers);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}

fn started(log: &Log, url: &str, mode: &str, workers: &str) -> Daemon {
    Daemon::start_into(log.clone(), url, &["--mode", mode, "--workers", workers], &SETTINGS)
}
