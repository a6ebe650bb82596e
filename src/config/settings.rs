//! Every setting, declared once: its name, type, default, check and help. The keys of the file, the variables of the
//! environment, the help of flags, the output of `config` and the table of `docs/configuration.md` all come from here.

use super::value::{
    LogFormat, Secret, SettingValue, Url, WorkerNames, at_least, at_most, between, slot_name, worth_a_slot,
};
use crate::core::mode::Intent;
use crate::core::pace::OffPeakWindow;
use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
use std::time::Duration;

/// The documentation of a setting.
pub struct Setting {
    pub name: &'static str,
    /// The default in the form in which it would be given. Empty if it depends on other settings, or if there is none.
    pub default: &'static str,
    pub help: &'static str,
}

/// The help of a setting, for the flag of the same name.
#[must_use]
pub fn help(name: &str) -> &'static str {
    SETTINGS.iter().find(|s| s.name == name).map_or("", |s| s.help)
}

macro_rules! settings {
    ($($name:ident: $type:ty = $default:literal, $check:expr, $help:literal;)*) => {
        pub const SETTINGS: &[Setting] =
            &[$(Setting { name: stringify!($name), default: $default, help: $help },)*];

        /// One layer of settings, all optional: the file, the environment, or flags.
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
            /// From names and texts. An empty text counts as not set.
            pub fn from(get: impl Fn(&str) -> Option<String>) -> Self {
                Self { $($name: get(stringify!($name)).filter(|text| !text.is_empty()),)* }
            }

            /// The value of this layer if it has one, else that of the layer below.
            #[must_use]
            pub fn over(self, below: Self) -> Self {
                Self { $($name: self.$name.or(below.$name),)* }
            }

            pub fn values(&self) -> Result<Values> {
                Ok(Values { $($name: checked(stringify!($name), self.$name.as_deref().unwrap_or($default), $check)?,)* })
            }
        }

        impl Values {
            /// The settings by name, in the form in which they could be given; secrets are redacted.
            #[must_use]
            pub fn shown(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.show()),)*]
            }
        }
    };
}

