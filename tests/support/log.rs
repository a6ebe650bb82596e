//! The lines that a child process has logged, kept while it runs and after it has ended.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A log with the time of each line. Clones share the lines, so one log can follow several processes in turn.
#[derive(Clone)]
pub struct Log {
    began: Instant,
    lines: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Log {
    pub fn new() -> Self {
        Self { began: Instant::now(), lines: Arc::default() }
    }

    /// Reads a pipe to its end in a thread of its own.
    pub fn follow(&self, pipe: impl Read + Send + 'static) -> JoinHandle<()> {
        let log = self.clone();
        std::thread::spawn(move || {
            // A line that is not UTF-8 is kept with replacement characters: nothing that was logged may be lost here.
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                log.push(String::from_utf8_lossy(&line).into_owned());
            }
        })
    }

    /// Adds a line of the test's own.
    pub fn note(&self, text: &str) {
        self.push(format!("==== {text}"));
    }

    /// Everything that was logged, without times.
    pub fn text(&self) -> String {
        self.lines().iter().map(|(_, line)| format!("{line}\n")).collect()
    }

    /// The last lines, each with the seconds since the log began.
    pub fn tail(&self, count: usize) -> String {
        let lines = self.lines();
        let last = &lines[lines.len().saturating_sub(count)..];
        last.iter().map(|(at, line)| format!("{:8.3} {line}\n", at.as_secs_f64())).collect()
    }

    fn push(&self, line: String) {
        let at = self.began.elapsed();
        self.lines().push((at, line));
    }

    fn lines(&self) -> MutexGuard<'_, Vec<(Duration, String)>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
