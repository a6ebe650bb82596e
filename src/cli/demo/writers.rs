//! The registry's writers: concurrent sessions that behave as applications do, not as a benchmark would.
//!
//! One writer holds each transaction open for a while before it commits, so that its ids appear behind the others'. The
//! rest insert one row or several, use savepoints and roll some of it back. What is counted is what was committed.

use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::{Client, Statement};

/// Sessions that write at once.
pub const WRITERS: u64 = 6;

/// Shared with the writers: their counts, and the limits given to them.
#[derive(Default)]
pub struct Tally {
    pub births: AtomicI64,
    pub changes: AtomicI64,
    pub stop: AtomicBool,
    /// Rows after which the writers stop by themselves; 0 for no such limit.
    pub limit: AtomicU64,
}

impl Tally {
    #[must_use]
    pub fn rows(&self) -> i64 {
        self.births.load(Ordering::Relaxed) + self.changes.load(Ordering::Relaxed)
    }

    pub fn done(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        self.stop.load(Ordering::Relaxed) || (limit > 0 && self.rows().unsigned_abs() >= limit)
    }
}

/// Starts them, together at about `rate` rows a second.
pub async fn start(url: &str, rate: f64, tally: &Arc<Tally>) -> Result<JoinSet<Result<()>>> {
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let client = super::stage::connect(url, &format!("demo writer {}", number + 1)).await?;
        let writer = BirthWriter {
            births: client.prepare(include_str!("sql/births.sql")).await?,
            changes: client.prepare(include_str!("sql/changes.sql")).await?,
            client,
            dice: Dice(0x9e37_79b9_7f4a_7c15 ^ (number + 1)),
            // A higher rate is reached by larger statements rather than more of them.
            scale: (rate / 400.0).ceil().clamp(1.0, 500.0) as i32,
            tally: Arc::clone(tally),
        };
        let share = rate / (WRITERS - 1) as f64;
        writers
            .spawn(async move { if number == 0 { writer.late().await } else { writer.steady(share).await } });
    }
    Ok(writers)
}

struct BirthWriter {
    client: Client,
    births: Statement,
    changes: Statement,
    dice: Dice,
    scale: i32,
    tally: Arc<Tally>,
}

impl BirthWriter {
    async fn steady(mut self, rate: f64) -> Result<()> {
        let mut due = Instant::now();
        while !self.tally.done() {
            let rows = self.transaction().await?;
            due += Duration::from_secs_f64(f64::from(rows) / rate);
            // After the server fell behind, the writers do not catch up with a burst.
            due = due.max(Instant::now() - Duration::from_millis(200));
            tokio::time::sleep_until(due).await;
        }
        Ok(())
    }

    /// One transaction of a mixed day; returns the rows it took on, committed or not.
    async fn transaction(&mut self) -> Result<i32> {
        let n = self.scale;
        match self.dice.below(100) {
            0..45 => self.autocommit(n, 0).await,
            45..55 => {
                let n = n * (2 + self.dice.below(6));
                self.autocommit(n, 0).await
            }
            55..88 => {
                let n = n * (1 + self.dice.below(3));
                self.autocommit(0, n).await
            }
            88..95 => {
                self.client.batch_execute("begin").await?;
                self.insert(n, 0).await?;
                self.client.batch_execute("savepoint s").await?;
                self.insert(n, n).await?;
                self.client.batch_execute("rollback to s; savepoint t").await?;
                self.insert(n, n).await?;
                self.end(true, n * 2, n).await?;
                Ok(n * 3)
            }
            _ => {
                self.client.batch_execute("begin").await?;
                self.insert(n, n).await?;
                self.end(false, n, n).await?;
                Ok(n * 2)
            }
        }
    }

    /// Commits long after it inserted, now and then not at all.
    async fn late(mut self) -> Result<()> {
        while !self.tally.done() {
            let n = self.scale;
            self.client.batch_execute("begin").await?;
            self.insert(n * 2, n).await?;
            let held = 300 + self.dice.below(1200);
            tokio::time::sleep(Duration::from_millis(held.unsigned_abs().into())).await;
            let kept = self.dice.below(5) > 0;
            self.end(kept, n * 2, n).await?;
        }
        Ok(())
    }

    async fn autocommit(&mut self, births: i32, changes: i32) -> Result<i32> {
        self.insert(births, changes).await?;
        self.count(births, changes);
        Ok(births + changes)
    }

    async fn insert(&mut self, births: i32, changes: i32) -> Result<()> {
        if births > 0 {
            self.client.execute(&self.births, &[&births]).await?;
        }
        if changes > 0 {
            self.client.execute(&self.changes, &[&changes, &self.dice.below(10)]).await?;
        }
        Ok(())
    }

    async fn end(&self, commit: bool, births: i32, changes: i32) -> Result<()> {
        self.client.batch_execute(if commit { "commit" } else { "rollback" }).await?;
        if commit {
            self.count(births, changes);
        }
        Ok(())
    }

    fn count(&self, births: i32, changes: i32) {
        self.tally.births.fetch_add(births.into(), Ordering::Relaxed);
        self.tally.changes.fetch_add(changes.into(), Ordering::Relaxed);
    }
}

/// Marsaglia's xorshift: a demo needs variety, not unpredictability.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: i32) -> i32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        i32::try_from((self.0 >> 33) % n.unsigned_abs().max(1) as u64).unwrap_or(0)
    }
}
