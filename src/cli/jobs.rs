//! `jobs`: the job queue. Lists and shows jobs, enqueues, cancels, and queues dead letters again.

use crate::cli::{output, time};
use crate::config::Config;
use crate::core::dead_letter::clip;
use crate::core::job::{Enqueued, ExecutorKind, NewJob, NotAnExecutor, Reply, STATUSES};
use crate::error::codes::{NO_SUCH_JOB, NOT_AN_EXECUTOR};
use crate::error::{Error, Kind, Result};
use crate::store::job_queue::{JobSelection, ListedJob, ShownJob, Transition};
use crate::store::{Store, connect};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;
use uuid::Uuid;

#[derive(Subcommand)]
pub enum JobsCommand {
    /// List jobs, the newest first
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
    /// Enqueue a job; a key that is taken returns the job that has it, and changes nothing
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
pub struct EnqueueCommand {
    /// What is to be done; subscriptions name it
    kind: String,
    /// The name of this job for good
    key: String,
    /// The kind of executor that is to do it, such as Hermes
    #[arg(long)]
    executor: String,
    /// The event domain
    #[arg(long)]
    domain: Option<String>,
    /// Where the contents are; the queue carries references only
    #[arg(long, value_name = "REFERENCE")]
    payload_ref: Option<String>,
    /// Small facts, as an object in JSON
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// A higher one is claimed first
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    priority: i16,
    /// Not before this time, such as 2026-11-16T12:00:00Z
    #[arg(long, value_name = "TIME")]
    run_at: Option<String>,
    /// A finding if the job has not ended by this time
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,
    /// A dead letter after so many attempts
    #[arg(long, value_name = "N")]
    max_attempts: Option<i32>,
    /// Wait until this job has succeeded, by id or key; may be given several times
    #[arg(long, value_name = "JOB")]
    after: Vec<String>,
    /// Groups jobs of one run
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// For whom [default: the database user]
    #[arg(long)]
    actor: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
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
        JobsCommand::Enqueue(command) => enqueue(config, &command).await,
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

impl EnqueueCommand {
    fn job(&self) -> Result<NewJob> {
        let mut job = NewJob::new(&self.kind, &self.key, executor_kind(&self.executor)?)
            .priority(self.priority)
            .after(self.after.iter().cloned());
        if let Some(text) = &self.payload {
            let payload: Value = serde_json::from_str(text)
                .map_err(|e| Error::config(format!("--payload is not JSON (column {})", e.column())))?;
            if !payload.is_object() {
                return Err(Error::config(
                    "--payload is not an object; write for example '{\"revision\": 3}'",
                ));
            }
            job = job.payload(payload);
        }
        if let Some(domain) = &self.domain {
            job = job.domain(domain);
        }
        if let Some(reference) = &self.payload_ref {
            job = job.payload_ref(reference);
        }
        if let Some(at) = &self.run_at {
            job = job.run_at(time::parse(at)?);
        }
        if let Some(at) = &self.deadline {
            job = job.deadline_at(time::parse(at)?);
        }
        if let Some(n) = self.max_attempts {
            job = job.max_attempts(n);
        }
        if let Some(id) = &self.correlation_id {
            job = job.correlation_id(id);
        }
        if let Some(actor) = &self.actor {
            job = job.actor(actor);
        }
        Ok(job)
    }
}

async fn enqueue(config: &Config, command: &EnqueueCommand) -> Result<ExitCode> {
    let job = command.job()?;
    let answers = open(config).await?.enqueue_jobs(&[job]).await?;
    let (id, is_new) = match answers.first() {
        Some(Enqueued::New(id)) => (id, true),
        Some(Enqueued::Known(id)) => (id, false),
        Some(Enqueued::Refused(why)) if why.starts_with("not granted") => {
            return Err(Error::new(Kind::Privilege, format!("the job was refused: {why}")));
        }
        Some(Enqueued::Refused(why)) => {
            return Err(Error::new(Kind::Refused, format!("the job was refused: {why}")));
        }
        None => return Err(Error::new(Kind::Internal, "the gate did not answer about a job")),
    };
    if command.json {
        output::json(&json!({ "id": id.to_string(), "new": is_new }))?;
    } else if is_new {
        output::line(format_args!("job {id} is enqueued"));
    } else {
        output::line(format_args!("the key is taken by job {id}; nothing was changed"));
    }
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
