//! Settings: flags over environment over file over the command's own defaults, validated into one [`Config`]. Only this
//! module reads the environment.

mod environment;
mod settings;
mod target;
mod value;
mod words;

pub use settings::{Layer, help, table};
pub use target::{Encryption, Given, Secured, ServerPlace, Target, Tls, WantedServer, options_table};
pub use words::parse_span;

use crate::core::mode::Intent;
use crate::core::pace::Limits;
use crate::error::codes::UNKNOWN_SETTING;
use crate::error::{Error, Result};
use environment::{PREFIX, named_file, readable, refuse_unknown};
use settings::Values;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use value::{LogFormat, SettingValue, Url};
use words::{beyond_loopback, default_slot};

pub use value::Secret;

/// The configuration file that is read if none is named.
const DEFAULT_FILE: &str = "gov-handoff.toml";

/// What an operator asks of one run of the sweep. The daemon's sweep has the default.
#[derive(Debug, Clone, Default)]
pub struct Backfill {
    /// Only this source.
    pub source: Option<String>,
    /// Sources that are done as well: they are read again and compared with the candidate store.
    pub again: bool,
}

/// The validated settings.
#[derive(Debug, Clone)]
pub struct Config {
    pub target: Target,
    /// Where the replication role connects; by default the same as `target`.
    pub replication: Target,
    pub intent: Intent,
    /// The name of the intake, under which its sources are registered.
    pub worker: String,
    /// Which workers `run` runs; `None` for all.
    pub workers: Option<Vec<String>>,
    /// How many candidate scans share the groups.
    pub scan_shards: u8,
    /// How long a verdict counts.
    pub stale_after: Duration,
    pub slot: String,
    pub publication: String,
    /// Create publication and slot if they are missing and the role is allowed to.
    pub create: bool,
    /// The largest number of rows in one batch.
    pub batch_rows: usize,
    pub lease_ttl: Duration,
    /// How often the keyset pass reads the tables behind the stream.
    pub reconcile_interval: Duration,
    /// How often a source is certified.
    pub certify_interval: Duration,
    /// The budget: how much log our slot may retain. The daemon drops the slot before that.
    pub wal_budget: u64,
    /// How long the daemon polls after it dropped the slot, before it creates one again.
    pub rejoin_after: Duration,
    /// The longest pause between two polls of an idle source.
    pub poll_interval: Duration,
    pub read_timeout: Duration,
    /// The longest pause before the daemon tries to stream again.
    pub stream_retry: Duration,
    pub audit_interval: Duration,
    /// How often every source is audited in full; zero means never.
    pub audit_every: Duration,
    /// How often a heartbeat is published.
    pub heartbeat_interval: Duration,
    /// A lag longer than this is a finding.
    pub lag_limit: Duration,
    /// The limits for the pace.
    pub pace: Limits,
    /// The most rows a second that a sweep reads of a backlog; 0 for no limit.
    pub backfill_rate: u64,
    /// What the command `backfill` asks of the sweep.
    pub backfill: Backfill,
    /// The address of the page, the metrics and the probes, if they are served.
    pub listen: Option<SocketAddr>,
    /// The secret that requests must show; always there if others can reach the address.
    pub listen_token: Option<Secret>,
    /// Names under which a proxy asks for the page, in lower case.
    pub listen_hosts: Vec<String>,
    pub log: String,
    pub log_json: bool,
    pub file: Option<PathBuf>,
    /// All settings, as given or by default, for display.
    values: Values,
}

impl Config {
    /// Reads the environment and the file; `flags` override both. `defaults` are the defaults of a command that differ
    /// from those of the daemon.
    pub fn load(flags: Layer, file: Option<&Path>, defaults: Layer) -> Result<Self> {
        let Layers { above, file, path, env } = Layers::read(flags, file)?;
        let mut config = Self::merge(above, file.over(defaults), &env)?;
        config.file = path;
        Ok(config)
    }

