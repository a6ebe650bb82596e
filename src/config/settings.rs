//! Every setting, declared once: its name, type, default, check and help. The keys of the file, the variables of the
//! environment, the help of flags, the output of `config` and the table of `docs/configuration.md` all come from here.

use super::value::{LogFormat, Url, Value, at_least, at_most, between, slot_name, worth_a_slot};
use crate::core::mode::Intent;
use crate::core::pace::Window;
use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
use std::time::Duration;

/// What is said of a setting to people.
pub struct Setting {
    pub name: &'static str,
    /// As it would be given; empty where it follows from something else, or where there is none.
    pub default: &'static str,
    pub help: &'static str,
}

/// The help of a setting; for the flag of the same name.
#[must_use]
pub fn help(name: &str) -> &'static str {
    SETTINGS.iter().find(|s| s.name == name).map_or("", |s| s.help)
}

macro_rules! settings {
    ($($name:ident: $type:ty = $default:literal, $check:expr, $help:literal;)*) => {
        pub const SETTINGS: &[Setting] =
            &[$(Setting { name: stringify!($name), default: $default, help: $help },)*];

        /// One layer of settings as they were given, all optional: the file, the environment, or flags.
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Layer {
            $(#[serde(default, deserialize_with = "text")] pub $name: Option<String>,)*
        }

        /// All settings, each parsed and checked.
        #[derive(Debug, Clone)]
        pub struct Values {
            $(pub $name: $type,)*
        }

        impl Layer {
            /// From names to texts; a text that is empty is none.
            pub fn from(get: impl Fn(&str) -> Option<String>) -> Self {
                Self { $($name: get(stringify!($name)).filter(|text| !text.is_empty()),)* }
            }

            /// This layer where it says something, else the one below.
            #[must_use]
            pub fn over(self, below: Self) -> Self {
                Self { $($name: self.$name.or(below.$name),)* }
            }

            pub fn values(&self) -> Result<Values> {
                Ok(Values { $($name: checked(stringify!($name), self.$name.as_deref().unwrap_or($default), $check)?,)* })
            }
        }

        impl Values {
            /// What is in force by name, as it could be given; secrets redacted.
            #[must_use]
            pub fn shown(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.show()),)*]
            }
        }
    };
}

settings! {
    database_url: Option<Url> = "", any, "Where the database is; else DATABASE_URL, else the usual PG* variables. sslmode and sslrootcert as in libpq, but verify-ca, and require with sslrootcert, check the name too. Client certificates, .pgpass and service files are not read";
    replication_url: Option<Url> = "", any, "Where the replication role connects, if it is another role [default: database_url]";
    mode: Intent = "auto", any, "auto: stream where the slot can be had, else poll; stream: never poll for latency; poll: needs no replication role";
    worker: String = "gov_handoff_intake", any, "Name of the lease and of the cursors";
    slot: Option<String> = "", slot_name, "Replication slot; created where it is missing and the role may [default: gov_handoff_<database>]";
    publication: Option<String> = "gov_handoff", slot_name, "Publication; created where it is missing and the role may [default: gov_handoff]";
    create: bool = "true", any, "false: a DBA runs `gov-handoff replication setup` or `… sql`, also when the slot was lost or given up; the daemon polls until then";
    batch_rows: usize = "5000", between(1, 50_000), "The most rows that one commit carries; polling takes the smaller of it and the source's batch_size";
    lease_ttl: Duration = "15s", at_least("1s", "a shorter lease is lost to any hiccup"), "How long a silent writer keeps the lease";
    reconcile_interval: Duration = "5s", any, "How often the tables are read behind the stream";
    certify_interval: Duration = "1m", any, "How often a certificate is taken";
    wal_budget_mb: u64 = "4096", worth_a_slot, "The daemon gives the slot up when it retains 80 % of this";
    rejoin_after: Duration = "60s", any, "How long the daemon polls after that, before it takes a slot again";
    poll_interval: Duration = "250ms", any, "The longest pause of an idle poller; a busy one pauses 10ms";
    read_timeout: Duration = "5s", at_least("100ms", "ordinary reads take that long, and 0 would be no bound at all to the server"), "The longest read of a poll; a slower one halves the batch";
    stream_retry: Duration = "30s", any, "The longest pause before a lost stream is tried again";
    audit_interval: Duration = "5m", any, "The daemon writes one audit row per interval and source to registry_changelog";
    heartbeat_interval: Duration = "60s", any, "How often governance.handoff.heartbeat sums up what was done";
    lag_limit: Duration = "60s", any, "A lag above this is a finding; above five times this, a high one";
    storm_percent: u8 = "50", between(1, 100), "A storm: more than this share of all groups becomes dirty within one second";
    storm_floor: u64 = "100", any, "A storm dirties at least this many groups";
    throttle_pause: Duration = "250ms", at_most("5s", "batches must go on, and the log waits for them"), "Under load a lane pauses between batches: nine times the last batch's duration, at most this";
    max_lock_waits: u64 = "20", any, "Load: more sessions than this wait for locks, or one waits for a lock of ours";
    max_standby_lag_mb: u64 = "1024", any, "Load: a standby is this far behind; the role needs pg_read_all_stats to see it";
    slow_read: Duration = "2s", any, "Load: two reads in a row of one source take longer";
    off_peak: Vec<Window> = "", any, "When certifying passes may run, such as 22:00-06:00,12:00-13:00, in UTC [default: always]";
    listen: Option<SocketAddr> = "", any, "Serve GET /metrics and GET /healthz at this loopback address, such as 127.0.0.1:9187 [default: nowhere]";
    log: String = "info", any, "What to log: error, warn, info, debug, or a filter such as `gov_handoff::intake=debug`; row values are never logged";
    log_format: LogFormat = "text", any, "text or json, on stderr";
}

