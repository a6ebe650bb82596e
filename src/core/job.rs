//! Jobs as values: what is enqueued, what is claimed, and what a gate answers.

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// The nine states. `docs/jobs.md` draws them; the table `job_transition_rule` is what the database enforces.
pub const STATUSES: [&str; 9] = [
    "queued",
    "leased",
    "in_progress",
    "retry_waiting",
    "succeeded",
    "failed",
    "dead_letter",
    "cancelled",
    "cleaned",
];

/// What kind of program an executor is. The database knows these seven and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutorKind {
    Dot,
    Agent,
    Hermes,
    Codex,
    PgWorker,
    External,
    /// Reserved for an adapter that does not exist yet.
    FutureKestraAdapter,
}

impl ExecutorKind {
    pub const ALL: [Self; 7] = [
        Self::Dot,
        Self::Agent,
        Self::Hermes,
        Self::Codex,
        Self::PgWorker,
        Self::External,
        Self::FutureKestraAdapter,
    ];

    /// The name in the database.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dot => "DOT",
            Self::Agent => "Agent",
            Self::Hermes => "Hermes",
            Self::Codex => "Codex",
            Self::PgWorker => "PG_worker",
            Self::External => "external_worker",
            Self::FutureKestraAdapter => "future_Kestra_adapter",
        }
    }
}

impl fmt::Display for ExecutorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for ExecutorKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A name that is not a kind of executor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnExecutor {
    #[error("MOT is not an executor: it enqueues graphs of jobs (fn_mot_graph_emit) and claims none")]
    Mot,
    #[error("unknown kind of executor {0}; known are {known}", known = ExecutorKind::ALL.map(ExecutorKind::name).join(", "))]
    Unknown(String),
}

impl FromStr for ExecutorKind {
    type Err = NotAnExecutor;

    fn from_str(name: &str) -> Result<Self, NotAnExecutor> {
        if name.eq_ignore_ascii_case("MOT") {
            return Err(NotAnExecutor::Mot);
        }
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| NotAnExecutor::Unknown(name.to_owned()))
    }
}

/// Whether an executor's id is a form of MOT's name, such as `mot`, `mot-1` or `svc:MOT`. The database refuses it.
#[must_use]
pub fn is_named_mot(executor: &str) -> bool {
    executor.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word.eq_ignore_ascii_case("mot"))
}

/// A job to enqueue. The key names the job for good: a second job with the same key is the first one.
///
/// ```
/// use gov_handoff::queue::{ExecutorKind, NewJob};
/// use serde_json::json;
///
/// let job = NewJob::new("verify_mark", "verify:draft-10", ExecutorKind::Hermes)
///     .domain("iu")
///     .payload_ref("iu://draft/10")
///     .payload(json!({ "revision": 3 }))
///     .priority(5)
///     .after(["render:draft-10"]);
/// assert_eq!(job.key(), "verify:draft-10");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[must_use]
pub struct NewJob {
    kind: String,
    key: String,
    executor: ExecutorKind,
    domain: Option<String>,
    payload_ref: Option<String>,
    payload: Value,
    priority: i16,
    run_at: Option<DateTime<Utc>>,
    deadline_at: Option<DateTime<Utc>>,
    max_attempts: Option<i32>,
    actor: Option<String>,
    correlation_id: Option<String>,
    depends_on: Vec<String>,
}

impl NewJob {
    pub fn new(kind: impl Into<String>, key: impl Into<String>, executor: ExecutorKind) -> Self {
        Self {
            kind: kind.into(),
            key: key.into(),
            executor,
            domain: None,
            payload_ref: None,
            payload: json!({}),
            priority: 0,
            run_at: None,
            deadline_at: None,
            max_attempts: None,
            actor: None,
            correlation_id: None,
            depends_on: vec![],
        }
    }

    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    #[must_use]
    pub fn executor(&self) -> ExecutorKind {
        self.executor
    }

    /// The event domain, such as `iu`. Subscriptions may name one.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Where the contents are. The queue carries references, never contents.
    pub fn payload_ref(mut self, reference: impl Into<String>) -> Self {
        self.payload_ref = Some(reference.into());
        self
    }

    /// Small facts about the job. Names such as `body`, `content`, `token` or `vector` are refused at any depth.
    pub fn payload(mut self, payload: Value) -> Self {
        self.payload = payload;
        self
    }

