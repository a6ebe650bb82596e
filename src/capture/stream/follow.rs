//! The loop over an open stream. Rows that arrive while a batch commits form the next batch. Only what is durable is
//! acknowledged.

mod commit;
mod pending;

use super::replication_session::{Event, Stream};
use crate::capture::shared::{End, Shared, named};
use crate::core::finding::Severity;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::core::pgoutput::decode;
use crate::core::probe::{Probe, Quiet};
use crate::core::transaction::{Delivered, Relations, Surprise};
use crate::error::{Error, Kind, Result};
use crate::handoff::mapped_row::MappedRow;
use crate::pulse::Loop;
use crate::store::Writer;
use crate::store::findings::Finding;
use crate::store::read::BATCH_BYTES;
use commit::{Committed, InFlight, RECORD_EVERY, recorded};
use pending::{Arrived, Pending};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The stream is dead if there is no sign of life for this long after the daemon asked for one.
const STALLED: Duration = Duration::from_secs(20);
/// How long sending the last acknowledgement may take.
const FAREWELL: Duration = Duration::from_secs(2);

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

    pub async fn run(mut self, mut stream: Stream, turning: &Loop) -> Result<End> {
        let end = self.follow(&mut stream, turning).await;
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
    async fn follow(&mut self, stream: &mut Stream, turning: &Loop) -> Result<End> {
        let shared = self.shared;
        // A predecessor may have left a finding open. Its cause lies before the current end of the log.
        self.surprised_before = Some(self.store.current_lsn().await?);
        loop {
            turning.turn().await;
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
            Event::Begin { committed } => {
                pending.open = true;
                pending.committed = committed;
                pending.in_transaction = 0;
            }
            Event::Commit { end } => {
                pending.open = false;
                if pending.in_transaction > 0 {
                    pending.whole = Some(end);
                    pending.commits.push(pending.committed);
                } else {
                    pending.idle = Some(end);
                }
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
                self.pending.push(row.size(), Arrived::Mapped(mapped));
            }
            Ok(Delivered::Foreign(source, values)) => {
                let size = values.iter().flatten().map(bytes::Bytes::len).sum();
                let source = self.source(&source)?;
                self.pending.push(size, Arrived::Foreign(source, values));
            }
            Ok(Delivered::NotABirth { table, action }) => {
                tracing::warn!(table, action, "the source reported something other than an insert");
                let key = format!("source_{action}:{table}");
                let detail = json!({ "table": table, "action": action });
                let severity = Severity::Warning;
                let finding = Finding { kind: "source_not_append_only", key, severity, detail };
                self.store.raise(&finding).await?;
            }
            Err(surprise) => self.surprised(&surprise).await?,
        }
        Ok(())
    }

    /// Raises a finding about something that the stream cannot use, and leaves its rows to the tables.
    async fn surprised(&mut self, surprise: &Surprise) -> Result<()> {
        let slot = &self.shared.term.config.slot;
        let key = format!("{}:{slot}", surprise.code());
        let detail = json!({ "slot": slot, "problem": surprise.to_string() });
        let finding = Finding { kind: surprise.code(), key, severity: Severity::High, detail };
        self.store.raise(&finding).await?;
        self.surprised_before = Some(self.store.current_lsn().await?);
        self.leave_to_the_tables(surprise).await
    }

    fn source(&self, name: &str) -> Result<Arc<Source>> {
        named(&self.sources, name)
            .ok_or_else(|| Error::new(Kind::Internal, format!("source {name} is bound but not loaded")))
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
}

fn stalled_after() -> Duration {
    #[cfg(debug_assertions)]
    if let Some(sooner) = crate::config::stalled_after() {
        return sooner;
    }
    STALLED
}
