//! The jobs that [`Executor::run`](super::Executor::run) works on: tasks that run, and outcomes that the server does not know yet.

use super::{Job, Token};
use serde_json::{Value, json};
use std::collections::HashMap;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use uuid::Uuid;

/// What a handler says of its job.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The job succeeded. The value is kept as evidence: references, not contents.
    Done(Value),
    /// The attempt failed, for this reason; try again later.
    Retry(String),
    /// The job cannot succeed, for this reason: a dead letter at once.
    Reject(String),
    /// Give the job back for others to claim; that costs no attempt.
    Release,
}

impl Ending {
    /// The job succeeded, without evidence.
    #[must_use]
    pub fn done() -> Self {
        Self::Done(json!({}))
    }
}

/// What became of the jobs of one [`run`](super::Executor::run), as the server answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTally {
    pub succeeded: u64,
    /// Attempts that failed, with and without another chance.
    pub failed: u64,
    pub released: u64,
    /// Jobs whose claim was over before the executor could say what became of them. Another claim takes care of them. A job is
    /// also counted here if it was completed and the connection broke before the answer.
    pub lost: u64,
}

/// A job and the token of its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holding {
    pub job: Uuid,
    pub token: Token,
}

/// A job whose outcome the server does not know yet.
#[derive(Debug)]
pub(super) struct Ended {
    pub held: Holding,
    pub outcome: Ending,
}

#[derive(Default)]
pub(super) struct Work {
    tasks: JoinSet<Ending>,
    running: HashMap<Id, (Holding, AbortHandle)>,
    pub ended: Vec<Ended>,
    pub tally: RunTally,
}

impl Work {
    /// Jobs that are held: running, or ended and not handed in.
    pub fn len(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    pub fn spawn<F: Future<Output = Ending> + Send + 'static>(&mut self, job: &Job, work: F) {
        let held = Holding { job: job.id, token: job.token };
        let handle = self.tasks.spawn(work);
        self.running.insert(handle.id(), (held, handle));
    }

    /// Waits until a task has ended; without an end if none runs.
    pub async fn next(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.note(ended),
            None => std::future::pending().await,
        }
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.note(ended);
        }
    }

    fn note(&mut self, ended: Result<(Id, Ending), JoinError>) {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, outcome),
            Err(e) if e.is_panic() => (e.id(), Ending::Retry("the handler panicked".to_owned())),
            // Aborted, because the claim is over.
            Err(e) => return drop(self.running.remove(&e.id())),
        };
        if let Some((held, _)) = self.running.remove(&id) {
            self.ended.push(Ended { held, outcome });
        }
    }

    /// The claims whose leases must be kept.
    pub fn held(&self) -> Vec<Holding> {
        let running = self.running.values().map(|(held, _)| *held);
        running.chain(self.ended.iter().map(|ended| ended.held)).collect()
    }

    /// The claim of this job is over: its task is stopped, and its outcome is forgotten.
    pub fn lose(&mut self, job: Uuid) {
        let held = self.len();
        self.running.retain(|_, (held, task)| {
            let lost = held.job == job;
            if lost {
                task.abort();
            }
            !lost
        });
        self.ended.retain(|ended| ended.held.job != job);
        self.tally.lost += (held - self.len()) as u64;
    }

    /// Takes the ended jobs that succeeded with the same evidence as the first of them.
    pub fn take_alike(&mut self) -> Option<(Value, Vec<Ended>)> {
        let evidence = self.ended.iter().find_map(|ended| match &ended.outcome {
            Ending::Done(evidence) => Some(evidence.clone()),
            _ => None,
        })?;
        let alike = |ended: &mut Ended| matches!(&ended.outcome, Ending::Done(e) if *e == evidence);
        let taken = self.ended.extract_if(.., alike).collect();
        Some((evidence, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(n: u128) -> Job {
        Job {
            id: Uuid::from_u128(n),
            token: Token(i64::try_from(n).unwrap()),
            kind: "k".to_owned(),
            domain: None,
            payload_ref: None,
            payload: json!({}),
            attempt: 1,
            lease_until: chrono::DateTime::UNIX_EPOCH,
            deadline_at: None,
        }
    }

    #[tokio::test]
    async fn a_panic_is_a_failed_attempt() {
        let mut work = Work::default();
        work.spawn(&job(1), async { panic!("no") });
        work.next().await;
        assert_eq!(work.ended[0].outcome, Ending::Retry("the handler panicked".to_owned()));
        assert_eq!(work.held(), [Holding { job: Uuid::from_u128(1), token: Token(1) }]);
    }

    #[tokio::test]
    async fn a_lost_job_is_stopped_and_its_outcome_is_forgotten() {
        let mut work = Work::default();
        let (stopped, was_stopped) = tokio::sync::oneshot::channel::<()>();
        work.spawn(&job(1), async move {
            let _stopped = stopped;
            std::future::pending::<()>().await;
            Ending::done()
        });
        work.spawn(&job(2), async { Ending::done() });
        work.next().await;
        work.lose(Uuid::from_u128(1));
        work.lose(Uuid::from_u128(2));
        assert!(was_stopped.await.is_err(), "the task is gone");
        assert_eq!((work.len(), work.tally.lost), (0, 2));
    }

    #[tokio::test]
    async fn successes_with_the_same_evidence_are_handed_in_together() {
        let mut work = Work::default();
        for (n, evidence) in [(1, "a"), (2, "b"), (3, "a")] {
            work.spawn(&job(n), async move { Ending::Done(json!({ "run": evidence })) });
        }
        work.spawn(&job(4), async { Ending::Release });
        while work.ended.len() < 4 {
            work.next().await;
        }
        let sizes: Vec<_> = std::iter::from_fn(|| work.take_alike()).map(|(_, taken)| taken.len()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 3);
        assert_eq!(sizes.len(), 2);
        assert_eq!(work.ended.len(), 1, "what was released is handed in by itself");
    }
}
