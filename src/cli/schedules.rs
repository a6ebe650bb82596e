//! `schedules`: jobs that are enqueued at times. Lists them, makes them as a file has them, pauses and resumes them.

use crate::cli::{jobs, output, toml_file};
use crate::config::Config;
use crate::core::dead_letter::clip;
use crate::core::schedule::ScheduleFile;
use crate::error::codes::NO_SUCH_SCHEDULE;
use crate::error::{Error, Result};
use crate::store::schedules::{ListedSchedule, ScheduleAnswer, ScheduleChange};
use crate::store::{Store, connect};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum SchedulesCommand {
    /// Every schedule: what it enqueues, when next, when last
    List {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Make schedules as a file has them; those that the file does not name stay as they are
    ///
    /// Exit codes: 0 done, 1 a schedule was refused, 2 could not run.
    Apply {
        /// A TOML file of [[schedule]] tables, as replication/schedules.toml shows
        file: PathBuf,
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
    /// Compare a file with the database; changes nothing
    ///
    /// Exit codes: 0 the database is as the file has it, 1 it differs or a schedule would be refused, 2 could not tell.
    Check {
        /// A TOML file of [[schedule]] tables, as replication/schedules.toml shows
        file: PathBuf,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Let a schedule enqueue nothing; what falls into the pause is not made up
    Pause(SchedulePauseCommand),
    /// End the pause of a schedule; it goes on with its next due time
    Resume(SchedulePauseCommand),
}

#[derive(Args)]
pub struct SchedulePauseCommand {
    /// As `schedules list` shows it
    name: String,
    /// Who decides [default: the database user]
    #[arg(long)]
    actor: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub async fn run(config: &Config, command: SchedulesCommand) -> Result<ExitCode> {
    match command {
        SchedulesCommand::List { json } => list(&open(config).await?, json).await,
        SchedulesCommand::Apply { file, dry_run, actor, json } => {
            let file = read(&file)?;
            let answers = open(config).await?.apply_schedules(&file, !dry_run, actor.as_deref()).await?;
            show(&answers, json)?;
            if dry_run && !json {
                output::line("nothing was changed");
            }
            Ok(ExitCode::from(u8::from(answers.iter().any(|a| a.change == ScheduleChange::Refused))))
        }
        SchedulesCommand::Check { file, json } => {
            let file = read(&file)?;
            let answers = open(config).await?.apply_schedules(&file, false, None).await?;
            show(&answers, json)?;
            Ok(ExitCode::from(u8::from(answers.iter().any(|a| a.change != ScheduleChange::Unchanged))))
        }
        SchedulesCommand::Pause(command) => pause(config, &command, true).await,
        SchedulesCommand::Resume(command) => pause(config, &command, false).await,
    }
}

async fn open(config: &Config) -> Result<Store> {
    connect::open(&config.target, "gov-handoff schedules").await
}

/// Errors in a file are reported before a connection is opened.
fn read(path: &Path) -> Result<ScheduleFile> {
    let file: ScheduleFile = toml_file::read(path)?;
    let name = path.display();
    for (schedule, executor) in file.executors() {
        jobs::executor_kind(executor).map_err(|e| e.context(format_args!("{name}: schedule {schedule}")))?;
    }
    file.check().map_err(|why| Error::config(format!("{name}: {why}")))?;
    Ok(file)
}

fn show(answers: &[ScheduleAnswer], json: bool) -> Result<()> {
    if json {
        return output::json(&json!({ "changes": answers }));
    }
    if answers.is_empty() {
        output::line("the file names no schedule, and there is none");
        return Ok(());
    }
    let row = |a: &ScheduleAnswer| {
        let said = match a.change {
            ScheduleChange::NotInTheFile => {
                Some("stays; `schedules pause` lets it enqueue nothing".to_owned())
            }
            _ => a.reason.as_deref().map(clip),
        };
        vec![clip(&a.name), a.change.name().to_owned(), said.unwrap_or_default()]
    };
    output::table(&["schedule", "change", ""], &answers.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

async fn pause(config: &Config, command: &SchedulePauseCommand, paused: bool) -> Result<ExitCode> {
    let store = open(config).await?;
    let name = command.name.as_str();
    if !store.schedules().await?.iter().any(|schedule| schedule.name == name) {
        return Err(Error::of(&NO_SUCH_SCHEDULE, format!("there is no schedule {}", clip(name))));
    }
    let changed = store.pause_schedule(name, paused, command.actor.as_deref()).await?;
    if command.json {
        output::json(&json!({ "schedule": name, "paused": paused, "changed": changed }))?;
    } else {
        let word = match (paused, changed) {
            (true, true) => "is paused; it enqueues nothing",
            (true, false) => "was paused already",
            (false, true) => "goes on; what fell into the pause is not made up",
            (false, false) => "was not paused",
        };
        output::line(format_args!("schedule {} {word}", clip(name)));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(store: &Store, json: bool) -> Result<ExitCode> {
    let schedules = store.schedules().await?;
    if json {
        output::json(&schedules)?;
        return Ok(ExitCode::SUCCESS);
    }
    if schedules.is_empty() {
        output::line("there are no schedules");
        return Ok(ExitCode::SUCCESS);
    }
    let optional = |text: &Option<String>| text.as_deref().map(clip).unwrap_or_default();
    let row = |s: &ListedSchedule| {
        let timing = match (&s.cron, &s.every) {
            (Some(cron), _) => format!("{} {}", clip(cron), s.zone),
            (None, every) => format!("every {}", optional(every)),
        };
        let next = if s.paused { "paused".to_owned() } else { optional(&s.next_run_at) };
        vec![
            clip(&s.name),
            timing,
            s.missed.clone(),
            s.executor.clone(),
            clip(&s.kind),
            optional(&s.domain),
            next,
            optional(&s.last_run_at),
            optional(&s.last_error),
        ]
    };
    let header = ["schedule", "when", "missed", "executor", "kind", "domain", "next", "last", "error"];
    output::table(&header, &schedules.iter().map(row).collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}
