//! Instants exactly as PostgreSQL keeps them, over its whole range (4714 BC to 294276 AD) and both
//! infinities.
//!
//! A date-time library would narrow the range or the precision, and a row born at `infinity` would then
//! either stop the stream or change its place in the order. The library is asked only for what it alone
//! knows: the offsets of named zones.

mod civil;
mod text;
mod zone;

use std::fmt;

pub use text::{parse_timestamp, parse_timestamptz};
pub use zone::{Zone, ZoneError};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// From 1970-01-01, where Unix counts from, to 2000-01-01, where PostgreSQL does.
const UNIX_TO_PG_MICROS: i64 = 10_957 * MICROS_PER_DAY;

/// Microseconds since 2000-01-01 UTC. The extremes of the integer are the infinities, so that the order of
/// the integers is the order of the instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgInstant(i64);

/// Why a text is not an instant. The text itself is a row's value, so only the place in it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("expected {what} at byte {at} of the timestamp")]
    Malformed { what: &'static str, at: usize },
    #[error("timestamp is outside the range of 4714-11-24 BC to 294276-12-31")]
    OutOfRange,
}

impl PgInstant {
    pub const NEG_INFINITY: PgInstant = PgInstant(i64::MIN);
    pub const INFINITY: PgInstant = PgInstant(i64::MAX);
    /// The first instant PostgreSQL knows: Julian day 0, 4714-11-24 BC.
    pub const MIN: PgInstant = PgInstant(-211_813_488_000_000_000);
    /// The last instant PostgreSQL knows: a microsecond before the year 294277.
    pub const MAX: PgInstant = PgInstant(9_223_371_331_199_999_999);

    /// From the server's own representation, which is trusted to be in range: it comes from the server.
    pub const fn from_pg_micros(micros: i64) -> PgInstant {
        PgInstant(micros)
    }

    pub const fn as_pg_micros(self) -> i64 {
        self.0
    }

    /// From microseconds since 1970-01-01 UTC, unless PostgreSQL could not keep the instant.
    pub fn from_unix_micros(micros: i64) -> Option<PgInstant> {
        micros.checked_sub(UNIX_TO_PG_MICROS).map(PgInstant).filter(|at| (Self::MIN..=Self::MAX).contains(at))
    }

    /// To microseconds since 1970-01-01 UTC, unless it is infinite or too late for that count.
    pub fn as_unix_micros(self) -> Option<i64> {
        if self.is_finite() { self.0.checked_add(UNIX_TO_PG_MICROS) } else { None }
    }

    pub fn is_finite(self) -> bool {
        self != Self::NEG_INFINITY && self != Self::INFINITY
    }

    /// The sum is made in 128 bits by the callers, so that nothing on the way here can overflow.
    fn from_wide_micros(micros: i128) -> Result<PgInstant, TimeError> {
        let at = i64::try_from(micros).map(PgInstant).map_err(|_| TimeError::OutOfRange)?;
        if (Self::MIN..=Self::MAX).contains(&at) { Ok(at) } else { Err(TimeError::OutOfRange) }
    }
}

/// ISO 8601 in UTC with all six digits, so that one instant has one spelling and instants of our era sort as
/// text. Years before Christ carry PostgreSQL's ` BC`, since ISO's negative years are read by nobody else.
impl fmt::Display for PgInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEG_INFINITY => return f.write_str("-infinity"),
            Self::INFINITY => return f.write_str("infinity"),
            _ => {}
        }
        let (year, month, day) = civil::civil_from_days(self.0.div_euclid(MICROS_PER_DAY));
        let of_day = self.0.rem_euclid(MICROS_PER_DAY);
        let (seconds, micros) = (of_day / MICROS_PER_SECOND, of_day % MICROS_PER_SECOND);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        // There is no year zero: astronomers' year 0 is 1 BC.
        let (year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z{era}")
    }
}

impl serde::Serialize for PgInstant {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
