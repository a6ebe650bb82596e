//! The table lane: reads the tables themselves, in every mode, each source in its turn.
//!
//! While there is no stream, only this lane finds new rows. It reads by key and open id ranges, and adapts: a busy
//! source is read every few milliseconds, an idle one rarely. While there is a stream, this lane reconciles: the same
//! pass, every few seconds, hands off only what the stream did not bring. Sources whose keys have no ranges are read
//! by the frontier.

mod certify;
mod unreadable;

use crate::capture::frontier::Proof;
use crate::capture::keyset::RangePass;
use crate::capture::shared::{End, Shared};
use crate::capture::turn::Turn;
use crate::core::finding::Severity;
use crate::core::mode::next_pause;
use crate::daemon::backoff::Pause;
use crate::daemon::open_session::{open_writer, patience};
use crate::error::{Error, Kind, Policy, Result};
use crate::handoff::deliver::Outcome;
use crate::pulse::{self, Loop};
use crate::store::source::Registered;
use crate::store::source::catalogue::Strategy;
use crate::store::{Reader, Writer, connect};
use serde_json::json;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The longest pause between two sessions. Short, because this lane may be the only one that finds new rows, and a
/// connection attempt is cheap.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A session that lasted this long did work: the next attempt comes soon.
const LASTED: Duration = Duration::from_secs(2);
/// The least time between two attempts at a certificate.
const CERTIFY_AGAIN: Duration = Duration::from_millis(100);
/// A source that cannot be read is tried again after this time, or after the reconcile interval if that is shorter.
const BROKEN_PAUSE: Duration = Duration::from_secs(5);
/// A pass that gave way to a session that waited for the source's lock is tried again after this time.
const GAVE_WAY_PAUSE: Duration = Duration::from_secs(1);

/// How long a turn may take at most. A certifying pass of a very large source is one turn.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Runs sessions until told to stop. After an error the next session starts over from what is durable.
pub async fn lane(shared: &Shared) -> Result<()> {
    let mut pause = Pause::up_to(LONGEST_PAUSE);
    let mut ended = 0;
    let mut proofs = Proofs::new();
    let turning = pulse::enter("table lane", &shared.term.lease.worker, PATIENCE);
    loop {
        let begun = Instant::now();
        match session(shared, ended, &mut proofs, &turning).await {
            Ok(End::Done) => return Ok(()),
            Ok(End::Redefined) => tracing::info!("sources were redefined, reading them again"),
            Err(e) if e.policy() == Policy::StandBy => return Err(e),
            // The gate rejected rows that were mapped by the old definition. Nothing has moved, and the rows are read
            // again.
            Err(e) if e.kind == Kind::Redefined => tracing::info!("a source was redefined, reading it again"),
            Err(e) if shared.term.once => return Err(e),
            Err(e) => {
                tracing::warn!(error = %e.told(), "table lane failed, starting over");
                ended += u32::from(e.was_cancelled());
                if begun.elapsed() > LASTED {
                    pause.reset();
                }
                if shared.term.stopped_within(pause.grow()).await {
                    return Ok(());
                }
            }
        }
    }
}

struct TableSession<'a> {
    shared: &'a Shared,
    /// Reads sources, each statement bounded in time.
    reader: Reader,
    /// Writes through the gates.
    writer: Writer,
    begun: Instant,
    /// Sources that could not be read at the last check.
    unreadable: usize,
    /// In a single run: the first error that concerned one source only. The other sources have their turns first.
    failed: Option<Error>,
}

/// What is known of each source's completeness outlives a session: repairs that are not in a certificate yet, and
/// whether this instance has read the source before.
type Proofs = HashMap<String, Proof>;

async fn session(shared: &Shared, ended: u32, proofs: &mut Proofs, turning: &Loop) -> Result<End> {
    let config = &shared.term.config;
    let reader = connect::open_reader(&config.target, "gov-handoff reader").await?;
    // The server itself cancels a read that takes too long.
    let reader = reader.within(patience(config).max(config.read_timeout + Duration::from_secs(1)));
    reader.bound_reads(config.read_timeout).await?;
    let reader = reader.only_tables().await?;
    let writer = open_writer(config, "gov-handoff writer", ended).await?;
    let mut session =
        TableSession { shared, reader, writer, begun: Instant::now(), unreadable: 0, failed: None };
    let mut turns = session.turns(Vec::new()).await?;
    for turn in &mut turns {
        turn.proof = proofs.remove(turn.source.name()).unwrap_or_default();
    }
    let end = session.attend(&mut turns, turning).await;
    proofs.extend(turns.into_iter().map(|turn| (turn.source.name().to_owned(), turn.proof)));
    end
}

