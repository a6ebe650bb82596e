//! Settings: flags over environment over file over the command's own defaults, validated into one [`Config`]. The only
//! reader of the environment.

mod environment;
mod target;
mod words;

pub use target::{Given, Target, Tls};
pub use words::{intent_name, parse_intent, parse_span};

use crate::core::mode::Intent;
use crate::core::pace::Limits;
use crate::error::{Error, Result};
use environment::{PREFIX, named_file, readable, refuse_unknown};
use serde::Deserialize;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use words::{check_slot_name, default_slot, number, parse_listen, parse_pause, parse_windows, parse_word};

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "gov-handoff.toml";

/// A batch of one row that was not in memory still arrives within this.
const SHORTEST_READ: Duration = Duration::from_millis(100);

/// One layer of settings, all optional. The file has exactly these keys, the environment the same in upper case behind
/// `GOV_HANDOFF_`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    pub database_url: Option<String>,
    pub replication_url: Option<String>,
    pub mode: Option<String>,
    pub worker: Option<String>,
    pub slot: Option<String>,
    pub publication: Option<String>,
    pub create: Option<bool>,
    pub batch_rows: Option<usize>,
    pub lease_ttl: Option<String>,
    pub reconcile_interval: Option<String>,
    pub certify_interval: Option<String>,
    pub wal_budget_mb: Option<u64>,
    pub rejoin_after: Option<String>,
    pub poll_interval: Option<String>,
    pub read_timeout: Option<String>,
    pub stream_retry: Option<String>,
    pub audit_interval: Option<String>,
    pub heartbeat_interval: Option<String>,
    pub lag_limit: Option<String>,
    pub storm_percent: Option<u8>,
    pub storm_floor: Option<u64>,
    pub throttle_pause: Option<String>,
    pub max_lock_waits: Option<u64>,
    pub max_standby_lag_mb: Option<u64>,
    pub slow_read: Option<String>,
    pub off_peak: Option<String>,
    pub listen: Option<String>,
    pub log: Option<String>,
    pub log_format: Option<String>,
}

/// What is in force.
#[derive(Debug, Clone)]
pub struct Config {
    pub target: Target,
    /// Where the replication role connects; the same as `target` unless given.
    pub replication: Target,
    pub intent: Intent,
    pub worker: String,
    pub slot: String,
    pub publication: String,
    /// Create publication and slot where they are missing and the role may.
    pub create: bool,
    /// The most rows one apply carries.
    pub batch_rows: usize,
    pub lease_ttl: Duration,
    /// How often the keyset pass looks behind the stream.
    pub reconcile_interval: Duration,
    /// How often a certificate is taken.
    pub certify_interval: Duration,
    /// Before our slot retains more log than this it is given up.
    pub wal_budget: u64,
    /// How long we poll after the slot was given up, before one is taken again.
    pub rejoin_after: Duration,
    /// The longest pause of an idle poller.
    pub poll_interval: Duration,
    pub read_timeout: Duration,
    /// The longest pause before the stream is tried again.
    pub stream_retry: Duration,
    pub audit_interval: Duration,
    /// How often a summary of what was done is published.
    pub heartbeat_interval: Duration,
    /// Behind by more than this is a finding.
    pub lag_limit: Duration,
    /// When to go slower.
    pub pace: Limits,
    /// Where metrics and health are served, if anywhere; a loopback address.
    pub listen: Option<SocketAddr>,
    pub log: String,
    pub log_json: bool,
    pub file: Option<PathBuf>,
}

impl Config {
    /// Reads the environment and the file, and lets `flags` win over both; `defaults` is what a command that says nothing
    /// about it wants otherwise than the daemon does.
    pub fn load(flags: Layer, file: Option<&Path>, defaults: Layer) -> Result<Self> {
        let env = readable(std::env::vars_os())?;
        refuse_unknown(&env)?;
        let named = file.map(Path::to_owned).or_else(|| named_file(&env));
        let (from_file, file) = match named {
            Some(path) => (read_file(&path)?, Some(path)),
            None if Path::new(DEFAULT_FILE).is_file() => {
                (read_file(Path::new(DEFAULT_FILE))?, Some(DEFAULT_FILE.into()))
            }
            None => (Layer::default(), None),
        };
        let above = flags.over(Layer::from_env(&env)?);
        let mut config = Self::merge(above, from_file.over(defaults), &env)?;
        config.file = file;
        Ok(config)
    }

