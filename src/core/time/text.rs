//! Reads instants from the text PostgreSQL writes with `DateStyle = ISO`, and from our own.
//!
//! ```text
//! [-]infinity
//! YYYY[YY]-MM-DD( |T)HH:MM:SS[.f{1,6}][Z | (+|-)HH[:MM[:SS]]][ BC]
//! ```

use super::{MICROS_PER_DAY, MICROS_PER_SECOND, PgInstant, TimeError, Zone, civil};

/// Reads a `timestamptz`. It carries its offset, so the session's zone does not matter.
pub fn parse_timestamptz(text: &str) -> Result<PgInstant, TimeError> {
    if let Some(infinite) = infinity(text) {
        return Ok(infinite);
    }
    let mut cursor = Cursor::new(text);
    let (date, of_day) = (cursor.date()?, cursor.time_of_day()?);
    let east = cursor.offset()?;
    let local = cursor.finish(date, of_day)?;
    PgInstant::from_wide_micros(local - i128::from(east) * i128::from(MICROS_PER_SECOND))
}

/// Reads a `timestamp`, the type without a zone, as the local time of `zone`.
pub fn parse_timestamp(text: &str, zone: Zone) -> Result<PgInstant, TimeError> {
    if let Some(infinite) = infinity(text) {
        return Ok(infinite);
    }
    let mut cursor = Cursor::new(text);
    let (date, of_day) = (cursor.date()?, cursor.time_of_day()?);
    let local = cursor.finish(date, of_day)?;
    let east = zone.seconds_east_at_local(local);
    PgInstant::from_wide_micros(local - i128::from(east) * i128::from(MICROS_PER_SECOND))
}

/// Reads `(+|-)HH[:MM[:SS]]` whole, as seconds east.
pub(super) fn parse_offset(text: &str) -> Result<i32, TimeError> {
    let mut cursor = Cursor::new(text);
    let east = cursor.signed_offset()?;
    cursor.end()?;
    Ok(east)
}

fn infinity(text: &str) -> Option<PgInstant> {
    match text {
        "infinity" => Some(PgInstant::INFINITY),
        "-infinity" => Some(PgInstant::NEG_INFINITY),
        _ => None,
    }
}

/// The date as written; its era is only known at the end of the text.
struct Date {
    year: i64,
    month: i64,
    day: i64,
    day_at: usize,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Cursor { bytes: text.as_bytes(), at: 0 }
    }

    fn date(&mut self) -> Result<Date, TimeError> {
        let year = self.number(4, 6, 1..=999_999, "a year of four to six digits")?;
        self.expect(b"-", "a hyphen")?;
        let month = self.number(2, 2, 1..=12, "a month")?;
        self.expect(b"-", "a hyphen")?;
        let day_at = self.at;
        let day = self.number(2, 2, 1..=31, "a day of the month")?;
        Ok(Date { year, month, day, day_at })
    }

    /// The microseconds since midnight.
    fn time_of_day(&mut self) -> Result<i64, TimeError> {
        if !self.skip(b"T") {
            self.expect(b" ", "a space or T")?;
        }
        let hour = self.number(2, 2, 0..=23, "an hour")?;
        self.expect(b":", "a colon")?;
        let minute = self.number(2, 2, 0..=59, "a minute")?;
        self.expect(b":", "a colon")?;
        let second = self.number(2, 2, 0..=59, "a second")?;
        let mut micros = 0;
        if self.skip(b".") {
            let start = self.at;
            micros = self.number(1, 6, 0..=999_999, "a fraction of one to six digits")?;
            (self.at - start..6).for_each(|_| micros *= 10);
        }
        Ok((hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + micros)
    }

    fn offset(&mut self) -> Result<i32, TimeError> {
        if self.skip(b"Z") { Ok(0) } else { self.signed_offset() }
    }

    /// Seconds east. PostgreSQL writes the parts that are zero at the end only if it must.
    fn signed_offset(&mut self) -> Result<i32, TimeError> {
        let west = self.skip(b"-");
        if !west {
            self.expect(b"+", "an offset")?;
        }
        // Fifteen hours is the most PostgreSQL allows (MAX_TZDISP_HOUR).
        let mut seconds = 3600 * self.number(2, 2, 0..=15, "the hours of an offset")?;
        if self.skip(b":") {
            seconds += 60 * self.number(2, 2, 0..=59, "the minutes of an offset")?;
            if self.skip(b":") {
                seconds += self.number(2, 2, 0..=59, "the seconds of an offset")?;
            }
        }
        let seconds = seconds as i32;
        Ok(if west { -seconds } else { seconds })
    }

    /// Reads the era and the end, and puts the local microseconds since 2000-01-01 together.
    fn finish(&mut self, date: Date, of_day: i64) -> Result<i128, TimeError> {
        let year = if self.skip(b" BC") { 1 - date.year } else { date.year };
        self.end()?;
        if date.day > civil::month_length(year, date.month) {
            return Err(TimeError::Malformed { what: "a day of that month", at: date.day_at });
        }
        let days = civil::days_from_civil(year, date.month, date.day);
        Ok(i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(of_day))
    }

    fn end(&self) -> Result<(), TimeError> {
        if self.at == self.bytes.len() { Ok(()) } else { self.malformed("the end") }
    }

    fn skip(&mut self, literal: &[u8]) -> bool {
        let found = self.bytes[self.at..].starts_with(literal);
        if found {
            self.at += literal.len();
        }
        found
    }

    fn expect(&mut self, literal: &[u8], what: &'static str) -> Result<(), TimeError> {
        if self.skip(literal) { Ok(()) } else { self.malformed(what) }
    }

    /// A number of `least` to `most` digits; so few that it cannot overflow.
    fn number(
        &mut self,
        least: usize,
        most: usize,
        range: std::ops::RangeInclusive<i64>,
        what: &'static str,
    ) -> Result<i64, TimeError> {
        let rest = &self.bytes[self.at..];
        let digits = rest.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        let value = rest[..digits].iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        if digits < least || !range.contains(&value) {
            return self.malformed(what);
        }
        self.at += digits;
        Ok(value)
    }

    fn malformed<T>(&self, what: &'static str) -> Result<T, TimeError> {
        Err(TimeError::Malformed { what, at: self.at })
    }
}
