//! The real daemon as a child process that can be killed.

use crate::cli::settings::Settings;
use crate::config::Config;
use crate::core::certificate::REHEARSAL;
use crate::core::mode::Intent;
use crate::error::{Error, Kind, Result};
use crate::store::Session;
use crate::store::role::Admin;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// How the daemon is started again with the same settings.
pub struct Recipe<'a> {
    pub config: &'a Config,
    pub settings: &'a Settings,
    pub mode: Intent,
}

pub struct Daemon {
    child: Child,
}

impl Recipe<'_> {
    /// Settings go by environment, not by arguments: a URL may hold a password.
    pub fn start(&self) -> Result<Daemon> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.arg("run").kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::null());
        let given = [
            ("GOV_HANDOFF_CONFIG", self.settings.config.as_ref().map(|p| p.display().to_string())),
            ("GOV_HANDOFF_DATABASE_URL", self.settings.database_url.clone()),
            ("GOV_HANDOFF_REPLICATION_URL", self.settings.replication_url.clone()),
        ];
        command.envs(given.into_iter().filter_map(|(name, value)| value.map(|v| (name, v))));
        command.env("GOV_HANDOFF_WORKER", REHEARSAL).env("GOV_HANDOFF_MODE", self.mode.name());
        command
            .env("GOV_HANDOFF_SLOT", &self.config.slot)
            .env("GOV_HANDOFF_PUBLICATION", &self.config.publication);
        // Short intervals, so that a verdict comes sooner than in production; and no row in the changelog.
        for (name, value) in [
            ("CREATE", "true"),
            ("LEASE_TTL", "2s"),
            ("POLL_INTERVAL", "100ms"),
            ("RECONCILE_INTERVAL", "1s"),
            ("CERTIFY_INTERVAL", "2s"),
            ("STREAM_RETRY", "1s"),
            ("AUDIT_INTERVAL", "24h"),
            ("LOG", self.settings.log.as_deref().unwrap_or("off")),
        ] {
            command.env(format!("GOV_HANDOFF_{name}"), value);
        }
        Ok(Daemon { child: command.spawn()? })
    }
}

impl Daemon {
    /// Waits until the daemon captures in the wanted mode. The error says why it does not.
    pub async fn captures(&mut self, store: &Session<Admin>, wanted: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        let pid = i64::from(self.child.id().unwrap_or(0));
        let mut said = "it has not taken its lease".to_owned();
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Err(Error::new(
                    Kind::Internal,
                    format!("the daemon ended with {status}; --log info shows why"),
                ));
            }
            if let Some(row) = store.client().query_opt(include_str!("sql/mode.sql"), &[&pid]).await? {
                let (mode, reason): (Option<String>, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
                if mode.as_deref() == Some(wanted) {
                    return Ok(());
                }
                said = reason.unwrap_or_else(|| "it is starting".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(Error::new(Kind::Replication, said))
    }

    /// Kills the daemon without warning, as an out-of-memory killer would.
    pub async fn kill(&mut self) {
        let _ = self.child.kill().await;
    }
}
