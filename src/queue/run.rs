//! The loop of an executor. One turn hands in what has ended, claims if there is room, and waits for the next event.

use super::executor::BEAT;
use super::work::{Ended, Ending, RunTally, Work};
use super::{Executor, Job, Reply, Token};
use crate::error::{Error, Policy, Result};
use std::pin::{Pin, pin};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use uuid::Uuid;

/// The pauses between attempts while the server is away: the first one, and the longest.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(5);
/// A lease survives two heartbeats that fail.
const BEATS_PER_LEASE: u32 = 3;

/// What the loop knows besides its jobs.
struct LoopState {
    /// Whether a claim may find something: at the start, after a notification, a poll, or a job that ended.
    look: bool,
    look_at: Instant,
    /// Nothing more is claimed. An error is returned when all jobs have ended.
    ending: Option<Result<()>>,
}

impl Executor {
    /// Claims and runs up to `parallel` jobs at a time, until `stop` is ready; then waits for those that run, and returns.
    ///
    /// Each job runs in a task of its own, so the runtime needs a second thread if a handler blocks. Leases are extended while
    /// the tasks run. A job whose claim is over (cancelled, or claimed by another executor) is stopped: its task is dropped at its
    /// next `await`. A handler that panics has failed its attempt. While the server is away the tasks go on, and the loop connects
    /// again.
    ///
    /// # Errors
    ///
    /// What a retry cannot cure: the executor is disabled or not registered, or its role lacks a privilege. Jobs that run end
    /// first if they can. Also if `stop` is ready while the server is away: the claims then end with their leases.
    pub async fn run<H, F>(
        &mut self,
        parallel: usize,
        stop: impl Future<Output = ()>,
        handler: H,
    ) -> Result<RunTally>
    where
        H: Fn(Job) -> F,
        F: Future<Output = Ending> + Send + 'static,
    {
        let mut stop = pin!(stop);
        let mut work = Work::default();
        let mut turn = LoopState { look: true, look_at: Instant::now(), ending: None };
        let mut beat = interval(BEAT.min(self.lease / BEATS_PER_LEASE));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pause = SOONEST;
        loop {
            let ended = match self.hand_in(&mut work).await {
                Ok(()) if work.len() == 0 && turn.ending.is_some() => break,
                Ok(()) => self.claim_some(&mut work, &mut turn, parallel, &handler).await,
                Err(e) => Err(e),
            };
            let waited = match ended {
                Ok(()) => {
                    tokio::select! {
                        biased;
                        () = work.next() => { turn.look = true; Ok(()) }
                        _ = beat.tick() => self.keep(&mut work).await,
                        () = stop.as_mut(), if turn.ending.is_none() => { turn.ending = Some(Ok(())); Ok(()) }
                        () = self.session.woken() => { turn.look = true; Ok(()) }
                        () = sleep_until(turn.look_at) => { turn.look = true; Ok(()) }
                    }
                }
                Err(e) => Err(e),
            };
            match waited {
                Ok(()) => pause = SOONEST,
                Err(e) if e.policy() == Policy::Retry => {
                    self.rest(&e, pause, stop.as_mut(), &mut turn).await?;
                    pause = (pause * 2).min(LATEST);
                }
                Err(e) => return Err(e),
            }
        }
        turn.ending.unwrap_or(Ok(())).map(|()| work.tally)
    }

    /// Claims and spawns as many jobs as there is room for; they are started in the commit of the claim.
    async fn claim_some<H, F>(
        &self,
        work: &mut Work,
        turn: &mut LoopState,
        parallel: usize,
        handler: &H,
    ) -> Result<()>
    where
        H: Fn(Job) -> F,
        F: Future<Output = Ending> + Send + 'static,
    {
        let room = parallel.max(1).saturating_sub(work.len());
        if !turn.look || room == 0 || turn.ending.is_some() {
            return Ok(());
        }
        let jobs = match self.claim_started(room).await {
            Err(e) if e.policy() != Policy::Retry => {
                turn.ending = Some(Err(e));
                return Ok(());
            }
            claimed => claimed?,
        };
        turn.look = jobs.len() == room;
        turn.look_at = Instant::now() + self.poll;
        for job in jobs {
            let work_of_it = handler(job.clone());
            work.spawn(&job, work_of_it);
        }
        Ok(())
    }

