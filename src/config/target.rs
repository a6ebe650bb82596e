//! Where the database is and how to talk to it: a URL or the usual `PG*` variables, never shown with its password.
//!
//! Who wins, part by part (host, port, user, password, database, TLS), is the order of all settings, flags over environment
//! over file. A URL that a flag or the environment gives is meant as it stands, and the `PG*` variables fill only what it
//! leaves open, as with libpq. A URL that the file gives lies below them: what a `PG*` variable names takes the place of
//! that part. A password belongs to its user: when `PGUSER` names another than the file's URL does, the file's password is
//! not tried. The file's `replication_url` follows `PGHOST`, `PGPORT`, `PGDATABASE` and TLS, so that we do not stream from one
//! server and write to another, and keeps its user and password, for which it is there.

use crate::error::{Error, Result};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};

/// How much of TLS is asked for, as libpq names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    Disable,
    Prefer,
    /// Encrypted, the certificate not checked.
    Require,
    /// The chain and the name; also for `verify-ca`, and for `require` with a root certificate.
    VerifyFull,
}

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

/// Options that libpq knows and the driver does not.
const LIBPQ_ONLY: [&str; 18] = [
    "client_encoding",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "krbsrvname",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "sslcert",
    "sslcompression",
    "sslcrl",
    "sslkey",
    "sslpassword",
    "sslsni",
    "ssl_min_protocol_version",
];

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
        let (url, mut mode, mut root) = match url {
            Some(url) => split_tls(url),
            None => (String::new(), None, None),
        };
        refuse_split_password(&url)?;
        let mut pg: tokio_postgres::Config = url.parse().map_err(|e| unreadable(&url, &e))?;
        if given != Given::Above {
            pg = below(&pg, given, var);
            mode = var("PGSSLMODE").cloned().or(mode);
            root = var("PGSSLROOTCERT").cloned().or(root);
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
        mode = mode.or_else(|| var("PGSSLMODE").cloned());
        root = root.or_else(|| var("PGSSLROOTCERT").cloned());
        let tls = match mode.as_deref() {
            None | Some("prefer" | "allow") => Tls::Prefer,
            Some("disable") => Tls::Disable,
            // Who names a root means it to be used; libpq verifies the chain then.
            Some("require") if root.is_some() => Tls::VerifyFull,
            Some("require") => Tls::Require,
            Some("verify-full" | "verify-ca") => Tls::VerifyFull,
            Some(other) => {
                return Err(Error::config(format!(
                    "sslmode is `{other}`; it is one of disable, prefer, require, verify-ca, verify-full"
                )));
            }
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

/// Which key the driver could not read, where it can be told from a piece of a password that was not encoded.
fn unreadable(text: &str, e: &tokio_postgres::Error) -> Error {
    let cause = std::error::Error::source(e).map(ToString::to_string).unwrap_or_default();
    let key = cause.strip_prefix("unknown option `").and_then(|rest| rest.strip_suffix('`'));
    let cause = match key {
        Some(key) if LIBPQ_ONLY.contains(&key) => {
            format!("{key} is an option of libpq that is not supported")
        }
        Some(key) if is_option_of_url(text) => format!("unknown option {key}"),
        Some(_) => "an option that is unknown".to_owned(),
        None if cause.is_empty() => e.to_string(),
        None => cause,
    };
    Error::config(format!(
        "the database URL cannot be read ({cause}); expected postgres://user:password@host:5432/database, special \
         characters of the password percent-encoded"
    ))
}

/// Whether what follows the question mark can only be options: a password that holds one reaches up to an `@`.
fn is_option_of_url(text: &str) -> bool {
    let query = text.split_once("://").and_then(|(_, rest)| rest.split_once('?')).map(|(_, query)| query);
    query.is_some_and(|query| !query.contains('@') && !query.contains("password="))
}

/// A URL's user and password end at the first `@`, so one in a password makes the rest of it part of the host or the database,
/// which are shown. In an option's value it does no harm, but a password may hold a question mark before it, too.
fn refuse_split_password(url: &str) -> Result<()> {
    let Some((_, rest)) = url.split_once("://") else { return Ok(()) };
    let (_, after) = rest.split_once('@').unwrap_or_default();
    let (place, _) = after.split_once('?').unwrap_or((after, ""));
    if place.contains('@') {
        return Err(Error::config(
            "the database URL has an @ too many, most likely in the password; percent-encode special characters of \
             the password (@ is %40)",
        ));
    }
    Ok(())
}

/// Takes `sslmode` and `sslrootcert` out of a URL: the driver knows neither `verify-full` nor a root file.
fn split_tls(url: &str) -> (String, Option<String>, Option<String>) {
    let Some((base, query)) = url.split_once('?') else {
        return split_tls_words(url);
    };
    let (mut mode, mut root, mut rest) = (None, None, Vec::new());
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", v)) => mode = Some(v.to_owned()),
            Some(("sslrootcert", v)) => root = Some(v.replace("%2F", "/")),
            _ => rest.push(pair),
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    (url, mode, root)
}

/// The same for the `key=value` form.
fn split_tls_words(text: &str) -> (String, Option<String>, Option<String>) {
    if text.contains("://") || !text.contains("ssl") {
        return (text.to_owned(), None, None);
    }
    let (mut mode, mut root, mut rest) = (None, None, Vec::new());
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some(("sslmode", v)) => mode = Some(v.to_owned()),
            Some(("sslrootcert", v)) => root = Some(v.to_owned()),
            _ => rest.push(word),
        }
    }
    (rest.join(" "), mode, root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: Option<&str>, env: &[(&str, &str)]) -> Result<Target> {
        given(url, Given::Above, env)
    }

    fn given(url: Option<&str>, given: Given, env: &[(&str, &str)]) -> Result<Target> {
        Target::parse(url, given, &env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn the_password_is_shown_nowhere() {
        let t = target(Some("postgres://u:hunter2@h:1/d"), &[]).unwrap();
        assert!(!format!("{t} {t:?}").contains("hunter2"));
        assert_eq!(t.password(), "hunter2");
    }

    #[test]
    fn a_url_wins_over_the_usual_variables_which_fill_its_gaps() {
        let env = [("PGHOST", "elsewhere"), ("PGPASSWORD", "p"), ("PGDATABASE", "other")];
        let t = target(Some("postgres://u@h/d"), &env).unwrap();
        assert_eq!((t.host().as_str(), t.database(), t.password().as_str()), ("h", "d", "p"));
        let t = target(None, &[("PGUSER", "u"), ("PGPORT", "7"), ("PGDATABASE", "x")]).unwrap();
        assert_eq!((t.port(), t.database()), (7, "x"));
    }

    #[test]
    fn the_usual_variables_win_over_the_urls_of_the_file_part_by_part() {
        let url = Some("postgres://u:secret@h:7/d?sslmode=require");
        let parts = |how, env: &[(&str, &str)]| {
            let t = given(url, how, env).unwrap();
            (t.host(), t.port(), t.user().to_owned(), t.password(), t.database().to_owned())
        };
        let all = |h: &str, port, u: &str, p: &str, d: &str| (h.into(), port, u.into(), p.into(), d.into());
        let file = Given::InFile;
        assert_eq!(parts(file, &[]), all("h", 7, "u", "secret", "d"));
        assert_eq!(parts(file, &[("PGHOST", "elsewhere")]), all("elsewhere", 7, "u", "secret", "d"));
        assert_eq!(parts(file, &[("PGPORT", "8"), ("PGDATABASE", "x")]), all("h", 8, "u", "secret", "x"));
        assert_eq!(parts(file, &[("PGPASSWORD", "other")]), all("h", 7, "u", "other", "d"));
        assert_eq!(
            parts(file, &[("PGUSER", "v")]),
            all("h", 7, "v", "", "d"),
            "another's password is not tried"
        );
        assert_eq!(parts(file, &[("PGUSER", "u")]), all("h", 7, "u", "secret", "d"));
        assert_eq!(parts(file, &[("PGHOST", "")]), all("h", 7, "u", "secret", "d"), "empty is not given");
        let env =
            [("PGHOST", "elsewhere"), ("PGUSER", "v"), ("PGPASSWORD", "other"), ("PGSSLMODE", "disable")];
        assert_eq!(parts(Given::InFileForRole, &env), all("elsewhere", 7, "u", "secret", "d"));
        assert_eq!(parts(Given::Above, &env), all("h", 7, "u", "secret", "d"));
        assert_eq!(given(url, file, &env).unwrap().tls, Tls::Disable);
        assert_eq!(given(url, Given::Above, &env).unwrap().tls, Tls::Require);
    }

    #[test]
    fn tls_words_are_ours() {
        let t =
            target(Some("postgres://u@h/d?sslmode=verify-full&sslrootcert=/ca.pem&application_name=x"), &[])
                .unwrap();
        assert_eq!((t.tls, t.root_cert), (Tls::VerifyFull, Some(PathBuf::from("/ca.pem"))));
        assert!(target(Some("postgres://u@h/d?sslmode=sometimes"), &[]).is_err());
    }

    #[test]
    fn a_wrong_url_says_what_was_expected_and_keeps_the_secret() {
        let e = target(Some("postgres//u:hunter2@h/d"), &[]).unwrap_err().to_string();
        assert!(e.contains("expected postgres://") && !e.contains("hunter2"), "{e}");
    }

    #[test]
    fn an_unreadable_url_names_the_key_but_no_piece_of_a_password() {
        let refused = |url: &str| target(Some(url), &[]).unwrap_err().to_string();
        for (url, named) in [
            ("postgres://u:hunter2@h/d?sslcert=/c.pem", "sslcert"),
            ("postgres://u:hunter2@h/d?sllmode=require", "unknown option sllmode"),
            ("postgres://u:hunter2@h:none/d", "`port`"),
            ("host=h password=hunter2 service=x", "service"),
        ] {
            let e = refused(url);
            assert!(e.contains(named) && !e.contains("hunter2"), "{url}: {e}");
        }
        for url in [
            "postgres//u:hunter2=b@h/d",
            "host=h password=a hunter2=b",
            "postgres://u@h/d?password=a&hunter2=b",
        ] {
            let e = refused(url);
            assert!(e.contains("expected postgres://") && !e.contains("hunter2"), "{url}: {e}");
        }
    }

    #[test]
    fn a_password_that_was_not_encoded_is_not_taken_for_a_host() {
        for how in [Given::Above, Given::InFile, Given::InFileForRole] {
            for password in ["hun@ter2", "hun@x/ter2", "hun@x:ter2", "hun?x=y@ter2"] {
                let url = format!("postgres://u:{password}@127.0.0.1:1/d");
                let e = given(Some(&url), how, &[]).unwrap_err().to_string();
                assert!(e.contains("%40") && !e.contains("ter2") && !e.contains("127.0.0.1"), "{e}");
            }
        }
        let t = target(Some("postgres://u:hun%40ter2@127.0.0.1:1/d?application_name=a@b"), &[]).unwrap();
        assert_eq!((t.password().as_str(), t.host().as_str()), ("hun@ter2", "127.0.0.1"));
    }

    #[test]
    fn a_root_certificate_is_there_to_be_used() {
        let tls = |query: &str, env: &[(&str, &str)]| {
            target(Some(&format!("postgres://u@h/d?{query}")), env).unwrap().tls
        };
        assert_eq!(tls("sslmode=require", &[]), Tls::Require);
        assert_eq!(tls("sslmode=require&sslrootcert=/ca.pem", &[]), Tls::VerifyFull);
        assert_eq!(tls("sslmode=require", &[("PGSSLROOTCERT", "/ca.pem")]), Tls::VerifyFull);
        assert_eq!(tls("sslmode=verify-ca", &[]), Tls::VerifyFull);
        // Whoever is content without encryption is not helped by a name: an attacker refuses TLS.
        assert_eq!(tls("sslrootcert=/ca.pem", &[]), Tls::Prefer);
    }
}
