//! `doctor`: checks the installation and says what to do. Exit code 1 when a check failed.

use crate::cli::output;
use crate::config::Config;
use crate::core::doctor::forecast::{self, Shortage};
use crate::core::doctor::{self, Check, CheckState, Fix};
use crate::core::worker_state::WorkerState;
use crate::error::codes::SESSION_SETTINGS;
use crate::error::{Kind, Result};
use crate::store::doctor::Examined;
use crate::store::role::Reader;
use crate::store::worker::FamilyMember;
use crate::store::{Session, connect};
use crate::workers;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

#[derive(Args)]
pub struct DoctorCommand {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Print the SQL that puts things right, to be read and piped into psql
    #[arg(long, conflicts_with = "json")]
    pub fix_sql: bool,
    /// Print every check and why it matters, as a table in Markdown
    #[arg(long, conflicts_with_all = ["json", "fix_sql"])]
    pub table: bool,
}

pub async fn run(config: &Config, command: &DoctorCommand) -> Result<ExitCode> {
    if command.table {
        output::part(doctor::table());
        return Ok(ExitCode::SUCCESS);
    }
    let (checks, ahead) = examined(config).await?;
    let worst = checks.iter().map(|c| c.verdict).max().unwrap_or(CheckState::Ok);
    if command.json {
        output::json(&json!({ "verdict": worst, "checks": checks, "first_to_break": ahead }))?;
    } else if command.fix_sql {
        show_fixes(&checks);
    } else {
        show(&checks, &ahead);
    }
    Ok(ExitCode::from(u8::from(worst == CheckState::Fail)))
}

async fn examined(config: &Config) -> Result<(Vec<Check>, Vec<Shortage>)> {
    let open = async || connect::open(&config.target, "gov-handoff doctor").await;
    let store = match open().await {
        Ok(store) => store.into_role::<Reader>(),
        // No session of ours works there, so nothing else can be looked at. That is an answer, and not a failure to ask.
        Err(e) if e.stable_code() == &SESSION_SETTINGS => {
            return Ok((vec![doctor::session_settings(Some(&e.to_string()))], vec![]));
        }
        Err(e) => return Err(e),
    };
    let other = open().await.ok().map(Session::into_role::<Reader>);
    let replication = connect::open(&config.replication, "gov-handoff doctor").await.map(Session::into_role);
    let Examined { mut checks, ahead, installed } =
        store.examine(config, replication, other.as_ref()).await?;
    if installed {
        checks.extend(family(&store, config).await?);
    }
    Ok((checks, ahead))
}

/// The checks about the workers, which the store does not know.
async fn family(store: &Session<Reader>, config: &Config) -> Result<[Check; 2]> {
    let states = store.family().await.map(|mut members| {
        workers::complete(config, &mut members);
        members.retain(|m| workers::is_asked_for(config, &m.worker));
        let mut fix = Fix::default();
        for member in members.iter().filter(|m| m.state == WorkerState::Paused) {
            fix.sql.extend(Session::<Reader>::resumed_by(&member.worker).sql);
        }
        let idle = |m: &FamilyMember| !matches!(m.state, WorkerState::Running | WorkerState::Paused);
        fix.command = members.iter().any(idle).then(|| "gov-handoff run".to_owned());
        let state = |m: FamilyMember| (m.worker, m.state, m.paused_by);
        doctor::workers(&members.into_iter().map(state).collect::<Vec<_>>()).fixed_by(fix)
    });
    let (used, most) = store.connections().await?;
    let states = match states {
        Err(e) if e.kind == Kind::Connection => return Err(e),
        states => states.unwrap_or_else(|e| Check::cannot_tell("workers", e.to_string())),
    };
    let needed = workers::connections(config)?;
    let more = used + i64::try_from(needed).unwrap_or(0) + 50;
    let room = doctor::connections(used, most, needed);
    Ok([states, room.fixed_by(Session::<Reader>::more_connections(more))])
}

fn show(checks: &[Check], ahead: &[Shortage]) {
    let width = checks.iter().map(|c| c.check.len()).max().unwrap_or(0);
    for check in checks {
        let verdict = match check.verdict {
            CheckState::CannotTell => "?",
            other => other.name(),
        };
        output::line(format_args!("{verdict:<5} {:<width$}  {}", check.check, one_line(&check.found)));
        if let Some(advice) = &check.advice {
            output::line(format_args!("{:<5} {:<width$}  why: {}", "", "", check.why));
            output::line(format_args!("{:<5} {:<width$}  -> {}", "", "", one_line(advice)));
        }
    }
    if !ahead.is_empty() {
        output::line("\nfirst to break:");
        let width = ahead.iter().map(|s| s.what.len()).max().unwrap_or(0);
        for shortage in ahead {
            let when = forecast::when(shortage);
            output::line(format_args!("  {when:<12}  {:<width$}  {}", shortage.what, shortage.found));
        }
    }
    output::line(format_args!("\n{}", counts(checks)));
    if checks.iter().any(|c| c.fix.as_ref().is_some_and(|f| !f.sql.is_empty())) {
        output::line("`gov-handoff doctor --fix-sql` prints the SQL that puts things right");
    }
}

fn counts(checks: &[Check]) -> String {
    let count = |verdict| checks.iter().filter(|c| c.verdict == verdict).count();
    format!(
        "{} ok, {} to look at, {} failed, {} cannot be told",
        count(CheckState::Ok),
        count(CheckState::Warn),
        count(CheckState::Fail),
        count(CheckState::CannotTell)
    )
}

/// Statements for psql, each with what it is for. What stands in a comment stays in its line: a name may hold a line break.
fn show_fixes(checks: &[Check]) {
    output::line(format_args!("-- {}", counts(checks)));
    for check in checks.iter().filter(|c| c.is_to_fix()) {
        output::line(format_args!(
            "\n-- {}, {}: {}",
            check.verdict.name(),
            check.check,
            one_line(&check.found)
        ));
        output::line(format_args!("-- Why: {}.", check.why));
        let fix = check.fix.clone().unwrap_or_default();
        for statement in &fix.sql {
            output::line(statement);
        }
        if let Some(command) = &fix.command {
            output::line(format_args!("-- Not by SQL. Run: {}", one_line(command)));
        }
        if fix == Fix::default() {
            output::line(format_args!(
                "-- Not by SQL: {}.",
                one_line(check.advice.as_deref().unwrap_or_default())
            ));
        }
        if fix.restart {
            output::line("-- Restart the server: only then does it take effect.");
        }
    }
}

/// Without characters that end a line or control the terminal.
fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_with_a_line_break_stays_in_its_comment() {
        assert_eq!(super::one_line("'a\ndrop table x;' of b"), "'a\\ndrop table x;' of b");
    }
}