    /// `above` are flags and environment. `file` also has lower priority than the `PG*` variables.
    fn merge(above: Layer, file: Layer, env: &HashMap<String, String>) -> Result<Self> {
        let given = |url: &Option<String>, below| if url.is_some() { Given::Above } else { below };
        let database = given(&above.database_url, Given::InFile);
        let role = given(&above.replication_url, Given::InFileForRole);
        // The given settings are checked first, so that a misspelt value is not answered with a missing URL.
        let values = above.over(file).values()?;
        check_reach(&values)?;
        let text = |url: &Option<Url>| url.as_ref().map(|url| url.0.clone());
        let target = Target::parse(text(&values.database_url).as_deref(), database, env)?;
        let replication = match text(&values.replication_url) {
            Some(url) => Target::parse(Some(&url), role, env).map_err(|e| e.context("replication_url"))?,
            None => target.clone(),
        };
        let v = values.clone();
        Ok(Self {
            intent: v.mode,
            worker: v.worker,
            workers: v.workers.0,
            scan_shards: v.scan_shards,
            stale_after: v.stale_after,
            slot: v.slot.unwrap_or_else(|| default_slot(target.database())),
            publication: v.publication.unwrap_or_default(),
            create: v.create,
            batch_rows: v.batch_rows,
            lease_ttl: v.lease_ttl,
            reconcile_interval: v.reconcile_interval,
            certify_interval: v.certify_interval,
            wal_budget: v.wal_budget_mb.saturating_mul(1 << 20),
            rejoin_after: v.rejoin_after,
            poll_interval: v.poll_interval,
            read_timeout: v.read_timeout,
            stream_retry: v.stream_retry,
            audit_interval: v.audit_interval,
            audit_every: v.audit_every,
            heartbeat_interval: v.heartbeat_interval,
            lag_limit: v.lag_limit,
            pace: Limits {
                lock_waits: v.max_lock_waits,
                standby_lag: v.max_standby_lag_mb.saturating_mul(1 << 20),
                slow_read: v.slow_read,
                storm_share: f64::from(v.storm_percent) / 100.0,
                storm_floor: v.storm_floor,
                pause: v.throttle_pause,
                off_peak: v.off_peak,
            },
            backfill_rate: v.backfill_rate,
            backfill: Backfill::default(),
            listen: v.listen,
            listen_token: v.listen_token,
            listen_hosts: names(&v.listen_hosts),
            log: v.log,
            log_json: v.log_format == LogFormat::Json,
            file: None,
            target,
            replication,
            values,
        })
    }

    /// The same settings for one worker, whose sessions bear the name of the owner of its lease.
    #[must_use]
    pub fn owned_by(&self, owner: &str) -> Self {
        let mut config = self.clone();
        config.target.owner = Some(owner.into());
        config.replication.owner.clone_from(&config.target.owner);
        config
    }

    /// The settings as pairs of name and value; secrets are redacted.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let file = self.file.as_ref().map_or_else(|| "(none)".to_owned(), |f| f.display().to_string());
        let in_force = |(name, shown)| match name {
            "database_url" => (name, self.target.to_string()),
            "replication_url" => (name, self.replication.to_string()),
            "slot" => (name, self.slot.show()),
            _ => (name, shown),
        };
        [("config_file", file)].into_iter().chain(self.values.shown().into_iter().map(in_force)).collect()
    }
}

/// The database for a program that uses this crate as a library: the URL that is given, else `DATABASE_URL`, completed by the
/// `PG*` variables as libpq does it.
pub fn target(url: Option<&str>) -> Result<Target> {
    let env = readable(std::env::vars_os())?;
    let url = url.or_else(|| env.get("DATABASE_URL").map(String::as_str).filter(|url| !url.is_empty()));
    Target::parse(url, Given::Above, &env)
}

/// Where a daemon with these settings serves its pages. No database is asked for that, so none need be set.
pub fn listen(flags: Layer, file: Option<&Path>) -> Result<Option<SocketAddr>> {
    let layers = Layers::read(flags, file)?;
    Ok(layers.above.over(layers.file).values()?.listen)
}

/// Everything that is given, before it is merged.
struct Layers {
    /// Flags over environment.
    above: Layer,
    file: Layer,
    /// Where the file is, if there is one.
    path: Option<PathBuf>,
    env: HashMap<String, String>,
}

impl Layers {
    fn read(flags: Layer, file: Option<&Path>) -> Result<Self> {
        let env = readable(std::env::vars_os())?;
        refuse_unknown(&env)?;
        let default = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.is_file());
        let path = file.map(Path::to_owned).or_else(|| named_file(&env)).or_else(default);
        let file = path.as_deref().map(read_file).transpose()?.unwrap_or_default();
        Ok(Self { above: flags.over(from_environment(&env)), file, path, env })
    }
}

/// Whether others may reach the page, if they can.
fn check_reach(values: &Values) -> Result<()> {
    let Some(listen) = values.listen else { return Ok(()) };
    beyond_loopback(listen, values.listen_public, values.listen_token.is_some())
        .map_err(|problem| Error::config(format!("listen is {listen}; {problem}")))
}

/// The names of a list with commas between, in lower case.
fn names(list: &str) -> Vec<String> {
    list.split(',').map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty()).collect()
}

/// Whether text may be coloured: `NO_COLOR` and `CLICOLOR=0` say no, `CLICOLOR_FORCE` says yes, else the terminal decides.
#[must_use]
pub fn colour(terminal: bool) -> bool {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    coloured(terminal, var)
}

fn coloured(terminal: bool, var: impl Fn(&str) -> Option<String>) -> bool {
    let is = |name: &str, value: &str| var(name).as_deref() == Some(value);
    if var("NO_COLOR").is_some() {
        return false;
    }
    let forced = var("CLICOLOR_FORCE").is_some() && !is("CLICOLOR_FORCE", "0");
    forced || terminal && !is("CLICOLOR", "0") && !is("TERM", "dumb")
}

