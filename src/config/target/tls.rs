//! Encryption, decided from the options as libpq decides it. An unknown or contradictory setting is rejected: a guess would be
//! a guess about encryption.

use super::files::{Privacy, check_private};
use super::merge::{Merged, Origin};
use crate::error::codes::{CERTIFICATE_FILE, NOT_HONOURED, URL_CONTRADICTION};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The TLS mode, named as in libpq and with its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    Disable,
    /// Without encryption; with it if the server rejects that.
    Allow,
    /// With encryption if the server offers it; without if it rejects that.
    Prefer,
    /// Encrypted; the certificate is not verified.
    Require,
    /// The chain is verified. Also used for `require` with a root certificate.
    VerifyCa,
    /// The chain and the host name are verified.
    VerifyFull,
}

/// One way to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    Plain,
    /// Encrypted if the server offers it.
    IfOffered,
    Encrypted,
}

impl Tls {
    /// The ways to try in turn. The next one is tried if the server rejects the one before.
    #[must_use]
    pub fn attempts(self) -> &'static [Encryption] {
        match self {
            Self::Disable => &[Encryption::Plain],
            Self::Allow => &[Encryption::Plain, Encryption::IfOffered],
            Self::Prefer => &[Encryption::IfOffered, Encryption::Plain],
            Self::Require | Self::VerifyCa | Self::VerifyFull => &[Encryption::Encrypted],
        }
    }
}

/// The mode and its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secured {
    pub tls: Tls,
    /// Trusted root certificates in PEM; there if the server is verified.
    pub root_cert: Option<PathBuf>,
    /// Our own certificate and its private key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// The files in which systems keep the roots that they trust.
const SYSTEM_ROOTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// `var` gives a variable that is not empty.
pub fn decide<'a>(merged: &Merged, var: impl Fn(&str) -> Option<&'a String>) -> Result<Secured> {
    let home = |name: &str| var("HOME").map(|home| Path::new(home).join(".postgresql").join(name));
    let (mode, root) = (merged.get("sslmode"), merged.get("sslrootcert"));
    let system = root == Some("system");
    // A root certificate at libpq's usual place is used as if it had been named.
    let root = match root {
        Some("system") => Some(system_roots(var("SSL_CERT_FILE"))?),
        Some(path) => Some(PathBuf::from(path)),
        None => home("root.crt").filter(|path| path.is_file()),
    };
    let tls = match mode {
        None if system => Tls::VerifyFull,
        None | Some("prefer") => Tls::Prefer,
        Some("allow") => Tls::Allow,
        Some("disable") => Tls::Disable,
        // If there is a root certificate, the chain is verified; libpq does the same.
        Some("require") if root.is_some() => Tls::VerifyCa,
        Some("require") => Tls::Require,
        Some("verify-ca") => Tls::VerifyCa,
        Some("verify-full") => Tls::VerifyFull,
        Some(other) => {
            return Err(Error::of(
                &NOT_HONOURED,
                format!(
                    "sslmode is `{other}`; it is one of disable, allow, prefer, require, verify-ca, verify-full"
                ),
            ));
        }
    };
    contradictions(merged, tls, system)?;
    let verified = matches!(tls, Tls::VerifyCa | Tls::VerifyFull);
    if verified && root.is_none() {
        return Err(Error::of(
            &CERTIFICATE_FILE,
            format!(
                "sslmode is {} and there is no root certificate to verify with; name a file in sslrootcert, take those of the \
                 system by sslrootcert=system, or put one at ~/.postgresql/root.crt",
                mode.unwrap_or("require")
            ),
        ));
    }
    let root_cert = root.filter(|_| verified);
    Ok(Secured { tls, root_cert, client: client(merged, tls, home)? })
}

fn contradictions(merged: &Merged, tls: Tls, system: bool) -> Result<()> {
    let refuse =
        |why: &str| Err(Error::of(&URL_CONTRADICTION, format!("the database URL contradicts itself: {why}")));
    if system && tls != Tls::VerifyFull {
        return refuse(
            "sslrootcert is system, which needs sslmode verify-full: anybody may get a certificate from those roots",
        );
    }
    // A connection without TLS that names it itself is obeyed, whatever root certificate the variables name.
    let ambient = merged.origin("sslrootcert") == Some(&Origin::Environment)
        && merged.origin("sslmode") != Some(&Origin::Environment);
    if tls == Tls::Disable && merged.get("sslrootcert").is_some() && !ambient {
        return refuse(
            "sslmode is disable and sslrootcert names a root to verify with; take one of them out",
        );
    }
    Ok(())
}

fn system_roots(named: Option<&String>) -> Result<PathBuf> {
    let files = named.into_iter().map(String::as_str).chain(SYSTEM_ROOTS);
    files.map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| {
        let told = format!(
            "sslrootcert is system and this machine has no file of trusted roots; install its package ca-certificates, or \
             name the file in SSL_CERT_FILE (looked into {})",
            SYSTEM_ROOTS.join(", ")
        );
        Error::of(&CERTIFICATE_FILE, told)
    })
}

/// Our certificate and key: those that are named, else those at libpq's usual place.
fn client(
    merged: &Merged,
    tls: Tls,
    home: impl Fn(&str) -> Option<PathBuf>,
) -> Result<Option<(PathBuf, PathBuf)>> {
    if tls == Tls::Disable || merged.get("sslcertmode") == Some("disable") {
        return Ok(None);
    }
    let named = |key: &str| merged.get(key).map(PathBuf::from);
    let wrong = |key: &str, path: &Path, why: &dyn std::fmt::Display| {
        Error::of(&CERTIFICATE_FILE, format!("{key} {}: {why}", path.display()))
    };
    let certificate = match named("sslcert") {
        Some(path) if path.is_file() => path,
        Some(path) => return Err(wrong("sslcert", &path, &"there is no such file")),
        None => match home("postgresql.crt").filter(|path| path.is_file()) {
            Some(path) => path,
            None if merged.get("sslkey").is_some() => {
                return Err(Error::of(
                    &CERTIFICATE_FILE,
                    "sslkey is given without sslcert; name the certificate too",
                ));
            }
            None => return Ok(None),
        },
    };
    let Some(key) = named("sslkey").or_else(|| home("postgresql.key")) else {
        return Err(Error::of(
            &CERTIFICATE_FILE,
            "sslcert is given without sslkey; name the private key too",
        ));
    };
    check_private(&key, Privacy::GroupOfRoot).map_err(|e| wrong("sslkey", &key, &e))?;
    Ok(Some((certificate, key)))
}