    /// A higher priority is claimed first. The default is 0.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Not before this time.
    pub fn run_at(mut self, at: DateTime<Utc>) -> Self {
        self.run_at = Some(at);
        self
    }

    /// A job that has not ended by this time is a finding, `job_overdue`. It is not stopped.
    pub fn deadline_at(mut self, at: DateTime<Utc>) -> Self {
        self.deadline_at = Some(at);
        self
    }

    /// How often the job may be claimed before it becomes a dead letter. The default is `event.retry.max_attempts`, or 5.
    pub fn max_attempts(mut self, attempts: i32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// For whom the job is enqueued. The default is the database user.
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Waits until these jobs have succeeded: ids, or keys of earlier jobs or of jobs of the same call.
    pub fn after<T: Into<String>>(mut self, jobs: impl IntoIterator<Item = T>) -> Self {
        self.depends_on.extend(jobs.into_iter().map(Into::into));
        self
    }
}

/// What became of a job that was to be enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    New(Uuid),
    /// The key was taken: this is the job that has it. Nothing was changed.
    Known(Uuid),
    /// Nothing was enqueued, for this reason.
    Refused(String),
}

impl Enqueued {
    /// The job's id, whether it is new or known.
    #[must_use]
    pub fn id(&self) -> Option<Uuid> {
        match self {
            Self::New(id) | Self::Known(id) => Some(*id),
            Self::Refused(_) => None,
        }
    }
}

/// The number of a claim. Tokens only grow: a later claim has a higher one. A write to another system that carries the token
/// can refuse an older one; `docs/jobs.md` shows how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A claimed job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: Uuid,
    pub token: Token,
    pub kind: String,
    pub domain: Option<String>,
    pub payload_ref: Option<String>,
    pub payload: Value,
    /// 1 at the first claim.
    pub attempt: i32,
    /// By the server's clock.
    pub lease_until: DateTime<Utc>,
    pub deadline_at: Option<DateTime<Utc>>,
}

/// What a gate answers about one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Done,
    /// The claim is over: its lease ended, or the job was cancelled or finished. Nothing was changed, and the caller stops
    /// working on the job.
    Stale(String),
    /// The claim holds, or the job exists, but the call does not fit its state. Nothing was changed.
    Refused(String),
}

impl Reply {
    /// The answer as the gates write it; `None` if this is no answer of theirs.
    #[must_use]
    pub fn read(outcome: &str, reason: Option<String>) -> Option<Self> {
        let reason = reason.unwrap_or_default();
        match outcome {
            "done" => Some(Self::Done),
            "stale" => Some(Self::Stale(reason)),
            "refused" => Some(Self::Refused(reason)),
            _ => None,
        }
    }

    #[must_use]
    pub fn is_done(&self) -> bool {
        *self == Self::Done
    }

    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_))
    }

    /// The word of the gates.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Stale(_) => "stale",
            Self::Refused(_) => "refused",
        }
    }

    /// Why not; `None` if it was done.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Stale(reason) | Self::Refused(reason) => Some(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written_and_mot_is_none() {
        for kind in ExecutorKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        for mot in ["MOT", "mot", "Mot"] {
            assert_eq!(mot.parse::<ExecutorKind>(), Err(NotAnExecutor::Mot));
        }
        let unknown = "agent".parse::<ExecutorKind>().unwrap_err().to_string();
        assert!(unknown.contains("agent; known are DOT, Agent, Hermes"), "{unknown}");
    }

    #[test]
    fn mot_is_recognised_by_word_and_not_by_letters() {
        for mot in ["mot", "MOT", "mot-1", "svc:mot", "a_mot_b", "mot1"] {
            assert!(is_named_mot(mot), "{mot}");
        }
        for other in ["motor", "remote", "hermes", ""] {
            assert!(!is_named_mot(other), "{other}");
        }
    }

    #[test]
    fn an_answer_keeps_its_reason() {
        assert_eq!(Reply::read("done", None), Some(Reply::Done));
        let stale = Reply::read("stale", Some("the claim is over".to_owned())).unwrap();
        assert!(
            stale.is_stale() && stale.reason() == Some("the claim is over") && stale.outcome() == "stale"
        );
        assert_eq!(Reply::read("perhaps", None), None);
    }
}
