//! `selftest`: the hostile cases, played on shadow tables in the operator's own database by the real daemon.
//!
//! Production is left alone. The shadow tables have a schema of their own, and the sources have another worker, slot and
//! publication. Their kind is not registered and no producer is trusted, so everything is captured and nothing is emitted
//! or marked. All of it is removed afterwards, also when a case fails or the operator interrupts.

mod cases;
mod child;
mod stage;
mod verdict;

use crate::cli::output;
use crate::cli::settings::Settings;
use crate::config::Config;
use crate::core::certificate::REHEARSAL;
use crate::core::mode::Intent;
use crate::error::{Error, Kind, Result};
use crate::store::connect;
use cases::{Case, CaseStage};
use child::Recipe;
use clap::Args;
use serde_json::json;
use stage::Means;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use verdict::CaseResult;

/// How long the daemon may take to reach the wanted mode, in addition to the time of a case.
const START: Duration = Duration::from_secs(20);

/// One verdict.
#[derive(serde::Serialize)]
struct Played {
    mode: &'static str,
    case: &'static str,
    #[serde(flatten)]
    verdict: CaseResult,
    ms: u128,
}

#[derive(Args)]
pub struct SelftestCommand {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Leave the shadow tables and what was captured in place, to look at
    #[arg(long)]
    pub keep: bool,
    /// How long a case may take to come right, in seconds
    #[arg(long, default_value_t = 20)]
    pub patience: u64,
}

pub async fn run(config: &Config, settings: &Settings, command: SelftestCommand) -> Result<ExitCode> {
    let config = rehearsal(config);
    let store = connect::open_patient(&config.target, "gov-handoff selftest").await?;
    let means = stage::check(&store).await?;
    let _alone = stage::alone(&config).await?;
    let patience = Duration::from_secs(command.patience);
    let mut played = Vec::new();
    let outcome = {
        let all = play_all(&config, settings, &means, patience, &mut played, command.json);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            outcome = all => Some(outcome),
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
        }
    };
    // Always, also after an error. The daemon has ended with the case that was dropped.
    let struck = stage::strike(&config, &store, command.keep).await;
    let struck = struck.map_err(|e| e.context("removing the shadow tables"));
    let Some(outcome) = outcome else {
        // The output says that the shadow tables are removed, so an error here must end the command.
        struck?;
        return Err(interrupted(command.keep));
    };
    outcome?;
    struck?;
    let failed = played.iter().any(|p| matches!(p.verdict, CaseResult::Failed(_)));
    if command.json {
        output::json(&json!({ "passed": !failed, "cases": played }))?;
    } else if command.keep {
        output::line(format_args!("kept: schema {}, and what was captured", stage::SCHEMA));
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn interrupted(kept: bool) -> Error {
    let tables = if kept {
        format!("kept: schema {}, and what was captured", stage::SCHEMA)
    } else {
        "the shadow tables are removed".to_owned()
    };
    Error::new(Kind::Config, format!("interrupted; {tables}"))
}

/// The same settings, with the worker, slot and publication of a selftest.
fn rehearsal(config: &Config) -> Config {
    let mut config = config.clone();
    let safe = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    let database: String = config.replication.database().to_lowercase().chars().map(safe).collect();
    config.worker = REHEARSAL.to_owned();
    config.publication = REHEARSAL.to_owned();
    config.slot = format!("{REHEARSAL}_{database}").chars().take(63).collect();
    config
}

async fn play_all(
    config: &Config,
    settings: &Settings,
    means: &Means,
    patience: Duration,
    played: &mut Vec<Played>,
    quiet: bool,
) -> Result<()> {
    for mode in [Intent::Poll, Intent::Auto] {
        let store = connect::open_patient(&config.target, "gov-handoff selftest").await?;
        let admin = connect::open_patient(&config.replication, "gov-handoff selftest").await?;
        let mut refused = if mode == Intent::Auto { admin.check_streaming().await.err() } else { None };
        stage::set(config, &store).await?;
        let recipe = Recipe { config, settings, mode };
        let mut daemon = recipe.start()?;
        if refused.is_none() {
            let wanted = if mode == Intent::Poll { "poll" } else { "stream" };
            match daemon.captures(&store, wanted, START.max(patience)).await {
                Err(e) if mode == Intent::Auto && e.kind == Kind::Replication => refused = Some(e),
                outcome => outcome?,
            }
        }
        let other = connect::open_patient(&config.target, "gov-handoff selftest writer").await?;
        let mut scene = CaseStage { recipe, means, store: &store, other, daemon, patience };
        for case in Case::ALL {
            let begun = Instant::now();
            let verdict = match &refused {
                Some(e) => CaseResult::Skipped(e.to_string()),
                None => scene.play(case).await.map_err(|e| e.context(case.name()))?,
            };
            let result =
                Played { mode: mode.name(), case: case.name(), verdict, ms: begun.elapsed().as_millis() };
            if !quiet {
                show(&result);
            }
            played.push(result);
        }
        scene.daemon.kill().await;
    }
    Ok(())
}

fn show(played: &Played) {
    let (word, detail) = match &played.verdict {
        CaseResult::Passed => ("passed", format!("{} ms", played.ms)),
        CaseResult::Failed(detail) => ("FAILED", detail.clone()),
        CaseResult::Skipped(detail) => ("skipped:", detail.clone()),
    };
    output::line(format_args!("{:<5} {:<24} {word} {detail}", played.mode, played.case));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_does_not_say_that_what_was_kept_is_removed() {
        let kept = interrupted(true).to_string();
        assert!(kept.contains(stage::SCHEMA) && !kept.contains("removed"), "{kept}");
        assert!(interrupted(false).to_string().contains("removed"));
    }
}
