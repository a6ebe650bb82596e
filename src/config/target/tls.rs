//! Which TLS is asked for, from the connection string and the usual variables together. What is unknown or contradicts itself is
//! refused: a guess would be a guess about encryption.

use crate::error::{Error, Result};

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

/// What one place says of TLS, as it is written there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    pub mode: Option<String>,
    pub root: Option<String>,
}

/// Decides from the place that wins and the place that fills what it leaves open. `bound`: the session must be bound to its TLS
/// channel. `string_is_below`: the connection string is the place that fills.
pub fn decide(first: Wish, then: Wish, bound: bool, string_is_below: bool) -> Result<(Tls, Option<String>)> {
    // A connection string that does without TLS is meant, whatever root the variables name for others.
    let ambient = !string_is_below && first.mode.is_some() && first.root.is_none();
    let (mode, root) = (first.mode.or(then.mode), first.root.or(then.root));
    let refuse = |why: &str| Err(Error::config(format!("the database URL contradicts itself: {why}")));
    let tls = match mode.as_deref() {
        // Bound to a channel that need not be there: only one meaning is possible.
        None if bound => Tls::Require,
        None => Tls::Prefer,
        Some("prefer" | "allow") => Tls::Prefer,
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
