//! Rows that cannot be handed off now: staged for a retry, or set aside as dead letters for an operator. Never
//! dropped.

use crate::core::dead_letter::{RETRY_KIND, clip, code, letter_key};
use crate::core::handoff::{Handoff, Refusal, Source};
use crate::core::retry::{NextAttempt, RetryPolicy};
use crate::error::{Error, Kind, Result};
use crate::handoff::deliver::{Delivery, Item, Outcome};
use crate::store::dead_letter::NewLetter;
use crate::store::retry::Staging;
use crate::store::role::Writes;
use serde_json::{Value, json};

/// In our shape of the tables, the constraints that keep contents out of the queue have names that end so.
const NOT_DATA: &str = "_signal_not_data";

const LARGEST_KEY: usize = 1 << 20;

impl<R: Writes> Delivery<'_, R> {
    /// Stages a row that was rejected for the first time, or makes a dead letter of it if a retry cannot help. It
    /// commits by itself, before the reader moves. After a crash in between, the row is delivered again and found
    /// here.
    pub async fn stage(&self, item: &Item, cause: &Error, policy: RetryPolicy) -> Result<Outcome> {
        let refusal = refusal(&item.source, &item.key, cause);
        let delay = match policy.next_attempt(1, jitter()) {
            NextAttempt::RetryAfter(delay) if refusal.code == code::REFUSED => delay,
            _ => {
                let refused = self.set_aside(&item.source, &refusal, &item.handoffs, 1).await?;
                return Ok(Outcome { refused, ..Outcome::default() });
            }
        };
        let source = &item.source;
        let (address, actor) = match item.handoffs.first() {
            Some(h) => (clip(&h.canonical_address), clip(&h.actor_ref)),
            None => (source.name().to_owned(), source.name().to_owned()),
        };
        let staging = Staging {
            table: source.definition.table(),
            id: source.identity.signal(&item.key, RETRY_KIND),
            subject: refusal.subject,
            letter: &letter_key(source.name(), &item.key),
            address: &address,
            actor: &actor,
            error: &refusal.detail,
            payload: &snapshot(source, &item.key, &item.handoffs),
            delay,
            version: source.version,
        };
        match self.store.stage(self.lease, &staging).await {
            Ok(new) => {
                tracing::warn!(
                    source = source.name(),
                    detail = refusal.detail,
                    "row rejected, staged for a retry"
                );
                Ok(Outcome { staged: i64::from(new), ..Outcome::default() })
            }
            // A live staging table may have rules of its own. They must not hold the source back.
            Err(e) if self.is_poison(&e).await => {
                let refused = self.set_aside(source, &refusal, &item.handoffs, 1).await?;
                Ok(Outcome { refused, ..Outcome::default() })
            }
            Err(e) => Err(e),
        }
    }

    /// Makes a dead letter of a row, and removes its staged row in the same commit.
    pub async fn set_aside(
        &self,
        source: &Source,
        refusal: &Refusal,
        handoffs: &[Handoff],
        attempts: u32,
    ) -> Result<i64> {
        let letter = NewLetter {
            source: source.name(),
            staged: source.identity.signal(&refusal.source_key, RETRY_KIND),
            subject: refusal.subject,
            letter: &letter_key(source.name(), &refusal.source_key),
            code: refusal.code,
            detail: &refusal.detail,
            attempts,
            snapshot: &snapshot(source, &refusal.source_key, handoffs),
            signals: &handoffs.iter().map(|h| h.id).collect::<Vec<_>>(),
            version: source.version,
        };
        let new = self.store.put_dead_letter(self.lease, &letter).await?;
        if new {
            tracing::warn!(
                source = source.name(),
                code = refusal.code,
                detail = refusal.detail,
                "row set aside"
            );
        }
        Ok(i64::from(new))
    }
}

/// What a rejection by the database means for the row.
pub fn refusal(source: &Source, key: &str, cause: &Error) -> Refusal {
    let contents = cause.constraint.as_ref().is_some_and(|c| c.ends_with(NOT_DATA));
    Refusal {
        subject: source.identity.subject(key),
        source_key: key.to_owned(),
        code: match cause.kind {
            _ if contents => code::PAYLOAD,
            Kind::Refused => code::GATE,
            _ => code::REFUSED,
        },
        detail: cause.about_row(),
    }
}

/// What is kept of the row: its address, and the signals that it would have had.
fn snapshot(source: &Source, key: &str, handoffs: &[Handoff]) -> Value {
    let kinds: Vec<_> = handoffs.iter().map(|h| h.rule.kind.as_str()).collect();
    let address = handoffs.first().map(|h| clip(&h.canonical_address));
    // The key is kept whole, because a replay reads the row by it. A key of megabytes is clipped: no replay could
    // hand it off.
    let key = if key.len() > LARGEST_KEY { clip(key) } else { key.to_owned() };
    json!({ "source": source.name(), "source_key": key, "kinds": kinds, "canonical_address": address })
}

/// From 0 to 1.
pub fn jitter() -> f64 {
    let bits = u32::from_be_bytes(uuid::Uuid::new_v4().into_bytes()[..4].try_into().unwrap_or_default());
    f64::from(bits) / f64::from(u32::MAX)
}
