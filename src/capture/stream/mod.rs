//! The stream lane: a slot, natural batching, acknowledgement of what is durable and of nothing else.
//!
//! While one batch commits, what arrives is decoded and mapped and forms the next; so batches grow with load, a lone row
//! waits for nothing, and neither the server's sender nor its writer waits for the other. One batch at a time is under way.
//! A transaction larger than a batch is applied in parts, and only its end is acknowledged: after a crash in the middle the
//! server sends it whole again, and identity absorbs what was recorded.

mod follow;
pub mod prepare;
mod replication_session;

use crate::capture::shared::{End, Shared};
use crate::config::Config;
use crate::core::continuity::{Continuity, Offered, Position, compare};
use crate::core::finding::Severity;
use crate::core::lsn::Lsn;
use crate::core::stream_state::StreamState;
use crate::core::transaction::{Encoding, Relations};
use crate::daemon::pause::Pause;
use crate::daemon::sessions::{open, open_writer};
use crate::error::{Error, Kind, Policy, Result};
use crate::store::Writer;
use crate::store::findings::Finding;
use crate::store::replication::{ANY_BYTES, SERVER_IDENTITY};
use follow::Follower;
use prepare::{Prepared, elsewhere, prepare};
use replication_session::ReplicationSession;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;

/// A stream that lasted this long was no false start: the next attempt comes soon.
const LASTED: Duration = Duration::from_secs(5);

/// Keeps a stream open and tells the mode machine how it fares.
pub async fn lane(shared: &Shared) -> Result<()> {
    let mut pause = Pause::up_to(shared.term.config.stream_retry);
    let (mut blind, mut ended) = (false, 0);
    loop {
        let begun = Instant::now();
        let error = match session(shared, blind, ended).await {
            Ok(End::Done) => return Ok(()),
            Ok(End::Redefined) => continue,
            Err(e) if e.policy() == Policy::StandBy => return Err(e),
            // What was mapped by the old definition was neither recorded nor acknowledged, and comes again.
            Err(e) if e.kind == Kind::Redefined => continue,
            Err(e) => e,
        };
        blind = cannot_see(&error);
        ended += u32::from(error.was_cancelled());
        fault(shared, &error).await;
        if shared.term.once {
            // What there is can be had from the tables; with `stream` asked for, its absence was reported before.
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

/// The replication connection said that something is not there, such as a publication that the slot cannot see, however right
/// it looks by now. The same state from a gate is about something else, and no reason to give a slot up.
fn cannot_see(error: &Error) -> bool {
    error.kind == Kind::Replication && error.code.as_deref() == Some(SqlState::UNDEFINED_OBJECT.code())
}

/// Falls back, visibly.
async fn fault(shared: &Shared, error: &Error) {
    if shared.term.stopping() {
        return;
    }
    tracing::warn!(error = %error, "stream lost");
    let reason = error.to_string();
    // The same fault again is no news, and calls for no pass over the tables.
    shared.stream.update(|stream| stream.faulted(&reason));
    let finding = Finding {
        kind: "handoff_fallback",
        key: format!("handoff_fallback:{}", shared.term.config.slot),
        severity: Severity::Warning,
        detail: json!({ "slot": shared.term.config.slot, "reason": reason }),
    };
    let raised = async { open(&shared.term.config, "gov-handoff").await?.raise(&finding).await };
    if let Err(e) = raised.await {
        tracing::debug!(error = %e, "the finding could not be raised");
    }
}

/// `blind`: the last one ended because the server did not find something; `ended`: how many did because a batch took too long.
async fn session(shared: &Shared, blind: bool, ended: u32) -> Result<End> {
    let config = &shared.term.config;
    let store = open_writer(config, "gov-handoff stream writer", ended).await?;
    // Before they are read: a redefinition in between is then noticed rather than missed.
    let definitions = shared.definitions.subscribe();
    let sources = store.registered(&config.worker).await?.sources;
    if let Some(at) = shared.stream.read(|stream| stream.rejoin_at).filter(|at| *at > Instant::now()) {
        let wait = at.duration_since(Instant::now()).as_secs();
        return Err(Error::new(
            Kind::Replication,
            format!("the slot was given up for its size; it is taken again in {wait} s"),
        ));
    }
    shared.stream.update(StreamState::attempt);
    // Making a slot waits for every transaction that runs; whoever is told to stop does not.
    let Prepared { confirmed, mended, .. } = tokio::select! {
        biased;
        () = shared.term.told_to_stop() => return Ok(End::Done),
        prepared = prepare(config, &store, &sources, blind) => prepared?,
    };
    // Said at once: if what follows fails, the next attempt finds the publication as it should be.
    if let Some(problem) = mended {
        tracing::warn!(
            %problem,
            "the publication was mended; what was written meanwhile is left to the tables"
        );
        shared.not_vouched_for(&store).await?;
    }
    let left = store.publishable(&sources).await?.left;
    for (source, problem) in &left {
        tracing::warn!(
            source = source.name(),
            problem,
            "the source cannot be published and is read from its table"
        );
    }
    let left_out = left.iter().map(|(source, _)| source.name().to_owned()).collect();
    shared.stream.update(|stream| stream.leave_out(left_out));
    let raw = store.streams_raw().await?;
    let known = store.stream_position(&config.slot).await?;
    // Acknowledging at the start is what the protocol does; so it must be a position that is durable here.
    let durable = known.as_ref().map_or(confirmed, |p| p.durable);
    let session = connect(config, &store, durable, raw).await?;
    let offered = Offered {
        system_identifier: session.server.system_identifier.clone(),
        timeline: session.server.timeline,
        confirmed,
    };
    let continuity = compare(known.as_ref(), &offered);
    let session = if continuity.start() == durable {
        session
    } else {
        drop(session);
        connect(config, &store, continuity.start(), raw).await?
    };
    settle(shared, &store, &continuity, &offered).await?;
    let stream = session.start().await?;
    tracing::info!(slot = config.slot, lsn = %continuity.start(), "streaming");
    shared.stream.update(StreamState::started);
    store.resolve(&format!("handoff_fallback:{}", config.slot), "streaming again").await?;
    let target = if shared.term.once { Some(store.current_lsn().await?) } else { None };
    let relations = Relations::new(&sources, if raw { Encoding::Foreign } else { Encoding::Utf8 });
    let follower = Follower::new(shared, &store, definitions, sources, relations, continuity.start(), target);
    follower.run(stream).await
}

/// A replication session with the server that `store` writes to, at whichever of the places that is.
async fn connect(config: &Config, store: &Writer, durable: Lsn, raw: bool) -> Result<ReplicationSession> {
    let here = store.server_identity().await?;
    let mut failed = None;
    for place in config.replication.places() {
        let (slot, publication) = (&config.slot, &config.publication);
        let mut session = match ReplicationSession::open(
            &config.replication,
            &place,
            slot,
            publication,
            durable,
            store.major(),
        )
        .await
        {
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
        failed = Some(elsewhere(&format!("{}:{}", place.0, place.1)));
    }
    Err(failed.unwrap_or_else(|| Error::new(Kind::Internal, "no host to stream from")))
}

/// Records where the stream starts. A gap is a finding, and the table lane is asked to look at once.
async fn settle(shared: &Shared, store: &Writer, continuity: &Continuity, offered: &Offered) -> Result<()> {
    let slot = &shared.term.config.slot;
    // Before the mode says that we stream: from then on others wait for a position.
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
