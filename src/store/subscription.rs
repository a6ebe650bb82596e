//! Subscriptions and memberships: listing them, and making them as a file has them.

use crate::core::subscription::SubscriptionFile;
use crate::error::{Context, Error, Kind, Result};
use crate::store::Session;
use crate::store::role::Writes;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::ToSql;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedSubscription {
    pub recipient: String,
    pub domain: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub stream: Option<String>,
    pub subject_table: Option<String>,
    pub filter: Value,
    pub mute: bool,
    /// How many actors belong to the recipient.
    pub members: i64,
}

/// What a file changes about one subscription or membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Removed,
    Muted,
    Unmuted,
    Unchanged,
    /// The database has it and the file has not. It stays.
    NotInTheFile,
}

impl ChangeKind {
    const ALL: [Self; 6] =
        [Self::Added, Self::Removed, Self::Muted, Self::Unmuted, Self::Unchanged, Self::NotInTheFile];

    /// The name in the answer of the gate.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Muted => "muted",
            Self::Unmuted => "unmuted",
            Self::Unchanged => "unchanged",
            Self::NotInTheFile => "not in the file",
        }
    }

    fn of(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|change| change.name() == name);
        found.ok_or_else(|| Error::new(Kind::Internal, format!("unknown change of a subscription: {name}")))
    }
}

impl Serialize for ChangeKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What was done about one subscription or membership, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubscriptionChange {
    /// `subscription` or `member`.
    pub what: String,
    pub subject: String,
    pub change: ChangeKind,
}

impl<R> Session<R> {
    pub async fn subscriptions(&self) -> Result<Vec<ListedSubscription>> {
        let rows = self
            .rows(include_str!("sql/subscription/list.sql"), &[])
            .await
            .context("reading the subscriptions")?;
        rows.iter()
            .map(|row| {
                Ok(ListedSubscription {
                    recipient: row.try_get("recipient_ref")?,
                    domain: row.try_get("event_domain")?,
                    kind: row.try_get("event_type")?,
                    stream: row.try_get("event_stream")?,
                    subject_table: row.try_get("scope_subject_table")?,
                    filter: row.try_get("scope_filter")?,
                    mute: row.try_get("mute")?,
                    members: row.try_get("members")?,
                })
            })
            .collect()
    }

    /// Warnings about subscriptions of a file that match no registered type. Types may be registered later, so these are
    /// no errors.
    pub async fn unmatched(&self, file: &SubscriptionFile) -> Result<Vec<String>> {
        let rows =
            self.rows(include_str!("sql/subscription/unmatched.sql"), &[&file.subscriptions()]).await?;
        rows.iter()
            .map(|row| {
                let (recipient, kind): (String, String) =
                    (row.try_get("recipient_ref")?, row.try_get("event_type")?);
                let stream: Option<String> = row.try_get("event_stream")?;
                Ok(match row.try_get::<_, Option<String>>("registered_stream")? {
                    Some(registered) => format!(
                        "{recipient}: events of type {kind} are in the stream {registered}, not in {}",
                        stream.unwrap_or_default()
                    ),
                    None => format!("{recipient}: the type {kind} is not registered, so nothing matches yet"),
                })
            })
            .collect()
    }
}

impl<R: Writes> Session<R> {
    pub async fn apply_subscriptions(
        &self,
        file: &SubscriptionFile,
        prune: bool,
        dry_run: bool,
        actor: Option<&str>,
    ) -> Result<Vec<SubscriptionChange>> {
        let (subscriptions, members) = (file.subscriptions(), file.members());
        let params: [&(dyn ToSql + Sync); 5] = [&subscriptions, &members, &prune, &dry_run, &actor];
        let rows = self
            .rows(include_str!("sql/subscription/apply.sql"), &params)
            .await
            .context("applying subscriptions")?;
        rows.iter()
            .map(|row| {
                Ok(SubscriptionChange {
                    what: row.try_get("what")?,
                    subject: row.try_get("subject")?,
                    change: ChangeKind::of(row.try_get("change")?)?,
                })
            })
            .collect()
    }
}
