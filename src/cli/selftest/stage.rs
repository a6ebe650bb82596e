//! Creates the shadow tables and their sources, and removes all of it again.

use crate::config::Config;
use crate::core::certificate::REHEARSAL;
use crate::core::definition::{
    Backlog, IdColumn, IdType, OrderColumn, OrderType, RuleDefinition, SourceDefinition, Trust,
};
use crate::core::time::Zone;
use crate::error::codes::NOT_MIGRATED;
use crate::error::{Context, Error, Kind, Result};
use crate::store::role::Admin;
use crate::store::{Session, connect};

pub const SCHEMA: &str = "gov_handoff_selftest";

/// What the role and the server allow.
pub struct Means {
    pub may_prepare: bool,
}

/// Checks what the selftest needs.
pub async fn check(store: &Session<Admin>) -> Result<Means> {
    let row = store.client().query_one(include_str!("sql/needs.sql"), &[]).await?;
    let (database, role): (String, String) = (row.try_get("database")?, row.try_get("role")?);
    if !row.try_get::<_, bool>("migrated")? {
        return Err(Error::of(
            &NOT_MIGRATED,
            "the selftest's gate is not here; run `gov-handoff migrate` first",
        ));
    }
    if !row.try_get::<_, bool>("may_create")? {
        return Err(Error::new(
            Kind::Privilege,
            format!(
                "the selftest makes a schema of its own and {role} has no CREATE on database {database}: grant it, or run as another role"
            ),
        ));
    }
    if !row.try_get::<_, bool>("may_run")? {
        return Err(Error::new(
            Kind::Privilege,
            format!("{role} may not use the gates: grant it gov_handoff_worker and gov_handoff_operator"),
        ));
    }
    Ok(Means { may_prepare: row.try_get("may_prepare")? })
}

/// One selftest at a time: the lock is held by a transaction of this session, until the session ends.
pub async fn alone(config: &Config) -> Result<Session<Admin>> {
    let lock = connect::open_patient(&config.target, "gov-handoff selftest").await?;
    lock.client().batch_execute("begin").await?;
    if lock.client().query_one(include_str!("sql/lock.sql"), &[]).await?.try_get::<_, bool>(0)? {
        return Ok(lock);
    }
    Err(Error::new(Kind::Config, "another selftest is running in this database; wait for it to end"))
}

/// Creates the tables and registers the sources. First removes what an earlier selftest left.
pub async fn set(config: &Config, store: &Session<Admin>) -> Result<()> {
    strike(config, store, false).await?;
    store.client().batch_execute(include_str!("sql/stage.sql")).await.context("making the shadow tables")?;
    store
        .put_sources(
            REHEARSAL,
            &[source("births", IdType::Int4), source("objects", IdType::Uuid)],
            &[None, None],
        )
        .await?;
    Ok(())
}

/// Removes everything. Slot and publication always, because a slot that no client reads retains log.
pub async fn strike(config: &Config, store: &Session<Admin>, keep: bool) -> Result<()> {
    let client = store.client();
    if client.query_one(include_str!("sql/prepared.sql"), &[]).await?.try_get::<_, bool>(0)? {
        client.batch_execute(include_str!("sql/rollback_prepared.sql")).await?;
    }
    let admin = connect::open_patient(&config.replication, "gov-handoff selftest").await?;
    if admin.slot(&config.slot, config.replication.database()).await?.is_some() {
        admin.release_slot(&config.slot).await?;
        admin.drop_slot(&config.slot).await?;
    }
    store.drop_publication(&config.publication).await?;
    if keep {
        return Ok(());
    }
    client.batch_execute(include_str!("sql/unstage.sql")).await.context("removing the shadow tables")?;
    client.query_one(include_str!("sql/clean.sql"), &[]).await.context("removing what was captured")?;
    Ok(())
}

/// The kind is not registered and no producer is trusted. So everything is captured, and nothing is emitted or marked.
fn source(table: &str, id_type: IdType) -> SourceDefinition {
    let word = if id_type == IdType::Int4 { "int" } else { "uuid" };
    SourceDefinition {
        name: format!("{REHEARSAL}_{word}"),
        schema: SCHEMA.to_owned(),
        table: Some(table.to_owned()),
        id: IdColumn { column: "id".to_owned(), id_type },
        order: Some(OrderColumn {
            column: "born_at".to_owned(),
            order_type: OrderType::Timestamptz,
            zone: Zone::Utc,
        }),
        columns: ["id", "label", "born_at", "source_system"].map(str::to_owned).to_vec(),
        address: vec!["selftest:{label}:{id}".to_owned()],
        source_system: Some("source_system".to_owned()),
        actor_ref: None,
        batch_size: 5_000,
        coalesce_window_ms: 0,
        exclude: vec![],
        trust: Trust { producers: Some(vec![]), ..Trust::default() },
        backlog: Backlog::HandOff,
        rules: vec![RuleDefinition {
            kind: "governance.handoff.selftest".to_owned(),
            when: vec![],
            object_type: "selftest".to_owned(),
            object_ref: "selftest:{label}".to_owned(),
            group: vec![("scope".to_owned(), "selftest".to_owned())],
            scope: None,
            grain: crate::core::definition::Grain::Group,
            stream: "update".to_owned(),
            severity: None,
            bumps_ruleset: false,
        }],
    }
}
