//! The range pass: reads the open id ranges of one source, batch by batch, and hands off the rows in them. The next
//! batch is read while the last one commits.

use crate::capture::shared::Shared;
use crate::capture::turn::Turn;
use crate::core::captured_by::CapturedBy;
use crate::core::handoff::Source;
use crate::core::id_ranges::{OpenRanges, Range};
use crate::core::mode::Mode;
use crate::daemon::open_session::patience;
use crate::error::{Error, Kind, Result};
use crate::failpoint::failpoint;
use crate::handoff::deliver::{Delivery, Outcome};
use crate::handoff::mapped_row::MappedRow;
use crate::store::apply::Advance;
use crate::store::quote;
use crate::store::read::{Found, RangeDepth};
use crate::store::{Reader, Writer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Cold holes are read at most this often: they are rarely filled, but never forgotten.
const ALL_RANGES_EVERY: Duration = Duration::from_secs(1);
/// For a source with very many holes: reading all ranges may take at most one part in this many of the lane's time.
const ALL_RANGES_SHARE: u32 = 20;
/// How often the lane checks whether holes may go cold.
const COOL_EVERY: Duration = Duration::from_secs(1);

pub struct RangePass<'a> {
    pub shared: &'a Shared,
    pub reader: &'a Reader,
    pub writer: &'a Writer,
}

