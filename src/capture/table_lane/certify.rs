//! The certifying passes between the turns, and the end of the time in which the stream may miss rows.

use super::{GAVE_WAY_PAUSE, TableSession, gave_way};
use crate::capture::frontier::CertifyingPass;
use crate::capture::turn::Turn;
use crate::core::captured_by::CapturedBy;
use crate::core::stream_state::Unsettled;
use crate::error::Result;
use crate::handoff::deliver::Outcome;
use crate::store::source::catalogue::Strategy;
use std::time::Instant;

/// A certifying pass over a source with smaller batches compares at least this many rows at once.
const COMPARED_AT_ONCE: u32 = 1_000;

impl TableSession<'_> {
    /// Runs the certifying passes that are due, as long as no source waits to be read. After a fault every
    /// certificate is due, and so is every row; rows come first.
    pub(super) async fn certify_some(&mut self, turns: &mut [Turn]) -> Result<()> {
        for i in 0..turns.len() {
            if self.shared.term.stopping() {
                break;
            }
            let waiting = turns.iter().any(|t| t.due <= Instant::now());
            let may = !waiting || turns[i].proof.is_overdue(&self.shared.term.config, self.begun);
            if may && self.certificate_is_due(&turns[i]) {
                let turn = &mut turns[i];
                match self.certify(turn).await {
                    Err(e) if e.of_source && !turn.may_halve(&e) => {
                        turn.uncertified_until = Some(Instant::now() + self.broken_pause());
                        self.unreadable(turn, e).await?;
                    }
                    outcome => {
                        turn.uncertified_until = match &outcome {
                            Ok(_) => None,
                            Err(e) if gave_way(e) => Some(Instant::now() + GAVE_WAY_PAUSE),
                            Err(_) => turn.uncertified_until,
                        };
                        self.judge(turn, outcome).await?;
                        self.readable(turn).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a source that is read by ranges is due for its certifying pass. A single run leaves that to the
    /// daemon. A source whose last pass made way has rows that wait: they come first, as the lag shows.
    fn certificate_is_due(&self, turn: &Turn) -> bool {
        !self.shared.term.once
            && !turn.made_way
            && !self.shared.pacing.defers()
            && turn.certificate_in(&self.shared.term.config).is_some_and(|wait| wait.is_zero())
    }

    pub(super) async fn certify(&mut self, turn: &mut Turn) -> Result<Outcome> {
        // A source's batch size is for polls. The rows of a certifying pass are mostly recorded; comparing them in batches of
        // a few would take long, and the other sources wait. A size that was reduced, because a batch took too long, counts.
        let rows = match turn.strategy {
            Strategy::Ranges { .. } if !turn.batch.is_reduced() => {
                let most = u32::try_from(self.shared.term.config.batch_rows).unwrap_or(u32::MAX);
                turn.batch.rows().max(COMPARED_AT_ONCE.min(most))
            }
            _ => turn.batch.rows(),
        };
        let batch = i32::try_from(rows).unwrap_or(5_000);
        let pass = CertifyingPass {
            shared: self.shared,
            reader: &mut self.reader,
            writer: &self.writer,
            source: &turn.source,
            batch,
            captured_by: match turn.strategy {
                Strategy::Ranges { .. } => CapturedBy::Certify,
                Strategy::Frontier { .. } => self.shared.captured_by(),
            },
        };
        pass.run(&mut turn.proof).await
    }

    /// Ends the time of [`Unsettled`] rows: every source was read at a moment when all of their transactions had
    /// ended, so the rows were visible.
    pub(super) async fn settle(&self, turns: &[Turn]) -> Result<()> {
        let Some(before) = self.shared.stream.read(|stream| stream.unsettled) else { return Ok(()) };
        let closed_at = match before.closed_at {
            Some(at) => at,
            None if self.reader.snapshot().await?.xmin < before.below => return Ok(()),
            None => Instant::now(),
        };
        // A source that cannot be read is not waited for: its rows are found once it can be read.
        let read =
            |turn: &Turn| turn.unreadable || self.shared.looks.at(turn.source.name()) > Some(closed_at);
        let left = Unsettled { closed_at: Some(closed_at), ..before };
        let left = (!turns.iter().all(read)).then_some(left);
        self.shared.stream.update(|stream| stream.settle(before, left));
        Ok(())
    }
}
