//! `types`: which event types are active.

use crate::cli::{known, output};
use crate::config::Config;
use crate::core::rule::KIND_PREFIX;
use crate::error::{Error, Result};
use crate::store::types::{Drained, EventType};
use crate::store::{Store, connect};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;

/// Captured handoffs moved per commit.
const CHUNK: i32 = 10_000;

#[derive(Subcommand)]
pub enum TypesCommand {
    /// The event types, whether each is active, and how many signals are captured
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Emit the signals of a type from now on, and drain its captures
    Activate(TypeSelection),
    /// Capture the signals of a type from now on instead of emitting them
    Deactivate(TypeSelection),
}

#[derive(Args)]
pub struct TypeSelection {
    /// Such as governance.handoff.object_born, or just object_born; for another domain iu/draft_created
    pub types: Vec<String>,
    /// Every type of handoff, with certificates and heartbeats
    #[arg(long, conflicts_with = "types")]
    pub all: bool,
    /// Every type of finding: each is then announced when it is raised, when it gets worse and when it is resolved
    #[arg(long, conflicts_with = "types")]
    pub findings: bool,
}

impl TypeSelection {
    /// Rejects an empty selection here: the parser's own message would ask for names only, and not mention the two flags.
    fn refuse_none(&self) -> Result<()> {
        if self.types.is_empty() && !self.all && !self.findings {
            return Err(Error::config(
                "which types? name them, such as object_born, or give --all for every type of handoff, --findings for every \
                 type of finding; `gov-handoff types list` shows them",
            ));
        }
        Ok(())
    }
}

pub async fn run(config: &Config, command: TypesCommand) -> Result<ExitCode> {
    if let TypesCommand::Activate(selection) | TypesCommand::Deactivate(selection) = &command {
        selection.refuse_none()?;
    }
    let store = connect::open(&config.target, "gov-handoff types").await?;
    match command {
        TypesCommand::List { json } => list(&store, json).await,
        TypesCommand::Activate(selection) => activate(&store, selection).await,
        TypesCommand::Deactivate(selection) => deactivate(&store, selection).await,
    }
}

async fn list(store: &Store, json: bool) -> Result<ExitCode> {
    let types = store.event_types().await?;
    if json {
        output::json(&types)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |t: &EventType| {
        let state = if t.active { "active" } else { "inactive" };
        vec![t.event_type.clone(), t.event_stream.clone(), state.to_owned(), output::count(t.waiting)]
    };
    output::table(&["type", "stream", "state", "captured"], &types.iter().map(row).collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

/// Exit code 1 when the outbox rejected a captured handoff.
async fn activate(store: &Store, selection: TypeSelection) -> Result<ExitCode> {
    let mut refused = false;
    for name in selected(store, selection).await? {
        let changed = store.set_type_active(&name, true).await?;
        let drained = drain(store, &name).await?;
        let word = if changed { "activated" } else { "was active" };
        let moved = output::count(drained.moved);
        output::line(format_args!("{name} {word}, {moved} captured handoffs drained"));
        if drained.refused > 0 {
            refused = true;
            output::line(format_args!(
                "{} were refused by the outbox; they are staged for a retry, and become dead letters if that fails",
                output::count(drained.refused)
            ));
        }
    }
    Ok(ExitCode::from(u8::from(refused)))
}

async fn deactivate(store: &Store, selection: TypeSelection) -> Result<ExitCode> {
    for name in selected(store, selection).await? {
        let changed = store.set_type_active(&name, false).await?;
        let word =
            if changed { "deactivated; its handoffs are captured from now on" } else { "was inactive" };
        output::line(format_args!("{name} {word}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn selected(store: &Store, selection: TypeSelection) -> Result<Vec<String>> {
    if selection.all || selection.findings {
        let chosen = |name: &str| match name {
            name if name.starts_with(KIND_PREFIX) => selection.all,
            // Types of other domains are activated one by one.
            name => selection.findings && !name.contains('/'),
        };
        let names = store.event_types().await?.into_iter().map(|t| t.event_type);
        return Ok(names.filter(|name| chosen(name)).collect());
    }
    let full = |name: String| {
        if name.contains(['.', '/']) || name == "queue_worker_silent" {
            name
        } else {
            format!("{KIND_PREFIX}{name}")
        }
    };
    let names: Vec<_> = selection.types.into_iter().map(full).collect();
    // All names are checked before the first type is changed.
    let known: Vec<_> = store.event_types().await?.into_iter().map(|t| t.event_type).collect();
    for name in &names {
        known::one_of("event type", name, &known)?;
    }
    Ok(names)
}

async fn drain(store: &Store, name: &str) -> Result<Drained> {
    let waiting =
        store.event_types().await?.into_iter().find(|t| t.event_type == name).map_or(0, |t| t.waiting);
    let bar = ProgressBar::new(waiting.try_into().unwrap_or(0));
    if let Ok(style) =
        ProgressStyle::with_template("draining {wide_bar} {human_pos}/{human_len} {per_sec} {eta}")
    {
        bar.set_style(style);
    }
    let mut total = Drained::default();
    loop {
        let chunk = store.drain(None, name, CHUNK).await?;
        if chunk.is_empty() {
            break;
        }
        total.moved += chunk.moved;
        total.refused += chunk.refused;
        bar.inc((chunk.moved + chunk.refused).try_into().unwrap_or(0));
    }
    bar.finish_and_clear();
    Ok(total)
}
