//! Checks that a session got the settings that it asked for.
//!
//! A session asks with the startup parameter `options`. A connection pooler may drop that parameter, as PgBouncer does
//! with `ignore_startup_parameters = options`, without an error. Then rows that a policy hides would be skipped
//! silently, and a commit might be acknowledged before it is durable. So each session reads its settings back with one
//! query.

use crate::error::codes::SESSION_SETTINGS;
use crate::error::{Error, Result};
use crate::store::quote;
use std::collections::BTreeMap;

/// This setting reads as zero on a Unix socket and on platforms without it. It only affects how soon the server gives
/// up a dead client.
const MAY_DIFFER: &str = "tcp_user_timeout";

/// The query for the settings that [`compare`] needs and for the session's process id: one row of two texts.
#[must_use]
pub fn question(options: &str) -> String {
    let names: Vec<String> = asked(options).into_keys().collect();
    let names = quote::literal(&format!("{{{}}}", names.join(",")));
    quote::fill(include_str!("sql/session/settings.sql"), &[("names", &names)])
}

/// Compares the server's answer with the settings that were asked for.
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
    Err(Error::of(
        &SESSION_SETTINGS,
        format!(
            "the session did not get the settings it asked for: {}; something between gov-handoff and the server, such as a connection \
         pooler, drops the startup parameter `options`: connect to the server itself",
            differences.join(", ")
        ),
    ))
}

/// The settings of an options string, as `pg_settings` shows them. The last setting of a name counts.
fn asked(options: &str) -> BTreeMap<String, String> {
    // In `options` a backslash before a space makes the space part of the value.
    let options = options.replace("\\ ", "\u{0}");
    let words = options.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    words
        .map(|(name, value)| (name.to_ascii_lowercase(), plain(value)))
        .filter(|(name, _)| name != MAY_DIFFER)
        .collect()
}

/// Removes the spaces that the server adds to lists.
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
