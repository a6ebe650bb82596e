//! The TLS mode, from the connection string and the usual variables together. An unknown or contradictory setting is
//! rejected: a guess would be a guess about encryption.

use crate::error::{Error, Result};

/// The TLS mode, named as in libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    Disable,
    Prefer,
    /// Encrypted; the certificate is not verified.
    Require,
    /// The chain and the host name are verified. Also used for `verify-ca`, and for `require` with a root certificate.
    VerifyFull,
}

/// The TLS settings of one place, as written there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    pub mode: Option<String>,
    pub root: Option<String>,
}

/// Decides from the place with priority and the place that fills what the first leaves open. `bound`: the session must
/// be bound to its TLS channel. `string_is_below`: the connection string is the place that fills.
pub fn decide(first: Wish, then: Wish, bound: bool, string_is_below: bool) -> Result<(Tls, Option<String>)> {
    // A connection string without TLS is obeyed, whatever root certificate the variables name.
    let ambient = !string_is_below && first.mode.is_some() && first.root.is_none();
    let (mode, root) = (first.mode.or(then.mode), first.root.or(then.root));
    let refuse = |why: &str| Err(Error::config(format!("the database URL contradicts itself: {why}")));
    let tls = match mode.as_deref() {
        // The session must be bound to a TLS channel, so TLS is required.
        None if bound => Tls::Require,
        None => Tls::Prefer,
        Some("prefer" | "allow") => Tls::Prefer,
        Some("disable") => Tls::Disable,
        // If a root certificate is named, the certificate is verified; libpq does the same.
        Some("require") if root.is_some() => Tls::VerifyFull,
        Some("require") => Tls::Require,
        Some("verify-full" | "verify-ca") => Tls::VerifyFull,
        Some(other) => {
            return Err(Error::config(format!(
                "sslmode is `{other}`; it is one of disable, prefer, require, verify-ca, verify-full"
            )));
        }
    };
    if tls == Tls::Disable && root.is_some() && !ambient {
        return refuse(
            "sslmode is disable and sslrootcert names a root to verify with; take one of them out",
        );
    }
    if bound && !matches!(tls, Tls::Require | Tls::VerifyFull) {
        return refuse("channel_binding is require, which needs sslmode require or verify-full");
    }
    Ok((tls, root))
}
