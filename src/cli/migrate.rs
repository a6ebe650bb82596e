//! `migrate`: applies, shows and reverts the migrations.

use crate::cli::{output, sources};
use crate::config::Config;
use crate::core::definition::Backlog;
use crate::error::{Error, Kind, Result};
use crate::store::migrate::{StepReport, StepState};
use crate::store::{Session, connect};
use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct MigrateCommand {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// What becomes of the rows that exist in the tables of the built-in sources; overrides their definitions
    #[arg(long, value_name = "seed|skip|hand_off")]
    pub backlog: Option<Backlog>,
    #[command(subcommand)]
    pub action: Option<MigrateAction>,
}

#[derive(Subcommand)]
pub enum MigrateAction {
    /// Which steps are applied
    Status {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Drop what was created; refused if recorded handoffs would be discarded, or while our slot exists
    Revert {
        /// Discard recorded handoffs and source rows in tables that migrate created
        #[arg(long)]
        discard: bool,
    },
}

pub async fn run(config: &Config, command: MigrateCommand) -> Result<ExitCode> {
    let mut store = connect::open_patient(&config.target, "gov-handoff migrate").await?;
    match command.action {
        None => {
            let steps = store.migrate(command.dry_run).await?;
            // A fresh database can be run at once: the defaults are loaded where nothing is registered.
            let (loaded, fates) = if command.dry_run {
                (vec![], sources::fates_of_defaults(config, &store, command.backlog).await?)
            } else {
                sources::load_defaults(config, &store, command.backlog).await?
            };
            if command.json {
                output::json(
                    &serde_json::json!({ "steps": steps, "sources": loaded, "backlog": fates, "dry_run": command.dry_run }),
                )?;
            } else {
                show(&steps);
                for name in loaded {
                    output::line(format_args!("source {name} registered"));
                }
                for sentence in fates.iter().filter_map(|fate| fate.sentence(command.dry_run)) {
                    output::line(sentence);
                }
            }
        }
        Some(MigrateAction::Status { json }) => {
            let steps = store.migration_status().await?;
            if json { output::json(&steps)? } else { show(&steps) }
        }
        Some(MigrateAction::Revert { discard }) => {
            refuse_slot(&store, &config.slot).await?;
            let steps = store.revert(discard).await?;
            if steps.is_empty() {
                output::line(format_args!("nothing to revert"));
            }
            show(&steps);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses while our slot exists: no daemon would read it, and the server would retain log for it indefinitely.
async fn refuse_slot<R>(store: &Session<R>, slot: &str) -> Result<()> {
    if store.has_slot(slot).await? {
        return Err(Error::new(
            Kind::Refused,
            format!(
                "slot {slot} is still there and would retain log indefinitely; stop the daemon and run \
                 `gov-handoff replication teardown` first"
            ),
        ));
    }
    Ok(())
}

fn show(steps: &[StepReport]) {
    for step in steps {
        output::line(format_args!("{:04} {:<12} {}", step.version, step.name, step.state.name()));
        for (word, objects) in [("created", &step.created), ("adopted as it is", &step.adopted)] {
            if !objects.is_empty() && step.state != StepState::Current {
                output::line(format_args!("     {word}: {}", objects.join(", ")));
            }
        }
    }
}
