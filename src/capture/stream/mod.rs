//! The stream lane: a slot, natural batching, acknowledgement of what is durable and of nothing else.
//!
//! Rows that arrive while one batch commits are decoded and mapped, and form the next batch. So batches grow with
//! load, a lone row does not wait, and neither the server's sender nor its writer waits for the other. One batch
//! commits at a time. A transaction larger than a batch is applied in parts, and only its end is acknowledged. After
//! a crash in the middle the server sends the whole transaction again, and rows that were recorded are absorbed by
//! identity.

mod follow;
pub mod prepare;
mod replication_session;

use crate::capture::shared::{End, Shared};
use crate::config::Config;
use crate::core::continuity::{Continuity, Offered, Position, compare};
use crate::core::finding::Severity;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::core::stream_state::StreamState;
use crate::core::transaction::{Encoding, Relations};
use crate::daemon::backoff::Pause;
use crate::daemon::open_session::{open, open_writer};
use crate::error::{Error, Kind, Policy, Result};
use crate::pulse::{self, Loop};
use crate::store::Writer;
use crate::store::findings::Finding;
use crate::store::replication::{ANY_BYTES, SERVER_IDENTITY};
use follow::Follower;
use prepare::{Prepared, elsewhere, prepare};
use replication_session::{From, ReplicationSession};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;

/// A stream that lasted this long did work: the next attempt comes soon.
const LASTED: Duration = Duration::from_secs(5);

/// How long a turn may take at most: creating a slot waits for every running transaction, for a minute.
const PATIENCE: Duration = Duration::from_secs(180);

/// Keeps a stream open and reports to the mode machine how it fares.
pub async fn lane(shared: &Shared) -> Result<()> {
    let mut pause = Pause::up_to(shared.term.config.stream_retry);
    let (mut blind, mut ended) = (false, 0);
    let turning = pulse::enter(
        "stream lane",
        &shared.term.lease.worker,
        PATIENCE.max(shared.term.config.stream_retry * 2),
    );
    loop {
        turning.turn().await;
        let begun = Instant::now();
        let error = match session(shared, blind, ended, &turning).await {
            Ok(End::Done) => return Ok(()),
            Ok(End::Redefined) => continue,
            Err(e) if e.policy() == Policy::StandBy => return Err(e),
            // Rows that were mapped by the old definition were neither recorded nor acknowledged, so the server sends
            // them again.
            Err(e) if e.kind == Kind::Redefined => continue,
            Err(e) => e,
        };
        blind = cannot_see(&error);
        ended += u32::from(error.was_cancelled());
        fault(shared, &error).await;
        if shared.term.once {
            // The table lane hands off everything that is there. With the mode `stream`, a missing stream was
            // reported before.
            return Ok(());
        }
        if begun.elapsed() > LASTED {
            pause.reset();
        }
        if shared.term.stopped_within(pause.grow()).await {
            return Ok(());
        }
    }
}

/// The replication connection reported that something does not exist, such as a publication that the slot cannot see
/// although it exists by now. The same SQLSTATE from a gate has another meaning and is no reason to give a slot up.
fn cannot_see(error: &Error) -> bool {
    error.kind == Kind::Replication && error.code.as_deref() == Some(SqlState::UNDEFINED_OBJECT.code())
}

/// Falls back to polling, with a log line and a finding.
async fn fault(shared: &Shared, error: &Error) {
    if shared.term.stopping() {
        return;
    }
    tracing::warn!(error = %error.told(), "stream lost");
    let reason = error.to_string();
    // The same fault again changes nothing, and needs no new pass over the tables.
    shared.stream.update(|stream| stream.faulted(&reason));
    let finding = Finding {
        kind: "handoff_fallback",
        key: format!("handoff_fallback:{}", shared.term.config.slot),
        severity: Severity::Warning,
        detail: json!({ "slot": shared.term.config.slot, "reason": reason }),
    };
    let raised = async { open(&shared.term.config, "gov-handoff").await?.raise(&finding).await };
    if let Err(e) = raised.await {
        tracing::debug!(error = %e.told(), "the finding could not be raised");
    }
}

/// `blind`: the last session ended because the server did not find an object. `ended`: how many sessions ended
/// because a batch took too long.
async fn session(shared: &Shared, blind: bool, ended: u32, turning: &Loop) -> Result<End> {
    let config = &shared.term.config;
    let store = open_writer(config, "gov-handoff stream writer", ended).await?;
    // Subscribed before the sources are read, so that a redefinition in between is noticed.
    let definitions = shared.definitions.subscribe();
    let sources = store.registered(&config.worker).await?.sources;
    refuse_before_rejoin(shared)?;
    shared.stream.update(StreamState::attempt);
    // Creating a slot waits for every running transaction. A daemon that is told to stop does not wait for that.
    let Prepared { confirmed, mended, .. } = tokio::select! {
        biased;
        () = shared.term.told_to_stop() => return Ok(End::Done),
        prepared = prepare(config, &store, &sources, blind) => prepared?,
    };
    // Reported at once: if a later step fails, the next attempt finds the publication correct and cannot tell.
    if let Some(problem) = mended {
        tracing::warn!(
            %problem,
            "the publication was repaired; rows written before that are left to the tables"
        );
        shared.not_vouched_for(&store).await?;
    }
    leave_out(shared, &store, &sources).await?;
    let raw = store.streams_raw().await?;
    let (session, continuity, offered) = open_at_start(config, &store, confirmed, raw).await?;
    settle(shared, &store, &continuity, &offered).await?;
    let stream = session.start().await?;
    tracing::info!(slot = config.slot, lsn = %continuity.start(), "streaming");
    shared.stream.update(StreamState::started);
    store.resolve(&format!("handoff_fallback:{}", config.slot), "streaming again").await?;
    let target = if shared.term.once { Some(store.current_lsn().await?) } else { None };
    let relations = Relations::new(&sources, if raw { Encoding::Foreign } else { Encoding::Utf8 });
    let follower = Follower::new(shared, &store, definitions, sources, relations, continuity.start(), target);
    follower.run(stream, turning).await
}

