//! Subscriptions and memberships: listing them, and making them as a file has them.

use crate::core::subscription::SubscriptionFile;
use crate::error::{Context, Result};
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

/// What was done about one subscription or membership, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubscriptionChange {
    /// `subscription` or `member`.
    pub what: String,
    pub subject: String,
    /// `added`, `removed`, `muted`, `unmuted`, `unchanged` or `not in the file`.
    pub change: String,
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
                    change: row.try_get("change")?,
                })
            })
            .collect()
    }
}
