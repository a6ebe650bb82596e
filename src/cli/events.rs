//! `events`: what consumers see.

mod recipients;
mod tail;
mod unread;

use crate::config::Config;
use crate::error::Result;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum EventsCommand {
    /// Follow the feed: every event of every domain once, in the order of positions
    ///
    /// Prints the position to resume from at its end, also when it is interrupted. Exit codes: 0 done, 1 the
    /// position is of another feed or retired, 2 could not read.
    #[command(after_help = "Example: gov-handoff events tail --domain iu --stream review --after 131746")]
    Tail(tail::TailCommand),
    /// What an actor has not read, the oldest first
    #[command(after_help = "Example: gov-handoff events unread --actor user:huyen --domain iu")]
    Unread(unread::UnreadCommand),
    /// Who an event is for, and by which subscription
    #[command(after_help = "Example: gov-handoff events recipients 0b4c1c1e-0000-4000-8000-000000000001")]
    Recipients(recipients::RecipientsCommand),
}

pub async fn run(config: &Config, command: EventsCommand) -> Result<ExitCode> {
    match command {
        EventsCommand::Tail(command) => tail::run(config, command).await,
        EventsCommand::Unread(command) => unread::run(config, command).await,
        EventsCommand::Recipients(command) => recipients::run(config, command).await,
    }
}
