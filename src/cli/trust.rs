//! `trust`: which producers each source trusts, and the operator's decisions about it.

use crate::cli::{known, output};
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::store::trust::TrustPolicy;
use crate::store::{Store, connect};
use clap::{Args, Subcommand};
use serde_json::json;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum TrustCommand {
    /// Show which producers each source trusts, and how much waits of the others
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Trust a producer, and hand off what was captured of it
    Grant(TrustArguments),
    /// Capture a producer's rows from now on instead of handing them off; what was handed off stays
    Revoke(TrustArguments),
}

#[derive(Args)]
pub struct TrustArguments {
    /// The source whose list of producers is changed
    #[arg(long)]
    pub source: String,
    /// As the source's rows name it, in the column that `trust list` shows; `unknown` stands for rows that name none
    #[arg(long)]
    pub producer: String,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Who decides [default: the database user]
    #[arg(long)]
    pub actor: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

pub async fn run(config: &Config, command: TrustCommand) -> Result<ExitCode> {
    let store = connect::open(&config.target, "gov-handoff trust").await?;
    match command {
        TrustCommand::List { json } => list(&store, config, json).await,
        TrustCommand::Grant(change) => set(&store, config, &change, true).await,
        TrustCommand::Revoke(change) => set(&store, config, &change, false).await,
    }
}

async fn list(store: &Store, config: &Config, json: bool) -> Result<ExitCode> {
    let policies = store.trust(&config.worker).await?;
    if json {
        output::json(&policies)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |p: &TrustPolicy| {
        let trusted = p.producers.as_ref().map_or_else(
            || "every role that may write the table".to_owned(),
            |known| if known.is_empty() { "nobody".to_owned() } else { known.join(", ") },
        );
        let waiting: Vec<_> =
            p.waiting.as_object().into_iter().flatten().map(|(name, n)| format!("{name} ({n})")).collect();
        vec![p.source.clone(), p.by.clone(), trusted, waiting.join(", ")]
    };
    output::table(
        &["source", "by", "trusts", "unknown, waiting"],
        &policies.iter().map(row).collect::<Vec<_>>(),
    );
    Ok(ExitCode::SUCCESS)
}

async fn set(store: &Store, config: &Config, change: &TrustArguments, trusted: bool) -> Result<ExitCode> {
    known::source(&store.sources(&config.worker).await?, &change.source)?;
    let (changed, promoted) = if change.dry_run {
        preview(store, config, change, trusted).await?
    } else {
        let actor = change.actor.as_deref();
        let done = store.set_trust(&config.worker, &change.source, &change.producer, trusted, actor).await?;
        (done.changed, done.promoted + promote_rest(store, config, trusted).await?)
    };
    let TrustArguments { source, producer, .. } = change;
    if change.json {
        output::json(&json!({
            "source": source, "producer": producer, "trusted": trusted, "changed": changed,
            "promoted": promoted, "dry_run": change.dry_run,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let word = match (change.dry_run, changed, trusted) {
        (_, false, true) => "was trusted already",
        (_, false, false) => "was not trusted",
        (true, true, true) => "would be trusted",
        (true, true, false) => "would no longer be trusted",
        (false, true, true) => "is trusted",
        (false, true, false) => "is no longer trusted; its rows are captured from now on",
    };
    output::line(format_args!("source {source}: {producer} {word}"));
    if promoted > 0 {
        let n = output::count(promoted);
        output::line(if change.dry_run {
            format!("{n} captured handoffs would be promoted; nothing was changed")
        } else {
            format!("{n} captured rows are handed off by the daemon, or by the next `gov-handoff run --once`")
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// A grant promotes the first part of the captures. This promotes the rest and returns how many rows were staged.
async fn promote_rest(store: &Store, config: &Config, trusted: bool) -> Result<i64> {
    let mut rows = 0;
    while trusted && store.promotable(&config.worker).await? {
        let part = store.promote_trusted(&config.worker, None).await?;
        rows += part.rows;
        if !part.more {
            break;
        }
    }
    Ok(rows)
}

/// What the gate would do, without doing it.
async fn preview(
    store: &Store,
    config: &Config,
    change: &TrustArguments,
    trusted: bool,
) -> Result<(bool, i64)> {
    let policies = store.trust(&config.worker).await?;
    let Some(policy) = policies.into_iter().find(|p| p.source == change.source) else {
        return Err(Error::config(format!("unknown source {}", change.source)));
    };
    let Some(known) = policy.producers else {
        return Err(Error::new(
            Kind::Refused,
            format!(
                "source {} has no list of producers: every role that may write its table is trusted",
                change.source
            ),
        ));
    };
    let changed = known.contains(&change.producer) != trusted;
    let waiting = policy.waiting.get(&change.producer).and_then(serde_json::Value::as_i64).unwrap_or(0);
    Ok((changed, if trusted { waiting } else { 0 }))
}