settings! {
    database_url: Option<Url> = "", any, "The database, as a URL or in the form `key=value`. Options, PG variables, .pgpass and service files work as in libpq; what cannot be honoured is rejected by name [default: DATABASE_URL, else the PG* variables]";
    replication_url: Option<Url> = "", any, "Where the role that streams connects, if it is another role. It must reach the same server and database [default: database_url]";
    mode: Intent = "auto", any, "auto: stream, else poll. stream: never poll for latency. poll: no replication role needed";
    slot: Option<String> = "", slot_name, "The replication slot; created where it is missing and the role may. 1 to 63 characters of a-z, 0-9 and _ [default: gov_handoff_<database>]";
    publication: Option<String> = "gov_handoff", slot_name, "The publication; created where it is missing and the role may. The same characters [default: gov_handoff]";
    create: bool = "true", any, "false: the daemon creates neither. A DBA runs `gov-handoff replication setup`, or what `gov-handoff replication sql` prints, also after the slot was lost or given up. The daemon polls until then";
    batch_rows: usize = "5000", between(1, 50_000), "The most rows that one commit carries, 1 to 50000. A poll takes the smaller of this and the source's batch_size";
    poll_interval: Duration = "250ms", any, "The longest pause of an idle poller. A busy one pauses 10ms";
    reconcile_interval: Duration = "5s", any, "How often the daemon reads the tables behind the stream";
    certify_interval: Duration = "1m", any, "How often a certificate is taken";
    wal_budget_mb: u64 = "4096", worth_a_slot, "The daemon gives the slot up at 80 % of this; at least 1";
    rejoin_after: Duration = "60s", any, "How long the daemon polls after that, before it makes a new slot";
    read_timeout: Duration = "5s", at_least("100ms", "ordinary reads take that long, and 0 would be no bound at all to the server"), "The longest read of a poll; at least 100ms. A slower read halves the batch";
    stream_retry: Duration = "30s", any, "The longest pause before a lost stream is tried again";
    lease_ttl: Duration = "15s", at_least("1s", "a shorter lease is lost to any hiccup"), "How long a silent writer keeps the lease; at least 1s";
    audit_interval: Duration = "5m", any, "One audit row per interval and source in registry_changelog, if rows came";
    heartbeat_interval: Duration = "60s", any, "How often the event governance.handoff.heartbeat sums up the work";
    lag_limit: Duration = "60s", any, "A lag of this much is a finding, of five times this much a high one";
    storm_percent: u8 = "50", between(1, 100), "A storm: one invalidation concerns more than this share of all groups; 1 to 100";
    storm_floor: u64 = "100", any, "Fewer groups than this are never a storm";
    throttle_pause: Duration = "250ms", at_most("5s", "batches must go on, and the log waits for them"), "Under load a lane pauses before each batch, and in a storm the scan between two steps: nine times the last one's duration, at most this; at most 5s";
    max_lock_waits: u64 = "20", any, "Load: more sessions than this wait for locks, or one session waits for a lock of gov-handoff";
    max_standby_lag_mb: u64 = "1024", any, "Load: a standby is further behind than this. The role needs pg_read_all_stats to see it";
    slow_read: Duration = "2s", any, "Load: two reads in a row of one source take longer than this";
    audit_every: Duration = "24h", any, "How often gov_periodic_full_audit compares every row of every source with its signals, within off_peak, and has candidates past their time checked again. 0s: never";
    off_peak: Vec<OffPeakWindow> = "", any, "When certifying passes and full audits may run, such as 22:00-06:00,12:00-13:00, in UTC [default: always]";
    backfill_rate: u64 = "0", any, "The most rows a second that gov_backfill_sweep reads of a backlog; 0 for no limit";
    worker: String = "gov_handoff_intake", any, "The name of the intake's lease and cursors";
    workers: WorkerNames = "all", any, "Which workers `run` runs: all, or names with commas between, such as gov_handoff_intake,gov_candidate_scan. Instances share them by their leases";
    scan_shards: u8 = "1", between(1, 64), "How many candidate scans share the groups, 1 to 64. Each has a lease of its own. The instance with the lease of the first one decides";
    stale_after: Duration = "168h", at_least("1s", "every verdict would be stale at once"), "How long a verdict counts; after that its group is scanned again; at least 1s";
    listen: Option<SocketAddr> = "", any, "An address and port, such as 127.0.0.1:9642. The daemon serves there: the page at /, /api/status, /metrics, /livez and /readyz. Others than this machine's users need listen_public and listen_token [default: nowhere]";
    listen_public: bool = "false", any, "true: `listen` may be an address that others can reach. It needs listen_token, and a proxy of yours that encrypts";
    listen_token: Option<Secret> = "", any, "A secret of 16 characters or more that each request must show, as `Authorization: Bearer …`, or as the password that a browser asks for. /livez and /readyz need none [default: none]";
    listen_hosts: String = "", any, "Names under which a proxy asks for the page, with commas between, such as gov.example.org. Loopback names and addresses need no entry";
    log: String = "info", any, "A filter: error, warn, info, debug, or such as `gov_handoff::capture=debug`. Row values are never logged [default: info for run, warn for other commands]";
    log_format: LogFormat = "text", any, "text or json, on stderr";
}

#[allow(clippy::unnecessary_wraps, clippy::trivially_copy_pass_by_ref)] // The shape of a check.
fn any<T>(_: &T) -> std::result::Result<(), String> {
    Ok(())
}

fn checked<T: SettingValue>(
    name: &str,
    text: &str,
    check: impl Fn(&T) -> std::result::Result<(), String>,
) -> Result<T> {
    let value = T::parse(text).map_err(|problem| match name {
        "listen_token" => Error::config(format!("{name} cannot be used; {problem}")),
        _ => Error::config(format!("{name} is `{text}`; {problem}")),
    })?;
    check(&value).map_err(|problem| Error::config(format!("{name} is {text}; {problem}")))?;
    Ok(value)
}

/// The file may contain numbers and booleans. They are treated as the text that the environment would have.
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
