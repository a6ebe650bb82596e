//! The range pass: reads the open id ranges of one source, batch by batch, and hands off what is in them. The next batch is
//! read while the last one commits.

use super::{Session, Turn, capture, let_the_stream_have_them};
use crate::core::gap::{OpenRanges, Range};
use crate::core::handoff::Source;
use crate::core::mode::Mode;
use crate::error::{Error, Kind, Result};
use crate::intake::certify::{Proof, look_again};
use crate::intake::deliver::{Delivery, MappedRow, Outcome};
use crate::intake::{failpoint, patience};
use crate::store::apply::Advance;
use crate::store::quote;
use crate::store::rows::{Depth, Found};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Cold holes are probed this often at most: rarely filled, never forgotten.
const ALL_RANGES_EVERY: Duration = Duration::from_secs(1);
/// And only as often as takes one part in this many of the lane's time, for a source with very many of them.
const ALL_RANGES_SHARE: u32 = 20;
/// How often it is asked whether holes may go cold.
const COOL_EVERY: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Reads the open ranges until they hold nothing that is committed.
    pub(super) async fn range_pass(&mut self, turn: &mut Turn) -> Result<Outcome> {
        let shared = self.shared;
        let mut total = Outcome::default();
        let begun = Instant::now();
        let depth = if shared.once || turn.all_ranges_at <= begun { Depth::All } else { Depth::Hot };
        let worker = &shared.lease.worker;
        let rows_asked = turn.batch.rows();
        let limit = i64::from(rows_asked);
        let longest = shared.config.read_timeout.min(patience(&shared.config));
        let mut ahead = Ahead::default();
        loop {
            // The pass ends with a look at all ranges that finds nothing, never with a look ahead.
            let Ahead { found, rows, ids } = match std::mem::take(&mut ahead) {
                none if none.found.is_empty() => {
                    let asked = Instant::now();
                    let found =
                        self.reader.rows_in_ranges(worker, &turn.source, depth, i64::MIN, limit).await?;
                    shared.note_read(turn.source.name(), asked.elapsed());
                    turn.batch.took(asked.elapsed(), longest);
                    Ahead::of(&turn.source, found)?
                }
                some => some,
            };
            if found.is_empty() || shared.stopping() {
                break;
            }
            // Seen are exactly the ids that were read; the rest of each range stays open, whatever its neighbours are.
            let replacement = OpenRanges::new(found.iter().copied()).take(&ids);
            // A full batch has more behind it, which is read while this one commits. Only ids beyond it, so none twice.
            let next = ids
                .iter()
                .max()
                .and_then(|id| id.checked_add(1))
                .filter(|_| ids.len() >= rows_asked as usize);
            let advance = Advance::Ranges { source: turn.source.name(), replacement: &replacement };
            let read_ahead = async {
                let Some(from) = next else { return Ok(Ahead::default()) };
                let found = self.reader.rows_in_ranges(worker, &turn.source, depth, from, limit).await?;
                Ahead::of(&turn.source, found)
            };
            shared.rest(turn.worked).await;
            failpoint("keyset_before_apply");
            let working = Instant::now();
            let (handed_off, read) = tokio::join!(self.hand_off(&mut turn.proof, rows, advance), read_ahead);
            turn.worked = working.elapsed();
            total += handed_off?;
            failpoint("keyset_after_apply");
            ahead = read?;
            turn.batch.took(turn.worked, longest);
            for (range, id) in ahead.found.iter_mut().zip(&ahead.ids) {
                *range = replacement.after(*range, *id);
            }
        }
        turn.proof.looked(self.shared);
        let micros = begun.elapsed().as_micros();
        tracing::debug!(source = turn.source.name(), rows = total.seen, micros, "keyset pass");
        if depth == Depth::All {
            turn.all_ranges_at = Instant::now() + ALL_RANGES_EVERY.max(begun.elapsed() * ALL_RANGES_SHARE);
        }
        self.cool(turn).await?;
        Ok(total)
    }

    async fn hand_off(
        &self,
        proof: &mut Proof,
        rows: Vec<MappedRow>,
        advance: Advance<'_>,
    ) -> Result<Outcome> {
        let shared = self.shared;
        let streaming = *shared.mode.borrow() == Mode::Streaming;
        let delivery = Delivery { store: &self.writer, lease: &shared.lease, captured_by: capture(shared) };
        // What a poll finds is new. What is found behind a stream, or in the place of one that is away, is explained.
        let away = matches!(*shared.mode.borrow(), Mode::Polling { .. }) && delivery.captured_by != "poll";
        if !streaming && !away {
            return delivery.deliver(rows, advance).await;
        }
        let brings = streaming && rows.first().is_some_and(|row| !shared.is_unstreamed(row.source.name()));
        let mut passed = brings && let_the_stream_have_them(shared, &self.writer, None).await?;
        let seen = rows.len();
        let mut missing = delivery.missing(rows).await?;
        if passed && !missing.rows.is_empty() {
            passed = look_again(shared, &delivery, &mut missing).await?;
        }
        let reasons = proof.explain(shared, &self.writer, &missing.rows, passed).await?;
        let mut outcome = delivery.deliver(missing.rows, advance).await?;
        proof.repaired(reasons);
        outcome.seen = seen;
        Ok(outcome)
    }

    /// Takes holes off the hot list once everybody who could have filled them is gone. It is about cost, not about loss.
    async fn cool(&self, turn: &mut Turn) -> Result<()> {
        let now = Instant::now();
        if turn.cool_at > now || self.shared.once {
            return Ok(());
        }
        turn.cool_at = now + COOL_EVERY;
        if self.writer.hot_ranges(&self.shared.lease.worker, turn.source.name()).await? <= 1 {
            turn.checkpoint = None;
            return Ok(());
        }
        let (at, writers) = self.writer.writers(&quote::table(&turn.source.definition)).await?;
        match &turn.checkpoint {
            Some((before, then)) if !then.iter().any(|w| writers.contains(w)) => {
                self.writer.cool_ranges(&self.shared.lease, turn.source.name(), *before).await?;
                turn.checkpoint = Some((at, writers));
            }
            Some(_) => {}
            None => turn.checkpoint = Some((at, writers)),
        }
        Ok(())
    }
}

/// Rows that were read and mapped, each with its id and the range it was found in.
#[derive(Default)]
struct Ahead {
    found: Vec<Range>,
    rows: Vec<MappedRow>,
    ids: Vec<i64>,
}

impl Ahead {
    fn of(source: &Arc<Source>, found: Vec<Found>) -> Result<Self> {
        let ranges = found.iter().map(|f| f.range).collect();
        let rows: Vec<_> = found.iter().map(|f| MappedRow::of(Arc::clone(source), &f.row)).collect();
        Ok(Self { found: ranges, ids: keys(source, &rows)?, rows })
    }
}

fn keys(source: &Source, rows: &[MappedRow]) -> Result<Vec<i64>> {
    rows.iter()
        .map(|row| {
            let key = row.watermark.as_ref().and_then(|w| w.key.as_int());
            key.ok_or_else(|| {
                Error::new(Kind::Internal, format!("source {}: a key that is no integer", source.name()))
            })
        })
        .collect()
}