impl RangePass<'_> {
    /// Reads the open ranges until they hold no committed row, or until another source has waited long enough. What is
    /// left is still in the ranges.
    pub async fn run(&self, turn: &mut Turn) -> Result<Outcome> {
        let shared = self.shared;
        let begun = Instant::now();
        let depth =
            if shared.term.once || turn.all_ranges_at <= begun { RangeDepth::All } else { RangeDepth::Hot };
        let limit = turn.batch.rows();
        let longest = shared.term.config.read_timeout.min(patience(&shared.term.config));
        let (mut total, mut ahead) = (Outcome::default(), Chunk::default());
        turn.made_way = false;
        loop {
            // The pass ends when a read of all ranges finds nothing. An empty read ahead does not end it.
            if ahead.is_empty() {
                let asked = Instant::now();
                ahead = self.read(turn, depth, i64::MIN, limit).await?;
                shared.pacing.note_read(turn.source.name(), asked.elapsed());
                turn.batch.took(asked.elapsed(), longest);
            }
            if ahead.is_empty() || shared.term.stopping() {
                break;
            }
            let chunk = std::mem::take(&mut ahead);
            shared.pacing.rest(&shared.term, turn.worked).await;
            let (outcome, next) = self.hand_off_and_read_ahead(turn, chunk, depth, limit).await?;
            turn.batch.took(turn.worked, longest);
            total += outcome;
            ahead = next;
            if !shared.term.once && turn.should_make_way(begun) {
                turn.made_way = true;
                return Ok(total);
            }
        }
        turn.proof.repairs.looked();
        let micros = begun.elapsed().as_micros();
        tracing::debug!(source = turn.source.name(), rows = total.seen, micros, "keyset pass");
        if depth == RangeDepth::All {
            turn.all_ranges_at = Instant::now() + ALL_RANGES_EVERY.max(begun.elapsed() * ALL_RANGES_SHARE);
        }
        self.cool(turn).await?;
        Ok(total)
    }

    /// Commits one chunk while the next is read.
    ///
    /// The order is right because the ids that were read leave the ranges in the same commit that records their
    /// handoffs. The chunk that is read meanwhile has higher ids only, so no id is in both. Its ranges are corrected
    /// by what this commit left of them.
    async fn hand_off_and_read_ahead(
        &self,
        turn: &mut Turn,
        chunk: Chunk,
        depth: RangeDepth,
        limit: u32,
    ) -> Result<(Outcome, Chunk)> {
        let Chunk { ranges, rows, ids } = chunk;
        // Only the ids that were read count as seen. The rest of each range stays open.
        let replacement = OpenRanges::new(ranges.iter().copied()).take(&ids);
        let source = Arc::clone(&turn.source);
        let advance = Advance::Ranges { source: source.name(), replacement: &replacement };
        // After a full chunk there may be more rows.
        let next = ids.iter().max().and_then(|id| id.checked_add(1)).filter(|_| ids.len() >= limit as usize);
        let read_ahead = async {
            let Some(from) = next else { return Ok(Chunk::default()) };
            self.read_source(&source, depth, from, limit).await
        };
        failpoint("keyset_before_apply");
        let working = Instant::now();
        let (handed_off, read) = tokio::join!(self.hand_off(turn, rows, advance), read_ahead);
        turn.worked = working.elapsed();
        let outcome = handed_off?;
        failpoint("keyset_after_apply");
        let mut ahead = read?;
        for (range, id) in ahead.ranges.iter_mut().zip(&ahead.ids) {
            *range = replacement.after(*range, *id);
        }
        Ok((outcome, ahead))
    }

    async fn read(&self, turn: &Turn, depth: RangeDepth, from: i64, limit: u32) -> Result<Chunk> {
        self.read_source(&turn.source, depth, from, limit).await
    }

    async fn read_source(
        &self,
        source: &Arc<Source>,
        depth: RangeDepth,
        from: i64,
        limit: u32,
    ) -> Result<Chunk> {
        let worker = &self.shared.term.lease.worker;
        Chunk::of(source, self.reader.rows_in_ranges(worker, source, depth, from, limit.into()).await?)
    }

    /// A row that a poll finds is new. A row found behind a stream, or while the stream is away, is reconciled.
    async fn hand_off(&self, turn: &mut Turn, rows: Vec<MappedRow>, advance: Advance<'_>) -> Result<Outcome> {
        let shared = self.shared;
        let stream = shared.stream.now();
        let captured_by = shared.captured_by();
        let delivery = Delivery { store: self.writer, lease: &shared.term.lease, captured_by };
        let away = matches!(stream.mode, Mode::Polling { .. }) && captured_by != CapturedBy::Poll;
        if !stream.is_streaming() && !away {
            return delivery.deliver(rows, advance).await;
        }
        let passed =
            stream.brings(turn.source.name()) && shared.let_the_stream_have_them(self.writer, None).await?;
        let repairs = &mut turn.proof.repairs;
        Ok(repairs.reconcile(shared, &delivery, rows, advance, passed).await?.outcome)
    }

    /// Makes holes cold once every transaction that could have filled them has ended. This saves cost; no guarantee
    /// depends on it.
    async fn cool(&self, turn: &mut Turn) -> Result<()> {
        let now = Instant::now();
        if turn.cool_at > now || self.shared.term.once {
            return Ok(());
        }
        turn.cool_at = now + COOL_EVERY;
        let lease = &self.shared.term.lease;
        if self.writer.hot_ranges(&lease.worker, turn.source.name()).await? <= 1 {
            turn.checkpoint = None;
            return Ok(());
        }
        let (at, writers) = self.writer.writers(&quote::table(&turn.source.definition)).await?;
        match &turn.checkpoint {
            Some((before, then)) if !then.iter().any(|w| writers.contains(w)) => {
                self.writer.cool_ranges(lease, turn.source.name(), *before).await?;
                turn.checkpoint = Some((at, writers));
            }
            Some(_) => {}
            None => turn.checkpoint = Some((at, writers)),
        }
        Ok(())
    }
}

/// Rows that were read and mapped, each with its id and the range in which it was found.
#[derive(Default)]
struct Chunk {
    ranges: Vec<Range>,
    rows: Vec<MappedRow>,
    ids: Vec<i64>,
}

impl Chunk {
    fn of(source: &Arc<Source>, found: Vec<Found>) -> Result<Self> {
        let ranges = found.iter().map(|f| f.range).collect();
        let rows: Vec<_> = found.iter().map(|f| MappedRow::of(Arc::clone(source), &f.row)).collect();
        Ok(Self { ranges, ids: keys(source, &rows)?, rows })
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

fn keys(source: &Source, rows: &[MappedRow]) -> Result<Vec<i64>> {
    rows.iter()
        .map(|row| {
            let key = row.watermark.as_ref().and_then(|w| w.key.as_int());
            key.ok_or_else(|| {
                Error::new(Kind::Internal, format!("source {}: a key that is not an integer", source.name()))
            })
        })
        .collect()
}
