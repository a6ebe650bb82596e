//! `events unread`: what an actor has not read.

use crate::cli::{known, output};
use crate::config::Config;
use crate::core::subscription::DOMAINS;
use crate::error::codes::NO_SUCH_ACTOR;
use crate::error::{Error, Result};
use crate::store::connect;
use crate::store::events::{UnreadEvent, UnreadQuery};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// The longest that one statement may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct UnreadCommand {
    /// The reader, such as user:huyen, agent:codex or role:reviewer
    #[arg(long)]
    pub actor: String,
    /// Only of this domain
    #[arg(long)]
    pub domain: Option<String>,
    /// Only of this stream
    #[arg(long)]
    pub stream: Option<String>,
    /// How many to show, the oldest first
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub limit: i32,
    /// The events that the actor emitted as well
    #[arg(long)]
    pub own: bool,
    /// Events whose issue, job or object is settled as well
    #[arg(long)]
    pub resolved: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: UnreadCommand) -> Result<ExitCode> {
    if let Some(domain) = &command.domain {
        known::one_of("domain", domain, &DOMAINS)?;
    }
    // In a session that cannot write, because a read by a session that can makes the actor known, also a mistyped one.
    let store = connect::open_observer_within(&config.target, "gov-handoff events", PATIENCE).await?;
    let UnreadCommand { actor, domain, stream, limit, own, resolved, json } = command;
    let query = UnreadQuery {
        actor: &actor,
        domain: domain.as_deref(),
        stream: stream.as_deref(),
        limit,
        own,
        resolved,
    };
    let events = store.unread(&query).await?;
    if events.is_empty() && !store.knows_actor(&actor).await? {
        return Err(Error::of(&NO_SUCH_ACTOR, format!("nobody is known as {actor}")));
    }
    let counts = store.unread_count(&actor).await?;
    if json {
        output::json(&json!({ "actor": actor, "events": events, "counts": counts }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if events.is_empty() {
        let elsewhere: i64 = counts.iter().map(|c| c.unread).sum();
        output::line(match elsewhere {
            0 => format!("nothing is unread for {actor}"),
            n => format!("nothing is unread for {actor} here; {} elsewhere", output::count(n)),
        });
        return Ok(ExitCode::SUCCESS);
    }
    let row = |e: &UnreadEvent| {
        vec![
            e.pos.to_string(),
            e.id.clone(),
            format!("{}/{}", e.domain, e.stream),
            e.kind.clone(),
            e.severity.clone().unwrap_or_default(),
            e.address.clone(),
            e.occurred_at.clone(),
        ]
    };
    let header = ["position", "event", "stream", "type", "severity", "address", "occurred"];
    output::table(&header, &events.iter().map(row).collect::<Vec<_>>());
    let more = if counts.iter().any(|c| c.more) { " or more" } else { "" };
    let all = output::count(counts.iter().map(|c| c.unread).sum());
    output::line(format_args!("{all}{more} unread in {} streams", counts.len()));
    Ok(ExitCode::SUCCESS)
}
