//! Parsing of values. Each error gives an example of an accepted value.

use crate::core::mode::Intent;
use crate::core::pace::OffPeakWindow;
use std::net::SocketAddr;
use std::time::Duration;

/// `22:00-06:00`, several separated by commas.
pub(super) fn parse_windows(text: &str) -> Result<Vec<OffPeakWindow>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            OffPeakWindow::parse(part)
                .ok_or_else(|| format!("`{part}` is not a window; write for example 22:00-06:00, in UTC"))
        })
        .collect()
}

/// The address to listen on. Loopback only: the pages have no password and show the state of a production database.
pub(super) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "it is an address and a port, such as 127.0.0.1:9642".to_owned())?;
    if !address.ip().is_loopback() {
        return Err("others can reach that; only loopback addresses such as 127.0.0.1:9642 or [::1]:9642 are served, put a \
                    proxy of yours before it"
            .to_owned());
    }
    Ok(address)
}

/// The intent behind a `--mode`.
pub(super) fn parse_intent(text: &str) -> Option<Intent> {
    [Intent::Auto, Intent::Stream, Intent::Poll].into_iter().find(|intent| intent.name() == text)
}

/// `250ms`, `5s`, `10m`, `1h`.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let wrong = "expected a duration, for example 250ms, 5s, 10m or 1h";
    let n: u64 = digits.parse().map_err(|_| wrong.to_owned())?;
    let millis = match &text[digits.len()..] {
        "ms" => n,
        "s" => n.saturating_mul(1_000),
        "m" => n.saturating_mul(60_000),
        "h" => n.saturating_mul(3_600_000),
        _ => return Err(wrong.to_owned()),
    };
    Ok(Duration::from_millis(millis))
}

/// The known word that is closest to `text`, and the number of letters that differ.
pub(super) fn nearest<'a>(text: &str, words: &[&'a str]) -> (&'a str, usize) {
    let by_distance = words.iter().map(|word| (*word, distance(text, word)));
    by_distance.min_by_key(|(_, distance)| *distance).unwrap_or(("", usize::MAX))
}

/// The Levenshtein distance.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.chars().enumerate() {
            let change = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Slots share one namespace in the whole cluster, so our slot name contains the name of the database.
pub(super) fn default_slot(database: &str) -> String {
    let safe = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    format!("gov_handoff_{}", database.to_lowercase().chars().map(safe).collect::<String>())
        .chars()
        .take(63)
        .collect()
}

/// The replication protocol takes these names unquoted, so only names that need no quotes are allowed.
pub(super) fn check_slot_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || name.len() > 63 || !name.chars().all(fits) {
        return Err("it must be 1 to 63 characters of a-z, 0-9 and _, because the replication protocol cannot quote it".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        assert_eq!(nearest("slto", &["slot", "log", "mode"]), ("slot", 2));
        assert_eq!(nearest("mode", &["slot", "mode"]), ("mode", 0));
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_span("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(parse_span("2m").unwrap(), Duration::from_secs(120));
        assert!(parse_span("5").is_err());
        assert!(parse_span("s").is_err());
    }

    #[test]
    fn names_that_would_need_quotes_are_refused() {
        assert!(check_slot_name("gov_handoff_x1").is_ok());
        for name in ["", "Slot", "a b", "x;drop"] {
            assert!(check_slot_name(name).is_err(), "{name}");
        }
        assert_eq!(default_slot("My DB"), "gov_handoff_my_db");
    }

    #[test]
    fn only_loopback_is_listened_on() {
        for fine in ["127.0.0.1:9642", "127.9.9.9:0", "[::1]:9642"] {
            assert_eq!(parse_listen(fine).unwrap().to_string(), fine);
        }
        for open in ["0.0.0.0:9642", "[::]:9642", "192.0.2.1:9642", "[::ffff:10.0.0.1]:9642"] {
            let error = parse_listen(open).unwrap_err();
            assert!(error.contains("only loopback"), "{open}: {error}");
        }
        for wrong in ["", "9642", "127.0.0.1", "localhost:9642", ":9642", "127.0.0.1:99999"] {
            let error = parse_listen(wrong).unwrap_err();
            assert!(error.contains("such as 127.0.0.1:9642"), "{wrong}: {error}");
        }
    }

    #[test]
    fn off_peak_is_a_list_of_windows() {
        let shown =
            |text: &str| parse_windows(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(" 22:00-06:00 , 12:00-13:00 "), ["22:00-06:00", "12:00-13:00"]);
        assert!(shown("").is_empty());
        let error = parse_windows("22:00-06:00,night").unwrap_err();
        assert!(error.contains("`night`") && error.contains("22:00-06:00"), "{error}");
    }
}