#[allow(clippy::unnecessary_wraps, clippy::trivially_copy_pass_by_ref)] // The shape of a check.
fn any<T>(_: &T) -> std::result::Result<(), String> {
    Ok(())
}

fn checked<T: Value>(
    name: &str,
    text: &str,
    check: impl Fn(&T) -> std::result::Result<(), String>,
) -> Result<T> {
    let value = T::parse(text).map_err(|problem| Error::config(format!("{name} is `{text}`; {problem}")))?;
    check(&value).map_err(|problem| Error::config(format!("{name} is {text}; {problem}")))?;
    Ok(value)
}

/// The file may write numbers and truth values as such. All are taken as the text that the environment would have.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<String>, D::Error> {
    use serde::de::Error as _;
    Ok(Some(match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => text,
        toml::Value::Integer(n) => n.to_string(),
        toml::Value::Boolean(b) => b.to_string(),
        other => {
            return Err(D::Error::custom(format!("expected a text or a number, found {}", other.type_str())));
        }
    }))
}

/// The table of the documentation.
#[must_use]
pub fn table() -> String {
    let mut out = "| key | default | meaning |\n|---|---|---|\n".to_owned();
    for setting in SETTINGS {
        let (help, default) = match setting.help.split_once(" [default: ") {
            Some((help, default)) => (help, default.trim_end_matches(']')),
            None => (setting.help, setting.default),
        };
        let default = if default.is_empty() { "–".to_owned() } else { format!("`{default}`") };
        out += &format!("| `{}` | {default} | {help} |\n", setting.name);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_passes_its_own_check() {
        Layer::default().values().unwrap();
    }

    #[test]
    fn the_upper_layer_wins_and_what_is_empty_is_not_given() {
        let layer = |mode: &str| Layer::from(|name| (name == "mode").then(|| mode.to_owned()));
        let merged = layer("poll").over(layer("stream")).over(layer("auto"));
        assert_eq!(merged.mode.as_deref(), Some("poll"));
        assert_eq!(layer("").over(layer("stream")).mode.as_deref(), Some("stream"));
    }

    #[test]
    fn numbers_that_would_stop_the_work_are_refused_by_name() {
        let values = |text: &str| toml::from_str::<Layer>(text).unwrap().values();
        for wrong in [
            "wal_budget_mb = 0",
            "read_timeout = '0s'",
            "read_timeout = '99ms'",
            "read_timeout = 5",
            "lease_ttl = '999ms'",
            "throttle_pause = '6s'",
            "storm_percent = 0",
            "storm_percent = 101",
            "batch_rows = 50001",
            "batch_rows = -1",
            "create = 'perhaps'",
            "mode = 'fast'",
            "log_format = 'xml'",
            "slot = 'Slot'",
        ] {
            let (name, _) = wrong.split_once(' ').unwrap();
            let error = values(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} is ")), "{wrong}: {error}");
        }
        for fine in [
            "wal_budget_mb = 1",
            "read_timeout = '100ms'",
            "storm_percent = 1",
            "storm_percent = 100",
            "create = false",
            "batch_rows = '7'",
        ] {
            values(fine).unwrap();
        }
        assert!(toml::from_str::<Layer>("mode = [1]").is_err());
    }

    #[test]
    fn what_is_shown_can_be_given() {
        let shown = Layer::default().values().unwrap().shown();
        let again = Layer::from(|name| {
            let (_, text) = shown.iter().find(|(shown, _)| *shown == name)?;
            (!text.starts_with('(')).then(|| text.clone())
        });
        assert_eq!(again.values().unwrap().shown(), shown);
    }

    /// Regenerate the table with `gov-handoff config --table`.
    #[test]
    fn the_documentation_shows_every_setting_as_it_is_declared() {
        let file = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md"));
        assert!(file.unwrap().contains(&table()), "docs/configuration.md is out of date");
    }
}
