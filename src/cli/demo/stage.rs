//! What the demo runs on: a private server, and this very binary's own commands as child processes.

use crate::embedded::{Cluster, ClusterOptions};
use crate::error::{Context, Error, Kind, Result};
use std::fs::File;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls};

pub const DATABASE: &str = "demo";
/// What `run` calls its slot in that database by default.
pub const SLOT: &str = "gov_handoff_demo";

/// Three settings differ from the product's defaults: waiting fifteen seconds for a lease to expire is too long in a demo.
const SETTINGS: [(&str, &str); 3] = [
    ("GOV_HANDOFF_LEASE_TTL", "2s"),
    ("GOV_HANDOFF_STREAM_RETRY", "500ms"),
    ("GOV_HANDOFF_RECONCILE_INTERVAL", "2s"),
];

pub struct Stage {
    cluster: Arc<Cluster>,
    binary: PathBuf,
    daemon: Option<Child>,
    /// Ends the daemon should this process be killed; it waits on a pipe that only we hold open.
    watch: Option<Child>,
}

impl Stage {
    pub async fn start() -> Result<Self> {
        // The lag that is shown is measured between commits, by the server.
        let settings = vec![("track_commit_timestamp".to_owned(), "on".to_owned())];
        let options = ClusterOptions { settings, ..ClusterOptions::default() };
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(options))
            .await
            .map_err(|e| Error::new(Kind::Internal, e.to_string()))?
            .map_err(embedded)?;
        cluster.create_database(DATABASE, None).await.map_err(embedded)?;
        let binary = std::env::current_exe().context("finding this program")?;
        Ok(Self { cluster: Arc::new(cluster), binary, daemon: None, watch: None })
    }

    pub fn version(&self) -> &str {
        self.cluster.version()
    }

    pub fn url(&self) -> String {
        self.cluster.socket_url(DATABASE)
    }

    /// Runs one of our own commands to its end.
    pub async fn command(&self, arguments: &[&str]) -> Result<()> {
        let output = self.own(arguments).output().await?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::new(Kind::Internal, format!("gov-handoff {}: {said}", arguments.join(" "))))
    }

    pub fn start_daemon(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let daemon = self.own(&["run"]).stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn()?;
        let pid = daemon.id().unwrap_or(0);
        let mut watch = Command::new("sh");
        watch.args(["-c", "cat >/dev/null; kill -9 \"$0\"", &pid.to_string()]).process_group(0);
        watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.watch = watch.kill_on_drop(true).spawn().ok();
        self.daemon = Some(daemon);
        Ok(())
    }

    /// `kill -9`, as abrupt as it gets.
    pub async fn kill_daemon(&mut self) -> Result<()> {
        if let Some(mut watch) = self.watch.take() {
            let _ = watch.kill().await;
        }
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().await?;
        }
        Ok(())
    }

    pub fn daemon_pid(&self) -> Option<u32> {
        self.daemon.as_ref().and_then(Child::id)
    }

    /// How the daemon ended, if it did so by itself.
    pub fn daemon_ended(&mut self) -> Option<ExitStatus> {
        self.daemon.as_mut().and_then(|d| d.try_wait().ok().flatten())
    }

    /// The end of what the daemon wrote to its log.
    pub fn daemon_said(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Ends the daemon and removes the server with everything it wrote.
    pub async fn clear(mut self) -> Result<()> {
        self.kill_daemon().await?;
        let cluster = self.cluster;
        tokio::task::spawn_blocking(move || drop(cluster))
            .await
            .map_err(|e| Error::new(Kind::Internal, e.to_string()))
    }

    /// In the cluster's own directory, which goes with it.
    fn log(&self) -> PathBuf {
        self.cluster.log_path().with_file_name("daemon.log")
    }

    /// Nothing of the caller's environment or directory may reach it: the demo is the same everywhere. It is in a
    /// process group of its own, so that a Ctrl-C meant for us does not end it before the verdict.
    fn own(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env_clear().env("DATABASE_URL", self.url()).envs(SETTINGS);
        command.current_dir(self.cluster.socket_dir()).stdin(Stdio::null()).process_group(0);
        command
    }
}

/// A session whose task ends with it.
pub async fn connect(url: &str, name: &str) -> Result<Client> {
    let mut config: tokio_postgres::Config = url.parse()?;
    let (client, connection) = config.application_name(name).connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn embedded(error: crate::embedded::EmbeddedError) -> Error {
    use std::error::Error as _;
    let cause = error.source().map(|s| format!(": {s}")).unwrap_or_default();
    Error::new(Kind::Connection, format!("{error}{cause}"))
}
