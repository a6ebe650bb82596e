//! The options of a connection: libpq's names, their variables, and what becomes of each here.
//!
//! Two clients connect: one for queries, one for the stream. An option is honoured only if both do what it says. An option
//! that asks for something else is rejected by name. Ignoring it would mean another connection than was asked for.

use crate::error::codes::NOT_HONOURED;
use crate::error::{Error, Result};
use Fate::{Honoured, Only, Refused};

/// What becomes of an option.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    Honoured,
    /// These values ask for what this program does anyway. No other value is accepted.
    Only(&'static [&'static str]),
    /// Why it is rejected.
    Refused(&'static str),
}

#[derive(Debug)]
pub struct ConnectionOption {
    /// The name in a connection string and in a service file; empty where there is none.
    pub key: &'static str,
    /// The variable; empty where there is none.
    pub variable: &'static str,
    pub fate: Fate,
}

const fn option(key: &'static str, variable: &'static str, fate: Fate) -> ConnectionOption {
    ConnectionOption { key, variable, fate }
}

const NO_CRL: &str = "revocation lists are not read";
const NO_GSS: &str = "GSSAPI is not supported";
const NO_OAUTH: &str = "OAuth is not supported";
const PINNED: &str = "every session sets this itself, so that all paths read the same text";
const KEPT_ALIVE: &str = "the daemon sets this itself, so that it notices a dead server within a lease";

/// Every option of libpq up to PostgreSQL 18, and every variable.
pub static OPTIONS: &[ConnectionOption] = &[
    option("host", "PGHOST", Honoured),
    option("hostaddr", "PGHOSTADDR", Honoured),
    option("port", "PGPORT", Honoured),
    option("dbname", "PGDATABASE", Honoured),
    option("user", "PGUSER", Honoured),
    option("password", "PGPASSWORD", Honoured),
    option("passfile", "PGPASSFILE", Honoured),
    option("service", "PGSERVICE", Honoured),
    option("options", "PGOPTIONS", Honoured),
    option("application_name", "PGAPPNAME", Honoured),
    option("connect_timeout", "PGCONNECT_TIMEOUT", Honoured),
    option("target_session_attrs", "PGTARGETSESSIONATTRS", Honoured),
    option("load_balance_hosts", "PGLOADBALANCEHOSTS", Honoured),
    option("channel_binding", "PGCHANNELBINDING", Only(&["prefer", "disable"])),
    option("sslmode", "PGSSLMODE", Honoured),
    option("sslrootcert", "PGSSLROOTCERT", Honoured),
    option("sslcert", "PGSSLCERT", Honoured),
    option("sslkey", "PGSSLKEY", Honoured),
    option("sslcertmode", "PGSSLCERTMODE", Only(&["allow", "disable"])),
    option("sslnegotiation", "PGSSLNEGOTIATION", Only(&["postgres"])),
    option("sslsni", "PGSSLSNI", Only(&["1"])),
    option("sslcompression", "PGSSLCOMPRESSION", Only(&["0"])),
    option("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", Only(&["TLSv1", "TLSv1.1", "TLSv1.2"])),
    option("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", Only(&["TLSv1.3"])),
    option("gssencmode", "PGGSSENCMODE", Only(&["disable", "prefer"])),
    option("client_encoding", "PGCLIENTENCODING", Only(&["UTF8", "UTF-8", "unicode"])),
    option("min_protocol_version", "PGMINPROTOCOLVERSION", Only(&["3.0"])),
    option("max_protocol_version", "PGMAXPROTOCOLVERSION", Only(&["3.0", "3.2", "latest"])),
    option("replication", "", Only(&["false", "off", "no", "0"])),
    option("keepalives", "", Only(&["1"])),
    option("keepalives_idle", "", Refused(KEPT_ALIVE)),
    option("keepalives_interval", "", Refused(KEPT_ALIVE)),
    option("keepalives_count", "", Refused(KEPT_ALIVE)),
    option("tcp_user_timeout", "", Refused(KEPT_ALIVE)),
    option("sslcrl", "PGSSLCRL", Refused(NO_CRL)),
    option("sslcrldir", "PGSSLCRLDIR", Refused(NO_CRL)),
    option(
        "sslpassword",
        "",
        Refused("a private key that is encrypted cannot be read; give one that is not"),
    ),
    option("sslkeylogfile", "", Refused("keys of sessions are never written to a file")),
    option("requiressl", "PGREQUIRESSL", Refused("libpq itself has replaced it by sslmode=require")),
    option("require_auth", "PGREQUIREAUTH", Refused("the method of authentication cannot be chosen here")),
    option("requirepeer", "PGREQUIREPEER", Refused("the owner of a socket is not checked")),
    option("krbsrvname", "PGKRBSRVNAME", Refused(NO_GSS)),
    option("gsslib", "PGGSSLIB", Refused(NO_GSS)),
    option("gssdelegation", "PGGSSDELEGATION", Refused(NO_GSS)),
    option(
        "fallback_application_name",
        "",
        Refused("sessions have a name of their own; give application_name"),
    ),
    option("scram_client_key", "", Refused("a SCRAM key cannot be used in place of the password")),
    option("scram_server_key", "", Refused("a SCRAM key cannot be used in place of the password")),
    option("oauth_issuer", "", Refused(NO_OAUTH)),
    option("oauth_client_id", "", Refused(NO_OAUTH)),
    option("oauth_client_secret", "", Refused(NO_OAUTH)),
    option("oauth_scope", "", Refused(NO_OAUTH)),
    option("", "PGDATESTYLE", Refused(PINNED)),
    option("", "PGTZ", Refused(PINNED)),
    option("", "PGGEQO", Refused("give it in PGOPTIONS, as `-c geqo=…`")),
    option("", "PGLOCALEDIR", Refused("messages are in English")),
    option("", "PGOAUTHDEBUG", Refused(NO_OAUTH)),
];