    /// `above` are flags and environment, `file` is what lies below the `PG*` variables too.
    fn merge(above: Layer, file: Layer, env: &HashMap<String, String>) -> Result<Self> {
        let given = |url: &Option<String>, below| if url.is_some() { Given::Above } else { below };
        let database = given(&above.database_url, Given::InFile);
        let role = given(&above.replication_url, Given::InFileForRole);
        let layer = above.over(file);
        // What was asked for is checked before what it needs: a typing error is not answered with a missing URL.
        let intent = parse_intent(layer.mode.as_deref().unwrap_or("auto"))?;
        let target = Target::parse(layer.database_url.as_deref(), database, env)?;
        let replication = match &layer.replication_url {
            Some(url) => Target::parse(Some(url), role, env).map_err(|e| e.context("replication_url"))?,
            None => target.clone(),
        };
        let span = |name: &str, text: &Option<String>, default: &str| {
            parse_span(text.as_deref().unwrap_or(default)).map_err(|e| e.context(name))
        };
        let slot = layer.slot.unwrap_or_else(|| default_slot(target.database()));
        check_slot_name("slot", &slot)?;
        let publication = layer.publication.unwrap_or_else(|| "gov_handoff".to_owned());
        check_slot_name("publication", &publication)?;
        let batch_rows = layer.batch_rows.unwrap_or(5_000);
        if !(1..=50_000).contains(&batch_rows) {
            return Err(Error::config(format!(
                "batch_rows is {batch_rows}; it must lie between 1 and 50000"
            )));
        }
        let wal_budget_mb = layer.wal_budget_mb.unwrap_or(4_096);
        if wal_budget_mb == 0 {
            return Err(Error::config("wal_budget_mb is 0, which any slot exceeds at once; give at least 1"));
        }
        let storm_percent = layer.storm_percent.unwrap_or(50);
        if !(1..=100).contains(&storm_percent) {
            return Err(Error::config(format!(
                "storm_percent is {storm_percent}; it must lie between 1 and 100"
            )));
        }
        let read_timeout = span("read_timeout", &layer.read_timeout, "5s")?;
        if read_timeout < SHORTEST_READ {
            return Err(Error::config(
                "read_timeout is below 100ms, which ordinary reads take (and 0 would be no bound at all to the server); give \
                 100ms or more",
            ));
        }
        let lease_ttl = span("lease_ttl", &layer.lease_ttl, "15s")?;
        if lease_ttl < Duration::from_secs(1) {
            return Err(Error::config("lease_ttl is below 1s; a shorter lease is lost to any hiccup"));
        }
        Ok(Self {
            replication,
            target,
            intent,
            worker: layer.worker.unwrap_or_else(|| "gov_handoff_intake".to_owned()),
            slot,
            publication,
            create: layer.create.unwrap_or(true),
            batch_rows,
            lease_ttl,
            reconcile_interval: span("reconcile_interval", &layer.reconcile_interval, "5s")?,
            certify_interval: span("certify_interval", &layer.certify_interval, "1m")?,
            wal_budget: wal_budget_mb.saturating_mul(1 << 20),
            rejoin_after: span("rejoin_after", &layer.rejoin_after, "60s")?,
            poll_interval: span("poll_interval", &layer.poll_interval, "250ms")?,
            read_timeout,
            stream_retry: span("stream_retry", &layer.stream_retry, "30s")?,
            audit_interval: span("audit_interval", &layer.audit_interval, "5m")?,
            heartbeat_interval: span("heartbeat_interval", &layer.heartbeat_interval, "60s")?,
            lag_limit: span("lag_limit", &layer.lag_limit, "60s")?,
            pace: Limits {
                lock_waits: layer.max_lock_waits.unwrap_or(20),
                standby_lag: layer.max_standby_lag_mb.unwrap_or(1_024).saturating_mul(1 << 20),
                slow_read: span("slow_read", &layer.slow_read, "2s")?,
                storm_share: f64::from(storm_percent) / 100.0,
                storm_floor: layer.storm_floor.unwrap_or(100),
                pause: parse_pause(&span("throttle_pause", &layer.throttle_pause, "250ms")?)?,
                off_peak: parse_windows(layer.off_peak.as_deref().unwrap_or_default())?,
            },
            listen: layer.listen.as_deref().map(parse_listen).transpose()?,
            log: layer.log.unwrap_or_else(|| "info".to_owned()),
            log_json: match layer.log_format.as_deref() {
                None | Some("text") => false,
                Some("json") => true,
                Some(other) => {
                    return Err(Error::config(format!("log_format is {other}; it is text or json")));
                }
            },
            file: None,
        })
    }

