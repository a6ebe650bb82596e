//! The keyset lane: reads the tables themselves, in every mode.
//!
//! While there is no stream it *is* the capture: by the key and its open id ranges, adaptively, so that a busy source is
//! read every few milliseconds and an idle one rarely. While there is a stream it reconciles: the same pass, every few
//! seconds, hands off only what the stream did not. Sources whose keys have no ranges are read by the frontier.

mod pass;
mod unsettled;

pub use unsettled::Unsettled;

use crate::core::batch::Batch;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::core::mode::{Mode, next_pause};
use crate::error::{Error, Kind, Policy, Result};
use crate::intake::certify::{Pass, Proof};
use crate::intake::deliver::Outcome;
use crate::intake::flag::Flag;
use crate::intake::pause::Pause;
use crate::intake::{End, Shared, open_writer, patience, was_ended};
use crate::store::catalogue::Strategy;
use crate::store::cursor::{ClockReading, Registered};
use crate::store::findings::Finding;
use crate::store::{Store, connect};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a reconciling pass waits for the stream to bring what it has just read, before it takes it for missing.
const STREAM_GRACE: Duration = Duration::from_secs(2);
/// The lane may be the only capture there is, and a connection attempt costs little.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A session that lasted this long was no false start: the next attempt comes soon.
const LASTED: Duration = Duration::from_secs(2);
/// The least time between two attempts at a certificate.
const CERTIFY_AGAIN: Duration = Duration::from_millis(100);
/// A source that cannot be read is tried again after this, or as often as tables are looked at, if that is more often.
const BROKEN_PAUSE: Duration = Duration::from_secs(5);
/// A pass that gave way to somebody who waited for the source is tried again after this.
const GAVE_WAY_PAUSE: Duration = Duration::from_secs(1);
/// One that stays unreadable is counted again this often.
const UNREADABLE_EVERY: Duration = Duration::from_secs(60);

/// Runs sessions until told to stop; whatever fails is started over from what is durable.
pub async fn lane(shared: &Arc<Shared>) -> Result<()> {
    let mut pause = Pause::up_to(LONGEST_PAUSE);
    let mut ended = 0;
    let mut proofs = Proofs::new();
    loop {
        let begun = Instant::now();
        match session(shared, ended, &mut proofs).await {
            Ok(End::Done) => return Ok(()),
            Ok(End::Redefined) => tracing::info!("sources were redefined, reading them anew"),
            Err(e) if e.policy() == Policy::StandBy => return Err(e),
            // The gate refused what was mapped by the old definition: nothing has moved, and the rows are read again.
            Err(e) if e.kind == Kind::Redefined => tracing::info!("a source was redefined, reading it again"),
            Err(e) if shared.once => return Err(e),
            Err(e) => {
                tracing::warn!(error = %e, "keyset lane failed, starting over");
                ended += u32::from(was_ended(&e));
                if begun.elapsed() > LASTED {
                    pause.reset();
                }
                if shared.stopped_within(pause.next()).await {
                    return Ok(());
                }
            }
        }
    }
}

/// One source's turn-taking.
struct Turn {
    source: Arc<Source>,
    strategy: Strategy,
    batch: Batch,
    /// Says that the batch is smaller than it should be, and until when.
    reduced: Flag,
    /// The batch that was last spoken of.
    said: Option<u32>,
    due: Instant,
    pause: Duration,
    /// How long the last batch took.
    worked: Duration,
    all_ranges_at: Instant,
    cool_at: Instant,
    /// When holes could last be filled by anybody, and by whom.
    checkpoint: Option<(ClockReading, Vec<String>)>,
    proof: Proof,
    /// Its last turn ended with an error of its own.
    unreadable: bool,
    /// So did its last certifying pass, which is not tried again before.
    uncertified_until: Option<Instant>,
    /// A finding may stand that says so.
    doubted: bool,
}

