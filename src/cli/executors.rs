//! `executors`: the programs that may claim jobs. Lists, registers and disables them.

use crate::cli::{jobs, output};
use crate::config::Config;
use crate::core::job::{NotAnExecutor, is_named_mot};
use crate::error::codes::{NO_SUCH_EXECUTOR, NOT_AN_EXECUTOR};
use crate::error::{Error, Result};
use crate::store::executors::{ListedExecutor, NewSubscription};
use crate::store::{Store, connect};
use clap::{Args, Subcommand};
use serde_json::json;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum ExecutorsCommand {
    /// List executors and their subscriptions: alive or silent, how many jobs run, totals
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Register an executor, or change its kind, its role or a subscription
    ///
    /// Without a subscription an executor claims nothing. --job-kind, --domain or --all-jobs subscribes it; each call adds one
    /// subscription, or changes the one for the same kind and domain.
    Register(RegisterCommand),
    /// Let an executor claim nothing more; what it runs it may still finish
    Disable {
        /// As `executors list` shows it
        executor: String,
        /// Who decides [default: the database user]
        #[arg(long)]
        actor: Option<String>,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub struct RegisterCommand {
    /// A name of your choice, without spaces or #
    executor: String,
    /// What kind of program it is: DOT, Agent, Hermes, Codex, PG_worker, external_worker or future_Kestra_adapter
    #[arg(long)]
    kind: String,
    /// The database role that may act for it [default: the role of its first heartbeat]
    #[arg(long)]
    role: Option<String>,
    /// Subscribe it to jobs of this kind
    #[arg(long)]
    job_kind: Option<String>,
    /// Subscribe it to jobs of this event domain
    #[arg(long)]
    domain: Option<String>,
    /// Subscribe it to all jobs for its kind of executor
    #[arg(long, conflicts_with_all = ["job_kind", "domain"])]
    all_jobs: bool,
    /// How many jobs of the subscription may run at once
    #[arg(long, default_value_t = 1)]
    max_parallel: i32,
    /// Only jobs of at least this priority
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    priority_floor: i16,
    /// Who decides [default: the database user]
    #[arg(long)]
    actor: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub async fn run(config: &Config, command: ExecutorsCommand) -> Result<ExitCode> {
    match command {
        ExecutorsCommand::List { json } => list(&open(config).await?, json).await,
        ExecutorsCommand::Register(command) => register(config, &command).await,
        ExecutorsCommand::Disable { executor, actor, json } => {
            let store = open(config).await?;
            if !store.executors().await?.iter().any(|known| known.executor == executor) {
                return Err(Error::of(&NO_SUCH_EXECUTOR, format!("no executor {executor} is registered")));
            }
            let changed = store.disable_executor(&executor, actor.as_deref()).await?;
            if json {
                output::json(&json!({ "executor": executor, "disabled": true, "changed": changed }))?;
            } else {
                let word =
                    if changed { "is disabled; it claims nothing more" } else { "was disabled already" };
                output::line(format_args!("executor {executor} {word}"));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn open(config: &Config) -> Result<Store> {
    connect::open(&config.target, "gov-handoff executors").await
}

async fn register(config: &Config, command: &RegisterCommand) -> Result<ExitCode> {
    let kind = jobs::executor_kind(&command.kind)?;
    let executor = command.executor.as_str();
    if is_named_mot(executor) {
        return Err(Error::of(&NOT_AN_EXECUTOR, NotAnExecutor::Mot.to_string()));
    }
    if executor.is_empty() || executor.len() > 200 || executor.starts_with("gov_") {
        return Err(Error::config("an executor's id has 1 to 200 characters and does not begin with gov_"));
    }
    if executor.contains(|c: char| c == '#' || c.is_whitespace()) {
        return Err(Error::config("an executor's id has neither spaces nor #"));
    }
    if command.max_parallel < 1 {
        return Err(Error::config(
            "--max-parallel is at least 1; `executors disable` lets an executor claim nothing",
        ));
    }
    let store = open(config).await?;
    let actor = command.actor.as_deref();
    store.register_executor(executor, kind, command.role.as_deref(), actor).await?;
    let subscribed = command.all_jobs || command.job_kind.is_some() || command.domain.is_some();
    if subscribed {
        let to = NewSubscription {
            job_kind: command.job_kind.as_deref(),
            domain: command.domain.as_deref(),
            priority_floor: command.priority_floor.into(),
            max_parallel: command.max_parallel,
        };
        store.subscribe_executor(executor, to, actor).await?;
    }
    let subscriptions = store.executors().await?;
    let count = subscriptions.iter().filter(|s| s.executor == executor && s.max_parallel.is_some()).count();
    if command.json {
        output::json(&json!({ "executor": executor, "kind": kind, "subscriptions": count }))?;
    } else if count == 0 {
        output::line(format_args!(
            "executor {executor} is registered; it claims nothing until it is subscribed (--job-kind, --domain or --all-jobs)"
        ));
    } else {
        output::line(format_args!("executor {executor} is registered, with {count} subscriptions"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(store: &Store, json: bool) -> Result<ExitCode> {
    let executors = store.executors().await?;
    if json {
        output::json(&executors)?;
        return Ok(ExitCode::SUCCESS);
    }
    if executors.is_empty() {
        output::line("no executor is registered");
        return Ok(ExitCode::SUCCESS);
    }
    let any = |text: &Option<String>| text.clone().unwrap_or_else(|| "*".to_owned());
    let row = |e: &ListedExecutor| {
        let subscription = match (e.max_parallel, e.subscription_enabled) {
            (None, _) => "none".to_owned(),
            (Some(_), Some(false)) => "off".to_owned(),
            _ => format!("{} {}", any(&e.job_kind), any(&e.domain)),
        };
        vec![
            e.executor.clone(),
            e.kind.clone(),
            e.role.clone().unwrap_or_default(),
            e.state.clone(),
            subscription,
            format!("{}/{}", e.running, e.max_parallel.unwrap_or_default()),
            output::count(e.claimed),
            output::count(e.finished),
            output::count(e.rescued),
            e.last_heartbeat_at.clone().unwrap_or_default(),
        ]
    };
    let header = [
        "executor",
        "kind",
        "role",
        "state",
        "job kind, domain",
        "running",
        "claimed",
        "finished",
        "rescued",
        "last heartbeat",
    ];
    output::table(&header, &executors.iter().map(row).collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}
