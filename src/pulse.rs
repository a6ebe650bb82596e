//! The loops of this process, and when each of them last turned.
//!
//! `/livez` asks this module and nothing else, so the answer depends on no database. A loop enters its name when it begins, and
//! says at each turn that it still turns. It is stalled if it has not turned for longer than it ever should. A loop whose task
//! ended is gone from the list: who started it starts it again, or the process ends.
//!
//! The service manager is told from here too: that the daemon is ready ([`is_settled`]), and that its loops turn.

use crate::config;
use crate::failpoint;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The loops that run. The number is about two per worker.
static LOOPS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

struct Entry {
    number: u64,
    name: String,
    turned: Instant,
    patience: Duration,
    /// This loop knows where its worker stands: the lease is ours, or another instance's.
    settled: bool,
}

/// A loop as onlookers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopSeen {
    pub name: String,
    /// Since its last turn.
    pub age: Duration,
    pub stalled: bool,
}

/// A running loop. Dropping it takes it off the list.
#[derive(Debug)]
pub struct Loop {
    number: u64,
    kind: &'static str,
}

/// Enters a loop. `patience` is how long one turn may take at most, even if the server fails.
#[must_use]
pub fn enter(kind: &'static str, worker: &str, patience: Duration) -> Loop {
    let patience = config::pulse_patience().unwrap_or(patience);
    with(|loops| {
        let number = loops.last().map_or(0, |last| last.number + 1);
        loops.push(Entry {
            number,
            name: format!("{worker} {kind}"),
            turned: Instant::now(),
            patience,
            settled: false,
        });
        Loop { number, kind }
    })
}

impl Loop {
    /// The loop turns.
    pub async fn turn(&self) {
        with(|loops| {
            if let Some(entry) = loops.iter_mut().find(|entry| entry.number == self.number) {
                entry.turned = Instant::now();
            }
        });
        failpoint::stall(self.kind).await;
    }

    /// The database answered, and so the worker of this loop holds its lease or stands by.
    pub fn settle(&self) {
        with(|loops| {
            if let Some(entry) = loops.iter_mut().find(|entry| entry.number == self.number) {
                entry.settled = true;
            }
        });
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        with(|loops| loops.retain(|entry| entry.number != self.number));
    }
}

/// Every loop that runs.
#[must_use]
pub fn seen() -> Vec<LoopSeen> {
    with(|loops| {
        let seen = |entry: &Entry| {
            let age = entry.turned.elapsed();
            LoopSeen { name: entry.name.clone(), age, stalled: age > entry.patience }
        };
        loops.iter().map(seen).collect()
    })
}

/// Whether a worker of this process holds its lease, or stands by for another instance.
#[must_use]
pub fn is_settled() -> bool {
    with(|loops| loops.iter().any(|entry| entry.settled))
}

fn with<T>(work: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
    // Nothing under the lock can panic half way.
    work(&mut LOOPS.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_loop_is_stalled_when_it_has_not_turned_for_longer_than_it_should() {
        let named = |worker: &str| seen().into_iter().find(|seen| seen.name == format!("{worker} test"));
        let (brisk, stalled) =
            (enter("test", "brisk", Duration::from_secs(600)), enter("test", "stalled", Duration::ZERO));
        std::thread::sleep(Duration::from_millis(5));
        brisk.turn().await;
        assert!(!named("brisk").unwrap().stalled && named("stalled").unwrap().stalled);
        drop(stalled);
        assert_eq!(named("stalled"), None);
    }
}
