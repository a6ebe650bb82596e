//! The pace: when the lanes pause, and when heavy work may run. Both follow from the server's load and configured
//! limits.
//!
//! At a slow pace each lane pauses before a batch, in proportion to the duration of the previous batch. Every batch is
//! still applied and acknowledged, so nothing waits indefinitely, however long the load lasts. A single new row, which
//! causes no load, hardly waits. Heavy work (certifying passes and their counts) is deferred while there is load, but
//! no longer than [`PATIENCE`]. If off-peak windows are configured, it is also deferred outside them.

use std::fmt;
use std::time::{Duration, Instant};

/// A slow pace lasts this long after its cause was last seen, so that the pace does not change with every look.
const LINGER: Duration = Duration::from_secs(5);
/// Heavy work is deferred for load at most this long: a proof that never comes is worse than load.
const PATIENCE: Duration = Duration::from_secs(600);
/// At a slow pace a lane pauses this many times the duration of its last batch, so it works a tenth of the time.
const REST: u32 = 9;
/// This many slow reads in a row count as load. A single slow read may have another cause: a suspended process or a cut
/// connection also measures a long time.
const SLOW_IN_A_ROW: u32 = 2;

#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// How many sessions of the database may wait for a lock.
    pub lock_waits: u64,
    /// How many bytes of log a standby server may still have to replay.
    pub standby_lag: u64,
    /// How long one of our reads may take; longer reads in a row are load.
    pub slow_read: Duration,
    /// The share of the groups that one invalidation may mark before it is a storm.
    pub storm_share: f64,
    /// Fewer groups than this are never a storm: in a small system one rule change marks every group.
    pub storm_floor: u64,
    /// The longest pause before a batch.
    pub pause: Duration,
    /// When heavy work may run; empty means always.
    pub off_peak: Vec<OffPeakWindow>,
}

/// What a look at the server found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    pub blocked_by_us: u64,
    pub lock_waits: u64,
    /// `None` if there is no standby server, or if the daemon may not see it.
    pub standby_lag: Option<u64>,
    pub slowest_read: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    BlockedByUs(u64),
    LockWaits(u64),
    StandbyLag(u64),
    SlowRead(Duration),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlockedByUs(n) => write!(f, "{n} sessions wait for locks of ours"),
            Self::LockWaits(n) => write!(f, "{n} sessions wait for locks"),
            Self::StandbyLag(bytes) => write!(f, "a standby is {} MiB behind", bytes >> 20),
            Self::SlowRead(took) => write!(f, "a read took {} ms", took.as_millis()),
        }
    }
}

/// Whether an invalidation that has marked so many of the groups that it has seen is a storm. Only its expansion is
/// slowed down; the intake has written one row for it, and goes on.
#[must_use]
#[allow(clippy::cast_precision_loss)] // Shares of groups; far below 2^53.
pub fn is_storm(marked: u64, seen: u64, limits: &Limits) -> bool {
    marked >= limits.storm_floor.max(1) && marked as f64 > limits.storm_share * seen as f64
}

/// How long an expansion pauses in a storm after a step that took `worked`.
#[must_use]
pub fn storm_pause(worked: Duration, limits: &Limits) -> Duration {
    limits.pause.min(worked.saturating_mul(REST))
}

/// Every cause for a slower pace.
#[must_use]
pub fn causes(load: &Load, limits: &Limits) -> Vec<Cause> {
    let found = [
        (load.blocked_by_us > 0).then_some(Cause::BlockedByUs(load.blocked_by_us)),
        (load.lock_waits > limits.lock_waits).then_some(Cause::LockWaits(load.lock_waits)),
        load.standby_lag.filter(|lag| *lag > limits.standby_lag).map(Cause::StandbyLag),
        (load.slowest_read > limits.slow_read).then_some(Cause::SlowRead(load.slowest_read)),
    ];
    found.into_iter().flatten().collect()
}