impl Turn {
    /// How long until the next certificate of a source that is read by ranges.
    fn certificate_in(&self, shared: &Shared) -> Option<Duration> {
        if self.unreadable || !matches!(self.strategy, Strategy::Ranges { .. }) {
            return None;
        }
        let again = self.uncertified_until.map(|at| at.saturating_duration_since(Instant::now()));
        Some(self.proof.due_in(shared).max(again.unwrap_or_default()))
    }

    fn new(shared: &Shared, source: Arc<Source>, strategy: Strategy) -> Self {
        let (config, now) = (&shared.config, Instant::now());
        Self {
            batch: Batch::within(source.definition.batch_size, config.batch_rows),
            reduced: Flag::new("handoff_throttled", &format!("{}:{}", config.worker, source.name())),
            said: None,
            source,
            strategy,
            due: now,
            pause: Duration::ZERO,
            worked: Duration::ZERO,
            all_ranges_at: now,
            cool_at: now,
            checkpoint: None,
            proof: Proof::default(),
            unreadable: false,
            uncertified_until: None,
            doubted: true,
        }
    }
}

struct Session<'a> {
    shared: &'a Shared,
    /// Reads sources, each statement bounded in time.
    reader: Store,
    /// Writes through the gates.
    writer: Store,
    begun: Instant,
    /// Sources that could not be read when they were last looked at.
    unreadable: usize,
    /// Of a single run: the first error that concerned one source only. The others have their turns first.
    failed: Option<Error>,
}

/// What is known of each source's completeness outlives a session: repairs that no certificate tells of yet, and that this
/// instance has looked at the source before.
type Proofs = HashMap<String, Proof>;

async fn session(shared: &Shared, ended: u32, proofs: &mut Proofs) -> Result<End> {
    let config = &shared.config;
    let reader = connect::open_reader(&config.target, "gov-handoff reader").await?;
    // The server itself ends a read that takes too long.
    let reader = reader.within(patience(config).max(config.read_timeout + Duration::from_secs(1)));
    reader.bound_reads(config.read_timeout).await?;
    let reader = reader.only_tables().await?;
    let writer = open_writer(config, "gov-handoff writer", ended).await?;
    let mut session = Session { shared, reader, writer, begun: Instant::now(), unreadable: 0, failed: None };
    let mut turns = session.turns(Vec::new()).await?;
    for turn in &mut turns {
        turn.proof = proofs.remove(turn.source.name()).unwrap_or_default();
    }
    let end = session.attend(&mut turns).await;
    proofs.extend(turns.into_iter().map(|turn| (turn.source.name().to_owned(), turn.proof)));
    end
}

