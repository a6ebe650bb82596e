//! The service file: named sets of options, in `PGSERVICEFILE` or `~/.pg_service.conf`, else in the system's `pg_service.conf`.

use super::options::by_key;
use super::parse::Word;
use crate::error::codes::SERVICE_FILE;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Where the packages of Debian and its kin put the system's file.
const SYSTEM: &str = "/etc/postgresql-common";

/// The options of a service. `var` gives a variable that is not empty.
pub fn options<'a>(service: &str, var: impl Fn(&str) -> Option<&'a String>) -> Result<Vec<Word>> {
    let named = var("PGSERVICEFILE").map(PathBuf::from);
    let own = named.clone().or_else(|| var("HOME").map(|home| Path::new(home).join(".pg_service.conf")));
    let system = PathBuf::from(var("PGSYSCONFDIR").map_or(SYSTEM, String::as_str)).join("pg_service.conf");
    let mut searched = Vec::new();
    for (path, must_exist) in own.map(|path| (path, named.is_some())).into_iter().chain([(system, false)]) {
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                if let Some(words) = section(service, &text, &path)? {
                    return Ok(words);
                }
                searched.push(path.display().to_string());
            }
            Err(e) if must_exist || e.kind() != std::io::ErrorKind::NotFound => {
                let told = format!("the service file {} cannot be read: {e}", path.display());
                return Err(Error::of(&SERVICE_FILE, told));
            }
            Err(_) => searched.push(format!("{} (which is not there)", path.display())),
        }
    }
    let told = format!("the service `{service}` is defined nowhere; looked into {}", searched.join(" and "));
    Err(Error::of(&SERVICE_FILE, told))
}

/// The options of the section `[service]`; the first of a name counts.
fn section(service: &str, text: &str, path: &Path) -> Result<Option<Vec<Word>>> {
    let (mut found, mut words) = (false, Vec::<Word>::new());
    for (n, line) in text.lines().enumerate().map(|(n, line)| (n + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            if found {
                break;
            }
            found = name.split(']').next() == Some(service);
            continue;
        }
        if !found {
            continue;
        }
        // The value may be a password, so it is not shown.
        let wrong = |why: &str| {
            Err(Error::of(&SERVICE_FILE, format!("the service file {} line {n}: {why}", path.display())))
        };
        match line.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
            None if line.starts_with("ldap") => {
                return wrong("a directory server cannot be asked for the service");
            }
            None => return wrong("expected an option, `=` and a value"),
            Some(("service", _)) => return wrong("a service cannot name another service"),
            Some((key, _)) if by_key(key).is_none() => {
                return wrong(&format!("`{key}` is not an option of a connection"));
            }
            Some((key, value)) => {
                if words.iter().all(|(known, _)| known != key) {
                    words.push((key.to_owned(), value.to_owned()));
                }
            }
        }
    }
    Ok(found.then_some(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# ours\n\n[other]\nhost=elsewhere\n[mine]\n  host=h\nport = 7\nhost=second\npassword=a=b c\n[mine]\nuser=u\n";

    fn of(service: &str, text: &str) -> Result<Option<Vec<Word>>> {
        section(service, text, Path::new("f"))
    }

    #[test]
    fn the_first_section_of_the_name_counts_and_in_it_the_first_of_each_option() {
        let words = of("mine", TEXT).unwrap().unwrap();
        let expected =
            [("host", "h"), ("port", "7"), ("password", "a=b c")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(words, expected);
        assert_eq!(of("none", TEXT).unwrap(), None);
    }

    #[test]
    fn a_wrong_line_is_named_by_number_and_without_its_value() {
        for (line, says) in [
            ("hunter2", "expected an option"),
            ("hosts=hunter2", "`hosts` is not an option"),
            ("service=hunter2", "another service"),
            ("ldap://hunter2", "directory server"),
        ] {
            let e = of("a", &format!("[a]\nhost=h\n{line}\n")).unwrap_err().to_string();
            assert!(e.contains("line 3") && e.contains(says) && !e.contains("hunter2"), "{e}");
        }
        // The lines of another service are none of our business.
        assert!(of("a", "[b]\nnonsense\n[a]\nhost=h\n").unwrap().is_some());
    }
}
