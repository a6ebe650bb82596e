//! `jobs enqueue`: one job, or a graph of jobs.

use super::{executor_kind, open};
use crate::cli::{output, time};
use crate::config::Config;
use crate::core::dead_letter::clip;
use crate::core::job::{Enqueued, NewJob};
use crate::error::{Error, Kind, Result};
use crate::store::Store;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use uuid::Uuid;

#[derive(Args)]
pub struct EnqueueCommand {
    /// What is to be done; subscriptions name it
    #[arg(required_unless_present = "graph")]
    kind: Option<String>,
    /// The name of this job for good
    #[arg(required_unless_present = "graph")]
    key: Option<String>,
    /// The kind of executor that is to do it, such as Hermes
    #[arg(long, required_unless_present = "graph")]
    executor: Option<String>,
    /// A graph instead of one job, all of it or nothing: a file with an array in JSON, each item as in fn_mot_graph_emit
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "kind", "key", "executor", "domain", "payload_ref", "payload", "priority", "run_at", "deadline", "max_attempts", "after",
            "correlation_id", "actor",
        ]
    )]
    graph: Option<PathBuf>,
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

impl EnqueueCommand {
    fn job(&self) -> Result<NewJob> {
        let [kind, key, executor] =
            [&self.kind, &self.key, &self.executor].map(|text| text.as_deref().unwrap_or_default());
        let mut job = NewJob::new(kind, key, executor_kind(executor)?)
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

/// What is wrong with the arguments is reported before a connection is opened.
pub(super) async fn run(config: &Config, command: &EnqueueCommand) -> Result<ExitCode> {
    if let Some(path) = &command.graph {
        let jobs = read_graph(path)?;
        return graph(&open(config).await?, &jobs, command.json).await;
    }
    let job = command.job()?;
    let store = open(config).await?;
    let answers = store.enqueue_jobs(std::slice::from_ref(&job)).await?;
    let (id, is_new) = match answers.first() {
        Some(Enqueued::New(id)) => (id, true),
        Some(Enqueued::Known(id)) => (id, false),
        Some(Enqueued::Refused(why)) => {
            return Err(store.refusal(job.executor().name(), format!("the job was refused: {why}")).await);
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

fn read_graph(path: &Path) -> Result<Vec<Value>> {
    let name = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|e| Error::config(format!("cannot read {name}: {e}")))?;
    let jobs: Vec<Value> = serde_json::from_str(&text)
        .map_err(|e| Error::config(format!("{name} line {}: expected an array of jobs in JSON", e.line())))?;
    for job in &jobs {
        executor_kind(executor_of(job))
            .map_err(|e| e.context(format_args!("{name}: job {}", key_of(job))))?;
    }
    Ok(jobs)
}

fn key_of(job: &Value) -> String {
    clip(job["key"].as_str().unwrap_or("without a key"))
}

fn executor_of(job: &Value) -> &str {
    job["executor"].as_str().unwrap_or_default()
}

/// All jobs of a graph, or none. The first one that was refused for a reason of its own is the error.
async fn graph(store: &Store, jobs: &[Value], json: bool) -> Result<ExitCode> {
    let answers = store.emit_graph(&Value::from(jobs.to_vec())).await?;
    let mut told = Vec::new();
    for (job, answer) in jobs.iter().zip(&answers) {
        match answer {
            Enqueued::New(id) => told.push((key_of(job), id, true)),
            Enqueued::Known(id) => told.push((key_of(job), id, false)),
            Enqueued::Refused(_) => return Err(refused(store, jobs, &answers).await),
        }
    }
    if json {
        let one = |(key, id, is_new): &(String, &Uuid, bool)| json!({ "key": key, "id": id.to_string(), "new": is_new });
        output::json(&told.iter().map(one).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    for (key, id, is_new) in &told {
        let word = if *is_new { "is enqueued" } else { "was there already" };
        output::line(format_args!("job {id} {word}: {key}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn refused(store: &Store, jobs: &[Value], answers: &[Enqueued]) -> Error {
    let mut why = Vec::new();
    for (job, answer) in jobs.iter().zip(answers) {
        if let Enqueued::Refused(reason) = answer {
            why.push(format!("{}: {reason}", key_of(job)));
        }
    }
    let refused = format!("nothing was enqueued. {}", why.join("; "));
    // One job without a grant is enough to refuse them all.
    for job in jobs {
        let error = store.refusal(executor_of(job), refused.clone()).await;
        if error.kind != Kind::Refused {
            return error;
        }
    }
    Error::new(Kind::Refused, refused)
}
