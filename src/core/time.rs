//! Instants exactly as PostgreSQL stores them, over its whole range (4714 BC to 294276 AD) and with both infinities.
//!
//! A date-time library would narrow the range or the precision. A row with the time `infinity` would then stop the
//! stream or change its place in the order. The library is used only for the offsets of named zones.

mod civil;
mod text;
mod zone;

use std::fmt;

pub use text::{parse_timestamp, parse_timestamptz};
pub use zone::{Zone, ZoneError};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// The time from 1970-01-01, the Unix epoch, to 2000-01-01, the PostgreSQL epoch.
const UNIX_TO_PG_MICROS: i64 = 10_957 * MICROS_PER_DAY;

/// Microseconds since 2000-01-01 UTC. The extremes of the integer are the infinities, so integers and instants have the
/// same order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgInstant(i64);

/// Why a text is not an instant. The text is a value of a row, so only the position of the error is told.
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

    /// From the server's own representation. It is not checked, because it comes from the server.
    pub const fn from_pg_micros(micros: i64) -> PgInstant {
        PgInstant(micros)
    }

    pub const fn as_pg_micros(self) -> i64 {
        self.0
    }

    /// From microseconds since 1970-01-01 UTC; `None` if PostgreSQL cannot store the instant.
    pub fn from_unix_micros(micros: i64) -> Option<PgInstant> {
        micros.checked_sub(UNIX_TO_PG_MICROS).map(PgInstant).filter(|at| (Self::MIN..=Self::MAX).contains(at))
    }

    /// To microseconds since 1970-01-01 UTC; `None` if the instant is infinite or too late for that count.
    pub fn as_unix_micros(self) -> Option<i64> {
        if self.is_finite() { self.0.checked_add(UNIX_TO_PG_MICROS) } else { None }
    }

    pub fn is_finite(self) -> bool {
        self != Self::NEG_INFINITY && self != Self::INFINITY
    }

    /// The callers compute the sum in 128 bits, so that nothing overflows before this check.
    fn from_wide_micros(micros: i128) -> Result<PgInstant, TimeError> {
        let at = i64::try_from(micros).map(PgInstant).map_err(|_| TimeError::OutOfRange)?;
        if (Self::MIN..=Self::MAX).contains(&at) { Ok(at) } else { Err(TimeError::OutOfRange) }
    }
}

/// ISO 8601 in UTC with all six digits, so that one instant has one form and instants AD sort as text. Years before
/// Christ have PostgreSQL's suffix ` BC`, because few programs read ISO's negative years.
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
        // There is no year zero: the astronomical year 0 is 1 BC.
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
