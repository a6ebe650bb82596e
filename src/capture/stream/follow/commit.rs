//! Commits what is pending, and acknowledges what is durable: first the record, then the acknowledgement, never the other way
//! round.

use super::super::replication_session::Stream;
use super::Follower;
use super::pending::legible;
use crate::core::captured_by::CapturedBy;
use crate::core::lsn::Lsn;
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::handoff::deliver::Delivery;
use crate::meter::COMMIT_TO_HANDOFF;
use crate::store::apply::Advance;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// After a lone signal the position is recorded, and then acknowledged, at most this often. Recording it each time
/// would add a twentieth to the signal's time. Rows that the server sends again after a crash are known by identity
/// and absorbed.
pub(super) const RECORD_EVERY: Duration = Duration::from_secs(1);
/// While the stream is idle, the position is recorded, and then acknowledged, at most this often: each time costs a
/// commit.
const IDLE_CONFIRM: Duration = Duration::from_secs(5);
/// The idle position is recorded earlier if the server would otherwise keep this much log for the slot.
const IDLE_BYTES: u64 = 16 << 20;

/// A batch that is being committed.
pub(super) type InFlight<'a> = Pin<Box<dyn Future<Output = Result<Committed>> + Send + 'a>>;

/// The result of a batch.
pub(super) struct Committed {
    /// The end of its last complete transaction.
    whole: Option<Lsn>,
    /// That position was recorded in the same commit.
    recorded: bool,
    took: Duration,
}

impl Follower<'_> {
    /// Starts to commit the pending rows.
    pub(super) fn begin(&mut self) {
        let rows = std::mem::take(&mut self.pending.rows);
        self.pending.bytes = 0;
        let whole = self.pending.whole.take();
        let commits = std::mem::take(&mut self.pending.commits);
        // For a lone signal the position is recorded less often; see `RECORD_EVERY`.
        let recorded = whole.is_some() && (rows.len() > 1 || self.confirmed_at.elapsed() >= RECORD_EVERY);
        let (store, shared, worked) = (self.store, self.shared, self.worked);
        self.in_flight = Some(Box::pin(async move {
            // If only a part of a transaction is here, its end is not known. The part is recorded and the position
            // does not move.
            let slot = &shared.term.config.slot;
            let advance =
                whole.filter(|_| recorded).map_or(Advance::Nothing, |lsn| Advance::Stream { slot, lsn });
            let delivery = Delivery { store, lease: &shared.term.lease, captured_by: CapturedBy::Stream };
            let rows = legible(shared, store, rows).await?;
            shared.pacing.rest(&shared.term, worked).await;
            failpoint("before_apply");
            let begun = Instant::now();
            delivery.deliver(rows, advance).await?;
            failpoint("after_apply");
            measure(&commits);
            Ok(Committed { whole, recorded, took: begun.elapsed() })
        }));
    }

    /// Acknowledges what a commit made durable: the handoffs and the position. Never before the commit: the server
    /// removes what is acknowledged, and a slot ahead of our recorded position looks like a gap.
    pub(super) fn record(&mut self, batch: &Committed, stream: &Stream) {
        self.worked = batch.took;
        let Some(lsn) = batch.whole else { return };
        self.handed_off = lsn;
        self.shared.stream.move_to(lsn);
        if batch.recorded {
            self.acknowledge(lsn, stream);
            failpoint("after_acknowledge");
        }
    }

    fn acknowledge(&mut self, lsn: Lsn, stream: &Stream) {
        self.durable = lsn;
        self.confirmed_at = Instant::now();
        stream.acknowledge(lsn);
    }

    /// Acknowledges log that holds nothing for us. Without this the server would retain the log of an idle source
    /// without bound, and a server that shuts down would wait for this client in vain.
    pub(super) async fn confirm_idle(&mut self, stream: &Stream, now: bool) -> Result<()> {
        // Only when nothing is pending: a position beyond unrecorded rows would let the server remove them.
        if self.pending.open || self.pending.is_work() || self.in_flight.is_some() {
            return Ok(());
        }
        let lsn = self.pending.idle.unwrap_or(Lsn::ZERO).max(self.handed_off);
        if lsn <= self.durable {
            return Ok(());
        }
        self.shared.stream.move_to(lsn);
        let far = u64::from(lsn) - u64::from(self.durable) >= IDLE_BYTES;
        let asked = std::mem::take(&mut self.pending.asked);
        let pause = if self.handed_off > self.durable { RECORD_EVERY } else { IDLE_CONFIRM };
        if !(now || asked || far || self.confirmed_at.elapsed() >= pause) {
            return Ok(());
        }
        self.confirm(lsn, stream).await
    }

    /// Records a position up to which everything is handed off, then acknowledges it.
    pub(super) async fn confirm(&mut self, lsn: Lsn, stream: &Stream) -> Result<()> {
        // Recorded first, so that after a restart the slot is not ahead of the recorded position. When a server shuts
        // down, it ends sessions before walsenders, so this fails. Then the stream is closed; the server waits for
        // that as well.
        self.store.confirm_stream(&self.shared.term.lease, &self.shared.term.config.slot, lsn).await?;
        failpoint("after_confirm");
        self.acknowledge(lsn, stream);
        Ok(())
    }
}

/// How long each transaction took from its commit to that of its handoffs. Where the server's clock is ahead of ours, the
/// time counts as none.
fn measure(commits: &[Duration]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    commits.iter().for_each(|committed| COMMIT_TO_HANDOFF.observe(now.saturating_sub(*committed)));
}

/// Waits for the batch that is being committed. Cancel safe: the batch stays where it is.
pub(super) async fn recorded(in_flight: &mut Option<InFlight<'_>>) -> Result<Committed> {
    match in_flight {
        Some(batch) => batch.await,
        None => std::future::pending().await,
    }
}
