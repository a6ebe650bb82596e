//! `doctor`: checks the installation and says what to do. Exit code 1 when a check failed.

use crate::cli::output;
use crate::config::Config;
use crate::core::doctor::{Check, CheckState};
use crate::error::Result;
use crate::store::role::Reader;
use crate::store::{Session, connect};
use serde_json::json;
use std::process::ExitCode;

pub async fn run(config: &Config, json: bool) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff doctor").await?.into_role::<Reader>();
    let replication = connect::open(&config.replication, "gov-handoff doctor").await.map(Session::into_role);
    let checks = store.examine(config, replication).await?;
    let worst = checks.iter().map(|c| c.verdict).max().unwrap_or(CheckState::Ok);
    if json {
        output::json(&json!({ "verdict": worst, "checks": checks }))?;
    } else {
        show(&checks);
    }
    Ok(ExitCode::from(u8::from(worst == CheckState::Fail)))
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
