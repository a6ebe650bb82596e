//! `checks`: the checks of the input gate.

use crate::cli::{known, output};
use crate::config::Config;
use crate::error::Result;
use crate::store::connect;
use clap::{Args, Subcommand};
use serde_json::json;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum ChecksCommand {
    /// List the checks
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Switch a check on; the candidates are checked again
    Enable(CheckChange),
    /// Switch a check off; the candidates are checked again
    Disable(CheckChange),
}

#[derive(Args)]
pub struct CheckChange {
    /// The check, such as provenance_untrusted
    pub check: String,
    /// Who decides [default: the database user]
    #[arg(long)]
    pub actor: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: ChecksCommand) -> Result<ExitCode> {
    let (change, enabled) = match command {
        ChecksCommand::List { json } => return list(config, json).await,
        ChecksCommand::Enable(change) => (change, true),
        ChecksCommand::Disable(change) => (change, false),
    };
    let store = connect::open(&config.target, "gov-handoff checks").await?;
    let there = store.input_checks().await?;
    known::one_of("check", &change.check, &there.iter().map(|c| c.code.as_str()).collect::<Vec<_>>())?;
    let changed = store.set_input_check(&change.check, enabled, change.actor.as_deref()).await?;
    if change.json {
        output::json(&json!({ "check": change.check, "enabled": enabled, "changed": changed }))?;
    } else {
        let state = if enabled { "on" } else { "off" };
        let then = if changed { "; the candidates are checked again" } else { " already" };
        output::line(format_args!("{} is {state}{then}", change.check));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(config: &Config, json: bool) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff checks").await?;
    let checks = store.input_checks().await?;
    if json {
        output::json(&checks)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = checks
        .iter()
        .map(|c| {
            let state = if c.enabled { "on" } else { "off" };
            vec![c.code.clone(), state.to_owned(), c.description.clone(), c.changed_by.clone()]
        })
        .collect();
    output::table(&["check", "state", "what it finds in order", "changed by"], &rows);
    Ok(ExitCode::SUCCESS)
}