    /// What is in force, as pairs for people and scripts; secrets redacted.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let ms = |d: Duration| format!("{}ms", d.as_millis());
        vec![
            (
                "config_file",
                self.file.as_ref().map_or_else(|| "(none)".to_owned(), |f| f.display().to_string()),
            ),
            ("database_url", self.target.to_string()),
            ("replication_url", self.replication.to_string()),
            ("mode", intent_name(self.intent).to_owned()),
            ("worker", self.worker.clone()),
            ("slot", self.slot.clone()),
            ("publication", self.publication.clone()),
            ("create", self.create.to_string()),
            ("batch_rows", self.batch_rows.to_string()),
            ("lease_ttl", ms(self.lease_ttl)),
            ("reconcile_interval", ms(self.reconcile_interval)),
            ("certify_interval", ms(self.certify_interval)),
            ("wal_budget_mb", (self.wal_budget >> 20).to_string()),
            ("rejoin_after", ms(self.rejoin_after)),
            ("poll_interval", ms(self.poll_interval)),
            ("read_timeout", ms(self.read_timeout)),
            ("stream_retry", ms(self.stream_retry)),
            ("audit_interval", ms(self.audit_interval)),
            ("heartbeat_interval", ms(self.heartbeat_interval)),
            ("lag_limit", ms(self.lag_limit)),
            ("storm_percent", format!("{:.0}", self.pace.storm_share * 100.0)),
            ("storm_floor", self.pace.storm_floor.to_string()),
            ("throttle_pause", ms(self.pace.pause)),
            ("max_lock_waits", self.pace.lock_waits.to_string()),
            ("max_standby_lag_mb", (self.pace.standby_lag >> 20).to_string()),
            ("slow_read", ms(self.pace.slow_read)),
            ("off_peak", self.pace.off_peak.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
            ("listen", self.listen.map_or_else(|| "(none)".to_owned(), |l| l.to_string())),
            ("log", self.log.clone()),
            ("log_format", if self.log_json { "json" } else { "text" }.to_owned()),
        ]
    }
}

impl Layer {
    fn from_env(env: &HashMap<String, String>) -> Result<Self> {
        let get = |key: &str| env.get(&format!("{PREFIX}{key}")).filter(|v| !v.is_empty()).cloned();
        Ok(Self {
            database_url: get("DATABASE_URL")
                .or_else(|| env.get("DATABASE_URL").filter(|v| !v.is_empty()).cloned()),
            replication_url: get("REPLICATION_URL"),
            mode: get("MODE"),
            worker: get("WORKER"),
            slot: get("SLOT"),
            publication: get("PUBLICATION"),
            create: get("CREATE").map(|v| parse_word("GOV_HANDOFF_CREATE", &v)).transpose()?,
            batch_rows: get("BATCH_ROWS").map(|v| parse_word("GOV_HANDOFF_BATCH_ROWS", &v)).transpose()?,
            lease_ttl: get("LEASE_TTL"),
            reconcile_interval: get("RECONCILE_INTERVAL"),
            certify_interval: get("CERTIFY_INTERVAL"),
            wal_budget_mb: get("WAL_BUDGET_MB")
                .map(|v| parse_word("GOV_HANDOFF_WAL_BUDGET_MB", &v))
                .transpose()?,
            rejoin_after: get("REJOIN_AFTER"),
            poll_interval: get("POLL_INTERVAL"),
            read_timeout: get("READ_TIMEOUT"),
            stream_retry: get("STREAM_RETRY"),
            audit_interval: get("AUDIT_INTERVAL"),
            heartbeat_interval: get("HEARTBEAT_INTERVAL"),
            lag_limit: get("LAG_LIMIT"),
            storm_percent: number(get, "STORM_PERCENT")?,
            storm_floor: number(get, "STORM_FLOOR")?,
            throttle_pause: get("THROTTLE_PAUSE"),
            max_lock_waits: number(get, "MAX_LOCK_WAITS")?,
            max_standby_lag_mb: number(get, "MAX_STANDBY_LAG_MB")?,
            slow_read: get("SLOW_READ"),
            off_peak: get("OFF_PEAK"),
            listen: get("LISTEN"),
            log: get("LOG"),
            log_format: get("LOG_FORMAT"),
        })
    }

