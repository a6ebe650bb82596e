//! A time as an operator types it: one check for all commands, before anything is sent to the server.

use crate::error::{Error, Result};
use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, Utc};

/// The forms that are read, by example.
pub const EXPECTED: &str = "a date or a time such as 2026-11-16, 2026-11-16T12:00:00Z or 2026-11-16T12:00:00+07:00 (UTC if no zone is given)";

/// Rejects text that the server would not read as the time that is meant.
pub fn check(text: &str) -> Result<()> {
    if is_time(text) {
        Ok(())
    } else {
        Err(Error::config(format!("`{text}` is no time; expected {EXPECTED}")))
    }
}

/// The time that a text means, for a call that takes a time and not its text.
pub fn parse(text: &str) -> Result<DateTime<Utc>> {
    check(text)?;
    let (date, rest) = text.split_at(10);
    let (clock, zone) = rest.split_at(rest.find(['Z', '+', '-']).unwrap_or(rest.len()));
    let clock = match clock.get(1..).unwrap_or_default() {
        "" => "00:00:00".to_owned(),
        minutes if minutes.len() == 5 => format!("{minutes}:00"),
        seconds => seconds.to_owned(),
    };
    let zone = match zone.len() {
        0 => "Z".to_owned(),
        3 => format!("{zone}:00"),
        5 => format!("{}:{}", &zone[..3], &zone[3..]),
        _ => zone.to_owned(),
    };
    let parsed = DateTime::parse_from_rfc3339(&format!("{date}T{clock}{zone}"));
    Ok(parsed.map_err(|_| Error::config(format!("`{text}` is no time; expected {EXPECTED}")))?.to_utc())
}

/// A date, or a date and a time of day with or without a zone. Narrower than the server, which takes `today` as well, and
/// means another thing by it tomorrow.
#[must_use]
pub fn is_time(text: &str) -> bool {
    let Some((date, rest)) = text.split_at_checked(10) else { return false };
    is_date(date) && (rest.is_empty() || rest.strip_prefix(['T', ' ']).is_some_and(is_time_of_day))
}

fn is_date(text: &str) -> bool {
    let shaped = text.bytes().all(|b| b.is_ascii_digit() || b == b'-') && text.as_bytes()[4] == b'-';
    // The server knows no year zero.
    shaped && NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok_and(|date| date.year() > 0)
}

fn is_time_of_day(text: &str) -> bool {
    let (clock, zone) = text.split_at(text.find(['Z', '+', '-']).unwrap_or(text.len()));
    let fits = |form| NaiveTime::parse_from_str(clock, form).is_ok();
    let shaped = clock.len() >= 5 && clock.as_bytes()[2] == b':' && !clock.contains(char::is_whitespace);
    shaped && (fits("%H:%M") || fits("%H:%M:%S%.f")) && (zone.is_empty() || zone == "Z" || is_offset(zone))
}

/// `+07`, `+07:00` or `+0700`.
fn is_offset(zone: &str) -> bool {
    let digits = match zone.len() {
        3 | 5 => zone[1..].to_owned(),
        6 if zone.as_bytes()[3] == b':' => zone[1..].replacen(':', "", 1),
        _ => return false,
    };
    // The server's own bounds; without minutes there is nothing after the hours.
    let below = |part: &str, end: u8| part.is_empty() || part.parse::<u8>().is_ok_and(|n| n < end);
    digits.bytes().all(|b| b.is_ascii_digit()) && below(&digits[..2], 16) && below(&digits[2..], 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_checked_to_its_end() {
        for fine in [
            "2026-11-16",
            "2026-11-16T12:00",
            "2026-11-16 12:00:00",
            "2026-11-16T12:00:00.123456Z",
            "2026-11-16T12:00:00+07",
            "2026-11-16T12:00:00-0730",
            "2026-11-16 12:00+05:30",
        ] {
            assert!(is_time(fine) && parse(fine).is_ok(), "{fine}");
        }
        for wrong in [
            "",
            "yesterday",
            "2026",
            "2026-11-1",
            "2026-13-01",
            "2026-02-30",
            "0000-01-01",
            "2026-11-16x",
            "2026-11-16T",
            "2026-11-16T25:00",
            "2026-11-16T12:00:00Zulu",
            "2026-11-16T12:00:00+7",
            "2026-11-16T12:00:00+16:00",
            "2026-11-16T12:00:00+0:700",
            "2026-11-16T12:00:00+é",
            "2026-11-16T12:00:00++7",
            "2026-11-16'; drop",
            "２０２６-11-16",
        ] {
            assert!(!is_time(wrong), "{wrong}");
            let error = check(wrong).unwrap_err().to_string();
            assert!(error.contains("is no time") && error.contains("2026-11-16T12:00:00Z"), "{error}");
        }
    }
    #[test]
    fn a_time_is_read_as_the_server_would() {
        for (text, utc) in [
            ("2026-11-16", "2026-11-16T00:00:00+00:00"),
            ("2026-11-16T12:00", "2026-11-16T12:00:00+00:00"),
            ("2026-11-16 12:00:00.5Z", "2026-11-16T12:00:00.500+00:00"),
            ("2026-11-16T12:00:00+07", "2026-11-16T05:00:00+00:00"),
            ("2026-11-16T12:00:00-0730", "2026-11-16T19:30:00+00:00"),
        ] {
            assert_eq!(parse(text).unwrap().to_rfc3339(), utc, "{text}");
        }
    }
}
