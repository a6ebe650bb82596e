//! Keeps our slot from endangering the primary, and the stream from trusting a publication that was changed.

use crate::core::doctor::over_budget;
use crate::core::finding::Severity;
use crate::core::stream_state::StreamState;
use crate::daemon::backoff::Pause;
use crate::daemon::open_session::{open, open_replication};
use crate::daemon::stream_progress::StreamProgress;
use crate::daemon::term::Term;
use crate::error::Result;
use crate::store::Writer;
use crate::store::findings::Finding;
use serde_json::json;
use std::time::{Duration, Instant};

/// How often the publication is compared with the sources although its catalogue entries have not changed.
const PUBLICATION_EVERY: Duration = Duration::from_secs(60);
/// A slot that could not be dropped is tried again after at most this long.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// How often an open finding is counted while its cause lasts.
pub const SAID_EVERY: Duration = Duration::from_secs(60);

pub struct SlotGuard {
    pub retained: Option<i64>,
    /// Bytes a second, smoothed over the last looks.
    pub rate: Option<f64>,
    looked_at: Option<Instant>,
    /// The publication as it was when it was last compared, and when that was.
    compared: Option<(String, Instant)>,
    /// When to try again to drop a slot that could not be dropped, and the pause after that.
    again: Option<Instant>,
    pause: Pause,
    /// The finding that the slot could not be dropped may be open; another instance may have raised it.
    held: bool,
}

impl Default for SlotGuard {
    fn default() -> Self {
        Self {
            retained: None,
            rate: None,
            looked_at: None,
            compared: None,
            again: None,
            pause: Pause::up_to(TRY_AGAIN),
            held: true,
        }
    }
}

impl SlotGuard {
    /// Looks at the slot. Returns how much log it retains if it has to be given up now.
    pub async fn watch(
        &mut self,
        store: &Writer,
        term: &Term,
        stream: &StreamProgress,
    ) -> Result<Option<i64>> {
        let config = &term.config;
        let retained = store.slot_retained(&config.slot).await?;
        self.note(retained);
        let excess = retained.filter(|b| over_budget(*b, config.wal_budget));
        if excess.is_none() && self.held {
            store.resolve(&held_key(&term.config.slot), "the slot is gone, or within its budget").await?;
            self.held = false;
        }
        if stream.read(StreamState::is_streaming) {
            self.watch_publication(store, term, stream).await?;
        }
        Ok(excess.filter(|_| self.again.is_none_or(|at| at <= Instant::now())))
    }

    /// Notes the result of giving the slot up. A slot that could not be dropped endangers the primary, and an
    /// operator has to act. So a critical finding says what to do, and the daemon tries again.
    pub async fn gave_up(
        &mut self,
        store: &Writer,
        term: &Term,
        bytes: i64,
        outcome: &Result<()>,
    ) -> Result<()> {
        let slot = &term.config.slot;
        let Err(e) = outcome else {
            (self.retained, self.again) = (None, None);
            self.pause.reset();
            return Ok(());
        };
        self.again = Some(Instant::now() + self.pause.grow());
        self.held = true;
        let detail = json!({
            "slot": slot, "retained": bytes, "budget": term.config.wal_budget, "problem": e.to_string(),
            "action": format!(
                "a superuser must run: select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = \
                 '{slot}' and active; select pg_drop_replication_slot('{slot}'); or grant REPLICATION to the role of the daemon"
            ),
        });
        let (key, severity) = (held_key(&term.config.slot), Severity::Critical);
        let finding = Finding { kind: "slot_budget_exceeded", key, severity, detail };
        store.sustain(&finding, SAID_EVERY).await
    }

    /// A stream over a narrowed publication says nothing about what it leaves out. From PostgreSQL 18 on, neither
    /// does a stream over a publication that was dropped. So each look asks whether the catalogue entries are still
    /// the same, which costs a few lookups. A full comparison costs as much as ten births and is made only if the
    /// entries changed.
    async fn watch_publication(
        &mut self,
        store: &Writer,
        term: &Term,
        stream: &StreamProgress,
    ) -> Result<()> {
        let config = &term.config;
        let version = store.publication_version(&config.publication).await?;
        let known = self.compared.as_ref();
        if known.is_some_and(|(seen, at)| *seen == version && at.elapsed() < PUBLICATION_EVERY) {
            return Ok(());
        }
        let sources = store.registered(&config.worker).await?.sources;
        match store.publication_problem(&config.publication, &sources).await? {
            Some(problem) => {
                self.compared = None;
                tracing::warn!(%problem, "the publication changed under the stream");
                stream.update(|s| s.object(problem.to_string()));
            }
            None => self.compared = Some((version, Instant::now())),
        }
        Ok(())
    }

    fn note(&mut self, retained: Option<i64>) {
        if let (Some(now), Some(before), Some(at)) = (retained, self.retained, self.looked_at) {
            #[allow(clippy::cast_precision_loss)] // A rate for people to read.
            let rate = (now - before) as f64 / at.elapsed().as_secs_f64().max(0.1);
            self.rate = Some(self.rate.map_or(rate, |r| r * 0.8 + rate * 0.2));
        }
        self.retained = retained;
        self.looked_at = Some(Instant::now());
    }
}

/// Drops the slot, on sessions of its own. No row is lost by this: the table lane reads the tables.
pub async fn give_up(term: &Term, stream: &StreamProgress, bytes: i64) -> Result<()> {
    let config = &term.config;
    tracing::warn!(
        slot = config.slot,
        bytes,
        budget = config.wal_budget,
        "the slot retains too much log, giving it up"
    );
    let problem = format!("the slot retained {bytes} bytes of its budget of {}", config.wal_budget);
    stream.update(|s| s.give_up(Instant::now() + config.rejoin_after, problem));
    let detail = json!({ "slot": config.slot, "retained": bytes, "budget": config.wal_budget });
    let key = format!("slot_budget_exceeded:{}", config.slot);
    let finding = Finding { kind: "slot_budget_exceeded", key, severity: Severity::High, detail };
    open(config, "gov-handoff").await?.sustain(&finding, SAID_EVERY).await?;
    let admin = open_replication(config).await?;
    admin.release_slot(&config.slot).await?;
    admin.drop_slot(&config.slot).await
}

fn held_key(slot: &str) -> String {
    format!("slot_budget_exceeded:{slot}:held")
}
