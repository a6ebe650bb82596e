//! The loop over an open stream. Rows that arrive while a batch commits form the next batch. Only what is durable is
//! acknowledged.

use super::replication_session::{Event, Stream};
use crate::capture::shared::{End, Shared, named};
use crate::core::captured_by::CapturedBy;
use crate::core::finding::Severity;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::core::pgoutput::decode;
use crate::core::probe::{Probe, Quiet};
use crate::core::row::Row;
use crate::core::transaction::{Delivered, Relations, Surprise};
use crate::error::{Error, Kind, Result};
use crate::failpoint::failpoint;
use crate::handoff::deliver::Delivery;
use crate::handoff::mapped_row::MappedRow;
use crate::store::Writer;
use crate::store::apply::Advance;
use crate::store::findings::Finding;
use crate::store::read::BATCH_BYTES;
use serde_json::json;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After a lone signal the position is recorded, and then acknowledged, at most this often. Recording it each time
/// would add a twentieth to the signal's time. Rows that the server sends again after a crash are known by identity
/// and absorbed.
const RECORD_EVERY: Duration = Duration::from_secs(1);
/// While the stream is idle, the position is recorded, and then acknowledged, at most this often: each time costs a
/// commit.
const IDLE_CONFIRM: Duration = Duration::from_secs(5);
/// The idle position is recorded earlier if the server would otherwise keep this much log for the slot.
const IDLE_BYTES: u64 = 16 << 20;
/// The stream is dead if there is no sign of life for this long after the daemon asked for one.
const STALLED: Duration = Duration::from_secs(20);
/// How long sending the last acknowledgement may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// What has arrived and is not durable yet.
#[derive(Default)]
struct Pending {
    rows: Vec<Arrived>,
    bytes: usize,
    /// A transaction has begun and its commit has not arrived.
    open: bool,
    /// Rows of the open transaction, pending or already applied.
    in_transaction: usize,
    /// The end of the last complete transaction among the rows.
    whole: Option<Lsn>,
    /// A position before which the server has nothing for us.
    idle: Option<Lsn>,
    asked: bool,
}

impl Pending {
    /// Rows to record, or a position to move to.
    fn is_work(&self) -> bool {
        !self.rows.is_empty() || self.whole.is_some()
    }
}

/// A row as the stream brought it.
enum Arrived {
    Mapped(MappedRow),
    /// Its texts are in the database's own encoding.
    Foreign(Arc<Source>, Vec<Option<bytes::Bytes>>),
}

/// A batch that is being committed.
type InFlight<'a> = Pin<Box<dyn Future<Output = Result<Committed>> + Send + 'a>>;

/// The result of a batch.
struct Committed {
    /// The end of its last complete transaction.
    whole: Option<Lsn>,
    /// That position was recorded in the same commit.
    recorded: bool,
    took: Duration,
}

/// Why the loop woke up.
enum WokenBy {
    Recorded(Result<Committed>),
    Arrived(Event),
    /// Nothing arrived for a while.
    Quiet,
    /// Time to record the position.
    Due,
}

pub struct Follower<'a> {
    shared: &'a Shared,
    store: &'a Writer,
    sources: Vec<Arc<Source>>,
    relations: Relations,
    pending: Pending,
    in_flight: Option<InFlight<'a>>,
    /// Recorded and acknowledged.
    durable: Lsn,
    /// Everything before this position is handed off; never behind `durable`.
    handed_off: Lsn,
    /// How long the last batch took.
    worked: Duration,
    confirmed_at: Instant,
    definitions: tokio::sync::watch::Receiver<u64>,
    /// With `--once`: where to end.
    target: Option<Lsn>,
    probe: Probe,
    /// Once the stream is past this position, it is past everything that surprised this stream or the one before it.
    surprised_before: Option<Lsn>,
}

