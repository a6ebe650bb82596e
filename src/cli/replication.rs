//! `replication`: publication and slot on request, or as SQL for a DBA.

use crate::capture::stream::prepare::{Prepared, prepare};
use crate::cli::output;
use crate::config::Config;
use crate::error::Result;
use crate::store::connect;
use crate::store::role::ReadWriter;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum ReplicationCommand {
    /// Create the publication (column lists, row filters) and then the slot
    Setup,
    /// Drop slot and publication
    Teardown,
    /// Print the SQL that a DBA can run instead: what is missing is created, what is there is altered
    Sql,
}

pub async fn run(config: &Config, command: ReplicationCommand) -> Result<ExitCode> {
    match command {
        ReplicationCommand::Setup => setup(config).await?,
        ReplicationCommand::Teardown => teardown(config).await?,
        ReplicationCommand::Sql => {
            let store = connect::open_patient(&config.target, APPLICATION).await?;
            let sources = store.sources(&config.worker).await?;
            let database = config.target.database();
            let sql = store.replication_sql(&config.publication, &config.slot, database, &sources).await?;
            output::line(sql);
        }
    }
    Ok(ExitCode::SUCCESS)
}

const APPLICATION: &str = "gov-handoff replication";

async fn setup(config: &Config) -> Result<()> {
    let store = connect::open_patient(&config.target, APPLICATION).await?.into_role::<ReadWriter>();
    let sources = store.sources(&config.worker).await?;
    let mut config = config.clone();
    config.create = true;
    let Prepared { confirmed: lsn, new, .. } = prepare(&config, &store, &sources, false).await?;
    let word = if new { "created" } else { "is there" };
    output::line(format_args!(
        "publication {} carries {} sources; slot {} {word} at {lsn}",
        config.publication,
        sources.len(),
        config.slot
    ));
    Ok(())
}

/// Does not read the sources, because the table that lists them may be gone. The role that reads the slot may drop the
/// slot, but does not own the publication.
async fn teardown(config: &Config) -> Result<()> {
    let reader = connect::open_patient(&config.replication, APPLICATION).await?;
    if reader.slot(&config.slot, config.replication.database()).await?.is_some() {
        reader.drop_slot(&config.slot).await?;
        output::line(format_args!("slot {} dropped", config.slot));
    }
    let owner = connect::open_patient(&config.target, APPLICATION).await?;
    owner.drop_publication(&config.publication).await?;
    output::line(format_args!("publication {} dropped", config.publication));
    Ok(())
}
