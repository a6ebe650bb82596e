//! Where the database is and how to talk to it: a URL or the usual `PG*` variables, never shown with its password.
//!
//! Who wins, part by part (host, port, user, password, database, TLS), is the order of all settings, flags over environment
//! over file. A URL that a flag or the environment gives is meant as it stands, and the `PG*` variables fill only what it
//! leaves open, as with libpq. A URL that the file gives lies below them: what a `PG*` variable names takes the place of
//! that part. A password belongs to its user: when `PGUSER` names another than the file's URL does, the file's password is
//! not tried. The file's `replication_url` follows `PGHOST`, `PGPORT`, `PGDATABASE` and TLS, so that we do not stream from one
//! server and write to another, and keeps its user and password, for which it is there.

mod parse;
mod tls;

use crate::error::{Error, Result};
use parse::Asked;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
pub use tls::Tls;
use tls::Wish;
use tokio_postgres::config::{ChannelBinding, Host, SslMode};

#[derive(Clone)]
pub struct Target {
    pg: tokio_postgres::Config,
    pub tls: Tls,
    /// Trusted roots in PEM; the web's when not given.
    pub root_cert: Option<PathBuf>,
}

/// A server that does not answer within this is treated as absent; the caller backs off and tries again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What was sent and not acknowledged by the peer's machine for this long ends the connection.
const UNHEARD: Duration = Duration::from_secs(15);

/// Where a URL stands, and so what the `PG*` variables do to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// By a flag or the environment, or not at all.
    Above,
    /// By the file.
    InFile,
    /// By the file, for another role.
    InFileForRole,
}

impl Target {
    pub fn parse(url: Option<&str>, given: Given, env: &HashMap<String, String>) -> Result<Self> {
        let var = |name: &str| env.get(name).filter(|v| !v.is_empty());
        let Asked { mut pg, tls: asked } = parse::parse(url.unwrap_or_default())?;
        if given != Given::Above {
            pg = below(&pg, given, var);
        }
        if pg.get_hosts().is_empty() {
            pg.host(var("PGHOST").map_or("127.0.0.1", String::as_str));
        }
        if pg.get_ports().is_empty()
            && let Some(port) = var("PGPORT")
        {
            pg.port(
                port.parse()
                    .map_err(|_| Error::config(format!("PGPORT is `{port}`; it must be a port number")))?,
            );
        }
        if pg.get_user().is_none() {
            let user = var("PGUSER").or_else(|| var("USER")).ok_or_else(|| {
                Error::config("no database user: set DATABASE_URL=postgres://user@host/database, --database-url or PGUSER")
            })?;
            pg.user(user);
        }
        if pg.get_password().is_none()
            && let Some(password) = var("PGPASSWORD")
        {
            pg.password(password);
        }
        if pg.get_dbname().is_none() {
            let database =
                var("PGDATABASE").cloned().or_else(|| pg.get_user().map(str::to_owned)).unwrap_or_default();
            pg.dbname(&database);
        }
        let usual = Wish { mode: var("PGSSLMODE").cloned(), root: var("PGSSLROOTCERT").cloned() };
        let bound = pg.get_channel_binding() == ChannelBinding::Require;
        let (tls, root) = if given == Given::Above {
            tls::decide(asked, usual, bound, false)?
        } else {
            tls::decide(usual, asked, bound, true)?
        };
        pg.ssl_mode(match tls {
            Tls::Disable => SslMode::Disable,
            Tls::Prefer => SslMode::Prefer,
            Tls::Require | Tls::VerifyFull => SslMode::Require,
        });
        pg.connect_timeout(CONNECT_TIMEOUT).keepalives(true).keepalives_idle(Duration::from_secs(15));
        // A peer that the network lost: noticed within a lease, whether we wait for it or it for us.
        pg.keepalives_interval(Duration::from_secs(5)).keepalives_retries(3).tcp_user_timeout(UNHEARD);
        Ok(Self { pg, tls, root_cert: root.map(PathBuf::from) })
    }

    #[must_use]
    pub fn pg(&self) -> &tokio_postgres::Config {
        &self.pg
    }

    #[must_use]
    pub fn database(&self) -> &str {
        self.pg.get_dbname().unwrap_or_default()
    }

    #[must_use]
    pub fn user(&self) -> &str {
        self.pg.get_user().unwrap_or_default()
    }

    #[must_use]
    pub fn password(&self) -> String {
        self.pg.get_password().map(|p| String::from_utf8_lossy(p).into_owned()).unwrap_or_default()
    }

    /// The first host; a socket directory starts with a slash.
    #[must_use]
    pub fn host(&self) -> String {
        self.places().swap_remove(0).0
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.places().swap_remove(0).1
    }

    /// Every host and port that the URL names, in its order.
    #[must_use]
    pub fn places(&self) -> Vec<(String, u16)> {
        let ports = self.pg.get_ports();
        let port = |i: usize| ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        let name = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        self.pg.get_hosts().iter().enumerate().map(|(i, host)| (name(host), port(i))).collect()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = if self.pg.get_password().is_some() { ":***" } else { "" };
        write!(f, "postgres://{}{secret}@{}:{}/{}", self.user(), self.host(), self.port(), self.database())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL of the file without the parts that a variable names: those are filled in like any that are missing.
fn below<'a>(
    file: &tokio_postgres::Config,
    given: Given,
    var: impl Fn(&str) -> Option<&'a String>,
) -> tokio_postgres::Config {
    let mut pg = tokio_postgres::Config::new();
    let who = given == Given::InFileForRole;
    let user = file.get_user().filter(|_| who || var("PGUSER").is_none());
    if let Some(user) = user {
        pg.user(user);
    }
    let same_user = user.is_some() || var("PGUSER").map(String::as_str) == file.get_user();
    if let Some(password) = file.get_password().filter(|_| who || same_user && var("PGPASSWORD").is_none()) {
        pg.password(password);
    }
    if let Some(database) = file.get_dbname().filter(|_| var("PGDATABASE").is_none()) {
        pg.dbname(database);
    }
    if var("PGHOST").is_none() {
        for host in file.get_hosts() {
            match host {
                Host::Tcp(name) => pg.host(name),
                Host::Unix(path) => pg.host_path(path),
            };
        }
        for address in file.get_hostaddrs() {
            pg.hostaddr(*address);
        }
    }
    if var("PGPORT").is_none() {
        // Of several hosts one was named instead: it has one port.
        let ports = file.get_ports();
        let kept = if var("PGHOST").is_some() { &ports[..ports.len().min(1)] } else { ports };
        for port in kept {
            pg.port(*port);
        }
    }
    if let Some(options) = file.get_options() {
        pg.options(options);
    }
    pg.target_session_attrs(file.get_target_session_attrs());
    pg.channel_binding(file.get_channel_binding()).load_balance_hosts(file.get_load_balance_hosts());
    pg
}

#[cfg(test)]
mod tests;