impl<'a> Follower<'a> {
    /// `durable` is where the stream starts.
    pub fn new(
        shared: &'a Shared,
        store: &'a Writer,
        definitions: tokio::sync::watch::Receiver<u64>,
        sources: Vec<Arc<Source>>,
        relations: Relations,
        durable: Lsn,
        target: Option<Lsn>,
    ) -> Self {
        Self {
            shared,
            store,
            relations,
            sources,
            pending: Pending::default(),
            in_flight: None,
            durable,
            handed_off: durable,
            worked: Duration::ZERO,
            confirmed_at: Instant::now(),
            definitions,
            target,
            probe: Probe::new(stalled_after()),
            surprised_before: None,
        }
    }

    pub async fn run(mut self, mut stream: Stream) -> Result<End> {
        let end = self.follow(&mut stream).await;
        // However the loop ended, the running batch is completed, so that the server sends as little as possible again.
        let recorded = match self.in_flight.take() {
            Some(batch) => batch.await.map(|committed| self.record(&committed, &stream)),
            None => Ok(()),
        };
        let end = match end.and_then(|end| recorded.map(|()| end)) {
            Ok(end) if self.handed_off > self.durable => {
                self.confirm(self.handed_off, &stream).await.map(|()| end)
            }
            end => end,
        };
        stream.close(self.durable, FAREWELL).await;
        end
    }

    /// The loop. Priorities: told to stop, sources redefined, a batch that is recorded, then the stream.
    async fn follow(&mut self, stream: &mut Stream) -> Result<End> {
        let shared = self.shared;
        // A predecessor may have left a finding open. Its cause lies before the current end of the log.
        self.surprised_before = Some(self.store.current_lsn().await?);
        loop {
            if self.in_flight.is_none() {
                if self.target.is_some_and(|target| self.durable >= target || self.at_rest(target)) {
                    self.confirm_idle(stream, true).await?;
                    return Ok(End::Done);
                }
                // The rest of an open transaction is on its way. Waiting for it saves a commit and costs no time.
                if self.pending.is_work() && (!self.pending.open || self.full()) {
                    self.begin();
                } else {
                    self.confirm_idle(stream, false).await?;
                }
                self.settle_surprises().await?;
            }
            let (in_flight, room) = (self.in_flight.is_some(), !self.full());
            let behind = !in_flight && self.handed_off > self.durable;
            let due = self.confirmed_at + RECORD_EVERY;
            let step = tokio::select! {
                biased;
                () = shared.term.told_to_stop() => return Ok(End::Done),
                _ = self.definitions.changed() => return Ok(End::Redefined),
                problem = shared.stream.objected() => return Err(Error::new(Kind::Replication, problem)),
                batch = recorded(&mut self.in_flight), if in_flight => WokenBy::Recorded(batch),
                event = stream.next(), if room => WokenBy::Arrived(event?),
                () = tokio::time::sleep_until(due.into()), if behind && !self.pending.open => WokenBy::Due,
                () = tokio::time::sleep(self.probe.ask_after()), if !in_flight => WokenBy::Quiet,
            };
            match step {
                WokenBy::Recorded(batch) => {
                    self.in_flight = None;
                    self.record(&batch?, stream);
                }
                WokenBy::Arrived(event) => self.take_all(event, stream).await?,
                WokenBy::Quiet => self.probe().await?,
                WokenBy::Due => {}
            }
        }
    }

    /// Takes an event and all events that have arrived with it, as far as there is room.
    async fn take_all(&mut self, event: Event, stream: &mut Stream) -> Result<()> {
        self.take(event).await?;
        while !self.full() {
            match stream.next_now() {
                Some(event) => self.take(event?).await?,
                None => break,
            }
        }
        Ok(())
    }

    fn at_rest(&self, target: Lsn) -> bool {
        !self.pending.open && !self.pending.is_work() && self.reached() >= target
    }

    /// Everything that was committed before this position is handed off.
    fn reached(&self) -> Lsn {
        self.shared.stream.read(|stream| stream.reached)
    }

    fn full(&self) -> bool {
        self.pending.rows.len() >= self.shared.term.config.batch_rows || self.pending.bytes >= BATCH_BYTES
    }