/// What the service manager wants to be told, and where; see `sd_notify(3)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceManager {
    /// A path, or after `@` a name in the abstract namespace.
    pub socket: String,
    /// It ends a process that says nothing for this long.
    pub watchdog: Option<Duration>,
}

/// The service manager that started this process, if it wants to be told how the process fares.
#[must_use]
pub fn service_manager() -> Option<ServiceManager> {
    manager_of(std::process::id(), |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

fn manager_of(pid: u32, var: impl Fn(&str) -> Option<String>) -> Option<ServiceManager> {
    let socket = var("NOTIFY_SOCKET").filter(|socket| socket.starts_with(['/', '@']))?;
    // The watchdog may be another process's: a shell that started this one.
    let ours = var("WATCHDOG_PID").is_none_or(|of| of == pid.to_string());
    let micros = var("WATCHDOG_USEC").and_then(|micros| micros.parse().ok()).filter(|micros| *micros > 0);
    Some(ServiceManager { socket, watchdog: micros.filter(|_| ours).map(Duration::from_micros) })
}

/// The point at which a test wants this process killed; debug builds only.
#[cfg(debug_assertions)]
#[must_use]
pub fn failpoint() -> Option<String> {
    std::env::var("GOV_HANDOFF_FAILPOINT").ok()
}

/// How long each loop may take for a turn, if a test sets it; debug builds only.
#[must_use]
pub fn pulse_patience() -> Option<Duration> {
    #[cfg(debug_assertions)]
    return std::env::var("GOV_HANDOFF_TEST_PATIENCE").ok().and_then(|text| parse_span(&text).ok());
    #[cfg(not(debug_assertions))]
    None
}

/// How long a silent stream counts as alive, if a test sets it; debug builds only.
#[cfg(debug_assertions)]
#[must_use]
pub fn stalled_after() -> Option<Duration> {
    std::env::var("GOV_HANDOFF_STALLED_AFTER").ok().and_then(|text| parse_span(&text).ok())
}

/// The variable of each setting: the prefix and the name in upper case. The URL also has its usual name `DATABASE_URL`.
fn from_environment(env: &HashMap<String, String>) -> Layer {
    let mut layer = Layer::from(|name| env.get(&format!("{PREFIX}{}", name.to_uppercase())).cloned());
    let url = env.get("DATABASE_URL").filter(|url| !url.is_empty()).cloned();
    layer.database_url = layer.database_url.or(url);
    layer
}

fn read_file(path: &Path) -> Result<Layer> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::config(format!("cannot read the configuration file {}: {e}", path.display())))?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map(|s| 1 + text[..s.start].matches('\n').count());
        let at = line.map_or_else(String::new, |l| format!(" line {l}"));
        Error::of(&UNKNOWN_SETTING, format!("configuration file {}{at}: {}", path.display(), e.message()))
    })
}

#[cfg(test)]
mod tests {
    use super::{Duration, ServiceManager, coloured, manager_of};

    #[test]
    fn a_service_manager_is_told_where_it_listens_and_its_watchdog_is_ours_alone() {
        let with = |vars: &[(&str, &str)]| {
            manager_of(7, |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        let told = |socket: &str, watchdog| Some(ServiceManager { socket: socket.to_owned(), watchdog });
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("NOTIFY_SOCKET", "relative")]), None);
        assert_eq!(with(&[("NOTIFY_SOCKET", "/run/n")]), told("/run/n", None));
        let (socket, micros) = (("NOTIFY_SOCKET", "@n"), ("WATCHDOG_USEC", "2000000"));
        let two = Some(Duration::from_secs(2));
        assert_eq!(with(&[socket, micros]), told("@n", two));
        assert_eq!(with(&[socket, micros, ("WATCHDOG_PID", "7")]), told("@n", two));
        assert_eq!(with(&[socket, micros, ("WATCHDOG_PID", "8")]), told("@n", None));
        assert_eq!(with(&[socket, ("WATCHDOG_USEC", "0")]), told("@n", None));
        assert_eq!(with(&[socket, ("WATCHDOG_USEC", "soon")]), told("@n", None));
    }

    #[test]
    fn colour_follows_the_usual_variables() {
        let with = |terminal, vars: &[(&str, &str)]| {
            coloured(terminal, |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert!(with(true, &[]) && !with(false, &[]));
        assert!(
            !with(true, &[("NO_COLOR", "1")]) && !with(true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")])
        );
        assert!(with(false, &[("CLICOLOR_FORCE", "1")]) && !with(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!with(true, &[("CLICOLOR", "0")]) && !with(true, &[("TERM", "dumb")]));
    }
}
