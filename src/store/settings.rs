//! Whether a session got the settings it asked for.
//!
//! A session asks by the startup parameter `options`. A pooler between us and the server may drop it, as PgBouncer does with
//! `ignore_startup_parameters = options`, and nothing would say so: rows hidden by a policy would be skipped in silence, and a
//! commit might be acknowledged before it is durable. So the settings are read back, in one question for each session.

use crate::error::{Error, Result};
use crate::store::quote;
use std::collections::BTreeMap;

/// Reads as zero on a Unix socket and on platforms that do not have it; nothing depends on it but how soon we are given up.
const MAY_DIFFER: &str = "tcp_user_timeout";

/// Asks for what [`compare`] needs, and for the session's process: one row of two texts.
#[must_use]
pub fn question(options: &str) -> String {
    let names: Vec<String> = asked(options).into_keys().collect();
    let names = quote::literal(&format!("{{{}}}", names.join(",")));
    quote::fill(include_str!("sql/session/settings.sql"), &[("names", &names)])
}

/// Holds what the server answered against what was asked for.
pub fn compare(options: &str, answer: &str) -> Result<()> {
    let found: BTreeMap<String, String> = answer
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_ascii_lowercase(), plain(value)))
        .collect();
    let differs = |(name, wanted): (String, String)| match found.get(&name) {
        Some(found) if *found == wanted => None,
        Some(found) => Some(format!("{name} is `{found}`, expected `{wanted}`")),
        None => Some(format!("{name} is unknown there, expected `{wanted}`")),
    };
    let differences: Vec<String> = asked(options).into_iter().filter_map(differs).collect();
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::config(format!(
        "the session did not get the settings it asked for: {}; something between us and the server, such as a connection \
         pooler, drops the startup parameter `options`: connect to the server itself",
        differences.join(", ")
    )))
}

/// The settings of an options string, the last of each name, as `pg_settings` would show them.
fn asked(options: &str) -> BTreeMap<String, String> {
    // A backslash makes a space part of a value.
    let options = options.replace("\\ ", "\u{0}");
    let words = options.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    words
        .map(|(name, value)| (name.to_ascii_lowercase(), plain(value)))
        .filter(|(name, _)| name != MAY_DIFFER)
        .collect()
}

/// Without the spaces that the server adds to lists.
fn plain(value: &str) -> String {
    value.replace('\u{0}', " ").replace(", ", ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &str = "-c TimeZone=UTC -c DateStyle=ISO,YMD -c default_transaction_isolation=read\\ committed \
        -c lock_timeout=0 -c tcp_user_timeout=10000 -c lock_timeout=1000";
    const GRANTED: &str =
        "TimeZone=UTC\nDateStyle=ISO, YMD\ndefault_transaction_isolation=read committed\nlock_timeout=1000";

    #[test]
    fn what_was_granted_is_accepted_and_the_last_word_counts() {
        compare(OPTIONS, GRANTED).unwrap();
        assert!(
            question(OPTIONS).contains("{datestyle,default_transaction_isolation,lock_timeout,timezone}")
        );
    }

    #[test]
    fn what_was_not_granted_is_named_with_what_to_do() {
        let e = compare(OPTIONS, &GRANTED.replace("lock_timeout=1000", "lock_timeout=0")).unwrap_err();
        assert!(e.to_string().contains("lock_timeout is `0`, expected `1000`; something between"), "{e}");
        assert!(compare(OPTIONS, "").unwrap_err().to_string().contains("timezone is unknown there"));
    }
}
