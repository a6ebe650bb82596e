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

/// The address to listen on. Whether others may reach it is decided by [`beyond_loopback`].
pub(super) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it is an address and a port, such as 127.0.0.1:9642".to_owned())
}

/// The page shows the state of a production database, so others reach it only if the operator says so twice: that they may, and
/// the token that each request must show.
pub(super) fn beyond_loopback(listen: SocketAddr, public: bool, token: bool) -> Result<(), String> {
    if listen.ip().is_loopback() || public && token {
        return Ok(());
    }
    let missing = match (public, token) {
        (false, false) => "also set `listen_public` to true and `listen_token` to a secret",
        (false, true) => "also set `listen_public` to true",
        _ => "also set `listen_token` to a secret of 16 characters or more",
    };
    Err(format!(
        "others can reach that, and without more only loopback addresses such as 127.0.0.1:9642 or [::1]:9642 are served; {missing}, \
         or put a proxy of yours before it"
    ))
}

/// Long enough that nobody guesses it, and of characters that a header carries as they are.
pub(super) fn check_token(text: &str) -> Result<(), String> {
    if text.len() < 16 || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(
            "it must have 16 characters or more, without spaces; `openssl rand -hex 24` makes one".to_owned()
        );
    }
    Ok(())
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
    fn only_loopback_is_listened_on_unless_the_operator_says_so_twice() {
        for fine in ["127.0.0.1:9642", "127.9.9.9:0", "[::1]:9642"] {
            let listen = parse_listen(fine).unwrap();
            assert_eq!(listen.to_string(), fine);
            beyond_loopback(listen, false, false).unwrap();
        }
        for open in [
            "0.0.0.0:9642",
            "[::]:9642",
            "192.0.2.1:9642",
            "[::ffff:10.0.0.1]:9642",
            "[::ffff:127.0.0.1]:9642",
        ] {
            let listen = parse_listen(open).unwrap();
            for (public, token, names) in [
                (false, false, "`listen_token`"),
                (false, true, "`listen_public`"),
                (true, false, "`listen_token`"),
            ] {
                let error = beyond_loopback(listen, public, token).unwrap_err();
                assert!(error.contains("only loopback") && error.contains(names), "{open}: {error}");
            }
            beyond_loopback(listen, true, true).unwrap();
        }
        for wrong in ["", "9642", "127.0.0.1", "localhost:9642", ":9642", "127.0.0.1:99999"] {
            let error = parse_listen(wrong).unwrap_err();
            assert!(error.contains("such as 127.0.0.1:9642"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_token_is_long_and_fits_into_a_header() {
        check_token("0123456789abcdef").unwrap();
        for weak in ["", "0123456789abcde", "0123456789 abcdef", "0123456789\nabcdef", "0123456789ábcdef"] {
            assert!(check_token(weak).unwrap_err().contains("16 characters"), "{weak}");
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