impl Session<'_> {
    /// Takes turns until told to stop.
    async fn attend(&mut self, turns: &mut Vec<Turn>) -> Result<End> {
        let shared = self.shared;
        let broken_pause = self.broken_pause();
        let mut checked_at = Instant::now();
        let mut definitions = shared.definitions.subscribe();
        let mut mode = shared.mode.subscribe();
        loop {
            if shared.stopping() {
                return Ok(End::Done);
            }
            if definitions.has_changed().unwrap_or(false) {
                return Ok(End::Redefined);
            }
            let now = Instant::now();
            // Somebody may have mended the table; nothing else would tell us.
            if self.unreadable > 0 && now >= checked_at + broken_pause {
                *turns = self.turns(std::mem::take(turns)).await?;
                checked_at = Instant::now();
            }
            for turn in turns.iter_mut().filter(|t| t.due <= now) {
                self.take_turn(turn).await?;
            }
            self.certify_some(turns).await?;
            if shared.once {
                return self.failed.take().map_or(Ok(End::Done), Err);
            }
            self.settle(turns).await?;
            let mut next = turns.iter().map(|t| t.due).min().unwrap_or_else(|| now + BROKEN_PAUSE);
            // A certificate does not wait for a slower cadence of looking; one that could not be taken is not tried at once.
            let certificates =
                turns.iter().filter_map(|t| t.certificate_in(shared)).min().unwrap_or(BROKEN_PAUSE);
            next = next.min(Instant::now() + certificates.max(CERTIFY_AGAIN));
            if self.unreadable > 0 {
                next = next.min(checked_at + broken_pause);
            }
            let mut stop = shared.stop.clone();
            tokio::select! {
                _ = stop.wait_for(|s| *s) => {}
                _ = definitions.changed() => { definitions.mark_changed(); }
                // The stream came or went: another cadence, and something to look at.
                _ = mode.changed() => turns.iter_mut().for_each(|t| t.due = Instant::now()),
                // What the stream cannot vouch for may be anywhere.
                () = shared.look.notified() => turns.iter_mut().for_each(|t| {
                    t.due = Instant::now();
                    t.all_ranges_at = t.due;
                }),
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
    }

    /// The sources that can be read; the others leave a finding and are tried again soon. A source that has its turn keeps
    /// it, with its proof and its pauses: that another cannot be read is no reason to look at this one, or to certify it, anew.
    async fn turns(&mut self, mut kept: Vec<Turn>) -> Result<Vec<Turn>> {
        self.unreadable = 0;
        let mut turns = Vec::new();
        let Registered { sources, broken } = self.writer.registered(&self.shared.config.worker).await?;
        for (name, e) in broken {
            self.not_read(&name, e).await?;
        }
        for source in sources {
            // One that was redefined in this very moment is checked like a new one; the session ends for it soon.
            if let Some(at) = kept.iter().position(|t| t.source.definition == source.definition) {
                turns.push(kept.swap_remove(at));
                continue;
            }
            let checked = self.reader.check_source(&source.definition).await;
            let strategy = match checked.map_err(Error::of_source) {
                // What stands against it is settled by its first turn: the catalogue does not tell whether rows can be read.
                Ok(strategy) => strategy,
                Err(e) if e.of_source => {
                    self.not_read(source.name(), e).await?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            turns.push(Turn::new(self.shared, source, strategy));
        }
        self.shared.forget_reads_but_of(|name| turns.iter().any(|t| t.source.name() == name));
        Ok(turns)
    }

    /// A source that has no turn, and why. A single run ends with it, after the others have had theirs.
    async fn not_read(&mut self, name: &str, mut e: Error) -> Result<()> {
        tracing::error!(source = name, error = %e, "source cannot be read");
        let detail = json!({ "source": name, "problem": e.to_string() });
        let key = format!("source_unreadable:{name}");
        self.writer.raise(&Finding { kind: "source_unreadable", key, severity: "high", detail }).await?;
        self.unreadable += 1;
        if self.shared.once {
            e.of_source = true;
            self.failed.get_or_insert(e);
        }
        Ok(())
    }

    async fn take_turn(&mut self, turn: &mut Turn) -> Result<()> {
        let begun = Instant::now();
        let outcome = self.look(turn).await;
        if outcome.is_ok() && !self.shared.stopping() {
            // Everything that was committed when it began is handed off.
            self.shared.looked(turn.source.name(), begun);
        }
        let outcome = match outcome {
            Err(e) if e.of_source && !may_halve(turn, &e) => {
                turn.unreadable = true;
                turn.due = Instant::now() + self.broken_pause();
                return self.unreadable(turn, e).await;
            }
            outcome => outcome,
        };
        turn.unreadable &= outcome.is_err();
        let put_off = outcome.as_ref().is_err_and(gave_way);
        let found = self.judge(turn, outcome).await?;
        self.readable(turn).await?;
        self.say_batch(turn).await?;
        let fast = self.shared.mode.borrow().hurries(self.shared.config.intent)
            || self.shared.unsettled.borrow().is_some()
            || self.shared.is_unstreamed(turn.source.name());
        turn.pause = if fast {
            let slowest = self.shared.config.poll_interval;
            let window = Duration::from_millis(turn.source.definition.coalesce_window_ms);
            next_pause(usize::try_from(found).unwrap_or(0), turn.pause, slowest)
                .max(window.min(slowest.max(window)))
        } else {
            self.shared.config.reconcile_interval
        };
        if matches!(turn.strategy, Strategy::Frontier { .. }) {
            // A sequential scan each time: it may take a tenth of the lane at most.
            turn.pause = turn.pause.max(begun.elapsed() * 10);
        }
        // A pass that was put off is not one that took long.
        turn.due = Instant::now() + if put_off { GAVE_WAY_PAUSE } else { turn.pause };
        Ok(())
    }

    /// One pass over the source. A single run has no later turn, so it goes on after it gave way to somebody.
    async fn look(&mut self, turn: &mut Turn) -> Result<Outcome> {
        loop {
            match self.look_once(turn).await {
                Err(e) if gave_way(&e) && self.shared.once && !self.shared.stopping() => {
                    self.shared.stopped_within(GAVE_WAY_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// A source that could not be read is compared with the catalogue first: it may be another table now.
    async fn look_once(&mut self, turn: &mut Turn) -> Result<Outcome> {
        if turn.unreadable {
            turn.strategy =
                self.reader.check_source(&turn.source.definition).await.map_err(Error::of_source)?;
        }
        match turn.strategy {
            Strategy::Ranges { .. } => self.range_pass(turn).await,
            Strategy::Frontier { .. } => self.certify(turn).await,
        }
    }

    fn broken_pause(&self) -> Duration {
        BROKEN_PAUSE.min(self.shared.config.reconcile_interval)
    }

    /// An error that concerns this source only: said, and the others go on.
    async fn unreadable(&mut self, turn: &mut Turn, e: Error) -> Result<()> {
        let name = turn.source.name();
        tracing::error!(source = name, error = %e, "source cannot be read");
        turn.doubted = true;
        let detail = json!({ "source": name, "problem": e.to_string() });
        let key = format!("source_unreadable:{name}");
        let finding = Finding { kind: "source_unreadable", key, severity: "high", detail };
        self.writer.sustain(&finding, UNREADABLE_EVERY).await?;
        if self.shared.once {
            self.failed.get_or_insert(e);
        }
        Ok(())
    }

    /// Both ways of looking at it work, as far as they were tried.
    async fn readable(&self, turn: &mut Turn) -> Result<()> {
        if turn.doubted && !turn.unreadable && turn.uncertified_until.is_none() {
            self.writer
                .resolve(&format!("source_unreadable:{}", turn.source.name()), "readable again")
                .await?;
            turn.doubted = false;
        }
        Ok(())
    }

    /// How much a pass found; an error if the session cannot go on.
    async fn judge(&self, turn: &mut Turn, outcome: Result<Outcome>) -> Result<i64> {
        match outcome {
            Ok(outcome) => {
                if matches!(turn.strategy, Strategy::Frontier { .. }) {
                    // Its reads are not timed, only those that were ended; one that was not ends the row of them.
                    self.shared.note_read(turn.source.name(), Duration::ZERO);
                    turn.batch.took(Duration::ZERO, self.shared.config.read_timeout);
                }
                Ok(outcome.emitted + outcome.captured + outcome.staged + outcome.refused)
            }
            // The read, or the commit of what was read, took longer than it may: ask for less.
            Err(e) if was_ended(&e) && turn.batch.exceeded() => {
                let batch = turn.batch.rows();
                if e.kind == Kind::SlowRead {
                    self.shared.note_read(turn.source.name(), self.shared.config.read_timeout);
                    tracing::warn!(
                        source = turn.source.name(),
                        batch,
                        "read exceeded its time, batch halved"
                    );
                } else {
                    tracing::warn!(
                        source = turn.source.name(),
                        batch,
                        "a write was ended by the server, batch halved"
                    );
                }
                Ok(1)
            }
            Err(e) if e.kind == Kind::RangesChanged => Ok(1),
            // Whoever changes the table goes first.
            Err(e) if gave_way(&e) => {
                tracing::info!(source = turn.source.name(), reason = %e, "reading the source later");
                Ok(0)
            }
            // The table changed under us: check it anew in a new session, and leave the other sources time.
            Err(e) if matches!(e.kind, Kind::Catalogue | Kind::Privilege) => {
                tokio::time::sleep(BROKEN_PAUSE.min(self.shared.config.poll_interval)).await;
                Err(e)
            }
            Err(e) => Err(e),
        }
    }

    /// Smaller batches than were asked for are a throttle, and no silent one: a finding as long as it lasts.
    async fn say_batch(&self, turn: &mut Turn) -> Result<()> {
        let Turn { batch, source, reduced, said, .. } = turn;
        if self.shared.once || said.replace(batch.rows()) == Some(batch.rows()) {
            return Ok(());
        }
        let detail = || {
            json!({ "worker": self.shared.config.worker, "source": source.name(), "batch_rows": batch.rows(),
                "of": batch.most(), "reason": "a batch took longer than it may" })
        };
        reduced.set(&self.writer, batch.is_reduced().then(|| ("warning", detail()))).await
    }

    /// The certifying passes that are due, as long as no source waits to be read: after a fault every certificate is due,
    /// and so is every row.
    async fn certify_some(&mut self, turns: &mut [Turn]) -> Result<()> {
        for i in 0..turns.len() {
            if self.shared.stopping() {
                break;
            }
            let waiting = turns.iter().any(|t| t.due <= Instant::now());
            let may = !waiting || turns[i].proof.overdue(self.shared, self.begun);
            if may && self.certificate_is_due(&turns[i]) {
                let turn = &mut turns[i];
                match self.certify(turn).await {
                    Err(e) if e.of_source && !may_halve(turn, &e) => {
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

    /// The certifying pass of a source that is otherwise read by ranges. A single run leaves it to the daemon.
    fn certificate_is_due(&self, turn: &Turn) -> bool {
        !self.shared.once
            && self.shared.pace.borrow().deferred.is_none()
            && turn.certificate_in(self.shared).is_some_and(|wait| wait.is_zero())
    }

    async fn certify(&mut self, turn: &mut Turn) -> Result<Outcome> {
        let batch = i32::try_from(turn.batch.rows()).unwrap_or(5_000);
        let pass = Pass {
            shared: self.shared,
            reader: &mut self.reader,
            writer: &self.writer,
            source: &turn.source,
            batch,
            captured_by: match turn.strategy {
                Strategy::Ranges { .. } => "certify",
                Strategy::Frontier { .. } => capture(self.shared),
            },
        };
        pass.run(&mut turn.proof).await
    }
}

/// Nothing is wrong with the source: somebody waited for it, and reading it was put off.
fn gave_way(e: &Error) -> bool {
    e.kind == Kind::SourceLocked && !e.of_source
}

/// A read that took too long is tried with a smaller batch first.
fn may_halve(turn: &Turn, e: &Error) -> bool {
    was_ended(e) && turn.batch.may_shrink()
}

/// What was just read was committed before `then`, or before now; once the stream is past that, whatever of it is missing
/// was missed. False if the stream did not get there in time.
pub async fn let_the_stream_have_them(shared: &Shared, store: &Store, then: Option<Lsn>) -> Result<bool> {
    if shared.once {
        return Ok(true);
    }
    let then = match then {
        Some(lsn) => lsn,
        None => store.current_lsn().await?,
    };
    let mut reached = shared.reached.subscribe();
    let mut mode = shared.mode.subscribe();
    tokio::select! {
        passed = tokio::time::timeout(STREAM_GRACE, reached.wait_for(|lsn| *lsn >= then)) => {
            Ok(passed.is_ok_and(|r| r.is_ok()))
        }
        // A stream that is lost brings nothing any more; waiting for it would delay the fall back.
        _ = mode.wait_for(|mode| *mode != Mode::Streaming) => Ok(false),
    }
}

/// How a row that this lane finds was captured.
pub fn capture(shared: &Shared) -> &'static str {
    let mode = shared.mode.borrow();
    // A single run without a stream has nothing to reconcile with: it polls.
    if shared.once && *mode != Mode::Streaming { "poll" } else { mode.keyset_capture(shared.config.intent) }
}
