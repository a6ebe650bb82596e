//! What stands between us and the server, and what may run out.

use super::fix::{fix, setting};
use super::server::budget;
use super::{Looked, told, why};
use crate::config::Config;
use crate::core::doctor::forecast::{self, Shortage, Supplies};
use crate::core::doctor::{self, Check};
use crate::error::{Kind, Result};
use crate::store::{Session, connect, quote, session_settings};
use std::path::Path;
use std::process::Command;

impl<R> Session<R> {
    /// Asks for the settings again, in another statement than the one that was asked when the session opened.
    pub(super) async fn look_at_session(&self) -> Looked {
        let asked = format!("{} {}", connect::session_at(self.major()), connect::BOUNDED);
        let row = self.one(&session_settings::question(&asked), &[]).await?;
        let refused = session_settings::compare(&asked, row.try_get(0)?).err().map(|e| e.to_string());
        Ok(vec![doctor::session_settings(refused.as_deref())])
    }

    /// `other`: a second session of ours.
    pub(super) async fn look_at_pooler(&self, other: Option<&Self>) -> Looked {
        let other = match other {
            Some(other) => {
                Some(other.one(include_str!("../sql/doctor/backend.sql"), &[]).await?.try_get("pid")?)
            }
            None => None,
        };
        let row = self.one(include_str!("../sql/doctor/backend.sql"), &[]).await?;
        let asked = self.watched.target.places().first().map_or(0, |place| place.port);
        let (now, port) = (row.try_get("pid")?, row.try_get("port")?);
        Ok(vec![doctor::pooler(self.watched.pid, now, other, asked, port)])
    }

    pub(super) async fn look_at_idle_timeout(&self) -> Looked {
        let row = self.one(include_str!("../sql/doctor/idle_timeout.sql"), &[]).await?;
        let check = doctor::idle_slot_timeout(row.try_get("seconds")?);
        Ok(vec![check.fixed_by(setting("idle_replication_slot_timeout", "0"))])
    }

    pub(super) async fn look_at_disk(&self, config: &Config) -> Looked {
        const NAME: &str = "disk for the log";
        let row = self.one(include_str!("../sql/doctor/disk.sql"), &[&config.slot]).await?;
        let Some(free) = free(&row)? else {
            return Ok(vec![Check::cannot_tell(
                NAME,
                "the server is on another machine, or hides where its files are",
            )]);
        };
        let keep: i64 = row.try_get("keep_size")?;
        let most = if keep >= 0 { keep.min(budget(config)) } else { budget(config) };
        let retained = row.try_get::<_, Option<i64>>("retained")?.unwrap_or(0);
        let half = format!("{}MB", (free / 2) >> 20);
        let check = doctor::disk(free, (most - retained).max(0));
        Ok(vec![check.fixed_by(setting("max_slot_wal_keep_size", &half))])
    }

    pub(super) async fn look_at_executors(&self) -> Looked {
        let rows = self.rows(include_str!("../sql/doctor/executors.sql"), &[]).await?;
        if rows.is_empty() {
            return Ok(vec![Check::ok("executors", "every executor that may claim jobs is heard of")]);
        }
        rows.iter()
            .map(|row| {
                let id: String = row.try_get("executor_id")?;
                let places = [("executor", quote::literal(&id))];
                let places = places.each_ref().map(|(name, value)| (*name, value.trim()));
                let fix = fix(include_str!("../sql/doctor/fix_executor.sql"), &places);
                Ok(doctor::executor(&id, row.try_get("silent_for")?).fixed_by(fix))
            })
            .collect()
    }

    /// What runs out first. What this role may not see is named as such.
    pub(super) async fn look_ahead(&self, config: &Config) -> Result<Vec<Shortage>> {
        let mut s = Supplies { budget: budget(config), ..Supplies::default() };
        let row = self.one(include_str!("../sql/doctor/disk.sql"), &[&config.slot]).await?;
        (s.retained, s.safe_wal_size, s.free) =
            (row.try_get("retained")?, row.try_get("safe_wal_size")?, free(&row)?);
        let said = self.optional(include_str!("../sql/status/worker.sql"), &[&config.worker]).await;
        if let Some(row) = asked(&mut s, "log rate", said)?.flatten() {
            s.log_rate = row.try_get("slot_rate")?;
            s.budget = row.try_get::<_, Option<i64>>("slot_budget")?.unwrap_or(s.budget);
        }
        let said = self.one(include_str!("../sql/doctor/ids.sql"), &[]).await;
        if let Some(row) = asked(&mut s, "transaction ids", said)? {
            (s.xid_age, s.xid_rate) = (row.try_get("age")?, row.try_get("rate")?);
        }
        let said = self.one(include_str!("../sql/doctor/jobs.sql"), &[]).await;
        if let Some(row) = asked(&mut s, "jobs", said)? {
            (s.next_deadline, s.deferred) = (row.try_get("next_deadline")?, row.try_get("deferred")?);
            s.deferred_late = row.try_get("late")?;
        }
        let said = self.one(include_str!("../sql/doctor/kept.sql"), &[]).await;
        if let Some(row) = asked(&mut s, "retention", said)? {
            (s.kept, s.kept_since) = (row.try_get("kept")?, row.try_get("since")?);
        }
        Ok(forecast::rank(&s))
    }
}

/// An answer, or none: then the forecast says why. Only a lost connection ends the look.
fn asked<T>(supplies: &mut Supplies, what: &'static str, said: Result<T>) -> Result<Option<T>> {
    match said {
        Err(e) if e.kind == Kind::Connection => Err(e),
        Err(e) => {
            supplies.unknown.push((what, why(&e)));
            Ok(None)
        }
        Ok(said) => Ok(Some(said)),
    }
}

/// Free bytes of the disk that holds the server's files, if they are on this machine: the server's process is here, and
/// is this session's.
fn free(row: &tokio_postgres::Row) -> Result<Option<i64>> {
    let (directory, pid): (Option<String>, i32) = (row.try_get("directory")?, row.try_get("pid")?);
    let Some(directory) = directory else { return Ok(None) };
    let name = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if !name.contains("postgres") || !Path::new("/").is_dir() {
        return Ok(None);
    }
    // The directory itself may not be read, but its file system may be asked. No other way needs `unsafe` code.
    let asked = Command::new("df").args(["-Pk", "--", &directory]).output();
    let Ok(asked) = asked else { return Ok(None) };
    let text = String::from_utf8_lossy(&asked.stdout);
    let available = text.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)).map(str::to_owned);
    Ok(available.and_then(|kib| kib.parse::<i64>().ok()).map(|kib| kib.saturating_mul(1_024)))
}

/// As a check, told where it cannot be known.
pub(super) fn ahead(ranked: &Result<Vec<Shortage>>) -> Looked {
    match ranked {
        Ok(ranked) => Ok(vec![forecast::first_to_break(ranked)]),
        Err(e) => told("first to break", Ok(vec![Check::cannot_tell("first to break", e.to_string())])),
    }
}
