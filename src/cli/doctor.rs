//! `doctor`: checks the installation and says what to do. Exit code 1 when a check failed.

use crate::cli::output;
use crate::config::Config;
use crate::core::doctor::{self, Check, CheckState};
use crate::error::{Kind, Result};
use crate::store::role::Reader;
use crate::store::worker::FamilyMember;
use crate::store::{Session, connect};
use crate::workers;
use serde_json::json;
use std::process::ExitCode;

pub async fn run(config: &Config, json: bool) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff doctor").await?.into_role::<Reader>();
    let replication = connect::open(&config.replication, "gov-handoff doctor").await.map(Session::into_role);
    let mut checks = store.examine(config, replication).await?;
    checks.extend(family(&store, config).await?);
    let worst = checks.iter().map(|c| c.verdict).max().unwrap_or(CheckState::Ok);
    if json {
        output::json(&json!({ "verdict": worst, "checks": checks }))?;
    } else {
        show(&checks);
    }
    Ok(ExitCode::from(u8::from(worst == CheckState::Fail)))
}

/// The checks about the workers, which the store does not know.
async fn family(store: &Session<Reader>, config: &Config) -> Result<[Check; 2]> {
    let states = store.family().await.map(|mut members| {
        workers::complete(config, &mut members);
        let state = |m: FamilyMember| (m.worker, m.state.name().to_owned(), m.paused_by);
        doctor::workers(
            &members
                .into_iter()
                .filter(|m| workers::is_asked_for(config, &m.worker))
                .map(state)
                .collect::<Vec<_>>(),
        )
    });
    let (used, most) = store.connections().await?;
    let states = match states {
        Err(e) if e.kind == Kind::Connection => return Err(e),
        states => states.unwrap_or_else(|e| Check::cannot_tell("workers", e.to_string())),
    };
    Ok([states, doctor::connections(used, most, workers::connections(config)?)])
}

fn show(checks: &[Check]) {
    let width = checks.iter().map(|c| c.check.len()).max().unwrap_or(0);
    for check in checks {
        let verdict = match check.verdict {
            CheckState::CannotTell => "?",
            other => other.name(),
        };
        output::line(format_args!("{verdict:<5} {:<width$}  {}", check.check, check.found));
        if let Some(advice) = &check.advice {
            output::line(format_args!("{:<5} {:<width$}  -> {advice}", "", ""));
        }
    }
    let count = |verdict| checks.iter().filter(|c| c.verdict == verdict).count();
    output::line(format_args!(
        "\n{} ok, {} to look at, {} failed, {} cannot be told",
        count(CheckState::Ok),
        count(CheckState::Warn),
        count(CheckState::Fail),
        count(CheckState::CannotTell)
    ));
}