    /// Silence has two meanings; see [`Probe`].
    async fn probe(&mut self) -> Result<()> {
        match self.probe.quiet(self.reached(), Instant::now()) {
            Quiet::Ask => {
                let at = self.store.emit_probe().await?;
                self.probe.asked(at, Instant::now());
                Ok(())
            }
            Quiet::Wait => Ok(()),
            Quiet::Dead(sent) => Err(Error::new(
                Kind::Replication,
                format!(
                    "the stream stalled: our own message at {sent} did not come back within {} s",
                    self.probe.answer().as_secs()
                ),
            )),
        }
    }

    async fn take(&mut self, event: Event) -> Result<()> {
        self.probe.heard(Instant::now());
        let pending = &mut self.pending;
        match event {
            Event::Begin => {
                pending.open = true;
                pending.in_transaction = 0;
            }
            Event::Commit { end } => {
                pending.open = false;
                if pending.in_transaction > 0 { pending.whole = Some(end) } else { pending.idle = Some(end) }
            }
            Event::Idle { wal_end, asked } => {
                pending.idle = Some(wal_end);
                pending.asked |= asked;
            }
            Event::Message => {}
            Event::Change(bytes) => self.change(&bytes).await?,
        }
        Ok(())
    }

    async fn change(&mut self, bytes: &bytes::Bytes) -> Result<()> {
        let change = decode(bytes)
            .map_err(|e| Error::new(Kind::Replication, format!("the stream cannot be decoded: {e}")))?;
        match self.relations.deliver(change) {
            Ok(Delivered::Nothing) => {
                if let Some(source) = self.relations.rejoined() {
                    tracing::info!(source = &*source, "streamed again");
                    self.shared.stream.update(|stream| stream.rejoin(&source));
                    self.shared.not_vouched_for(self.store).await?;
                }
            }
            Ok(Delivered::Row(source, row)) => {
                let mapped = MappedRow::of(self.source(&source)?, &row);
                self.arrived(row.size(), Arrived::Mapped(mapped));
            }
            Ok(Delivered::Foreign(source, values)) => {
                let size = values.iter().flatten().map(bytes::Bytes::len).sum();
                let source = self.source(&source)?;
                self.arrived(size, Arrived::Foreign(source, values));
            }
            Ok(Delivered::NotABirth { table, action }) => {
                tracing::warn!(table, action, "the source reported something other than an insert");
                let key = format!("source_{action}:{table}");
                let detail = json!({ "table": table, "action": action });
                self.store
                    .raise(&Finding {
                        kind: "source_not_append_only",
                        key,
                        severity: Severity::Warning,
                        detail,
                    })
                    .await?;
            }
            Err(surprise) => {
                let key = format!("{}:{}", surprise.code(), self.shared.term.config.slot);
                let detail = json!({ "slot": self.shared.term.config.slot, "problem": surprise.to_string() });
                self.store
                    .raise(&Finding { kind: surprise.code(), key, severity: Severity::High, detail })
                    .await?;
                self.surprised_before = Some(self.store.current_lsn().await?);
                self.leave_to_the_tables(&surprise).await?;
            }
        }
        Ok(())
    }

    fn source(&self, name: &str) -> Result<Arc<Source>> {
        named(&self.sources, name)
            .ok_or_else(|| Error::new(Kind::Internal, format!("source {name} is bound but not loaded")))
    }

    fn arrived(&mut self, size: usize, row: Arrived) {
        self.pending.bytes += size;
        self.pending.in_transaction += 1;
        self.pending.rows.push(row);
    }

    /// Resolves the findings about surprises once the stream is past them. While a cause lasts, it has a finding of
    /// its own: a source that cannot be read, or a publication that the slot guard objects to.
    async fn settle_surprises(&mut self) -> Result<()> {
        let reached = self.reached();
        if self.surprised_before.take_if(|before| *before <= reached).is_some() {
            for code in Surprise::CODES {
                let key = format!("{code}:{}", self.shared.term.config.slot);
                self.store.resolve(&key, "the stream is past it").await?;
            }
        }
        Ok(())
    }

