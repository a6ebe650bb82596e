//! Slots of ours that the configuration no longer names, because the database was renamed or the setting was changed.
//! No session reads them, so they retain log without bound. Each has a finding, and is dropped at the same share of
//! the budget as the configured slot.

use crate::core::certificate::REHEARSAL;
use crate::core::doctor::over_budget;
use crate::core::finding::Severity;
use crate::daemon::backoff::Pause;
use crate::daemon::open_session::{open, open_replication};
use crate::daemon::slot_guard::SAID_EVERY;
use crate::daemon::term::Term;
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::store::Writer;
use crate::store::findings::Finding;
use crate::store::replication::UnusedSlot;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A slot that could not be dropped is tried again after at most this long.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// More findings of one kind than any server has slots.
const MOST: i64 = 1_000;

#[derive(Default)]
pub struct UnusedSlots {
    /// The slots with an open finding; `None` until the findings of earlier instances were read.
    said: Option<BTreeSet<String>>,
    /// The slots that could not be dropped, and when each may be tried again.
    held: BTreeMap<String, (Instant, Pause)>,
}

impl UnusedSlots {
    /// Looks at the slots. Returns those that have to be given up now. A selftest leaves them to the daemon: it would
    /// take the daemon's own slot for one of them.
    pub async fn watch(&mut self, store: &Writer, term: &Term) -> Result<Vec<UnusedSlot>> {
        let config = &term.config;
        if config.worker == REHEARSAL {
            return Ok(Vec::new());
        }
        let unused = store.unused_slots(&config.slot).await?;
        let before = match self.said.take() {
            Some(said) => said,
            None => open_findings(store).await?,
        };
        let now: BTreeSet<_> = unused.iter().map(|s| s.slot.clone()).collect();
        // Noted before the findings are written: if writing one fails, the next look writes it.
        self.said = Some(before.union(&now).cloned().collect());
        for slot in &unused {
            store.sustain(&unused_finding(slot, config.wal_budget), SAID_EVERY).await?;
        }
        for slot in before.difference(&now) {
            store.resolve(&unused_key(slot), "the slot is gone, or in use").await?;
            // The watchdog resolves the finding of the configured slot.
            if *slot != config.slot {
                store.resolve(&budget_key(slot), "the slot is gone, or in use").await?;
            }
        }
        self.held.retain(|slot, _| now.contains(slot));
        self.said = Some(now);
        let over = |s: &UnusedSlot| s.retained_bytes.is_some_and(|b| over_budget(b, config.wal_budget));
        Ok(unused.into_iter().filter(|s| over(s) && self.may_be_tried(&s.slot)).collect())
    }

    fn may_be_tried(&self, slot: &str) -> bool {
        self.held.get(slot).is_none_or(|(at, _)| *at <= Instant::now())
    }

    /// Notes the result of giving a slot up. A slot that could not be dropped endangers the primary: a critical
    /// finding says what to do, and the daemon tries again. The other slots do not wait for it.
    pub async fn gave_up(
        &mut self,
        store: &Writer,
        term: &Term,
        slot: &UnusedSlot,
        outcome: &Result<()>,
    ) -> Result<()> {
        let Err(e) = outcome else {
            self.held.remove(&slot.slot);
            return Ok(());
        };
        let new = || (Instant::now(), Pause::up_to(TRY_AGAIN));
        let (at, pause) = self.held.entry(slot.slot.clone()).or_insert_with(new);
        *at = Instant::now() + pause.grow();
        let problem = e.to_string();
        store.sustain(&budget_finding(slot, term.config.wal_budget, Some(&problem)), SAID_EVERY).await
    }
}

/// Raises the finding that the slot is given up, then drops the slot, on sessions of its own. If the daemon dies in
/// between, the finding is there. A slot that is in use by now is not dropped: the server refuses.
pub async fn give_up(term: &Term, slot: &UnusedSlot) -> Result<()> {
    let config = &term.config;
    let (name, bytes) = (&slot.slot, slot.retained_bytes);
    tracing::warn!(
        slot = name,
        bytes,
        budget = config.wal_budget,
        "an unused slot retains too much log, dropping it"
    );
    let finding = budget_finding(slot, config.wal_budget, None);
    open(config, "gov-handoff").await?.sustain(&finding, SAID_EVERY).await?;
    failpoint("unused_before_drop");
    open_replication(config).await?.drop_slot(name).await
}

/// The slots with an open finding, whichever instance raised it.
async fn open_findings(store: &Writer) -> Result<BTreeSet<String>> {
    let open = store.findings(Some("slot_unused"), false, MOST).await?;
    Ok(open.iter().filter_map(|f| f.key.strip_prefix("slot_unused:")).map(str::to_owned).collect())
}

fn unused_finding(slot: &UnusedSlot, budget: u64) -> Finding {
    let detail = json!({
        "slot": slot.slot, "retained": slot.retained_bytes, "budget": budget, "action": action(&slot.slot),
    });
    Finding { kind: "slot_unused", key: unused_key(&slot.slot), severity: Severity::Warning, detail }
}

fn budget_finding(slot: &UnusedSlot, budget: u64, problem: Option<&str>) -> Finding {
    let severity = if problem.is_some() { Severity::Critical } else { Severity::High };
    let detail = json!({
        "slot": slot.slot, "retained": slot.retained_bytes, "budget": budget, "in_use": false,
        "problem": problem, "action": problem.map(|_| action(&slot.slot)),
    });
    Finding { kind: "slot_budget_exceeded", key: budget_key(&slot.slot), severity, detail }
}

fn action(slot: &str) -> String {
    format!(
        "name it with --slot if the daemon shall read it, else run: select pg_drop_replication_slot('{slot}')"
    )
}

fn unused_key(slot: &str) -> String {
    format!("slot_unused:{slot}")
}

fn budget_key(slot: &str) -> String {
    format!("slot_budget_exceeded:{slot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_cannot_be_dropped_does_not_hold_the_others() {
        let mut slots = UnusedSlots::default();
        let later = (Instant::now() + TRY_AGAIN, Pause::up_to(TRY_AGAIN));
        slots.held.insert("held".to_owned(), later);
        assert!(!slots.may_be_tried("held"));
        assert!(slots.may_be_tried("other"));
        slots.held.insert("held".to_owned(), (Instant::now(), Pause::up_to(TRY_AGAIN)));
        assert!(slots.may_be_tried("held"));
    }
}