    /// Extends all leases. What is answered otherwise than done is not ours any more.
    async fn keep(&self, work: &mut Work) -> Result<()> {
        let held = work.held();
        if held.is_empty() {
            return self.beat().await;
        }
        let (ids, tokens): (Vec<_>, Vec<_>) = held.iter().map(|held| (held.job, held.token.0)).unzip();
        for (job, answer) in self.heartbeat_pairs(&ids, &tokens).await? {
            if let Some(why) = answer.reason() {
                tracing::warn!(executor = self.name, %job, why, "the claim of a job is over; its work is stopped");
                work.lose(job);
            }
        }
        Ok(())
    }

    /// Tells the server what became of the jobs that ended. What could not be told stays for the next turn.
    async fn hand_in(&self, work: &mut Work) -> Result<()> {
        while let Some((evidence, taken)) = work.take_alike() {
            let (ids, tokens): (Vec<_>, Vec<_>) =
                taken.iter().map(|ended| (ended.held.job, ended.held.token.0)).unzip();
            match self.session.complete_jobs(&ids, &tokens, &evidence).await {
                Ok(answers) => {
                    answers.iter().for_each(|(job, answer)| {
                        self.count(&mut work.tally, *job, answer, |t| &mut t.succeeded)
                    });
                }
                // The evidence is at fault: it carries contents, or is no valid value.
                Err(e) if e.is_poison() => work.ended.extend(taken.into_iter().map(|ended| Ended {
                    outcome: Ending::Reject(format!(
                        "the work was done, but its evidence was refused: {}",
                        e.about_row()
                    )),
                    ..ended
                })),
                Err(e) => {
                    work.ended.extend(taken);
                    return Err(e);
                }
            }
        }
        while let Some(ended) = work.ended.last() {
            let held = ended.held;
            let (answer, counter): (_, fn(&mut RunTally) -> &mut u64) = match &ended.outcome {
                Ending::Retry(why) => (self.end(held.job, held.token, why, true).await?, |t| &mut t.failed),
                Ending::Reject(why) => (self.end(held.job, held.token, why, false).await?, |t| &mut t.failed),
                Ending::Release | Ending::Done(_) => {
                    let answers = self.session.release_jobs(&[held.job], &[held.token.0]).await?;
                    let answer = answers.into_iter().next().map_or(Reply::Done, |(_, answer)| answer);
                    (answer, |t| &mut t.released)
                }
            };
            work.ended.pop();
            self.count(&mut work.tally, held.job, &answer, counter);
        }
        Ok(())
    }

    async fn end(&self, job: Uuid, token: Token, why: &str, retry: bool) -> Result<Reply> {
        // The server stores no NUL in a text.
        self.session.fail_job(job, token, &why.replace('\0', ""), retry).await
    }

    fn count(
        &self,
        tally: &mut RunTally,
        job: Uuid,
        answer: &Reply,
        counter: impl Fn(&mut RunTally) -> &mut u64,
    ) {
        match answer.reason() {
            None => *counter(tally) += 1,
            Some(why) => {
                tracing::warn!(executor = self.name, %job, why, "the claim of a job was over before its end");
                tally.lost += 1;
            }
        }
    }

    /// Waits a little, and connects again if need be. An error if the loop is to end.
    async fn rest(
        &mut self,
        e: &Error,
        pause: Duration,
        stop: Pin<&mut impl Future<Output = ()>>,
        turn: &mut LoopState,
    ) -> Result<()> {
        tracing::warn!(executor = self.name, error = %e.told(), "the job queue cannot be reached; trying again");
        tokio::select! {
            () = sleep(pause) => {}
            () = stop, if turn.ending.is_none() => turn.ending = Some(Ok(())),
        }
        match self.recover(e).await {
            Err(again) if turn.ending.is_some() || again.policy() != Policy::Retry => Err(again),
            _ => Ok(()),
        }
    }
}
