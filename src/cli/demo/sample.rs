//! What the database says of the daemon, asked a few times a second over one session.

use super::stage::SLOT;
use crate::error::{Context, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Births that the lag is taken from at most, newest first.
const LAG_ROWS: i32 = 1_000;

/// Counting may take this part of one session's time.
const SPARING: u32 = 5;

/// How the daemon captures, as its heartbeat tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Capture {
    #[default]
    Down,
    Starting,
    Stream,
    Poll,
}

#[derive(Debug, Clone, Default)]
pub struct Sample {
    pub capture: Capture,
    pub term: i64,
    pub reason: Option<String>,
    /// `None`: there is no slot of that name. A physical one under it is not ours.
    pub slot: Option<SlotSample>,
    pub open_ranges: i64,
    /// Handoffs by kind: through the stream, by polling, by reconciling.
    pub kinds: BTreeMap<String, [i64; 3]>,
    /// Births that were committed when the handoffs were counted.
    pub births: i64,
    /// How often they were counted by then.
    pub counted: u64,
    /// Milliseconds from commit to commit, of the last two seconds.
    pub lag: Option<(f64, f64)>,
}

#[derive(Debug, Clone, Default)]
pub struct SlotSample {
    pub ours: bool,
    /// Bytes of log that the server keeps for it.
    pub retained: i64,
    /// Bytes of log that are not acknowledged.
    pub behind: i64,
}

impl Sample {
    #[must_use]
    pub fn captured(&self) -> [i64; 3] {
        self.kinds.values().fold([0; 3], |sum, n| [sum[0] + n[0], sum[1] + n[1], sum[2] + n[2]])
    }

    #[must_use]
    pub fn handoffs(&self) -> i64 {
        self.captured().iter().sum()
    }

    #[must_use]
    pub fn born(&self) -> i64 {
        self.kinds.get("object_born").map_or(0, |n| n.iter().sum())
    }
}

/// Asks the database. Slow questions are asked less often, so that watching does not slow down the daemon.
pub struct Sampler {
    client: Client,
    last: Sample,
    counted: Instant,
    cost: Duration,
}

impl Sampler {
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, last: Sample::default(), counted: Instant::now(), cost: Duration::ZERO }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// `births` counts the ones that are committed.
    pub async fn take(&mut self, births: &AtomicI64) -> Result<Sample> {
        self.state().await.context("asking for the daemon's state")?;
        if self.counted.elapsed() >= self.cost * SPARING {
            self.last.births = births.load(Ordering::Relaxed);
            self.last.counted += 1;
            self.counts().await.context("counting handoffs")?;
        }
        Ok(self.last.clone())
    }

    async fn state(&mut self) -> Result<()> {
        let row = self.client.query_one(include_str!("sql/state.sql"), &[&SLOT]).await?;
        let alive = row.try_get::<_, Option<bool>>("alive")?.unwrap_or(false);
        let mode: Option<String> = row.try_get("mode")?;
        self.last.capture = match mode.as_deref() {
            _ if !alive => Capture::Down,
            Some("stream") => Capture::Stream,
            Some("poll") => Capture::Poll,
            _ => Capture::Starting,
        };
        self.last.term = row.try_get::<_, Option<i64>>("term")?.unwrap_or(0);
        self.last.reason = row.try_get("mode_reason")?;
        self.last.open_ranges = row.try_get("open_ranges")?;
        let kind: Option<String> = row.try_get("slot_type")?;
        self.last.slot = match kind {
            Some(kind) => Some(SlotSample {
                ours: kind == "logical",
                retained: row.try_get::<_, Option<i64>>("retained")?.unwrap_or(0),
                behind: row.try_get::<_, Option<i64>>("behind")?.unwrap_or(0),
            }),
            None => None,
        };
        Ok(())
    }

    async fn counts(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut kinds: BTreeMap<String, [i64; 3]> = BTreeMap::new();
        for row in self.client.query(include_str!("sql/kinds.sql"), &[]).await? {
            let by: Option<String> = row.try_get("captured_by")?;
            let place = match by.as_deref() {
                Some("stream") => 0,
                Some("poll") => 1,
                _ => 2,
            };
            kinds.entry(row.try_get("kind")?).or_default()[place] += row.try_get::<_, i64>("n")?;
        }
        self.last.kinds = kinds;
        let row = self.client.query_one(include_str!("sql/lag.sql"), &[&LAG_ROWS]).await?;
        let (p50, p99): (Option<f64>, Option<f64>) = (row.try_get("p50")?, row.try_get("p99")?);
        self.last.lag = p50.zip(p99);
        self.cost = begun.elapsed();
        self.counted = Instant::now();
        Ok(())
    }
}
