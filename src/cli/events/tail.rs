//! `events tail`: follows the feed by position alone.

use crate::cli::{known, output};
use crate::config::Config;
use crate::core::subscription::DOMAINS;
use crate::error::{Policy, Result};
use crate::store::Session;
use crate::store::connect;
use crate::store::feed::{FeedEvent, FeedFilter};
use crate::store::role::Onlooker;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Events read by one statement.
const PAGE: i32 = 1_000;
/// Without a position, this many of the latest events are shown first.
const SHOWN_FIRST: i64 = 10;
/// The pause before the feed is read again; it grows while nothing comes.
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_millis(500);

#[derive(Args)]
pub struct TailCommand {
    /// Events above this position [default: the last ten, and what comes]
    #[arg(long, value_name = "POS")]
    pub after: Option<i64>,
    /// Begin with the oldest event that is kept
    #[arg(long, conflicts_with = "after")]
    pub from_start: bool,
    /// Only events of this domain, such as iu
    #[arg(long)]
    pub domain: Option<String>,
    /// Only events of this type, such as draft_created
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// Only events of this stream, such as review
    #[arg(long)]
    pub stream: Option<String>,
    /// End after this many events
    #[arg(long)]
    pub limit: Option<u64>,
    /// End at the end of the feed instead of waiting for more
    #[arg(long)]
    pub no_follow: bool,
    /// Print one JSON object for each event
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: TailCommand) -> Result<ExitCode> {
    if let Some(domain) = &command.domain {
        known::one_of("domain", domain, &DOMAINS)?;
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut tail = Tail::new(&command);
    let outcome = tokio::select! {
        followed = tail.follow(config, &command) => followed,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    // Also after an error: what was printed was read. A position that was refused at once is no place to resume from.
    if outcome.is_ok() || tail.after != command.after {
        tail.say_where_to_resume(command.json);
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

struct Tail {
    filter: FeedFilter,
    /// Everything at or below it was printed, or does not pass the filter.
    after: Option<i64>,
    left: Option<u64>,
}

impl Tail {
    fn new(command: &TailCommand) -> Self {
        let filter = FeedFilter {
            domain: command.domain.clone(),
            event_type: command.event_type.clone(),
            stream: command.stream.clone(),
        };
        Self { filter, after: command.after, left: command.limit }
    }

    /// Reads until the limit or the end is reached; while following, also across restarts of the server.
    async fn follow(&mut self, config: &Config, command: &TailCommand) -> Result<()> {
        let mut placed = command.after.is_some() || command.from_start;
        loop {
            let read = async {
                let session = connect::open_observer(&config.target, "gov-handoff events tail").await?;
                if !placed {
                    let head = session.feed_head().await?;
                    self.after = Some((head.last - SHOWN_FIRST).max(head.low));
                    placed = true;
                }
                self.read(&session, command).await
            };
            match read.await {
                Err(e) if !command.no_follow && placed && e.policy() == Policy::Retry => {
                    tracing::warn!(error = %e.told(), "could not read, trying again");
                    tokio::time::sleep(LATEST).await;
                }
                ended => return ended,
            }
        }
    }

    async fn read(&mut self, session: &Session<Onlooker>, command: &TailCommand) -> Result<()> {
        let mut pause = SOONEST;
        while self.left != Some(0) {
            // Read before the events: whatever passes the filter up to here is in the next page, or the page is full.
            let head = session.feed_head().await?;
            let page =
                self.left.and_then(|left| i32::try_from(left).ok()).map_or(PAGE, |left| left.min(PAGE));
            let events = session.read_feed(self.after, page, &self.filter).await?;
            for event in &events {
                if !output::is_read(shown(event, command.json)?) {
                    return Ok(());
                }
                self.after = Some(event.pos);
            }
            self.left = self.left.map(|left| left - (events.len() as u64).min(left));
            if events.len() == usize::try_from(page).unwrap_or(usize::MAX) {
                continue;
            }
            self.after = self.after.max(Some(head.last));
            if command.no_follow {
                return Ok(());
            }
            pause = if events.is_empty() { (pause * 2).min(LATEST) } else { SOONEST };
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    fn say_where_to_resume(&self, as_json: bool) {
        let Some(after) = self.after else { return };
        if as_json {
            output::line(json!({ "resume_after": after }));
        } else {
            output::line(format_args!("resume with --after {after}"));
        }
    }
}

fn shown(event: &FeedEvent, as_json: bool) -> Result<String> {
    if as_json {
        return Ok(serde_json::to_string(event)?);
    }
    let FeedEvent { pos, event_domain, event_type, event_stream, actor_ref, .. } = event;
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    Ok(format!(
        "{pos:>9}  {}  {event_domain}/{event_type}  {event_stream}  {}  {}  {actor_ref}",
        or_dash(&event.occurred_at),
        or_dash(&event.event_severity),
        or_dash(&event.canonical_address),
    ))
}
