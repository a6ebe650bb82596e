//! The database and how to connect to it: a URL, the usual `PG*` variables, a service file, a password file. The password is
//! never shown.
//!
//! The priority for each option is that of all settings: flags over environment over file. If a flag or the environment gives
//! the URL, a service and the `PG*` variables fill only what it leaves open, as with libpq. If the file gives the URL, a
//! variable replaces that option of it. A password belongs to its user: if `PGUSER` names another user than the file's URL,
//! the file's password is not used. The file's `replication_url` follows the variables too, so that the daemon does not
//! stream from one server and write to another. It keeps its own user and password.

mod files;
mod merge;
mod options;
mod parse;
mod passfile;
mod place;
mod service;
mod tls;

use crate::error::codes::{NOT_HONOURED, URL_UNREADABLE};
use crate::error::{Error, Result};
use merge::{Merged, merge};
pub use options::table as options_table;
pub(super) use options::{OPTIONS, PLACES};
pub use place::ServerPlace;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
pub use tls::{Encryption, Secured, Tls};
use tokio_postgres::config::LoadBalanceHosts;
use uuid::Uuid;

#[derive(Clone)]
pub struct Target {
    /// Everything but the place and the encryption.
    pg: tokio_postgres::Config,
    places: Vec<ServerPlace>,
    pub secured: Secured,
    /// Which of the places will do.
    pub wanted: WantedServer,
    /// How long connecting to one place may take, if the user said so.
    pub connect_timeout: Option<Duration>,
    /// What the user calls our sessions, beside the name they have.
    pub application: Option<String>,
    /// The owner of the lease under which the sessions are opened, if a worker opens them. Sessions bear its name.
    pub owner: Option<Arc<str>>,
}

/// libpq's `target_session_attrs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedServer {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    /// A standby if one of the places is one, else any.
    PreferStandby,
}

/// A server whose machine does not answer within this time counts as absent. The caller backs off and retries.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection ends if the peer's machine does not acknowledge sent data for this long.
const UNHEARD: Duration = Duration::from_secs(15);

/// Where a URL comes from, and so how the `PG*` variables apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// From a flag or the environment, or not given.
    Above,
    /// From the file.
    InFile,
    /// From the file, for another role.
    InFileForRole,
}

impl Target {
    pub fn parse(url: Option<&str>, given: Given, env: &HashMap<String, String>) -> Result<Self> {
        let var = |name: &str| env.get(name).filter(|v| !v.is_empty());
        let merged = merge(url, given, env)?;
        let user = merged.owned("user").or_else(|| var("USER").cloned()).ok_or_else(|| {
            Error::config(
                "no database user: set DATABASE_URL=postgres://user@host/database, --database-url or PGUSER",
            )
        })?;
        let mut places = place::places(&merged)?;
        let secured = tls::decide(&merged, var)?;
        let mut pg = tokio_postgres::Config::new();
        let database = merged.owned("dbname").unwrap_or_else(|| user.clone());
        let secrets =
            Secrets { merged: &merged, home: var("HOME").map(Path::new), database: &database, user: &user };
        secrets.give(&mut places)?;
        pg.user(user).dbname(database);
        pg.load_balance_hosts(load_balance(merged.get("load_balance_hosts"))?);
        if let Some(options) = merged.get("options") {
            pg.options(options);
        }
        pg.connect_timeout(CONNECT_TIMEOUT).keepalives(true).keepalives_idle(Duration::from_secs(15));
        // A lost connection is noticed within a lease, whether the daemon waits for the server or the server for the
        // daemon.
        pg.keepalives_interval(Duration::from_secs(5)).keepalives_retries(3).tcp_user_timeout(UNHEARD);
        Ok(Self {
            pg,
            places,
            secured,
            wanted: wanted(merged.get("target_session_attrs"))?,
            connect_timeout: connect_timeout(&merged)?,
            application: merged.owned("application_name"),
            owner: None,
        })
    }

