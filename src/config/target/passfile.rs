//! The password file: `PGPASSFILE`, the option `passfile`, or `~/.pgpass`. Each line is `host:port:database:user:password`.

use super::files::{Privacy, read_private};
use super::place::ServerPlace;
use crate::error::codes::PASSWORD_FILE;
use crate::error::{Error, Result};
use std::path::Path;

/// Where libpq looks for a server's socket if no host is given. Such a socket is called `localhost` in the file.
const SOCKETS: [&str; 2] = ["/tmp", "/var/run/postgresql"];

/// The lines of the file. `named`: the user named it, so it must be there.
pub fn read(path: &Path, named: bool) -> Result<Option<String>> {
    let wrong =
        |why: String| Error::of(&PASSWORD_FILE, format!("the password file {}: {why}", path.display()));
    // The usual way to say that there is none.
    if path == Path::new("/dev/null") {
        return Ok(None);
    }
    match read_private(path, Privacy::Owner) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !named => Ok(None),
        Err(e) => Err(wrong(e.to_string())),
    }
}

/// The password of the first line that fits.
pub fn password(lines: &str, place: &ServerPlace, database: &str, user: &str) -> Option<String> {
    let port = place.port.to_string();
    let mut hosts = vec![place.host.as_str()];
    if place.by_default || SOCKETS.contains(&place.host.as_str()) {
        hosts.push("localhost");
    }
    lines.lines().map(|line| line.trim_end_matches('\r')).filter(|line| !line.starts_with('#')).find_map(
        |line| {
            let (host, rest) = field(line)?;
            let (line_port, rest) = field(rest)?;
            let (line_database, rest) = field(rest)?;
            let (line_user, secret) = field(rest)?;
            let fits = |given: &str, wanted: &str| given == "*" || unescaped(given) == wanted;
            let all = hosts.iter().any(|wanted| fits(host, wanted))
                && fits(line_port, &port)
                && fits(line_database, database)
                && fits(line_user, user);
            all.then(|| unescaped(secret))
        },
    )
}

/// The text up to the next colon that no backslash escapes, and what follows it.
fn field(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            ':' if !escaped => return Some((&text[..at], &text[at + 1..])),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

/// A backslash stands for the character behind it.
fn unescaped(text: &str) -> String {
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(host: &str, port: u16) -> ServerPlace {
        ServerPlace { host: host.to_owned(), address: None, port, password: None, by_default: false }
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let lines = "# h:1:d:u:no\nh:2:d:u:port\n*:*:*:v:any\nh:1:d:u:mine\nh:1:d:u:later\nbroken\nlocalhost:*:*:*:socket\n";
        let of = |host: &str, port, user: &str| password(lines, &place(host, port), "d", user);
        assert_eq!(of("h", 1, "u").as_deref(), Some("mine"));
        assert_eq!(of("h", 2, "u").as_deref(), Some("port"));
        assert_eq!(of("x", 9, "v").as_deref(), Some("any"));
        assert_eq!(of("x", 9, "u"), None);
        assert_eq!(of("/var/run/postgresql", 5, "u").as_deref(), Some("socket"));
        let default = ServerPlace { by_default: true, ..place("127.0.0.1", 5) };
        assert_eq!(password(lines, &default, "d", "u").as_deref(), Some("socket"));
    }

    proptest! {
        #[test]
        fn any_text_comes_back_through_escapes(host in "[^\r\n#*]{1,9}", user in "[^\r\n*]{1,9}", secret in "[^\r\n]{0,9}") {
            let escape = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
            let line = format!("{}:5432:*:{}:{}", escape(&host), escape(&user), escape(&secret));
            let found = password(&line, &place(&host, 5432), "d", &user);
            prop_assert_eq!(found, Some(secret));
        }
    }
}