    /// A table that does not match its definition affects only itself. Its rows are left to the table lane, which is
    /// asked to look at once; they are still in its open ranges. A slot decodes with the catalogue of the time. So
    /// without this, rows that were written before an operator repaired the table would stop the stream indefinitely.
    async fn leave_to_the_tables(&mut self, surprise: &Surprise) -> Result<()> {
        let Some(left) = self.relations.leave_to_the_tables() else {
            // Not acknowledged, because the stream cannot tell which source these rows belong to.
            return Err(Error::new(Kind::Replication, surprise.to_string()));
        };
        tracing::warn!(%surprise, "left to the tables");
        if let Some(source) = left.source {
            self.shared.stream.update(|stream| stream.leave_to_the_tables(&source));
        }
        self.shared.not_vouched_for(self.store).await
    }

    /// Starts to commit the pending rows.
    fn begin(&mut self) {
        let rows = std::mem::take(&mut self.pending.rows);
        self.pending.bytes = 0;
        let whole = self.pending.whole.take();
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
            Ok(Committed { whole, recorded, took: begun.elapsed() })
        }));
    }

    /// Acknowledges what a commit made durable: the handoffs and the position. Never before the commit: the server
    /// removes what is acknowledged, and a slot ahead of our recorded position looks like a gap.
    fn record(&mut self, batch: &Committed, stream: &Stream) {
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
    async fn confirm_idle(&mut self, stream: &Stream, now: bool) -> Result<()> {
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
    async fn confirm(&mut self, lsn: Lsn, stream: &Stream) -> Result<()> {
        // Recorded first, so that after a restart the slot is not ahead of the recorded position. When a server shuts
        // down, it ends sessions before walsenders, so this fails. Then the stream is closed; the server waits for
        // that as well.
        self.store.confirm_stream(&self.shared.term.lease, &self.shared.term.config.slot, lsn).await?;
        failpoint("after_confirm");
        self.acknowledge(lsn, stream);
        Ok(())
    }
}

/// Asks the server, which knows its own encoding, to convert the texts. A row with a text that cannot be converted
/// counts as unreadable, as on every other path. If such a row has no readable key, it is left to the tables.
async fn legible(shared: &Shared, store: &Writer, rows: Vec<Arrived>) -> Result<Vec<MappedRow>> {
    let texts = rows.iter().flat_map(|row| match row {
        Arrived::Mapped(_) => &[][..],
        Arrived::Foreign(_, values) => values,
    });
    let texts: Vec<&[u8]> = texts.flatten().map(AsRef::as_ref).collect();
    let said = if texts.is_empty() { vec![] } else { store.legible(&texts).await? };
    if said.len() != texts.len() {
        return Err(Error::new(
            Kind::Internal,
            "the server returned another number of texts than it was asked for",
        ));
    }
    let mut said = said.into_iter();
    let mut out = Vec::with_capacity(rows.len());
    for row in rows {
        let (source, values) = match row {
            Arrived::Mapped(row) => {
                out.push(row);
                continue;
            }
            Arrived::Foreign(source, values) => (source, values),
        };
        let mut unsaid = None;
        let mut say = |value: Option<bytes::Bytes>| {
            value?;
            said.next()?.map_err(|code| unsaid = Some(code)).ok()
        };
        let mut row = Row::new(values.into_iter().map(&mut say).collect());
        if let Some(code) = unsaid {
            if !source.has_key(&row) {
                shared.not_vouched_for(store).await?;
                continue;
            }
            row = source.unreadable(source.key(&row).to_owned(), code);
        }
        out.push(MappedRow::of(source, &row));
    }
    Ok(out)
}

fn stalled_after() -> Duration {
    #[cfg(debug_assertions)]
    if let Some(sooner) = crate::config::stalled_after() {
        return sooner;
    }
    STALLED
}

/// Waits for the batch that is being committed. Cancel safe: the batch stays where it is.
async fn recorded(in_flight: &mut Option<InFlight<'_>>) -> Result<Committed> {
    match in_flight {
        Some(batch) => batch.await,
        None => std::future::pending().await,
    }
}