    /// The driver's settings for one place.
    #[must_use]
    pub fn pg(&self, place: &ServerPlace) -> tokio_postgres::Config {
        let mut pg = self.pg.clone();
        pg.host(&place.host).port(place.port);
        if let Some(address) = place.address {
            pg.hostaddr(address);
        }
        if let Some(password) = &place.password {
            pg.password(password);
        }
        pg
    }

    /// The options that the user wants the server to start each session with.
    #[must_use]
    pub fn options(&self) -> Option<&str> {
        self.pg.get_options()
    }

    #[must_use]
    pub fn database(&self) -> &str {
        self.pg.get_dbname().unwrap_or_default()
    }

    #[must_use]
    pub fn user(&self) -> &str {
        self.pg.get_user().unwrap_or_default()
    }

    /// Every place, in the order in which they are to be tried.
    #[must_use]
    pub fn places(&self) -> Vec<ServerPlace> {
        let mut places = self.places.clone();
        if self.pg.get_load_balance_hosts() == LoadBalanceHosts::Random {
            places.sort_by_cached_key(|_| Uuid::new_v4());
        }
        places
    }

    /// The same at one of its places only.
    #[must_use]
    pub fn at(&self, place: &ServerPlace) -> Self {
        Self { places: vec![place.clone()], wanted: WantedServer::Any, ..self.clone() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = if self.places.iter().any(|place| place.password.is_some()) { ":***" } else { "" };
        let place = self.places.first().map(ToString::to_string).unwrap_or_default();
        write!(f, "postgres://{}{secret}@{place}/{}", self.user(), self.database())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What finds the password of each place.
struct Secrets<'a> {
    merged: &'a Merged,
    home: Option<&'a Path>,
    database: &'a str,
    user: &'a str,
}

impl Secrets<'_> {
    fn give(&self, places: &mut [ServerPlace]) -> Result<()> {
        if let Some(password) = self.merged.owned("password") {
            places.iter_mut().for_each(|place| place.password = Some(password.clone()));
            return Ok(());
        }
        let named = self.merged.get("passfile").map(PathBuf::from);
        let Some(path) = named.clone().or_else(|| self.home.map(|home| home.join(".pgpass"))) else {
            return Ok(());
        };
        if let Some(lines) = passfile::read(&path, named.is_some())? {
            for place in places {
                place.password = passfile::password(&lines, place, self.database, self.user);
            }
        }
        Ok(())
    }
}

fn one_of<T: Copy>(name: &str, text: Option<&str>, words: &[(&str, T)], usual: T) -> Result<T> {
    let Some(text) = text else { return Ok(usual) };
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        Error::of(&NOT_HONOURED, format!("{name} is `{text}`; it is one of {}", words.join(", ")))
    })
}

fn load_balance(text: Option<&str>) -> Result<LoadBalanceHosts> {
    let words = [("disable", LoadBalanceHosts::Disable), ("random", LoadBalanceHosts::Random)];
    one_of("load_balance_hosts", text, &words, LoadBalanceHosts::Disable)
}

fn wanted(text: Option<&str>) -> Result<WantedServer> {
    let words = [
        ("any", WantedServer::Any),
        ("read-write", WantedServer::ReadWrite),
        ("read-only", WantedServer::ReadOnly),
        ("primary", WantedServer::Primary),
        ("standby", WantedServer::Standby),
        ("prefer-standby", WantedServer::PreferStandby),
    ];
    one_of("target_session_attrs", text, &words, WantedServer::Any)
}

/// In seconds. libpq waits without a limit for 0; the daemon never does.
fn connect_timeout(merged: &Merged) -> Result<Option<Duration>> {
    let Some(text) = merged.get("connect_timeout") else { return Ok(None) };
    match text.parse() {
        Ok(seconds @ 1..=300) => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(Error::of(
            &URL_UNREADABLE,
            "connect_timeout is a number of seconds from 1 to 300; gov-handoff never waits without a limit",
        )),
    }
}

#[cfg(test)]
mod tests;
