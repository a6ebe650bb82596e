//! Events as their consumers see them: what an actor has not read, and who an event is for.

use crate::error::{Context, Error, Kind, Result};
use crate::store::Session;
use serde::Serialize;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// What `events unread` asks for.
#[derive(Debug, Clone, Copy)]
pub struct UnreadQuery<'a> {
    pub actor: &'a str,
    pub domain: Option<&'a str>,
    pub stream: Option<&'a str>,
    pub limit: i32,
    pub own: bool,
    pub resolved: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadEvent {
    pub pos: i64,
    pub id: String,
    pub domain: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub stream: String,
    pub severity: Option<String>,
    pub address: String,
    pub actor: String,
    pub occurred_at: String,
}

/// Unread events of one stream, counted to 10,000.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadCount {
    pub domain: String,
    pub stream: String,
    pub unread: i64,
    pub more: bool,
}

/// The step of the resolution that decided for a recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolutionStep {
    /// The event names its recipient.
    Addressed,
    Exact,
    DomainWildcard,
    StreamWildcard,
    DomainOnly,
    AnyDomain,
    /// No subscription matches.
    Broadcast,
}

impl ResolutionStep {
    /// The name in `v_event_recipient`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Addressed => "addressed",
            Self::Exact => "exact",
            Self::DomainWildcard => "domain_wildcard",
            Self::StreamWildcard => "stream_wildcard",
            Self::DomainOnly => "domain_only",
            Self::AnyDomain => "any_domain",
            Self::Broadcast => "broadcast",
        }
    }

    fn of(name: &str) -> Result<Self> {
        let all = [
            Self::Addressed,
            Self::Exact,
            Self::DomainWildcard,
            Self::StreamWildcard,
            Self::DomainOnly,
            Self::AnyDomain,
            Self::Broadcast,
        ];
        let found = all.into_iter().find(|step| step.name() == name);
        found.ok_or_else(|| Error::new(Kind::Internal, format!("unknown step of a resolution: {name}")))
    }
}

impl Serialize for ResolutionStep {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recipient {
    pub actor: String,
    pub step: ResolutionStep,
    pub via: Option<String>,
    pub muted: bool,
}

impl<R> Session<R> {
    /// Who an event is for, muted recipients included. Empty if there is no such event, or nobody who could receive it.
    pub async fn recipients(&self, event: Uuid) -> Result<Vec<Recipient>> {
        let rows = self
            .rows(include_str!("sql/events/recipients.sql"), &[&event])
            .await
            .context("reading the recipients of an event")?;
        rows.iter()
            .map(|row| {
                Ok(Recipient {
                    actor: row.try_get("actor_ref")?,
                    step: ResolutionStep::of(row.try_get("step_name")?)?,
                    via: row.try_get("via")?,
                    muted: row.try_get("muted")?,
                })
            })
            .collect()
    }
}

impl<R> Session<R> {
    pub async fn has_event(&self, event: Uuid) -> Result<bool> {
        let row = self.one(include_str!("sql/events/exists.sql"), &[&event]).await;
        Ok(row.context("looking for an event")?.try_get("there")?)
    }

    /// The actor subscribes, belongs to a group, or has read something.
    pub async fn knows_actor(&self, actor: &str) -> Result<bool> {
        let row = self.one(include_str!("sql/events/knows_actor.sql"), &[&actor]).await;
        Ok(row.context("looking for an actor")?.try_get("known")?)
    }

    /// The oldest unread events of an actor.
    pub async fn unread(&self, query: &UnreadQuery<'_>) -> Result<Vec<UnreadEvent>> {
        let UnreadQuery { actor, domain, stream, limit, own, resolved } = query;
        let params: [&(dyn ToSql + Sync); 6] = [actor, domain, stream, limit, own, resolved];
        let rows = self
            .rows(include_str!("sql/events/unread.sql"), &params)
            .await
            .context("reading unread events")?;
        rows.iter()
            .map(|row| {
                Ok(UnreadEvent {
                    pos: row.try_get("pos")?,
                    id: row.try_get::<_, Uuid>("event_id")?.to_string(),
                    domain: row.try_get("event_domain")?,
                    kind: row.try_get("event_type")?,
                    stream: row.try_get("event_stream")?,
                    severity: row.try_get("event_severity")?,
                    address: row.try_get("canonical_address")?,
                    actor: row.try_get("actor_ref")?,
                    occurred_at: row.try_get("occurred_at")?,
                })
            })
            .collect()
    }

    pub async fn unread_count(&self, actor: &str) -> Result<Vec<UnreadCount>> {
        let rows = self
            .rows(include_str!("sql/events/unread_count.sql"), &[&actor])
            .await
            .context("counting unread events")?;
        rows.iter()
            .map(|row| {
                Ok(UnreadCount {
                    domain: row.try_get("event_domain")?,
                    stream: row.try_get("event_stream")?,
                    unread: row.try_get("unread")?,
                    more: row.try_get("more")?,
                })
            })
            .collect()
    }
}
