//! Keeps our slot from endangering the primary, and the stream from trusting a publication that changed under it.

use crate::error::Result;
use crate::intake::{Shared, patience};
use crate::store::findings::Finding;
use crate::store::{Store, connect};
use serde_json::json;
use std::time::{Duration, Instant};

/// The slot goes when it retains this share of its budget: between two looks it may still grow.
const GIVE_UP_AT: f64 = 0.8;
/// How often the publication is compared with the sources though its catalogue entries have not changed.
const PUBLICATION_EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct SlotGuard {
    pub retained: Option<i64>,
    /// Bytes a second, smoothed over the last looks.
    pub rate: Option<f64>,
    looked_at: Option<Instant>,
    /// The publication as it was when it was last compared, and when that was.
    compared: Option<(String, Instant)>,
}

impl SlotGuard {
    pub async fn watch(&mut self, store: &Store, shared: &Shared) -> Result<()> {
        let config = &shared.config;
        let retained = store.slot_retained(&config.slot).await?;
        self.note(retained);
        if let Some(bytes) = retained.filter(|b| over(*b, config.wal_budget)) {
            self.give_up(store, shared, bytes).await?;
        }
        if shared.mode.borrow().name() == "stream" {
            self.watch_publication(store, shared).await?;
        }
        Ok(())
    }

    /// A stream over a narrowed publication is silent about what it leaves out, and so is, from PostgreSQL 18 on, one over
    /// a publication that is gone. So each look asks whether the catalogue's entries are still the same ones, which costs a
    /// few lookups, and compares in full only if they are not: that would cost what ten births do.
    async fn watch_publication(&mut self, store: &Store, shared: &Shared) -> Result<()> {
        let config = &shared.config;
        let version = store.publication_version(&config.publication).await?;
        let known = self.compared.as_ref();
        if known.is_some_and(|(seen, at)| *seen == version && at.elapsed() < PUBLICATION_EVERY) {
            return Ok(());
        }
        let sources = store.sources(&config.worker).await?;
        match store.publication_problem(&config.publication, &sources).await? {
            Some(problem) => {
                self.compared = None;
                tracing::warn!(problem, "the publication changed under the stream");
                shared.objection.send_replace(Some(problem));
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

    /// Nothing is lost by it: the tables are still there, and the keyset lane reads them.
    async fn give_up(&mut self, store: &Store, shared: &Shared, bytes: i64) -> Result<()> {
        let config = &shared.config;
        tracing::warn!(
            slot = config.slot,
            bytes,
            budget = config.wal_budget,
            "the slot retains too much log, giving it up"
        );
        shared.rejoin_at.send_replace(Some(Instant::now() + config.rejoin_after));
        shared.objection.send_replace(Some(format!(
            "the slot retained {bytes} bytes of its budget of {}",
            config.wal_budget
        )));
        let detail = json!({ "slot": config.slot, "retained": bytes, "budget": config.wal_budget });
        let key = format!("slot_budget_exceeded:{}", config.slot);
        store.raise(&Finding { kind: "slot_budget_exceeded", key, severity: "high", detail }).await?;
        let admin =
            connect::open_within(&config.replication, "gov-handoff replication", patience(config)).await?;
        admin.release_slot(&config.slot).await?;
        admin.drop_slot(&config.slot).await?;
        self.retained = None;
        Ok(())
    }
}

#[allow(clippy::cast_precision_loss)] // Budgets are far below 2^53.
fn over(bytes: i64, budget: u64) -> bool {
    bytes as f64 >= budget as f64 * GIVE_UP_AT
}
