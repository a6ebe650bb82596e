//! The retry lane: retries staged rows, and makes dead letters of those whose attempts are used up.
//!
//! ```text
//!   rejected ─▶ staged ─┬─ recorded at last ─▶ out of the staging
//!                  ▲    ├─ rejected again ───▶ staged for later (core::retry)
//!                  └────┘ attempts used up ──▶ dead letter, out of the staging in the same commit
//! ```
//!
//! The row itself is read again from its source, by its key: the staged row holds its address and nothing else. A
//! signal is recorded before its row leaves the staging. After a crash in between, the row is still staged and its
//! signal is recorded; the next attempt only removes the staged row.

use crate::core::captured_by::CapturedBy;
use crate::core::dead_letter::{code, letter_key};
use crate::core::finding::Severity;
use crate::core::handoff::{Handoff, Mapped, Refusal, Source};
use crate::core::retry::{NextAttempt, RetryPolicy};
use crate::core::row::Row;
use crate::core::watermark::Key;
use crate::daemon::backoff::Pause;
use crate::daemon::open_session::open_worker;
use crate::daemon::term::Term;
use crate::error::{Policy, Result};
use crate::failpoint::failpoint;
use crate::handoff::deliver::{Delivery, Item};
use crate::handoff::quarantine::{jitter, refusal};
use crate::pulse::{self, Loop};
use crate::store::dead_letter::NewLetter;
use crate::store::findings::Finding;
use crate::store::retry::Staged;
use crate::store::{Store, role};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How often the lane looks for staged rows.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often an open finding about a source that cannot be read is counted.
const UNREADABLE_EVERY: Duration = Duration::from_secs(60);
/// Looking may take at most one part in this many of the lane's time.
const LOOK_SHARE: u32 = 20;
/// How long a turn may take at most: many retries under load, each with a deadline of its own.
const PATIENCE: Duration = Duration::from_secs(600);
/// Rows read again per statement.
const CHUNK: i64 = 100;

/// Runs until told to stop. After an error the lane starts over; only retries are held up.
pub async fn lane(term: &Term) -> Result<()> {
    let mut pause = Pause::up_to(term.config.lease_ttl / 3);
    let turning = pulse::enter("retry lane", &term.lease.worker, PATIENCE);
    loop {
        match session(term, &turning).await {
            Ok(()) => return Ok(()),
            Err(e) if e.policy() == Policy::StandBy => return Err(e),
            Err(e) => tracing::warn!(error = %e.told(), "retry lane failed, starting over"),
        }
        if term.stopped_within(pause.grow()).await {
            return Ok(());
        }
    }
}

async fn session(term: &Term, turning: &Loop) -> Result<()> {
    let store = open_worker(&term.config, "gov-handoff retry").await?;
    let mut pass = Attempts { term, store: &store, all: false, unreadable: HashSet::new() };
    loop {
        turning.turn().await;
        let begun = Instant::now();
        // A batch that was mapped by the old list may have captured rows of a producer that is trusted by now.
        promote(term, &store).await?;
        let next = store.next_retry().await?;
        let cost = begun.elapsed();
        if next.is_some_and(|wait| wait.is_zero()) {
            pass.run().await?;
        }
        let wait = LOOK_EVERY.min(next.filter(|wait| !wait.is_zero()).unwrap_or(LOOK_EVERY));
        if term.stopped_within(wait.max(cost * LOOK_SHARE)).await {
            return Ok(());
        }
    }
}

/// Moves rows that were captured as untrusted and are trusted by now. In parts with a commit each, because every
/// batch waits for the lock that a part takes.
async fn promote(term: &Term, store: &Store) -> Result<()> {
    let worker = &term.config.worker;
    while !term.stopping() && store.promotable(worker).await? {
        if !store.promote_trusted(worker, Some(&term.lease)).await?.more {
            break;
        }
    }
    Ok(())
}

/// With `--once`: there is no later run, so every staged row gets its remaining attempts now.
pub async fn finish(term: &Term) -> Result<()> {
    let store = open_worker(&term.config, "gov-handoff retry").await?;
    promote(term, &store).await?;
    let mut pass = Attempts { term, store: &store, all: true, unreadable: HashSet::new() };
    while !term.stopping() && pass.run().await? > 0 {}
    Ok(())
}

/// One attempt for every staged row, or for those that are due.
struct Attempts<'a> {
    term: &'a Term,
    store: &'a Store,
    all: bool,
    /// The sources that could not be read last time; each is logged once.
    unreadable: HashSet<String>,
}

