//! Who may ask: the name in a request, and the token.
//!
//! Without a token only this machine can reach the page. A website in a browser on this machine could still ask for it under a name
//! of its own that it makes point here (DNS rebinding), and read the answer. So a request must name an address, `localhost`, or a
//! name that the operator listed. With a token no name matters: a foreign website does not have it.

use crate::config::Config;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderMap, Uri};
use sha2::{Digest, Sha256};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What a request may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    All,
    /// Probes only, and only whether they pass: the token is missing or wrong.
    Probes,
    /// Nothing: the name in the request is not one of ours.
    Nothing,
}

#[derive(Debug, Clone)]
pub struct Guard {
    token: Option<[u8; 32]>,
    hosts: Vec<String>,
}

impl Guard {
    pub fn of(config: &Config) -> Self {
        let token = config.listen_token.as_ref().map(|token| digest(token.0.as_bytes()));
        Self { token, hosts: config.listen_hosts.clone() }
    }

    pub fn judge(&self, uri: &Uri, headers: &HeaderMap) -> Admission {
        match &self.token {
            Some(token) if shown(headers).is_some_and(|word| same(token, &digest(&word))) => Admission::All,
            Some(_) => Admission::Probes,
            None if self.is_ours(uri, headers) => Admission::All,
            None => Admission::Nothing,
        }
    }

    /// Whether every name in the request is one of ours. A request without a name does not come from a browser.
    fn is_ours(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let named = headers.get_all(HOST).iter().map(|value| value.to_str().unwrap_or_default());
        named.chain(uri.authority().map(|a| a.as_str())).all(|name| self.is_known(name))
    }

    fn is_known(&self, authority: &str) -> bool {
        let name = without_port(authority).to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        name == "localhost"
            || name.ends_with(".localhost")
            || name.parse::<Ipv4Addr>().is_ok()
            || bracketed.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
            || self.hosts.iter().any(|known| known == name)
    }
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => authority,
    }
}

/// The secret that a request shows: as a bearer, or as the password of the form that a browser offers by itself. There is no cookie,
/// so no other website can make a browser send it.
fn shown(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, word) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(word.trim().as_bytes().to_vec());
    }
    if scheme.eq_ignore_ascii_case("basic") {
        let pair = from_base64(word.trim())?;
        let colon = pair.iter().position(|b| *b == b':')?;
        return Some(pair[colon + 1..].to_vec());
    }
    None
}

fn digest(word: &[u8]) -> [u8; 32] {
    Sha256::digest(word).into()
}

/// Compares in a time that does not depend on where two digests differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |different, (x, y)| different | (x ^ y)) == 0
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|known| *known == byte)?;
        bits = (bits << 6) | u32::try_from(value).ok()?;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from((bits >> held) & 0xff).ok()?);
        }
    }
    Some(out)
}

/// For the hashes of the content security policy.
pub fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0_u32, |word, byte| (word << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let filled = place <= chunk.len();
            let index = usize::try_from((word >> (18 - 6 * place)) & 63).unwrap_or_default();
            out.push(if filled { char::from(ALPHABET[index]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<axum::http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn without_a_token_only_names_that_nobody_else_can_own_are_answered() {
        let guard = Guard { token: None, hosts: vec!["gov.example.org".to_owned()] };
        let judged = |hosts: &[&str]| {
            let hosts: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            guard.judge(&Uri::from_static("/"), &request(&hosts))
        };
        for fine in
            ["127.0.0.1:9642", "localhost", "LOCALHOST.:9642", "[::1]:9642", "a.localhost", "gov.example.org"]
        {
            assert_eq!(judged(&[fine]), Admission::All, "{fine}");
        }
        assert_eq!(judged(&[]), Admission::All);
        for foreign in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "",
            "[::1",
            "2130706433x",
            "gov.example.org.evil",
        ] {
            assert_eq!(judged(&[foreign]), Admission::Nothing, "{foreign}");
        }
        assert_eq!(judged(&["localhost", "evil.example"]), Admission::Nothing);
        let absolute = Uri::from_static("http://evil.example/api/status");
        assert_eq!(guard.judge(&absolute, &request(&[("host", "localhost")])), Admission::Nothing);
    }

    #[test]
    fn with_a_token_nothing_but_the_token_counts() {
        let guard = Guard { token: Some(digest(b"0123456789abcdef")), hosts: vec![] };
        let judged = |value: &str| {
            guard.judge(&Uri::from_static("/"), &request(&[("authorization", value), ("host", "x.example")]))
        };
        assert_eq!(judged("Bearer 0123456789abcdef"), Admission::All);
        let basic = format!("basic {}", to_base64(b"anybody:0123456789abcdef"));
        assert_eq!(judged(&basic), Admission::All);
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer ",
            "Bearer",
            "Basic !!!",
            "Basic",
            "Digest 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert_eq!(judged(wrong), Admission::Probes, "{wrong}");
        }
        assert_eq!(
            guard.judge(&Uri::from_static("/"), &request(&[("cookie", "token=0123456789abcdef")])),
            Admission::Probes
        );
    }

    #[test]
    fn base64_there_and_back() {
        for (plain, coded) in [
            ("", ""),
            ("a", "YQ=="),
            ("ab", "YWI="),
            ("abc", "YWJj"),
            ("any carnal pleas", "YW55IGNhcm5hbCBwbGVhcw=="),
        ] {
            assert_eq!(to_base64(plain.as_bytes()), coded);
            assert_eq!(from_base64(coded).unwrap(), plain.as_bytes());
        }
        assert_eq!(from_base64("a*b"), None);
    }
}
