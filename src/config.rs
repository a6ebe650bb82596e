//! Settings: flags over environment over file, validated into one [`Config`]. The only reader of the environment.

mod target;

pub use target::{Target, Tls};

use crate::core::mode::Intent;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "gov-handoff.toml";

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
    pub log: String,
    pub log_json: bool,
    pub file: Option<PathBuf>,
}

impl Config {
    /// Reads the environment and the file, and lets `flags` win over both.
    pub fn load(flags: Layer, file: Option<&Path>) -> Result<Self> {
        let env: HashMap<String, String> = std::env::vars().collect();
        let named = file.map(Path::to_owned).or_else(|| env.get("GOV_HANDOFF_CONFIG").map(PathBuf::from));
        let (from_file, file) = match named {
            Some(path) => (read_file(&path)?, Some(path)),
            None if Path::new(DEFAULT_FILE).is_file() => {
                (read_file(Path::new(DEFAULT_FILE))?, Some(DEFAULT_FILE.into()))
            }
            None => (Layer::default(), None),
        };
        let mut config = Self::merge(flags.over(Layer::from_env(&env)?).over(from_file), &env)?;
        config.file = file;
        Ok(config)
    }

    fn merge(layer: Layer, env: &HashMap<String, String>) -> Result<Self> {
        // What was asked for is checked before what it needs: a typing error is not answered with a missing URL.
        let intent = parse_intent(layer.mode.as_deref().unwrap_or("auto"))?;
        let target = Target::parse(layer.database_url.as_deref(), env)?;
        let replication = match &layer.replication_url {
            Some(url) => Target::parse(Some(url), env).map_err(|e| e.context("replication_url"))?,
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
            wal_budget: layer.wal_budget_mb.unwrap_or(4_096).saturating_mul(1 << 20),
            rejoin_after: span("rejoin_after", &layer.rejoin_after, "60s")?,
            poll_interval: span("poll_interval", &layer.poll_interval, "250ms")?,
            read_timeout: span("read_timeout", &layer.read_timeout, "5s")?,
            stream_retry: span("stream_retry", &layer.stream_retry, "30s")?,
            audit_interval: span("audit_interval", &layer.audit_interval, "5m")?,
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
            ("log", self.log.clone()),
            ("log_format", if self.log_json { "json" } else { "text" }.to_owned()),
        ]
    }
}

impl Layer {
    fn from_env(env: &HashMap<String, String>) -> Result<Self> {
        let get = |key: &str| env.get(&format!("GOV_HANDOFF_{key}")).filter(|v| !v.is_empty()).cloned();
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

fn read_file(path: &Path) -> Result<Layer> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::config(format!("cannot read the configuration file {}: {e}", path.display())))?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map(|s| 1 + text[..s.start].matches('\n').count());
        let at = line.map_or_else(String::new, |l| format!(" line {l}"));
        Error::config(format!("configuration file {}{at}: {}", path.display(), e.message()))
    })
}

fn parse_word<T: std::str::FromStr>(name: &str, text: &str) -> Result<T>
where
    T::Err: fmt::Display,
{
    text.parse().map_err(|e| Error::config(format!("{name} is `{text}`: {e}")))
}

/// The intent behind a `--mode`.
pub fn parse_intent(text: &str) -> Result<Intent> {
    match text {
        "auto" => Ok(Intent::Auto),
        "stream" => Ok(Intent::Stream),
        "poll" => Ok(Intent::Poll),
        other => Err(Error::config(format!("mode is `{other}`; it is one of auto, stream, poll"))),
    }
}

#[must_use]
pub fn intent_name(intent: Intent) -> &'static str {
    match intent {
        Intent::Auto => "auto",
        Intent::Stream => "stream",
        Intent::Poll => "poll",
    }
}

/// `250ms`, `5s`, `10m`, `1h`.
pub fn parse_span(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let wrong = || Error::config(format!("`{text}` is no duration; write for example 250ms, 5s, 10m or 1h"));
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    let millis = match &text[digits.len()..] {
        "ms" => n,
        "s" => n.saturating_mul(1_000),
        "m" => n.saturating_mul(60_000),
        "h" => n.saturating_mul(3_600_000),
        _ => return Err(wrong()),
    };
    Ok(Duration::from_millis(millis))
}

/// Slots share one namespace in the whole cluster, so ours carries the database's name.
fn default_slot(database: &str) -> String {
    let safe = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    format!("gov_handoff_{}", database.to_lowercase().chars().map(safe).collect::<String>())
        .chars()
        .take(63)
        .collect()
}

/// The replication protocol takes these names unquoted, so only what needs no quotes is allowed.
fn check_slot_name(what: &str, name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || name.len() > 63 || !name.chars().all(fits) {
        return Err(Error::config(format!(
            "{what} is `{name}`; it must be 1 to 63 characters of a-z, 0-9 and _, because the replication protocol cannot quote it"
        )));
    }
    Ok(())
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
    fn durations_need_a_unit() {
        assert_eq!(parse_span("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(parse_span("2m").unwrap(), Duration::from_secs(120));
        assert!(parse_span("5").is_err());
        assert!(parse_span("s").is_err());
    }

    #[test]
    fn names_that_would_need_quotes_are_refused() {
        assert!(check_slot_name("slot", "gov_handoff_x1").is_ok());
        for name in ["", "Slot", "a b", "x;drop"] {
            assert!(check_slot_name("slot", name).is_err(), "{name}");
        }
        assert_eq!(default_slot("My DB"), "gov_handoff_my_db");
    }
}
