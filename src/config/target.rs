//! The database and how to connect to it: a URL or the usual `PG*` variables. The password is never shown.
//!
//! The priority for each part (host, port, user, password, database, TLS) is that of all settings: flags over
//! environment over file. If a flag or the environment gives the URL, the `PG*` variables fill only the parts that it
//! leaves open, as with libpq. If the file gives the URL, a `PG*` variable replaces that part of it. A password belongs
//! to its user: if `PGUSER` names another user than the file's URL, the file's password is not used. The file's
//! `replication_url` follows `PGHOST`, `PGPORT`, `PGDATABASE` and TLS, so that the daemon does not stream from one
//! server and write to another. It keeps its own user and password.

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
    /// Trusted root certificates in PEM; by default those of the web.
    pub root_cert: Option<PathBuf>,
}

/// A server that does not answer within this time counts as absent. The caller backs off and retries.
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
        // A lost connection is noticed within a lease, whether the daemon waits for the server or the server for the
        // daemon.
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

    /// The first host. A socket directory starts with a slash.
    #[must_use]
    pub fn host(&self) -> String {
        self.places().swap_remove(0).0
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.places().swap_remove(0).1
    }

    /// Every host and port of the URL, in its order.
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

/// Removes the parts of the file's URL that a variable names. The variables then fill them like missing parts.
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
        // The variable names one host instead of several, so there is one port.
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