impl Attempts<'_> {
    /// How many rows were tried. Each uses up an attempt or leaves the staging, so the passes come to an end.
    async fn run(&mut self) -> Result<usize> {
        let policy = self.store.retry_policy().await?;
        let mut tried = 0;
        for name in self.store.staged_of_nobody().await? {
            tried += self.orphans(&name).await?;
        }
        for source in self.store.registered(&self.term.config.worker).await?.sources {
            let mut after = Uuid::nil();
            loop {
                let staged = self.store.staged(source.name(), self.all, after, CHUNK).await?;
                let Some(last) = staged.last() else { break };
                after = last.id;
                let Some(mut rows) = self.read(&source, &staged).await? else { break };
                tried += staged.len();
                for staged in &staged {
                    if self.term.stopping() {
                        return Ok(0);
                    }
                    if Key::parse(source.id_type(), &staged.key).is_none() {
                        let detail =
                            "the key does not fit the source's key type; the source may have been redefined";
                        self.give_up(source.name(), staged, code::KEY, detail).await?;
                        continue;
                    }
                    let row = rows.remove(&staged.key);
                    self.give_a_chance(&source, staged, row, policy).await?;
                }
            }
        }
        Ok(tried)
    }

    /// Reads the staged rows again from their source. `None`: the source cannot be read now. Its rows wait and use up
    /// no attempt, and the other sources go on.
    async fn read(&mut self, source: &Source, staged: &[Staged]) -> Result<Option<HashMap<String, Row>>> {
        let keys = staged.iter().map(|s| s.key.clone());
        let keys: Vec<_> = keys.filter(|key| Key::parse(source.id_type(), key).is_some()).collect();
        let name = source.name();
        match self.store.rows_by_key(source, &keys).await {
            Ok(rows) => {
                if self.unreadable.remove(name) {
                    self.store.resolve(&format!("source_unreadable:{name}"), "readable again").await?;
                }
                Ok(Some(rows.into_iter().map(|row| (source.key(&row).to_owned(), row)).collect()))
            }
            // The error came from the server, so the session is alive. A single run ends with it, because there is no
            // later run.
            Err(e) if e.code.is_some() && !self.all => {
                if self.unreadable.insert(name.to_owned()) {
                    tracing::error!(source = name, error = %e.told(), "staged rows cannot be read again");
                }
                let detail = json!({ "source": name, "problem": e.to_string() });
                let key = format!("source_unreadable:{name}");
                let finding = Finding { kind: "source_unreadable", key, severity: Severity::High, detail };
                self.store.sustain(&finding, UNREADABLE_EVERY).await?;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Makes dead letters of rows whose source is no longer registered: they cannot be read again.
    async fn orphans(&self, source: &str) -> Result<usize> {
        let staged = self.store.staged(source, true, Uuid::nil(), CHUNK).await?;
        for staged in &staged {
            let detail = format!("its source is no longer registered; before that: {}", staged.last_error);
            self.give_up(source, staged, code::UNREGISTERED, &detail).await?;
        }
        Ok(staged.len())
    }

    /// Makes a dead letter of a row that cannot even be read again. The identity of the staged row stands for the
    /// subject, because the row's own identity needs a definition that fits it.
    async fn give_up(&self, source: &str, staged: &Staged, code: &str, detail: &str) -> Result<()> {
        let letter = NewLetter {
            source,
            staged: staged.id,
            subject: staged.id,
            letter: &letter_key(source, &staged.key),
            code,
            detail,
            attempts: staged.attempts.max(1),
            snapshot: &json!({ "source": source, "source_key": staged.key }),
            signals: &[],
            version: None,
        };
        self.store.put_dead_letter(&self.term.lease, &letter).await?;
        tracing::warn!(source, code, "staged row set aside as a dead letter");
        Ok(())
    }

    async fn give_a_chance(
        &self,
        source: &Arc<Source>,
        staged: &Staged,
        row: Option<Row>,
        policy: RetryPolicy,
    ) -> Result<()> {
        let lease = &self.term.lease;
        let delivery = Delivery { store: self.store, lease, captured_by: CapturedBy::Retry };
        let attempts = staged.attempts.saturating_add(1);
        let (refusal, handoffs) = match row.map(|row| (source.map(&row), row)) {
            // Not a dead letter at once: the stream may bring a row before its commit is visible to other sessions.
            None => (vanished(source, staged), vec![]),
            Some((Mapped::Excluded, _)) => return self.store.retry_done(lease, staged.id, &[]).await,
            Some((Mapped::Refused(refusal), _)) => (refusal, vec![]),
            Some((Mapped::Handoffs(handoffs), row)) => {
                let watermark = source.watermark(&row);
                let mut item =
                    Item { source: Arc::clone(source), key: staged.key.clone(), watermark, handoffs };
                match delivery.apply_again(&mut item).await {
                    Ok(()) => {
                        failpoint("retry_after_apply");
                        let signals: Vec<_> = item.handoffs.iter().map(|h| h.id).collect();
                        return self.store.retry_done(lease, staged.id, &signals).await;
                    }
                    Err(e) if delivery.is_poison(&e).await => {
                        (refusal(source, &staged.key, &e), item.handoffs)
                    }
                    Err(e) => return Err(e),
                }
            }
        };
        self.decide(&delivery, source, staged.id, attempts, &refusal, &handoffs, policy).await
    }

    #[allow(clippy::too_many_arguments)] // One decision, and all it is about.
    async fn decide(
        &self,
        delivery: &Delivery<'_, role::ReadWriter>,
        source: &Source,
        id: Uuid,
        attempts: u32,
        refusal: &Refusal,
        handoffs: &[Handoff],
        policy: RetryPolicy,
    ) -> Result<()> {
        let may_change = [code::REFUSED, code::VANISHED].contains(&refusal.code);
        match policy.next_attempt(attempts, jitter()) {
            NextAttempt::RetryAfter(delay) if may_change => {
                self.store.retry_again(&self.term.lease, id, attempts, &refusal.detail, delay).await
            }
            _ => {
                failpoint("retry_before_letter");
                delivery.set_aside(source, refusal, handoffs, attempts).await?;
                failpoint("retry_after_letter");
                Ok(())
            }
        }
    }
}

fn vanished(source: &Source, staged: &Staged) -> Refusal {
    let before = staged.last_error.strip_prefix(VANISHED).unwrap_or(&staged.last_error);
    Refusal {
        subject: source.identity.subject(&staged.key),
        source_key: staged.key.clone(),
        code: code::VANISHED,
        detail: format!("{VANISHED}{before}"),
    }
}

const VANISHED: &str = "the row is no longer in its source; before that: ";