/// The pace of the lanes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pace {
    /// The longest pause before a batch.
    pub pause: Duration,
    /// Why the lanes pause, if they do.
    pub causes: Vec<Cause>,
    /// Why heavy work is deferred, if it is.
    pub deferred: Option<String>,
}

impl Pace {
    /// The pace before the first look: no pause, and heavy work only if no off-peak windows are configured.
    #[must_use]
    pub fn first(limits: &Limits) -> Self {
        let deferred =
            (!limits.off_peak.is_empty()).then(|| "certifying waits for a look at the clock".to_owned());
        Self { deferred, ..Self::default() }
    }

    /// The text for operators, in `status` and beside the mode.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let slow = (!self.causes.is_empty()).then(|| {
            let causes: Vec<_> = self.causes.iter().map(ToString::to_string).collect();
            format!("resting up to {} ms before each batch: {}", self.pause.as_millis(), causes.join(", "))
        });
        let parts: Vec<_> = slow.into_iter().chain(self.deferred.clone()).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// How long to pause before a batch, if the last one took `worked`.
    #[must_use]
    pub fn rest_after(&self, worked: Duration) -> Duration {
        self.pause.min(worked.saturating_mul(REST))
    }
}

/// The durations of the reads of one source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadTimes {
    slow_in_a_row: u32,
    slowest: Duration,
}

impl ReadTimes {
    pub fn note(&mut self, took: Duration, limit: Duration) {
        *self = if took > limit {
            Self { slow_in_a_row: self.slow_in_a_row.saturating_add(1), slowest: self.slowest.max(took) }
        } else {
            Self::default()
        };
    }

    /// The slowest of the slow reads in a row; zero if they are too few to count as load.
    #[must_use]
    pub fn slowest(&self) -> Duration {
        if self.slow_in_a_row >= SLOW_IN_A_ROW { self.slowest } else { Duration::ZERO }
    }
}

/// Decides the pace, and remembers what it needs to keep a pace for a while.
#[derive(Debug, Default)]
pub struct Governor {
    last: Vec<Cause>,
    seen_at: Option<Instant>,
    since: Option<Instant>,
}

impl Governor {
    /// The pace after a look. `minute` is the minute of the day in UTC.
    pub fn decide(&mut self, load: &Load, limits: &Limits, now: Instant, minute: u16) -> Pace {
        let found = causes(load, limits);
        if !found.is_empty() {
            self.last = found;
            self.seen_at = Some(now);
            self.since = self.since.or(Some(now));
        } else if self.seen_at.is_none_or(|at| now.saturating_duration_since(at) >= LINGER) {
            *self = Self::default();
        }
        let loaded = !self.last.is_empty();
        let patient = self.since.is_some_and(|since| now.saturating_duration_since(since) < PATIENCE);
        let peak = !limits.off_peak.is_empty() && !limits.off_peak.iter().any(|w| w.contains(minute));
        let deferred = if peak {
            let windows: Vec<_> = limits.off_peak.iter().map(ToString::to_string).collect();
            Some(format!("certifying waits for {} UTC", windows.join(", ")))
        } else {
            (loaded && patient).then(|| "certifying waits for the load to pass".to_owned())
        };
        let pause = if loaded { limits.pause } else { Duration::ZERO };
        Pace { pause, causes: self.last.clone(), deferred }
    }
}

/// A time window of the day in minutes, UTC. It may cross midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffPeakWindow {
    from: u16,
    to: u16,
}

impl OffPeakWindow {
    #[must_use]
    pub fn contains(self, minute: u16) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }

    /// `22:00-06:00`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let minute = |text: &str| {
            let (h, m) = text.trim().split_once(':')?;
            let (h, m): (u16, u16) = (h.parse().ok()?, m.parse().ok()?);
            (h < 24 && m < 60).then_some(h * 60 + m)
        };
        let (from, to) = text.split_once('-')?;
        let (from, to) = (minute(from)?, minute(to)?);
        (from != to).then_some(Self { from, to })
    }
}

impl fmt::Display for OffPeakWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

#[cfg(test)]
mod tests;
