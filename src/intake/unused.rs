//! Slots of ours that the configuration no longer names: the database was renamed, or the setting was changed. No session
//! reads them, so they retain log without bound. They are named, and given up at the same share of the budget as the
//! configured slot.

use crate::core::certificate::REHEARSAL;
use crate::core::doctor::over_budget;
use crate::error::Result;
use crate::intake::guard::SAID_EVERY;
use crate::intake::pause::Pause;
use crate::intake::{Shared, patience};
use crate::store::findings::Finding;
use crate::store::replication::UnusedSlot;
use crate::store::{Store, connect};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A slot that could not be dropped is tried again after at most this long.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// More findings of one kind than anybody has slots.
const MOST: i64 = 1_000;

pub struct UnusedSlots {
    /// The slots with an open finding; `None` until the findings of earlier instances were read.
    said: Option<BTreeSet<String>>,
    /// When slots that could not be dropped may be tried again.
    again: Option<Instant>,
    pause: Pause,
}

impl Default for UnusedSlots {
    fn default() -> Self {
        Self { said: None, again: None, pause: Pause::up_to(TRY_AGAIN) }
    }
}

impl UnusedSlots {
    /// Looks at the slots; those that have to be given up now. A selftest leaves them to the daemon, whose own slot it
    /// would take for one of them.
    pub async fn watch(&mut self, store: &Store, shared: &Shared) -> Result<Vec<UnusedSlot>> {
        let config = &shared.config;
        if config.worker == REHEARSAL {
            return Ok(Vec::new());
        }
        let unused = store.unused_slots(&config.slot).await?;
        let before = match self.said.take() {
            Some(said) => said,
            None => open_findings(store).await?,
        };
        let now: BTreeSet<_> = unused.iter().map(|s| s.slot.clone()).collect();
        // Noted before the findings are written: one that fails is written by the next look.
        self.said = Some(before.union(&now).cloned().collect());
        for slot in &unused {
            store.sustain(&unused_finding(slot, config.wal_budget), SAID_EVERY).await?;
        }
        for slot in before.difference(&now) {
            store.resolve(&unused_key(slot), "the slot is gone, or in use").await?;
            // The configured slot's own finding is the watchdog's.
            if *slot != config.slot {
                store.resolve(&budget_key(slot), "the slot is gone, or in use").await?;
            }
        }
        self.said = Some(now);
        if self.again.is_some_and(|at| at > Instant::now()) {
            return Ok(Vec::new());
        }
        let over = |s: &UnusedSlot| s.retained_bytes.is_some_and(|b| over_budget(b, config.wal_budget));
        Ok(unused.into_iter().filter(over).collect())
    }

    /// Says what became of giving a slot up. One that could not be dropped endangers the primary: it is said gravely, with
    /// what to do, and tried again.
    pub async fn gave_up(
        &mut self,
        store: &Store,
        shared: &Shared,
        slot: &UnusedSlot,
        outcome: &Result<()>,
    ) -> Result<()> {
        let (severity, problem) = match outcome {
            Ok(()) => {
                self.again = None;
                self.pause.reset();
                ("high", None)
            }
            Err(e) => {
                self.again = Some(Instant::now() + self.pause.next());
                ("critical", Some(e.to_string()))
            }
        };
        let detail = json!({
            "slot": slot.slot, "retained": slot.retained_bytes, "budget": shared.config.wal_budget, "in_use": false,
            "dropped": problem.is_none(), "problem": problem, "action": problem.as_ref().map(|_| action(&slot.slot)),
        });
        let finding = Finding { kind: "slot_budget_exceeded", key: budget_key(&slot.slot), severity, detail };
        store.sustain(&finding, SAID_EVERY).await
    }
}

/// Drops the slot, on a session of its own. A slot that is in use by now is not dropped: the server refuses.
pub async fn give_up(shared: &Shared, slot: &UnusedSlot) -> Result<()> {
    let config = &shared.config;
    let (name, bytes) = (&slot.slot, slot.retained_bytes);
    tracing::warn!(
        slot = name,
        bytes,
        budget = config.wal_budget,
        "an unused slot retains too much log, dropping it"
    );
    let admin =
        connect::open_within(&config.replication, "gov-handoff replication", patience(config)).await?;
    admin.drop_slot(name).await
}

/// Those that stand open in the findings, whoever wrote them.
async fn open_findings(store: &Store) -> Result<BTreeSet<String>> {
    let open = store.findings(Some("slot_unused"), false, MOST).await?;
    Ok(open.iter().filter_map(|f| f.key.strip_prefix("slot_unused:")).map(str::to_owned).collect())
}

fn unused_finding(slot: &UnusedSlot, budget: u64) -> Finding {
    let detail = json!({
        "slot": slot.slot, "retained": slot.retained_bytes, "budget": budget, "action": action(&slot.slot),
    });
    Finding { kind: "slot_unused", key: unused_key(&slot.slot), severity: "warning", detail }
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