    fn over(self, below: Self) -> Self {
        Self {
            database_url: self.database_url.or(below.database_url),
            replication_url: self.replication_url.or(below.replication_url),
            mode: self.mode.or(below.mode),
            worker: self.worker.or(below.worker),
            slot: self.slot.or(below.slot),
            publication: self.publication.or(below.publication),
            create: self.create.or(below.create),
            batch_rows: self.batch_rows.or(below.batch_rows),
            lease_ttl: self.lease_ttl.or(below.lease_ttl),
            reconcile_interval: self.reconcile_interval.or(below.reconcile_interval),
            certify_interval: self.certify_interval.or(below.certify_interval),
            wal_budget_mb: self.wal_budget_mb.or(below.wal_budget_mb),
            rejoin_after: self.rejoin_after.or(below.rejoin_after),
            poll_interval: self.poll_interval.or(below.poll_interval),
            read_timeout: self.read_timeout.or(below.read_timeout),
            stream_retry: self.stream_retry.or(below.stream_retry),
            audit_interval: self.audit_interval.or(below.audit_interval),
            heartbeat_interval: self.heartbeat_interval.or(below.heartbeat_interval),
            lag_limit: self.lag_limit.or(below.lag_limit),
            storm_percent: self.storm_percent.or(below.storm_percent),
            storm_floor: self.storm_floor.or(below.storm_floor),
            throttle_pause: self.throttle_pause.or(below.throttle_pause),
            max_lock_waits: self.max_lock_waits.or(below.max_lock_waits),
            max_standby_lag_mb: self.max_standby_lag_mb.or(below.max_standby_lag_mb),
            slow_read: self.slow_read.or(below.slow_read),
            off_peak: self.off_peak.or(below.off_peak),
            listen: self.listen.or(below.listen),
            log: self.log.or(below.log),
            log_format: self.log_format.or(below.log_format),
        }
    }
}

/// Where a test wants this process killed; debug builds only.
#[cfg(debug_assertions)]
#[must_use]
pub fn failpoint() -> Option<String> {
    std::env::var("GOV_HANDOFF_FAILPOINT").ok()
}

/// How long a silent stream is believed in, where a test wants to know sooner; debug builds only.
#[cfg(debug_assertions)]
#[must_use]
pub fn stalled_after() -> Option<Duration> {
    std::env::var("GOV_HANDOFF_STALLED_AFTER").ok().and_then(|text| parse_span(&text).ok())
}

fn read_file(path: &Path) -> Result<Layer> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::config(format!("cannot read the configuration file {}: {e}", path.display())))?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map(|s| 1 + text[..s.start].matches('\n').count());
        let at = line.map_or_else(String::new, |l| format!(" line {l}"));
        Error::config(format!("configuration file {}{at}: {}", path.display(), e.message()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_environment_over_file() {
        let layer = |mode: &str| Layer { mode: Some(mode.to_owned()), ..Layer::default() };
        let merged = layer("poll").over(layer("stream")).over(layer("auto"));
        assert_eq!(merged.mode.as_deref(), Some("poll"));
    }

    #[test]
    fn numbers_that_would_stop_the_work_are_refused() {
        let merged = |text: &str| {
            Config::merge(
                toml::from_str(text).unwrap(),
                Layer::default(),
                &HashMap::from([("PGUSER".to_owned(), "u".to_owned())]),
            )
        };
        for wrong in [
            "wal_budget_mb = 0",
            "read_timeout = '0s'",
            "read_timeout = '99ms'",
            "storm_percent = 0",
            "storm_percent = 101",
        ] {
            let (name, _) = wrong.split_once(' ').unwrap();
            let error = merged(wrong).unwrap_err().to_string();
            assert!(error.contains(name), "{wrong}: {error}");
        }
        for fine in
            ["wal_budget_mb = 1", "read_timeout = '100ms'", "storm_percent = 1", "storm_percent = 100"]
        {
            merged(fine).unwrap();
        }
    }
}
