//! Publication and slot: there, ours, and free, or made so where we may.

use crate::config::Config;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::error::{Error, Kind, Result};
use crate::store::replication::PublicationProblem;
use crate::store::{Session, connect};
use std::sync::Arc;
use std::time::Duration;

/// How long making a slot may take; longer, and it is found made, or being made, by the next attempt.
const SLOT_CREATION: Duration = Duration::from_secs(60);

/// A slot that can be streamed from.
pub struct Prepared {
    pub confirmed: Lsn,
    pub new: bool,
    /// What was wrong with the publication of a slot that was there before. It decodes with the catalogue of the time, so rows
    /// that were written meanwhile will not come through it.
    pub mended: Option<PublicationProblem>,
}

/// Makes sure that publication and slot are there and ours; creates them where allowed.
/// `store` is where handoffs are written to; `blind`: the server said that the slot cannot see the publication.
pub async fn prepare<R>(
    config: &Config,
    store: &Session<R>,
    sources: &[Arc<Source>],
    blind: bool,
) -> Result<Prepared> {
    let admin = connect::open_patient(&config.replication, "gov-handoff replication").await?;
    // Making a slot waits for every transaction that runs, which is no sign of a dead server.
    let admin = admin.within(SLOT_CREATION);
    // Before anything is made there.
    if admin.server_identity().await? != store.server_identity().await? {
        return Err(elsewhere(&config.replication.to_string()));
    }
    admin.check_streaming().await?;
    let mut slot = admin.slot(&config.slot, config.replication.database()).await?;
    if slot.is_none() && config.create {
        admin.check_slot_free(&config.slot).await?;
    }
    let problem = admin.publication_problem(&config.publication, sources).await?;
    if let Some(problem) = &problem {
        let advice = "run `gov-handoff replication setup`, or have a DBA run what `gov-handoff replication sql` prints";
        if !config.create {
            return Err(Error::new(Kind::Replication, format!("{problem}; {advice}")));
        }
        // First, because it may be in vain: once the publication is as it should be, nothing tells any more that the slot is
        // older, or that what was written meanwhile is left to the tables.
        if let Some(slot) = &slot {
            refuse_if_active(&config.slot, slot.active_pid)?;
        }
        admin.put_publication(&config.publication, sources).await?;
    }
    // A slot decodes with the catalogue of its time: one that is older than the publication cannot see it. We have just made
    // it, or somebody dropped it and made it again.
    let younger = matches!(problem, Some(PublicationProblem::Absent { .. })) || blind;
    if let Some(old) = slot.take_if(|_| younger) {
        if !config.create {
            return Err(Error::new(
                Kind::Replication,
                format!(
                    "slot {} is older than publication {}, which was dropped and made again, and cannot see it; have both made \
                     anew by `gov-handoff replication teardown` and `gov-handoff replication setup`",
                    config.slot, config.publication
                ),
            ));
        }
        refuse_if_active(&config.slot, old.active_pid)?;
        admin.drop_slot(&config.slot).await?;
    }
    if let Some(lost) = slot.take_if(|s| s.lost) {
        refuse_if_active(&config.slot, lost.active_pid)?;
        admin.drop_slot(&config.slot).await?;
    }
    match slot {
        Some(slot) => {
            refuse_if_active(&config.slot, slot.active_pid)?;
            Ok(Prepared { confirmed: slot.confirmed, new: false, mended: problem })
        }
        None if config.create => {
            Ok(Prepared { confirmed: admin.create_slot(&config.slot).await?, new: true, mended: None })
        }
        None => Err(Error::new(
            Kind::Replication,
            format!("slot {} does not exist; run `gov-handoff replication setup`", config.slot),
        )),
    }
}

/// Rows of another server, or of another of its databases, would be recorded as if they were ours: its row with the key 7 as our
/// own, which would then be taken for handed off. It need not look different: a former primary, a clone, a sibling database.
pub fn elsewhere(place: &str) -> Error {
    Error::new(
        Kind::Replication,
        format!(
            "the replication connection to {place} reaches another server or database than the one that is written to; let \
             replication_url and database_url name the same"
        ),
    )
}

/// A predecessor's walsender may hold the slot until it notices that its client is gone. That is a matter of waiting.
fn refuse_if_active(slot: &str, pid: Option<i32>) -> Result<()> {
    match pid {
        Some(pid) => {
            Err(Error::new(Kind::Transient, format!("slot {slot} is held by the server's process {pid}")))
        }
        None => Ok(()),
    }
}
