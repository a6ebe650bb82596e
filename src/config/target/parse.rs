//! The one parser of connection strings: a URL, or libpq's `key = value` form, into keys and values. The driver gets a
//! string that this module wrote, so that the driver and this module cannot read the same string differently.

use super::options::by_key;
use crate::error::codes::{URL_CONTRADICTION, URL_UNREADABLE};
use crate::error::{Error, Result};

/// A key and its value, decoded.
pub type Word = (String, String);

/// Options that may be given only once, because a second, different value would be a contradiction.
const SAID_ONCE: [&str; 3] = ["sslmode", "sslrootcert", "channel_binding"];

/// The options of a connection string, each once. Several hosts or ports are one value, with commas between.
pub fn parse(text: &str) -> Result<Vec<Word>> {
    let words = match ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme)) {
        Some(rest) => {
            refuse_split_password(rest)?;
            url_words(rest)?
        }
        None => plain_words(text)?,
    };
    said_once(&words)?;
    let mut parsed: Vec<Word> = Vec::with_capacity(words.len());
    for (key, value) in words {
        if by_key(&key).is_none() {
            return Err(unknown(&key, text));
        }
        match parsed.iter_mut().find(|(known, _)| *known == key) {
            // The last one counts, as in libpq. Hosts and ports of a URL stand side by side.
            Some((_, known)) if key == "host" || key == "port" => *known = format!("{known},{value}"),
            Some((_, known)) => *known = value,
            None => parsed.push((key, value)),
        }
    }
    Ok(parsed)
}

/// User and password up to the first `@`, then hosts with ports, the database, and options after the next `?`.
fn url_words(rest: &str) -> Result<Vec<Word>> {
    let mut words = Vec::new();
    let place = match rest.split_once('@') {
        Some((credentials, place)) => {
            let (user, password) = match credentials.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (credentials, None),
            };
            words.push(word("user", user)?);
            if let Some(password) = password {
                words.push(word("password", password)?);
            }
            place
        }
        None => rest,
    };
    let (place, query) = place.split_once('?').unwrap_or((place, ""));
    let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
    if !hosts.is_empty() {
        let places = hosts.split(',').map(split_port).collect::<Result<Vec<_>>>()?;
        // A URL without a port leaves the port open.
        let ported = places.iter().any(|(_, port)| port.is_some());
        for (host, port) in places {
            words.push(word("host", host)?);
            if ported {
                words.push(word("port", port.unwrap_or_default())?);
            }
        }
    }
    if !database.is_empty() {
        words.push(word("dbname", database)?);
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| unreadable("an option without a value"))?;
        let key = decoded(key)?;
        if key == "host" {
            for host in value.split(',') {
                words.push(word("host", host)?);
            }
        } else {
            words.push(word(&key, value)?);
        }
    }
    Ok(words)
}

/// A host in brackets contains colons itself.
fn split_port(host: &str) -> Result<(&str, Option<&str>)> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']').ok_or_else(|| unreadable("a [ without a ]"))?;
            match after.strip_prefix(':') {
                None if !after.is_empty() => return Err(unreadable("something between ] and the port")),
                port => (name, port),
            }
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    // No host name contains these characters. An `@` in an option of a URL without a user makes the options part of the
    // host.
    if name.contains(['&', '=', '?']) {
        return Err(unreadable("the host holds an option; percent-encode an @ as %40"));
    }
    Ok((name, port))
}

fn word(key: &str, value: &str) -> Result<Word> {
    Ok((key.to_owned(), decoded(value)?))
}

/// Decodes percent escapes. A percent sign that begins no escape is kept.
fn decoded(text: &str) -> Result<String> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let hex = (byte == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let hex = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let code =
            hex.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        out.push(code.unwrap_or(byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    if out.contains(&0) {
        return Err(unreadable("%00 stands for no character"));
    }
    String::from_utf8(out).map_err(|_| unreadable("a value is not valid UTF-8 after decoding"))
}

/// `key = value` as libpq reads it: blanks around the sign are allowed, a value with blanks is quoted, and a backslash
/// escapes any character.
fn plain_words(text: &str) -> Result<Vec<Word>> {
    let (mut words, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let Some(after) = after.trim_start().strip_prefix('=') else {
            return Err(unreadable("a word without ="));
        };
        let (value, after) = plain_value(after.trim_start())?;
        if value.contains('\0') {
            return Err(unreadable("a zero byte stands for no character"));
        }
        if key == "host" {
            words.extend(value.split(',').map(|host| ("host".to_owned(), host.to_owned())));
        } else {
            words.push((key.to_owned(), value));
        }
        rest = after.trim_start();
    }
    Ok(words)
}

/// The value at the beginning of `text`, and the rest.
fn plain_value(text: &str) -> Result<(String, &str)> {
    let (quoted, text) = text.strip_prefix('\'').map_or((false, text), |rest| (true, rest));
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if c.is_whitespace() && !quoted => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted { Err(unreadable("a quote that is not closed")) } else { Ok((value, "")) }
}

fn said_once(words: &[Word]) -> Result<()> {
    for once in SAID_ONCE {
        let mut said = words.iter().filter(|(key, _)| key == once).map(|(_, value)| value);
        if let Some(first) = said.next()
            && said.any(|again| again != first)
        {
            return Err(Error::of(
                &URL_CONTRADICTION,
                format!(
                    "the database URL contradicts itself: {once} is given twice, with different values; take one of them out"
                ),
            ));
        }
    }
    Ok(())
}

/// Names the key, unless it may be a piece of a password that was not encoded.
fn unknown(key: &str, text: &str) -> Error {
    if is_option_of_url(text) {
        unreadable(&format!("unknown option {key}"))
    } else {
        unreadable("an option that is unknown")
    }
}

fn unreadable(cause: &str) -> Error {
    Error::of(
        &URL_UNREADABLE,
        format!(
            "the database URL cannot be read ({cause}); expected postgres://user:password@host:5432/database, special \
         characters of the password percent-encoded"
        ),
    )
}

/// Whether the text after the question mark can only be options. If a password contains a question mark, an `@` follows
/// it.
fn is_option_of_url(text: &str) -> bool {
    let query = text.split_once("://").and_then(|(_, rest)| rest.split_once('?')).map(|(_, query)| query);
    query.is_some_and(|query| !query.contains('@') && !query.contains("password="))
}

/// User and password of a URL end at the first `@`. If the password contains an `@`, the rest of it would become part
/// of the host or the database, which are shown. In an option's value an `@` does no harm, but a password may also
/// contain a question mark before it.
fn refuse_split_password(rest: &str) -> Result<()> {
    let (_, after) = rest.split_once('@').unwrap_or_default();
    let (place, _) = after.split_once('?').unwrap_or((after, ""));
    if place.contains('@') {
        return Err(Error::of(
            &URL_UNREADABLE,
            "the database URL has an @ too many, most likely in the password; percent-encode special characters of \
             the password (@ is %40)",
        ));
    }
    Ok(())
}
