//! `replication`: publication and slot on request, or as SQL for a DBA.

use crate::cli::output;
use crate::config::Config;
use crate::error::Result;
use crate::intake::{self, Prepared};
use crate::store::connect;
use crate::store::replication::setup_sql;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum ReplicationCommand {
    /// Create the publication (column lists, row filters) and then the slot
    Setup,
    /// Drop slot and publication
    Teardown,
    /// Print the SQL that a DBA can run instead
    Sql,
}

pub async fn run(config: &Config, command: ReplicationCommand) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff replication").await?;
    let sources = store.sources(&config.worker).await?;
    match command {
        ReplicationCommand::Setup => {
            let config = Config { create: true, ..config.clone() };
            let Prepared { confirmed: lsn, new, .. } =
                intake::prepare_replication(&config, &store, &sources, false).await?;
            let word = if new { "created" } else { "is there" };
            output::line(format_args!(
                "publication {} carries {} sources; slot {} {word} at {lsn}",
                config.publication,
                sources.len(),
                config.slot
            ));
        }
        ReplicationCommand::Teardown => {
            let admin = connect::open(&config.replication, "gov-handoff replication").await?;
            let slot = admin.slot(&config.slot, config.replication.database()).await?;
            if slot.is_some() {
                admin.drop_slot(&config.slot).await?;
                output::line(format_args!("slot {} dropped", config.slot));
            }
            admin.drop_publication(&config.publication).await?;
            output::line(format_args!("publication {} dropped", config.publication));
        }
        ReplicationCommand::Sql => {
            output::line(setup_sql(&config.publication, &config.slot, &sources));
        }
    }
    Ok(ExitCode::SUCCESS)
}
