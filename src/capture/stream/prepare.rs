//! Makes sure that publication and slot exist, belong to this database and are free; creates them where the
//! configuration allows.

use crate::config::Config;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::error::{Error, Kind, Result};
use crate::store::replication::{PublicationProblem, Slot};
use crate::store::role::Admin;
use crate::store::{Session, connect};
use std::sync::Arc;
use std::time::Duration;

/// How long creating a slot may take. If it takes longer, the next attempt finds the slot created, or being created.
const SLOT_CREATION: Duration = Duration::from_secs(60);

/// A slot that can be streamed from.
pub struct Prepared {
    pub confirmed: Lsn,
    pub new: bool,
    /// What was wrong with the publication of a slot that existed before. A slot decodes with the catalogue of the
    /// time, so rows that were written before the repair may not come through it.
    pub mended: Option<PublicationProblem>,
}

/// Makes sure that publication and slot exist and are ours; creates them where allowed. `store` is the session that
/// writes handoffs. `blind`: the server reported that the slot cannot see the publication.
pub async fn prepare<R>(
    config: &Config,
    store: &Session<R>,
    sources: &[Arc<Source>],
    blind: bool,
) -> Result<Prepared> {
    let admin = connect::open_patient(&config.replication, "gov-handoff replication").await?;
    // Creating a slot waits for every running transaction. That is no sign of a dead server.
    let admin = admin.within(SLOT_CREATION);
    // Checked before anything is created there.
    if admin.server_identity().await? != store.server_identity().await? {
        return Err(elsewhere(&config.replication.to_string()));
    }
    admin.check_streaming().await?;
    let slot = admin.slot(&config.slot, config.replication.database()).await?;
    if slot.is_none() && config.create {
        admin.check_slot_free(&config.slot).await?;
    }
    let problem = admin.publication_problem(&config.publication, sources).await?;
    if let Some(problem) = &problem {
        repair_publication(config, &admin, sources, slot.as_ref(), problem).await?;
    }
    // A slot decodes with the catalogue of its time, so a slot that is older than the publication cannot see it. The
    // publication was created just now, or an operator dropped it and created it again.
    let younger = matches!(problem, Some(PublicationProblem::Absent { .. })) || blind;
    match drop_useless(config, &admin, slot, younger).await? {
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

/// Creates the publication, or alters it to match the sources; an error where the configuration does not allow that.
async fn repair_publication(
    config: &Config,
    admin: &Session<Admin>,
    sources: &[Arc<Source>],
    slot: Option<&Slot>,
    problem: &PublicationProblem,
) -> Result<()> {
    let advice =
        "run `gov-handoff replication setup`, or have a DBA run what `gov-handoff replication sql` prints";
    if !config.create {
        return Err(Error::new(Kind::Replication, format!("{problem}; {advice}")));
    }
    // This check comes before the repair, because the slot may be in use and the attempt fail. Once the publication is
    // repaired, nothing shows that the slot is older, or that rows written before the repair are left to the tables.
    if let Some(slot) = slot {
        refuse_if_active(&config.slot, slot.active_pid)?;
    }
    admin.put_publication(&config.publication, sources).await
}

/// Drops a slot that is lost, or older than the publication (`younger`): neither can be streamed from. Returns any other.
async fn drop_useless(
    config: &Config,
    admin: &Session<Admin>,
    mut slot: Option<Slot>,
    younger: bool,
) -> Result<Option<Slot>> {
    if younger && slot.is_some() && !config.create {
        return Err(Error::new(
            Kind::Replication,
            format!(
                "slot {} is older than publication {}, which was dropped and created again, and cannot see it; run \
                 `gov-handoff replication teardown`, then `gov-handoff replication setup`",
                config.slot, config.publication
            ),
        ));
    }
    if let Some(useless) = slot.take_if(|slot| younger || slot.lost) {
        refuse_if_active(&config.slot, useless.active_pid)?;
        admin.drop_slot(&config.slot).await?;
    }
    Ok(slot)
}

/// Rows of another server, or of another database of it, would be recorded as ours. Its row with the key 7 would be
/// recorded as our row 7, and our own row would then count as handed off. The other server may look the same: a
/// former primary, a clone, a sibling database.
pub fn elsewhere(place: &str) -> Error {
    Error::new(
        Kind::Replication,
        format!(
            "the replication connection to {place} reaches another server or database than the one that is written to; let \
             replication_url and database_url name the same"
        ),
    )
}

/// A predecessor's walsender may hold the slot until it notices that its client is gone. Then waiting helps, so this
/// is retried.
fn refuse_if_active(slot: &str, pid: Option<i32>) -> Result<()> {
    match pid {
        Some(pid) => {
            Err(Error::new(Kind::Transient, format!("slot {slot} is held by the server's process {pid}")))
        }
        None => Ok(()),
    }
}
