//! A running private PostgreSQL.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use super::home::Home;
use super::postmaster::{Postmaster, StopMode};
use super::settings::url_part;
use super::{Binaries, ClusterOptions, EmbeddedError};

/// Below the range that Linux uses for outgoing connections, so that our port is still free when the server restarts.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How long a start is retried while the previous server or another process still holds a resource.
const HANDOVER: Duration = Duration::from_secs(15);

/// A PostgreSQL server of our own in a temporary directory; dropping it stops and removes it.
///
/// The superuser is `postgres`; the unix socket is trusted, and so is TCP unless a password was given.
pub struct Cluster {
    // Declared before the home, whose drop removes the directory.
    postmaster: Mutex<Option<Postmaster>>,
    home: Home,
    binaries: Binaries,
    port: u16,
    password: Option<String>,
}

impl Cluster {
    /// Finds binaries, makes a cluster and starts it. Blocks for about a second.
    pub fn start(options: ClusterOptions) -> Result<Self, EmbeddedError> {
        let home = Home::new()?;
        let binaries = reachable(Binaries::find(options.version)?, &home)?;
        initialise(&binaries, &home, &options)?;
        let (postmaster, port) = first_start(&binaries, &home)?;
        let password = options.password;
        Ok(Self { postmaster: Mutex::new(Some(postmaster)), home, binaries, port, password })
    }

    /// A backup: another cluster with a copy of the files of this one, which must be stopped. With `standby` the copy
    /// follows this cluster, without the slots, like a base backup. Start this cluster again before or after.
    pub fn copy(&self, standby: bool) -> Result<Self, EmbeddedError> {
        if self.lock().is_some() {
            return Err(EmbeddedError::AlreadyRunning);
        }
        let home = Home::new()?;
        let binaries = reachable(self.binaries.clone(), &home)?;
        run(Command::new("cp").arg("-Rp").arg(self.data_dir().join(".")).arg(home.data_dir()))?;
        let mut settings = format!("\nunix_socket_directories = '{}'\n", home.socket_dir().display());
        if standby {
            let slots = home.data_dir().join("pg_replslot");
            run(Command::new("find").arg(&slots).args(["-mindepth", "1", "-delete"]))?;
            write(&home.data_dir().join("standby.signal"), "", false)?;
            let primary = format!("host=127.0.0.1 port={} user=postgres", self.port);
            settings.push_str(&format!("primary_conninfo = '{primary}'\n"));
        }
        write(&home.data_dir().join("postgresql.conf"), &settings, true)?;
        let (postmaster, port) = first_start(&binaries, &home)?;
        let password = self.password.clone();
        Ok(Self { postmaster: Mutex::new(Some(postmaster)), home, binaries, port, password })
    }

    /// The TCP URL, with the password if there is one.
    pub fn url(&self, database: &str) -> String {
        let password =
            self.password.as_deref().map(|text| format!(":{}", url_part(text))).unwrap_or_default();
        format!("postgres://postgres{password}@127.0.0.1:{}/{}", self.port, url_part(database))
    }

    /// The URL of the unix socket, in the form that libpq and tokio-postgres both read.
    pub fn socket_url(&self, database: &str) -> String {
        let directory = url_part(&self.socket_dir().to_string_lossy());
        format!("postgres://postgres@/{}?host={directory}&port={}", url_part(database), self.port)
    }

    pub fn socket_dir(&self) -> PathBuf {
        self.home.socket_dir()
    }

