//! Checks of what waits for an operator: transactions that stay open, inactive types, dead letters, findings.

use super::Looked;
use super::fix::fix;
use crate::config::Config;
use crate::core::doctor::{self, Check, Fix};
use crate::core::finding::Severity;
use crate::store::{Session, quote};

/// Ends a prepared transaction. Only a session of its database can do so.
fn rollback(gid: &str) -> Fix {
    fix(include_str!("../sql/doctor/fix_prepared.sql"), &[("gid", quote::literal(gid).trim())])
}

impl<R> Session<R> {
    /// A transaction that is open for five certifying passes is not just slow.
    pub(super) async fn look_at_frontier(&self, config: &Config) -> Looked {
        let (holder, limit) = (self.frontier_holder_since().await?, 5 * config.certify_interval);
        let fix = holder.as_ref().map(|holder| match (&holder.prepared, holder.pid) {
            (Some(gid), _) => rollback(gid),
            (None, pid) => {
                let (pid, limit) = (pid.unwrap_or_default().to_string(), format!("{} ms", limit.as_millis()));
                let limit = quote::literal(&limit);
                let places = [("pid", pid.as_str()), ("limit", limit.trim())];
                fix(include_str!("../sql/doctor/fix_terminate.sql"), &places)
            }
        });
        let check = doctor::frontier(holder.map(|h| (h.who, h.open)), limit.as_secs_f64());
        Ok(vec![check.fixed_by(fix.unwrap_or_default())])
    }

    pub(super) async fn look_at_prepared(&self) -> Looked {
        const NAME: &str = "prepared transactions";
        let rows = self.rows(include_str!("../sql/doctor/prepared.sql"), &[]).await?;
        let mut checks = Vec::new();
        for row in &rows {
            let (gid, owner, database): (String, String, String) =
                (row.try_get("gid")?, row.try_get("owner")?, row.try_get("database")?);
            let open: f64 = row.try_get("open_seconds")?;
            let found = format!("'{gid}' of {owner} in {database}, prepared {open:.0} s ago");
            let advice = "commit or roll it back; it holds certificates, vacuum and the slot back";
            checks.push(Check::warn(NAME, found, advice).fixed_by(rollback(&gid)));
        }
        if checks.is_empty() {
            checks.push(Check::ok(NAME, "none"));
        }
        Ok(checks)
    }

    pub(super) async fn look_at_types(&self) -> Looked {
        const NAME: &str = "event types";
        let types = self.event_types().await?;
        let active = types.iter().filter(|t| t.active).count();
        let mut checks: Vec<_> = types
            .iter()
            .filter(|t| !t.active && t.waiting > 0)
            .map(|t| {
                let advice = format!("hand them off with `gov-handoff types activate {}`", t.event_type);
                let found = format!("{} is inactive, {} captured", t.event_type, t.waiting);
                let kind = quote::literal(&t.event_type);
                let fix = fix(include_str!("../sql/doctor/fix_type.sql"), &[("type", kind.trim())]);
                Check::warn(NAME, found, advice).fixed_by(fix)
            })
            .collect();
        if checks.is_empty() {
            checks.push(Check::ok(NAME, format!("{active} of {} active, none captures", types.len())));
        }
        Ok(checks)
    }

    pub(super) async fn look_at_dead_letters(&self) -> Looked {
        const NAME: &str = "dead letters";
        let n: i64 = self.one(include_str!("../sql/doctor/dead_letters.sql"), &[]).await?.try_get(0)?;
        Ok(vec![if n == 0 {
            Check::ok(NAME, "none is open")
        } else {
            let advice = "see v_governance_dead_letter_open for each reason";
            Check::warn(NAME, format!("{n} open"), advice)
                .fixed_by(Fix::command("gov-handoff dlq replay --all"))
        }])
    }

    pub(super) async fn look_at_findings(&self) -> Looked {
        const NAME: &str = "findings";
        let open: Vec<_> = self
            .open_findings()
            .await?
            .into_iter()
            .filter(|f| Severity::of(&f.severity) > Severity::Info)
            .collect();
        let advice = "see its detail in system_issues; it is resolved when its cause ends";
        let check = |f: &crate::store::status::FindingStatus| {
            let found = format!("{} ({}, x{})", f.key, f.severity, f.occurrences);
            let key = quote::literal(&f.key);
            let fix = fix(include_str!("../sql/doctor/fix_finding.sql"), &[("key", key.trim())]);
            if Severity::of(&f.severity) == Severity::Warning {
                Check::warn(NAME, found, advice).fixed_by(fix)
            } else {
                Check::fail(NAME, found, advice).fixed_by(fix)
            }
        };
        Ok(if open.is_empty() {
            vec![Check::ok(NAME, "none is open")]
        } else {
            open.iter().map(check).collect()
        })
    }
}
