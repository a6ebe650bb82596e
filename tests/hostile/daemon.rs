//! The daemon as a supervisor runs it: started again whenever it ends, killed, stopped and asked to end on purpose.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A supervisor looks this often.
const WATCH: Duration = Duration::from_millis(50);
/// It promises to end within ten seconds of being asked.
const FAREWELL: Duration = Duration::from_secs(12);

pub struct Daemon {
    url: String,
    mode: &'static str,
    state: Mutex<State>,
}

struct State {
    child: Child,
    /// Not to be started again: the run is over.
    over: bool,
    log: Arc<Mutex<Vec<String>>>,
    begun: Instant,
    /// Its last words each time it ended without having been asked.
    gave_up: Vec<String>,
}

impl Daemon {
    pub fn start(url: &str, mode: &'static str) -> Arc<Self> {
        let (log, begun) = (Arc::default(), Instant::now());
        let child = spawn(url, mode, &log, begun);
        let state = Mutex::new(State { child, over: false, log, begun, gave_up: Vec::new() });
        let daemon = Arc::new(Self { url: url.to_owned(), mode, state });
        let watched = Arc::downgrade(&daemon);
        std::thread::spawn(move || {
            while let Some(daemon) = watched.upgrade() {
                if !daemon.look() {
                    return;
                }
                drop(daemon);
                std::thread::sleep(WATCH);
            }
        });
        daemon
    }

    /// What a supervisor does. False when there is nothing left to do.
    fn look(&self) -> bool {
        let mut state = self.state();
        if state.over {
            return false;
        }
        if let Ok(Some(status)) = state.child.try_wait() {
            // Its last line may still be in the pipe.
            std::thread::sleep(WATCH);
            let last = state.tail(1);
            state.gave_up.push(last);
            state.note(&format!("it ended by itself: {status}"));
            self.again(&mut state);
        }
        true
    }

    pub fn kill(&self) {
        let mut state = self.state();
        let _ = (state.child.kill(), state.child.wait());
        state.note("killed");
        self.again(&mut state);
    }

    pub fn terminate(&self) {
        let mut state = self.state();
        state.note("asked to end");
        signal(&state.child, "TERM");
        let asked = Instant::now();
        while let Ok(None) = state.child.try_wait() {
            assert!(asked.elapsed() < FAREWELL, "the daemon does not end when asked:\n{}", state.tail(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        self.again(&mut state);
    }

    /// Stops it as a debugger or a frozen container would, then lets it go on.
    pub fn freeze(&self, time: Duration) {
        let state = self.state();
        state.note("frozen");
        signal(&state.child, "STOP");
        std::thread::sleep(time);
        signal(&state.child, "CONT");
        state.note("thawed");
    }

    /// Its last words, for a failure.
    pub fn log(&self, lines: usize) -> String {
        self.state().tail(lines)
    }

    pub fn gave_up(&self) -> Vec<String> {
        self.state().gave_up.clone()
    }

    pub fn note(&self, text: &str) {
        self.state().note(text);
    }

    pub fn end(&self) {
        let mut state = self.state();
        state.over = true;
        let _ = (state.child.kill(), state.child.wait());
    }

    fn again(&self, state: &mut State) {
        state.child = spawn(&self.url, self.mode, &state.log, state.begun);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    fn note(&self, text: &str) {
        let line = format!("{:8.3} ==== {text}", self.begun.elapsed().as_secs_f64());
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn tail(&self, lines: usize) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log[log.len().saturating_sub(lines)..].join("\n")
    }
}

fn spawn(url: &str, mode: &str, log: &Arc<Mutex<Vec<String>>>, begun: Instant) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gov-handoff"));
    for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("PG") || n.starts_with("GOV_HANDOFF_")) {
        command.env_remove(name);
    }
    command.args(["run", "--mode", mode]).env("DATABASE_URL", url).env("NO_COLOR", "1");
    // A killed instance's lease must expire within the time that the suite allows for everything.
    command.env("GOV_HANDOFF_LEASE_TTL", "1s");
    // Certifying passes within a short run, and the log of what happened to a lost row.
    command.env("GOV_HANDOFF_CERTIFY_INTERVAL", "3s");
    // The operators' tables have thousands of groups, and each change of a ruleset dirties all: a storm, in which every lane rests on
    // purpose (`findings` tests that). Here the rests would hide who delays whom.
    command.env("GOV_HANDOFF_STORM_FLOOR", "1000000000");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the daemon starts");
    let (pipe, log) = (child.stderr.take().expect("stderr"), Arc::clone(log));
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let line = format!("{:8.3} {line}", begun.elapsed().as_secs_f64());
            log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
    child
}

/// By the shell's own `kill`, because sending signals would need unsafe code here.
fn signal(child: &Child, name: &str) {
    let _ = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
}