/// Variables that say where files are. They are read, and stand for no option.
pub static PLACES: [&str; 2] = ["PGSERVICEFILE", "PGSYSCONFDIR"];

pub fn by_key(key: &str) -> Option<&'static ConnectionOption> {
    OPTIONS.iter().find(|option| option.key == key && !key.is_empty())
}

impl ConnectionOption {
    /// The value if it can be honoured. `named`: how the user knows the option, such as `PGSSLCRL`.
    pub fn check(&self, named: &str, value: &str) -> Result<()> {
        let refuse = |why: &str| {
            Err(Error::of(&NOT_HONOURED, format!("{named} is set and cannot be honoured: {why}; unset it")))
        };
        match self.fate {
            Honoured => Ok(()),
            Only(values) if values.iter().any(|v| v.eq_ignore_ascii_case(value)) => Ok(()),
            Only(values) => refuse(&format!("it may only be {}", values.join(" or "))),
            Refused(why) => refuse(why),
        }
    }
}

/// The table of the documentation.
#[must_use]
pub fn table() -> String {
    let mut out = "| option | variable | |\n|---|---|---|\n".to_owned();
    let shown = |name: &str| if name.is_empty() { "–".to_owned() } else { format!("`{name}`") };
    for option in OPTIONS {
        let fate = match option.fate {
            Honoured => "honoured".to_owned(),
            Only(values) => format!("only `{}`", values.join("`, `")),
            Refused(why) => format!("rejected: {why}"),
        };
        out += &format!("| {} | {} | {fate} |\n", shown(option.key), shown(option.variable));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regenerate the table with `gov-handoff config --table`.
    #[test]
    fn the_documentation_shows_every_option_as_it_is_declared() {
        let file = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md"));
        assert!(file.unwrap().contains(&table()), "docs/configuration.md is out of date");
    }

    #[test]
    fn an_option_and_a_variable_are_listed_once() {
        for (n, option) in OPTIONS.iter().enumerate() {
            for other in &OPTIONS[n + 1..] {
                assert!(option.key.is_empty() || option.key != other.key, "{}", option.key);
                assert!(
                    option.variable.is_empty() || option.variable != other.variable,
                    "{}",
                    option.variable
                );
            }
        }
    }
}