    /// The port. It stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn log_path(&self) -> PathBuf {
        self.home.log_path()
    }

    pub fn data_dir(&self) -> PathBuf {
        self.home.data_dir()
    }

    pub fn bin_dir(&self) -> &Path {
        &self.binaries.bin_dir
    }

    /// As the server reports it, `16.13`.
    pub fn version(&self) -> &str {
        &self.binaries.version
    }

    /// The postmaster's process, `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.lock().as_mut().and_then(|postmaster| postmaster.is_running().then(|| postmaster.pid()))
    }

    /// Returns once the server is gone; does nothing if it already was.
    pub fn stop(&self, mode: StopMode) -> Result<(), EmbeddedError> {
        let mut postmaster = self.lock();
        if let Some(running) = postmaster.as_mut() {
            running.stop(mode, &self.home)?;
            *postmaster = None;
        }
        Ok(())
    }

    /// Starts a stopped or killed server on the same data and port.
    pub fn start_again(&self) -> Result<(), EmbeddedError> {
        let mut postmaster = self.lock();
        if postmaster.as_mut().is_some_and(Postmaster::is_running) {
            return Err(EmbeddedError::AlreadyRunning);
        }
        let deadline = Instant::now() + HANDOVER;
        loop {
            match Postmaster::start(&self.binaries.bin_dir, &self.home, self.port) {
                Ok(started) => {
                    *postmaster = Some(started);
                    return Ok(());
                }
                Err(error) if is_passing(&error) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub fn restart(&self, mode: StopMode) -> Result<(), EmbeddedError> {
        self.stop(mode)?;
        self.start_again()
    }

    /// Creates a database, as a copy of `template` if given. Nobody may be connected to the template.
    pub async fn create_database(&self, name: &str, template: Option<&str>) -> Result<(), EmbeddedError> {
        let template = template.map(|template| format!(" template {}", quoted(template))).unwrap_or_default();
        self.administer(&format!("create database {}{template}", quoted(name))).await
    }

    /// Drops a database and ends all sessions that use it.
    pub async fn drop_database(&self, name: &str) -> Result<(), EmbeddedError> {
        self.administer(&format!("drop database if exists {} with (force)", quoted(name))).await
    }

    async fn administer(&self, statement: &str) -> Result<(), EmbeddedError> {
        let failed = |source| EmbeddedError::Database { what: statement.to_owned(), source };
        let (client, connection) =
            tokio_postgres::connect(&self.socket_url("postgres"), NoTls).await.map_err(failed)?;
        let connection = tokio::spawn(connection);
        let outcome = client.batch_execute(statement).await.map_err(failed);
        drop(client);
        let _ = connection.await;
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, Option<Postmaster>> {
        self.postmaster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.stop(StopMode::Immediate) {
            tracing::warn!(%error, "the guard has to end the server");
        }
    }
}

/// Starts a server on a port that nobody uses.
fn first_start(binaries: &Binaries, home: &Home) -> Result<(Postmaster, u16), EmbeddedError> {
    let deadline = Instant::now() + HANDOVER;
    loop {
        let port = free_port()?;
        match Postmaster::start(&binaries.bin_dir, home, port) {
            Ok(postmaster) => return Ok((postmaster, port)),
            // Another process took the port after our check and before the server started.
            Err(error) if is_passing(&error) && Instant::now() < deadline => {}
            Err(error) => return Err(error),
        }
    }
}

/// Errors that pass by themselves: a port in use, or shared memory that the last backends of a killed server still
/// hold.
fn is_passing(error: &EmbeddedError) -> bool {
    let EmbeddedError::ExitedEarly { log, .. } = error else { return false };
    ["could not bind", "could not create any TCP/IP sockets", "is still in use"]
        .iter()
        .any(|sign| log.contains(sign))
}

/// The server's account may not be able to read a checkout, for example in root's home. It can read a copy in the
/// cluster's home.
fn reachable(binaries: Binaries, home: &Home) -> Result<Binaries, EmbeddedError> {
    let tried =
        home.account().command(binaries.bin_dir.join("postgres"), home.path()).arg("--version").output();
    if tried.is_ok_and(|output| output.status.success()) {
        return Ok(binaries);
    }
    let Some(install) = binaries.bin_dir.parent() else { return Ok(binaries) };
    let copy = home.path().join("install");
    run(Command::new("cp").arg("-R").arg("-p").arg(install).arg(&copy))?;
    Ok(Binaries { bin_dir: copy.join("bin"), ..binaries })
}

fn initialise(binaries: &Binaries, home: &Home, options: &ClusterOptions) -> Result<(), EmbeddedError> {
    let mut initdb = home.account().command(binaries.bin_dir.join("initdb"), home.path());
    initdb.arg("-D").arg(home.data_dir()).args(["-U", "postgres", "-A", "trust", "--no-sync"]);
    initdb.args(["--encoding", "UTF8", "--locale", "C", "--no-instructions"]);
    let password_file = home.path().join("password");
    if let Some(password) = &options.password {
        write(&password_file, "", false)?;
        fs::set_permissions(&password_file, Permissions::from_mode(0o600))
            .map_err(EmbeddedError::io("could not close the password file"))?;
        home.account().own(&password_file)?;
        write(&password_file, password, false)?;
        initdb.arg("--pwfile").arg(&password_file);
    }
    run(&mut initdb)?;
    let _ = fs::remove_file(&password_file);
    write(&home.data_dir().join("postgresql.conf"), &options.configuration(&home.socket_dir()), true)?;
    write(&home.data_dir().join("pg_hba.conf"), &options.host_based_authentication(), false)
}

fn write(path: &Path, text: &str, append: bool) -> Result<(), EmbeddedError> {
    let opened = OpenOptions::new().create(true).write(true).append(append).truncate(!append).open(path);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(EmbeddedError::io(format!("could not write {}", path.display())))
}

fn run(command: &mut Command) -> Result<(), EmbeddedError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(EmbeddedError::io(format!("could not run {name}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(EmbeddedError::Command { command: name, status: output.status.to_string(), output: said })
}

/// The search begins at a different port in each process, so that parallel test processes seldom collide.
fn free_port() -> Result<u16, EmbeddedError> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.end - PORTS.start;
    let start = u16::try_from(u64::from(std::process::id()) * 37 % u64::from(span)).unwrap_or(0);
    for _ in PORTS {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % span;
        let port = PORTS.start + (start + offset) % span;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    let none = std::io::Error::from(std::io::ErrorKind::AddrInUse);
    Err(EmbeddedError::io(format!("no free port from {} to {}", PORTS.start, PORTS.end))(none))
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}
