//! A cluster's temporary directory, and the guarantee that neither the directory nor its server outlives this process.
//!
//! Statics are not dropped, tests get killed, and a parent-death signal is bound to one thread of the parent. So every
//! home has a guard: a small shell that reads from a pipe whose only writer is this process. However this process ends,
//! the pipe closes, and the guard stops the server and removes the directory. If the guard is killed as well, the next
//! home cleans up: a directory of ours whose owner lock is free has no owner.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::EmbeddedError;
use super::account::Account;

const PREFIX: &str = "gov-handoff-pg-";
const LOCK: &str = "owner.lock";

/// The path of a unix socket holds 104 bytes on macOS and 108 on Linux, including the terminating zero.
const LONGEST_SOCKET_PATH: usize = 103;

/// `$1` is the home. The process is the server only if its command line names our data directory: the number in an old
/// pid file may now belong to another process. QUIT is the immediate shutdown.
const GUARD: &str = r#"
read -r _ || :
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
is_ours() {
    if [ -d /proc/self ]; then tr '\0' ' ' <"/proc/$pid/cmdline"; else ps -o args= -p "$pid"; fi 2>/dev/null |
        grep -qF -- "$1/data"
}
if [ -n "$pid" ] && is_ours "$1"; then
    kill -QUIT "$pid"
    tries=0
    while [ "$tries" -lt 100 ] && is_ours "$1"; do sleep 0.05; tries=$((tries + 1)); done
    if is_ours "$1"; then kill -KILL "$pid"; fi
fi
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

/// Owns the directory. Dropping it stops a server that still runs in it, and removes the directory.
pub(super) struct Home {
    path: PathBuf,
    account: Account,
    guard: Child,
    /// Shows the cleanup of other processes that this home is in use.
    _lock: File,
}

impl Home {
    pub(super) fn new() -> Result<Self, EmbeddedError> {
        let path = make_directory(&std::env::temp_dir())?;
        let failed = |what: &str| EmbeddedError::io(format!("could not {what} {}", path.display()));
        let guard = guard(&path, Stdio::piped()).map_err(failed("guard"))?;
        sweep(&path);
        let lock = take_lock(&path).map_err(failed("lock"))?;
        let account = Account::for_owner_of(&path)?;
        let home = Self { path, account, guard, _lock: lock };
        home.furnish()?;
        Ok(home)
    }

    fn furnish(&self) -> Result<(), EmbeddedError> {
        let failed = |path: &Path| EmbeddedError::io(format!("could not make {}", path.display()));
        // The server's account must be able to enter the directory, whatever our umask is. initdb restricts the data
        // directory itself.
        fs::set_permissions(&self.path, Permissions::from_mode(0o755)).map_err(failed(&self.path))?;
        for directory in [self.data_dir(), self.socket_dir()] {
            fs::create_dir(&directory).map_err(failed(&directory))?;
            self.account.own(&directory)?;
        }
        let socket = self.socket_dir().join(".s.PGSQL.65535");
        if socket.as_os_str().len() > LONGEST_SOCKET_PATH {
            return Err(EmbeddedError::SocketPathTooLong { path: socket, limit: LONGEST_SOCKET_PATH });
        }
        Ok(())
    }

    pub(super) fn account(&self) -> Account {
        self.account
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.path.join("data")
    }

    /// One letter, because socket paths are short.
    pub(super) fn socket_dir(&self) -> PathBuf {
        self.path.join("s")
    }

    /// Beside the data directory, because that must be empty for initdb.
    pub(super) fn log_path(&self) -> PathBuf {
        self.path.join("server.log")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn make_directory(temp: &Path) -> Result<PathBuf, EmbeddedError> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = temp.join(format!("{PREFIX}{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            // An earlier process with the same process id left this directory.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(EmbeddedError::io(format!("could not make {}", path.display()))(error)),
            Ok(()) => return Ok(path),
        }
    }
}

/// The file is locked before it gets its name, so that no cleanup ever sees it unlocked.
fn take_lock(home: &Path) -> io::Result<File> {
    let unnamed = home.join("owner.lock.new");
    let file = File::create(&unnamed)?;
    file.lock()?;
    fs::rename(unnamed, home.join(LOCK))?;
    Ok(file)
}

fn guard(home: &Path, stdin: Stdio) -> io::Result<Child> {
    // The guard must not keep our output pipes open, or a reader of our output would wait for the guard, too.
    Command::new("sh")
        .args(["-c", GUARD, "gov-handoff-guard"])
        .arg(home)
        .current_dir("/")
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

/// Removes homes whose owner and guard both died. Best effort: a home that cannot be removed stays.
fn sweep(ours: &Path) {
    let Some((temp, owner)) = ours.parent().zip(ours.metadata().ok().map(|metadata| metadata.uid())) else {
        return;
    };
    for entry in fs::read_dir(temp).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_home = is_home_name(&entry.file_name().to_string_lossy()) && path != ours;
        if !is_home || !fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir() && found.uid() == owner)
        {
            continue;
        }
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            tracing::info!(directory = %path.display(), "removing what an earlier run left behind");
            // Without a pipe to wait for, the guard cleans up at once.
            let _ = guard(&path, Stdio::null()).and_then(|mut guard| guard.wait());
        }
    }
}

fn is_home_name(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    rest.is_some_and(|(pid, counter)| number(pid) && number(counter))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn only_names_we_give_are_swept() {
        assert!(is_home_name("gov-handoff-pg-12-0"));
        for other in ["gov-handoff-pg-12", "gov-handoff-pg-x-0", "gov-handoff-pg-12-0-keep", "pg-12-0"] {
            assert!(!is_home_name(other), "{other}");
        }
    }

    #[test]
    fn a_home_survives_the_sweep_of_another_and_goes_when_dropped() {
        let first = Home::new().expect("first home");
        let second = Home::new().expect("second home");
        assert!(first.data_dir().is_dir() && second.data_dir().is_dir());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && second.data_dir().is_dir());
    }

    #[test]
    fn an_abandoned_home_is_swept() {
        let abandoned = std::env::temp_dir().join(format!("{PREFIX}{}-999999", std::process::id()));
        fs::create_dir(&abandoned).expect("directory");
        File::create(abandoned.join(LOCK)).expect("lock nobody holds");
        let _home = Home::new().expect("home");
        // The cleanup of a parallel test may have removed it first, or may still be busy with it.
        let deadline = Instant::now() + Duration::from_secs(10);
        while abandoned.exists() {
            assert!(Instant::now() < deadline, "{} is still there", abandoned.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
