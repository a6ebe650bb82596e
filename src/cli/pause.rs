//! `pause` and `resume`: an operator pauses a worker. The worker keeps its lease and ticks, so it does not count as silent.

use crate::cli::{known, output};
use crate::config::Config;
use crate::error::Result;
use crate::store::connect;
use crate::workers::FAMILY;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

#[derive(Args)]
pub struct PauseCommand {
    /// A worker, such as gov_candidate_scan; `status` lists those that run
    pub worker: String,
    /// Why; `status` shows it
    #[arg(long)]
    pub reason: Option<String>,
    /// Who decides [default: the database user]
    #[arg(long)]
    pub actor: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: &PauseCommand, paused: bool) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff pause").await?;
    let worker = command.worker.as_str();
    let there = store.family().await?;
    let mut names: Vec<&str> = FAMILY.iter().map(|m| m.name).chain([config.worker.as_str()]).collect();
    names.extend(there.iter().map(|m| m.worker.as_str()));
    names.sort_unstable();
    names.dedup();
    known::one_of("worker", worker, &names)?;
    let (actor, reason) = (command.actor.as_deref(), command.reason.as_deref());
    let changed = store.pause_worker(worker, paused, actor, reason).await?;
    if command.json {
        output::json(&json!({ "worker": worker, "paused": paused, "changed": changed }))?;
    } else {
        output::line(match (paused, changed) {
            (true, true) => format!(
                "{worker} is paused: it finishes its page and rests, also after a restart, until `gov-handoff resume {worker}`"
            ),
            (true, false) => format!("{worker} was paused already"),
            (false, true) => format!("{worker} works again"),
            (false, false) => format!("{worker} was not paused"),
        });
    }
    Ok(ExitCode::SUCCESS)
}
