//! The zone in which a source writes its zone-less timestamps.
//!
//! A local time may mean two instants (the clock was set back) or none (it was set forward). The choice matters little,
//! but it must always be the same: the stream, the poll and a repair a year later must give one row the same instant.
//! So:
//!
//! - ambiguous: the later instant, as PostgreSQL's own `at time zone` does, so that SQL and this code agree.
//! - non-existent: shifted forward by the gap, that is, read with the offset from before it.

use super::{MICROS_PER_SECOND, UNIX_TO_PG_MICROS, text};
use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::{GapInfo, Tz};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Zone {
    Utc,
    /// Seconds east of Greenwich, signed as in timestamps (not as in POSIX zone names, where east is
    /// negative).
    Fixed(i32),
    Named(Tz),
}

/// Why a text is not a zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected UTC, an offset such as +07:00 or a zone such as Asia/Ho_Chi_Minh, found {0:?}")]
pub struct ZoneError(String);

impl Zone {
    /// The offset that holds at a local time, given in microseconds since 2000-01-01.
    pub(super) fn seconds_east_at_local(self, local_pg_micros: i128) -> i32 {
        match self {
            Zone::Utc => 0,
            Zone::Fixed(east) => east,
            Zone::Named(zone) => naive(local_pg_micros).map_or(0, |local| seconds_east(zone, &local)),
        }
    }
}

/// `None` beyond the years that the library can represent (after 262142 AD). No zone has rules for that time. Such a
/// time is read as UTC, which is at least always the same.
fn naive(local_pg_micros: i128) -> Option<NaiveDateTime> {
    let unix_seconds = (local_pg_micros + i128::from(UNIX_TO_PG_MICROS)).div_euclid(MICROS_PER_SECOND.into());
    // Offsets and their changes are whole seconds, so the fraction may be dropped.
    DateTime::from_timestamp(i64::try_from(unix_seconds).ok()?, 0).map(|at| at.naive_utc())
}

fn seconds_east(zone: Tz, local: &NaiveDateTime) -> i32 {
    let east = |offset: chrono_tz::TzOffset| offset.fix().local_minus_utc();
    match zone.offset_from_local_datetime(local) {
        MappedLocalTime::Single(offset) => east(offset),
        // The further west, the later the instant.
        MappedLocalTime::Ambiguous(one, other) => east(one).min(east(other)),
        MappedLocalTime::None => {
            GapInfo::new(local, &zone).and_then(|gap| gap.begin).map_or(0, |(_, before)| east(before))
        }
    }
}

impl FromStr for Zone {
    type Err = ZoneError;

    fn from_str(text: &str) -> Result<Self, ZoneError> {
        let zone = match text {
            "UTC" => Some(Zone::Utc),
            _ if text.starts_with(['+', '-']) => text::parse_offset(text).ok().map(Zone::Fixed),
            _ => text.parse().ok().map(Zone::Named),
        };
        zone.ok_or_else(|| ZoneError(text.to_owned()))
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Zone::Utc => f.write_str("UTC"),
            Zone::Named(zone) => f.write_str(zone.name()),
            Zone::Fixed(east) => {
                let (sign, seconds) = (if east < 0 { '-' } else { '+' }, east.unsigned_abs());
                write!(f, "{sign}{:02}:{:02}", seconds / 3600, seconds / 60 % 60)?;
                if seconds % 60 == 0 { Ok(()) } else { write!(f, ":{:02}", seconds % 60) }
            }
        }
    }
}

impl serde::Serialize for Zone {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Zone {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