impl TableSession<'_> {
    /// Takes turns until told to stop.
    async fn attend(&mut self, turns: &mut Vec<Turn>, turning: &Loop) -> Result<End> {
        let shared = self.shared;
        let mut checked_at = Instant::now();
        let mut definitions = shared.definitions.subscribe();
        let mut mode = shared.stream.mode_changes();
        loop {
            turning.turn().await;
            if shared.term.stopping() {
                return Ok(End::Done);
            }
            if definitions.has_changed().unwrap_or(false) {
                return Ok(End::Redefined);
            }
            let now = Instant::now();
            // An operator may have repaired the table, and no event would tell the daemon.
            if self.unreadable > 0 && now >= checked_at + self.broken_pause() {
                *turns = self.turns(std::mem::take(turns)).await?;
                checked_at = Instant::now();
            }
            for i in 0..turns.len() {
                if turns[i].due <= now {
                    let others = turns.iter().enumerate().filter(|(other, _)| *other != i);
                    turns[i].others_due = others.map(|(_, other)| other.due).min();
                    self.take_turn(&mut turns[i]).await?;
                }
            }
            self.certify_some(turns).await?;
            if shared.term.once {
                return self.failed.take().map_or(Ok(End::Done), Err);
            }
            self.settle(turns).await?;
            let next = self.next_wake(turns, now, checked_at);
            tokio::select! {
                () = shared.term.told_to_stop() => {}
                _ = definitions.changed() => { definitions.mark_changed(); }
                // The stream started or ended: the cadence changes, and every source is read now.
                () = mode.changed() => {
                    mode.take();
                    turns.iter_mut().for_each(|t| t.due = Instant::now());
                }
                // Rows that the stream may miss can be in any range, so all ranges are read.
                () = shared.look.notified() => turns.iter_mut().for_each(|t| {
                    t.due = Instant::now();
                    t.all_ranges_at = t.due;
                }),
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
    }

    /// When the next turn, certificate or check of the unreadable sources is due. `now`: when the last round began.
    fn next_wake(&self, turns: &[Turn], now: Instant, checked_at: Instant) -> Instant {
        let mut next = turns.iter().map(|t| t.due).min().unwrap_or_else(|| now + BROKEN_PAUSE);
        // A certificate does not wait for a slower cadence of reading. One that failed is not tried again at once.
        let certificates = turns
            .iter()
            .filter_map(|t| t.certificate_in(&self.shared.term.config))
            .min()
            .unwrap_or(BROKEN_PAUSE);
        next = next.min(Instant::now() + certificates.max(CERTIFY_AGAIN));
        if self.unreadable > 0 {
            next = next.min(checked_at + self.broken_pause());
        }
        next
    }

    /// The sources that can be read. The others leave a finding and are tried again soon. A source that has a turn
    /// keeps it, with its proof and its pauses: another source that cannot be read is no reason to read or certify
    /// this one again.
    async fn turns(&mut self, mut kept: Vec<Turn>) -> Result<Vec<Turn>> {
        self.unreadable = 0;
        let mut turns = Vec::new();
        let Registered { sources, broken } = self.writer.registered(&self.shared.term.config.worker).await?;
        for (name, e) in broken {
            self.not_read(&name, e).await?;
        }
        for source in sources {
            // A source that was redefined just now is checked like a new one; the session ends soon because of the
            // redefinition.
            if let Some(at) = kept.iter().position(|t| t.source.definition == source.definition) {
                turns.push(kept.swap_remove(at));
                continue;
            }
            let checked = self.reader.check_source(&source.definition).await;
            let strategy = match checked.map_err(Error::of_source) {
                // An open finding about the source is resolved only by its first turn: the catalogue does not tell
                // whether its rows can be read.
                Ok(strategy) => strategy,
                Err(e) if e.of_source => {
                    self.not_read(source.name(), e).await?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            turns.push(Turn::new(&self.shared.term.config, source, strategy));
        }
        self.shared.pacing.forget_reads_but_of(|name| turns.iter().any(|t| t.source.name() == name));
        Ok(turns)
    }

    async fn take_turn(&mut self, turn: &mut Turn) -> Result<()> {
        let begun = Instant::now();
        let outcome = self.look(turn).await;
        if outcome.is_ok() && !turn.made_way && !self.shared.term.stopping() {
            // Every row that was committed when the pass began is handed off.
            self.shared.looks.note(turn.source.name(), begun);
        }
        let outcome = match outcome {
            Err(e) if e.of_source && !turn.may_halve(&e) => {
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
        turn.pause = self.pause_after(turn, found, begun);
        // A pass that gave way did not take long, so its pause is short. One that made way for another source goes on
        // as soon as that source had its turn.
        let pause = if put_off { GAVE_WAY_PAUSE } else { turn.pause };
        turn.due = Instant::now() + if turn.made_way { Duration::ZERO } else { pause };
        Ok(())
    }

    /// How long until the next turn of the source, after one that began at `begun` and found this many rows.
    fn pause_after(&self, turn: &Turn, found: i64, begun: Instant) -> Duration {
        let config = &self.shared.term.config;
        let fast = self.shared.stream.read(|stream| {
            stream.mode.hurries(config.intent)
                || stream.unsettled.is_some()
                || stream.unstreamed.contains(turn.source.name())
        });
        let pause = if fast {
            let slowest = config.poll_interval;
            let window = Duration::from_millis(turn.source.definition.coalesce_window_ms);
            next_pause(usize::try_from(found).unwrap_or(0), turn.pause, slowest)
                .max(window.min(slowest.max(window)))
        } else {
            config.reconcile_interval
        };
        match turn.strategy {
            Strategy::Ranges { .. } => pause,
            // Each pass is a sequential scan. It may take a tenth of the lane's time at most.
            Strategy::Frontier { .. } => pause.max(begun.elapsed() * 10),
        }
    }

    /// One pass over the source. A single run has no later turn, so it repeats a pass that gave way.
    async fn look(&mut self, turn: &mut Turn) -> Result<Outcome> {
        loop {
            match self.look_once(turn).await {
                Err(e) if gave_way(&e) && self.shared.term.once && !self.shared.term.stopping() => {
                    self.shared.term.stopped_within(GAVE_WAY_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// A source that could not be read is compared with the catalogue first, because it may be another table now.
    async fn look_once(&mut self, turn: &mut Turn) -> Result<Outcome> {
        if turn.unreadable {
            turn.strategy =
                self.reader.check_source(&turn.source.definition).await.map_err(Error::of_source)?;
        }
        match turn.strategy {
            Strategy::Ranges { .. } => {
                let (shared, reader, writer) = (self.shared, &self.reader, &self.writer);
                RangePass { shared, reader, writer }.run(turn).await
            }
            Strategy::Frontier { .. } => self.certify(turn).await,
        }
    }

    /// How many rows a pass found; an error if the session cannot go on.
    async fn judge(&self, turn: &mut Turn, outcome: Result<Outcome>) -> Result<i64> {
        match outcome {
            Ok(outcome) => {
                if matches!(turn.strategy, Strategy::Frontier { .. }) {
                    // Reads of a frontier pass are not timed; only a cancelled one counts as slow. A pass that ended
                    // well resets that.
                    self.shared.pacing.note_read(turn.source.name(), Duration::ZERO);
                    turn.batch.took(Duration::ZERO, self.shared.term.config.read_timeout);
                }
                Ok(outcome.emitted + outcome.captured + outcome.staged + outcome.refused)
            }
            // The read, or the commit of what was read, took too long: the next batch is smaller.
            Err(e) if e.was_cancelled() && turn.batch.exceeded() => {
                let batch = turn.batch.rows();
                if e.kind == Kind::SlowRead {
                    self.shared.pacing.note_read(turn.source.name(), self.shared.term.config.read_timeout);
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
            // A session that changes the table goes first.
            Err(e) if gave_way(&e) => {
                tracing::info!(source = turn.source.name(), reason = %e, "reading the source later");
                Ok(0)
            }
            // The table changed during the session. A new session checks it again; the pause leaves time to the other
            // sources.
            Err(e) if matches!(e.kind, Kind::Catalogue | Kind::Privilege) => {
                tokio::time::sleep(BROKEN_PAUSE.min(self.shared.term.config.poll_interval)).await;
                Err(e)
            }
            Err(e) => Err(e),
        }
    }

    /// Smaller batches than configured are a throttle. It is never silent: a finding is open for as long as it lasts.
    async fn say_batch(&self, turn: &mut Turn) -> Result<()> {
        let Turn { batch, source, reduced, said, .. } = turn;
        if self.shared.term.once || said.replace(batch.rows()) == Some(batch.rows()) {
            return Ok(());
        }
        let detail = || {
            json!({ "worker": self.shared.term.config.worker, "source": source.name(), "batch_rows": batch.rows(),
                "of": batch.most(), "reason": "a batch took longer than it may" })
        };
        reduced.set(&self.writer, batch.is_reduced().then(|| (Severity::Warning, detail()))).await
    }
}

/// The source is fine: another session waited for its lock, and the read was put off.
fn gave_way(e: &Error) -> bool {
    e.kind == Kind::SourceLocked && !e.of_source
}
