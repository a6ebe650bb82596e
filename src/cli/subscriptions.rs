//! `subscriptions`: who receives which events. Lists them, checks a file, and makes them as a file has them.

use crate::cli::{output, toml_file};
use crate::config::Config;
use crate::core::subscription::SubscriptionFile;
use crate::error::{Error, Result};
use crate::store::connect;
use crate::store::subscription::{ChangeKind, ListedSubscription, SubscriptionChange};
use clap::Subcommand;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum SubscriptionsCommand {
    /// Every subscription, and how many members it reaches
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Make subscriptions and memberships as a file has them; those that the file does not name stay, unless --prune
    Apply {
        /// A TOML file of [[subscription]] and [[member]] tables, as docs/events.md shows
        file: PathBuf,
        /// Remove subscriptions and memberships that the file does not name
        #[arg(long)]
        prune: bool,
        /// Say what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Who decides [default: the database user]
        #[arg(long)]
        actor: Option<String>,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Compare a file with the database and with the registered types; changes nothing
    ///
    /// Exit codes: 0 the database is as the file has it, 1 it differs or a subscription cannot match, 2 could not tell.
    Check {
        /// A TOML file of [[subscription]] and [[member]] tables, as docs/events.md shows
        file: PathBuf,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

pub async fn run(config: &Config, command: SubscriptionsCommand) -> Result<ExitCode> {
    match command {
        SubscriptionsCommand::List { json } => list(config, json).await,
        SubscriptionsCommand::Apply { file, prune, dry_run, actor, json } => {
            let file = read(&file)?;
            let store = connect::open(&config.target, "gov-handoff subscriptions").await?;
            let changes = store.apply_subscriptions(&file, prune, dry_run, actor.as_deref()).await?;
            show(&changes, &store.unmatched(&file).await?, json)?;
            if dry_run && !json {
                output::line("nothing was changed");
            }
            Ok(ExitCode::SUCCESS)
        }
        SubscriptionsCommand::Check { file, json } => {
            let file = read(&file)?;
            let store = connect::open(&config.target, "gov-handoff subscriptions").await?;
            let changes = store.apply_subscriptions(&file, false, true, None).await?;
            let unmatched = store.unmatched(&file).await?;
            show(&changes, &unmatched, json)?;
            let same = changes.iter().all(|c| c.change == ChangeKind::Unchanged) && unmatched.is_empty();
            Ok(ExitCode::from(u8::from(!same)))
        }
    }
}

/// Errors in a file are reported before a connection is opened.
fn read(path: &Path) -> Result<SubscriptionFile> {
    let name = path.display();
    let file: SubscriptionFile = toml_file::read(path)?;
    file.check().map_err(|why| Error::config(format!("{name}: {why}")))?;
    Ok(file)
}

fn show(changes: &[SubscriptionChange], unmatched: &[String], json: bool) -> Result<()> {
    if json {
        return output::json(&json!({ "changes": changes, "warnings": unmatched }));
    }
    if changes.is_empty() {
        output::line("the file names no subscription and no member");
    }
    let row = |c: &SubscriptionChange| vec![c.what.clone(), c.subject.clone(), c.change.name().to_owned()];
    if !changes.is_empty() {
        output::table(&["", "", "change"], &changes.iter().map(row).collect::<Vec<_>>());
    }
    for warning in unmatched {
        output::line(format_args!("warning: {warning}"));
    }
    Ok(())
}

async fn list(config: &Config, json: bool) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff subscriptions").await?;
    let all = store.subscriptions().await?;
    if json {
        output::json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        output::line("there are no subscriptions: every event goes to every known actor");
        return Ok(ExitCode::SUCCESS);
    }
    let any = |value: &Option<String>| value.clone().unwrap_or_else(|| "*".to_owned());
    let row = |s: &ListedSubscription| {
        let filter = if s.filter == json!({}) { String::new() } else { s.filter.to_string() };
        let mute = if s.mute { "muted" } else { "" };
        let scope = s.subject_table.clone().unwrap_or_default();
        vec![
            s.recipient.clone(),
            any(&s.domain),
            any(&s.kind),
            any(&s.stream),
            scope,
            filter,
            mute.to_owned(),
            s.members.to_string(),
        ]
    };
    let header = ["recipient", "domain", "type", "stream", "subject table", "filter", "", "members"];
    output::table(&header, &all.iter().map(row).collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}
