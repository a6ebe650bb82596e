//! `jobs`: the job queue. Lists and shows jobs, enqueues, cancels, and queues dead letters again.

mod enqueue;

use crate::cli::output;
use crate::config::Config;
use crate::core::dead_letter::clip;
use crate::core::job::{ExecutorKind, NotAnExecutor, Reply, STATUSES};
use crate::error::codes::{NO_SUCH_JOB, NOT_AN_EXECUTOR};
use crate::error::{Error, Kind, Result};
use crate::store::job_queue::{JobSelection, ListedJob, ShownJob, Transition};
use crate::store::{Store, connect};
use clap::{Args, Subcommand};
use enqueue::EnqueueCommand;
use serde_json::{Value, json};
use std::process::ExitCode;
use uuid::Uuid;

#[derive(Subcommand)]
pub enum JobsCommand {
    /// List jobs, the newest first
    ///
    /// A state, kind, executor or domain is searched for among the newest 20,000 jobs, and a state that has not ended also among
    /// as many jobs that wait, run or are dead.
    List {
        /// In this state: queued, leased, in_progress, retry_waiting, succeeded, failed, dead_letter, cancelled or cleaned
        #[arg(long)]
        status: Option<String>,
        /// Of this kind of job
        #[arg(long)]
        kind: Option<String>,
        /// For this kind of executor
        #[arg(long)]
        executor: Option<String>,
        /// Of this event domain
        #[arg(long)]
        domain: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: i64,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Everything that is known of a job, and its history from the transition log
    Show {
        /// Its id or its key
        job: String,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Enqueue a job, or a graph of jobs; a key that is taken returns the job that has it, and changes nothing
    Enqueue(EnqueueCommand),
    /// End jobs that have not ended; work that runs is fenced off (needs --reason)
    ///
    /// Exit codes: 0 all were cancelled, 1 one was not, 2 could not run.
    Cancel {
        /// Ids or keys
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<String>,
        /// Why; it stands in the history
        #[arg(long)]
        reason: String,
        /// Who decides [default: the database user]
        #[arg(long)]
        actor: Option<String>,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Queue dead letters again; they keep ids, keys and histories, and have all their attempts
    ///
    /// Exit codes: 0 all were queued, 1 one was not, 2 could not run.
    Redrive(RedriveCommand),
    /// How much waits, runs and fails, by lane
    Stats {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub struct RedriveCommand {
    /// Ids or keys
    #[arg(value_name = "JOB", required_unless_present = "all", conflicts_with = "all")]
    jobs: Vec<String>,
    /// All dead letters of jobs
    #[arg(long)]
    all: bool,
    /// With --all: of this kind of job only
    #[arg(long, requires = "all")]
    kind: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Who decides [default: the database user]
    #[arg(long)]
    actor: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub async fn run(config: &Config, command: JobsCommand) -> Result<ExitCode> {
    // What is wrong with the arguments is reported before a connection is opened.
    match command {
        JobsCommand::List { status, kind, executor, domain, limit, json } => {
            let executor = executor.as_deref().map(executor_kind).transpose()?.map(|kind| kind.to_string());
            if let Some(status) = status.as_deref().filter(|status| !STATUSES.contains(status)) {
                return Err(Error::config(format!(
                    "unknown state {status}; known are {}",
                    STATUSES.join(", ")
                )));
            }
            let selection = JobSelection { status, kind, executor, domain };
            list(&open(config).await?, &selection, limit.max(0), json).await
        }
        JobsCommand::Show { job, json } => show(&found(&open(config).await?, &job).await?, json),
        JobsCommand::Enqueue(command) => enqueue::run(config, &command).await,
        JobsCommand::Cancel { jobs, reason, actor, json } => {
            let store = open(config).await?;
            let ids = ids(&store, &jobs).await?;
            let answers = store.cancel_jobs(&ids, &reason, actor.as_deref()).await?;
            told("cancelled", &answers, json)
        }
        JobsCommand::Redrive(command) => redrive(config, &command).await,
        JobsCommand::Stats { json } => stats(&open(config).await?, json).await,
    }
}

async fn open(config: &Config) -> Result<Store> {
    connect::open(&config.target, "gov-handoff jobs").await
}

/// The kind of executor of that name; MOT is told apart from a misspelt one.
pub(super) fn executor_kind(name: &str) -> Result<ExecutorKind> {
    name.parse().map_err(|e: NotAnExecutor| Error::of(&NOT_AN_EXECUTOR, e.to_string()))
}

async fn found(store: &Store, job: &str) -> Result<ShownJob> {
    let shown = store.job(Uuid::parse_str(job).ok(), job).await?;
    shown.ok_or_else(|| Error::of(&NO_SUCH_JOB, format!("there is no job {}", clip(job))))
}

/// All jobs are found before the first one is changed.
async fn ids(store: &Store, jobs: &[String]) -> Result<Vec<Uuid>> {
    let mut ids = Vec::with_capacity(jobs.len());
    for job in jobs {
        let shown = found(store, job).await?;
        let id = shown.job["id"].as_str().and_then(|id| Uuid::parse_str(id).ok());
        ids.push(id.ok_or_else(|| Error::new(Kind::Internal, format!("job {} has no id", clip(job))))?);
    }
    Ok(ids)
}

async fn list(store: &Store, selection: &JobSelection, limit: i64, json: bool) -> Result<ExitCode> {
    let jobs = store.jobs(selection, limit).await?;
    if json {
        output::json(&jobs)?;
    } else if jobs.is_empty() {
        output::line("no jobs match");
    } else {
        let row = |job: &ListedJob| {
            vec![
                job.id.to_string(),
                clip(&job.key),
                clip(&job.kind),
                job.domain.as_deref().map(clip).unwrap_or_default(),
                job.executor.clone().unwrap_or_default(),
                job.status.clone(),
                format!("{}/{}", job.attempts, job.max_attempts),
                job.created_at.clone(),
                job.last_error.as_deref().map(clip).unwrap_or_default(),
            ]
        };
        let header =
            ["id", "key", "kind", "domain", "executor", "state", "attempts", "enqueued", "last error"];
        output::table(&header, &jobs.iter().map(row).collect::<Vec<_>>());
    }
    Ok(ExitCode::SUCCESS)
}

fn show(shown: &ShownJob, json: bool) -> Result<ExitCode> {
    if json {
        output::json(shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    let field = |name: &str, value: &str| output::line(format_args!("{name:<16} {value}"));
    if let Value::Object(fields) = &shown.job {
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            field(&name.replace('_', " "), &value.as_str().map_or_else(|| value.to_string(), clip));
        }
    }
    if let Some(at) = &shown.archived_at {
        field("archived at", at);
    }
    if let Some(letter) = &shown.dead_letter {
        field("dead letter", letter);
    }
    for other in &shown.waits_for {
        let key = other.key.as_deref().map(clip).unwrap_or_default();
        field("waits for", &format!("{} {key} {}", other.id, other.status.as_deref().unwrap_or("archived")));
    }
    for evidence in &shown.evidence {
        field("evidence", &format!("{} (token {})", clip(&evidence.evidence.to_string()), evidence.token));
    }
    output::line("");
    let optional = |text: &Option<String>| text.as_deref().map(clip).unwrap_or_default();
    let row = |t: &Transition| {
        let token = t.token.map(|token| token.to_string()).unwrap_or_default();
        let change = format!("{} -> {}", t.from.as_deref().unwrap_or("-"), t.to);
        vec![t.at.clone(), change, token, optional(&t.executor), clip(&t.actor), optional(&t.reason)]
    };
    let history: Vec<_> = shown.history.iter().map(row).collect();
    output::table(&["at", "transition", "token", "executor", "actor", "reason"], &history);
    Ok(ExitCode::SUCCESS)
}

async fn redrive(config: &Config, command: &RedriveCommand) -> Result<ExitCode> {
    let store = open(config).await?;
    let ids = match command.all {
        true => store.dead_jobs(command.kind.as_deref()).await?,
        false => ids(&store, &command.jobs).await?,
    };
    if command.dry_run {
        if command.json {
            output::json(
                &json!({ "dry_run": true, "jobs": ids.iter().map(Uuid::to_string).collect::<Vec<_>>() }),
            )?;
        } else {
            output::line(format_args!("{} jobs would be queued again; nothing was changed", ids.len()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    told("queued again", &store.redrive(&ids, command.actor.as_deref()).await?, command.json)
}

/// One line or object for each job. Exit code 1 if one was not done.
fn told(verb: &str, answers: &[(Uuid, Reply)], json: bool) -> Result<ExitCode> {
    if json {
        let one = |(id, answer): &(Uuid, Reply)| json!({ "id": id.to_string(), "outcome": answer.outcome(), "reason": answer.reason() });
        output::json(&answers.iter().map(one).collect::<Vec<_>>())?;
    } else {
        for (id, answer) in answers {
            match answer.reason() {
                None => output::line(format_args!("job {id} is {verb}")),
                Some(why) => output::line(format_args!("job {id} is not {verb}: {why}")),
            }
        }
        if answers.is_empty() {
            output::line("no jobs match; nothing to do");
        }
    }
    Ok(ExitCode::from(u8::from(!answers.iter().all(|(_, answer)| answer.is_done()))))
}

async fn stats(store: &Store, json: bool) -> Result<ExitCode> {
    let (queue, lanes) = store.job_health().await?;
    if json {
        output::json(&json!({ "queue": queue, "lanes": lanes }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => clip(text),
        other => other.to_string(),
    };
    if let Value::Object(fields) = &queue {
        for (name, value) in fields {
            output::line(format_args!("{:<18} {}", name.replace('_', " "), text(value)));
        }
    }
    if !lanes.is_empty() {
        output::line("");
        let names = ["executor", "job_kind", "event_domain", "priority", "ready", "oldest_ready_at"];
        let rows: Vec<_> = lanes.iter().map(|lane| names.map(|name| text(&lane[name])).to_vec()).collect();
        output::table(&["executor", "kind", "domain", "priority", "ready", "oldest"], &rows);
    }
    Ok(ExitCode::SUCCESS)
}
