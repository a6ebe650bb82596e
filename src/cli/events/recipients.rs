//! `events recipients`: who an event is for, and why.

use crate::cli::output;
use crate::config::Config;
use crate::error::codes::NO_SUCH_EVENT;
use crate::error::{Error, Result};
use crate::store::connect;
use crate::store::events::{Recipient, ResolutionStep};
use clap::Args;
use std::process::ExitCode;
use uuid::Uuid;

#[derive(Args)]
pub struct RecipientsCommand {
    /// The event, as `events unread` or `events tail` shows it
    #[arg(value_name = "ID")]
    pub event: String,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: RecipientsCommand) -> Result<ExitCode> {
    let event: Uuid = command.event.parse().map_err(|_| {
        Error::config(format!("expected the id of an event (a UUID), found {}", command.event))
    })?;
    let store = connect::open_observer(&config.target, "gov-handoff events").await?;
    let recipients = store.recipients(event).await?;
    if recipients.is_empty() && !store.has_event(event).await? {
        return Err(Error::of(&NO_SUCH_EVENT, format!("there is no event {event}")));
    }
    if command.json {
        output::json(&recipients)?;
        return Ok(ExitCode::SUCCESS);
    }
    if recipients.is_empty() {
        output::line(format_args!("nobody is known who could receive {event}"));
        return Ok(ExitCode::SUCCESS);
    }
    let row = |r: &Recipient| {
        let state = if r.muted { "muted" } else { "receives it" };
        vec![r.actor.clone(), state.to_owned(), r.step.name().to_owned(), r.via.clone().unwrap_or_default()]
    };
    output::table(&["actor", "", "by", "through"], &recipients.iter().map(row).collect::<Vec<_>>());
    if recipients.iter().any(|r| r.step == ResolutionStep::Broadcast) {
        output::line("warning: no subscription matches this event, so it goes to everybody");
    }
    Ok(ExitCode::SUCCESS)
}