/// A slot that was given up because of its size is not taken again before `rejoin_at`.
fn refuse_before_rejoin(shared: &Shared) -> Result<()> {
    let Some(at) = shared.stream.read(|stream| stream.rejoin_at).filter(|at| *at > Instant::now()) else {
        return Ok(());
    };
    let wait = at.duration_since(Instant::now()).as_secs();
    Err(Error::new(
        Kind::Replication,
        format!("the slot was given up because of its size; the daemon takes it again in {wait} s"),
    ))
}

/// Notes the sources that no publication can carry. The table lane reads them.
async fn leave_out(shared: &Shared, store: &Writer, sources: &[Arc<Source>]) -> Result<()> {
    let left = store.publishable(sources).await?.left;
    for (source, problem) in &left {
        tracing::warn!(
            source = source.name(),
            problem,
            "the source cannot be published and is read from its table"
        );
    }
    let left_out = left.iter().map(|(source, _)| source.name().to_owned()).collect();
    shared.stream.update(|stream| stream.leave_out(left_out));
    Ok(())
}

/// Opens a replication session at the position where the stream starts. Tells how the slot continues what is recorded.
async fn open_at_start(
    config: &Config,
    store: &Writer,
    confirmed: Lsn,
    raw: bool,
) -> Result<(ReplicationSession, Continuity, Offered)> {
    let known = store.stream_position(&config.slot).await?;
    // The protocol acknowledges a position when the stream starts, so it must be a position that is durable here.
    let durable = known.as_ref().map_or(confirmed, |p| p.durable);
    let session = connect(config, store, durable, raw).await?;
    let offered = Offered {
        system_identifier: session.server.system_identifier.clone(),
        timeline: session.server.timeline,
        confirmed,
        end: store.current_lsn().await?,
    };
    let continuity = compare(known.as_ref(), &offered);
    if continuity.start() == durable {
        return Ok((session, continuity, offered));
    }
    drop(session);
    let session = connect(config, store, continuity.start(), raw).await?;
    Ok((session, continuity, offered))
}

/// A replication session with the server that `store` writes to, at the first place of the URL that reaches it.
async fn connect(config: &Config, store: &Writer, durable: Lsn, raw: bool) -> Result<ReplicationSession> {
    let here = store.server_identity().await?;
    let from = From { slot: &config.slot, publication: &config.publication, durable, major: store.major() };
    let mut failed = None;
    for place in config.replication.places() {
        let mut session = match ReplicationSession::open(&config.replication, &place, &from).await {
            Ok(session) => session,
            Err(e) => {
                failed = Some(e);
                continue;
            }
        };
        if session.ask(SERVER_IDENTITY).await? == here {
            if raw {
                session.ask(ANY_BYTES).await?;
            }
            return Ok(session);
        }
        failed = Some(elsewhere(&place.to_string()));
    }
    Err(failed.unwrap_or_else(|| Error::new(Kind::Internal, "no host to stream from")))
}

/// Records where the stream starts. A gap is a finding, and the table lane is asked to look at once.
async fn settle(shared: &Shared, store: &Writer, continuity: &Continuity, offered: &Offered) -> Result<()> {
    let slot = &shared.term.config.slot;
    // Before the mode says `stream`: from then on other tasks wait for a position.
    shared.stream.update(|stream| stream.begin(continuity, Instant::now()));
    if let Continuity::Resume(_) = continuity {
        return Ok(());
    }
    if let Continuity::Gap { reason, .. } = continuity {
        tracing::warn!(
            slot,
            reason,
            "the slot does not continue where we stopped; the reconciler closes the gap"
        );
        let detail = json!({ "slot": slot, "reason": reason });
        store
            .raise(&Finding {
                kind: "slot_lost",
                key: format!("slot_lost:{slot}"),
                severity: Severity::Warning,
                detail,
            })
            .await?;
    }
    let at = Position {
        system_identifier: offered.system_identifier.clone(),
        timeline: offered.timeline,
        durable: continuity.start(),
    };
    store.bind_stream(&shared.term.lease, slot, &at).await?;
    shared.look.notify_one();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_replication_connection_tells_that_a_slot_is_blind() {
        let told = |kind, code: &str| {
            let mut error = Error::new(kind, "said");
            error.code = Some(code.to_owned());
            error
        };
        assert!(cannot_see(&told(Kind::Replication, SqlState::UNDEFINED_OBJECT.code())));
        assert!(
            !cannot_see(&told(Kind::Catalogue, SqlState::UNDEFINED_OBJECT.code())),
            "a trigger of the outbox said so"
        );
        assert!(!cannot_see(&told(Kind::Replication, "55000")));
    }
}
