//! An operator's replay of dead letters: the row is read again from its source and handed off like any row.
//!
//! A letter is closed strictly after its signals are durable, and the gate that closes it checks that itself. After a
//! crash in between, the letter is open and its row is handed off; another replay finds that and closes the letter.
//! The other order could leave a closed letter without a signal, which no pass would ever look at again.

use crate::core::dead_letter::code;
use crate::core::handoff::{Mapped, Refusal, Source};
use crate::core::row::Row;
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::handoff::deliver::{Delivery, Item};
use crate::handoff::quarantine::refusal;
use crate::store::dead_letter::Letter;
use crate::store::role::Writes;
use std::sync::Arc;
use uuid::Uuid;

/// What a replay of a letter would do, or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outlook {
    /// These signals are to be recorded, or are recorded.
    Handoffs(Vec<Uuid>),
    Refused(Refusal),
}

/// The operator who decides, and the reason.
#[derive(Debug, Clone, Copy, Default)]
pub struct Decision<'a> {
    pub actor: Option<&'a str>,
    pub reason: Option<&'a str>,
}

/// What a replay would do, without doing it.
pub fn outlook(source: &Arc<Source>, letter: &Letter, row: Option<&Row>) -> Outlook {
    match item(source, letter, row) {
        Ok(item) => Outlook::Handoffs(item.handoffs.iter().map(|h| h.id).collect()),
        Err(refusal) => Outlook::Refused(refusal),
    }
}

impl<R: Writes> Delivery<'_, R> {
    /// Hands the letter's row off under its usual identities, then closes the letter. If the row is rejected, the
    /// letter stays open, with one more attempt and the reason.
    pub async fn replay(
        &self,
        source: &Arc<Source>,
        letter: &Letter,
        row: Option<&Row>,
        decision: Decision<'_>,
    ) -> Result<Outlook> {
        let refused = match item(source, letter, row) {
            Ok(mut item) => match self.apply_again(&mut item).await {
                Ok(()) => {
                    let ids: Vec<_> = item.handoffs.iter().map(|h| h.id).collect();
                    failpoint("replay_after_apply");
                    let Decision { actor, reason } = decision;
                    self.store.dead_letter_replayed(self.lease, letter.id, &ids, reason, actor).await?;
                    return Ok(Outlook::Handoffs(ids));
                }
                Err(e) if self.is_poison(&e).await => refusal(source, &letter.source_key, &e),
                Err(e) => return Err(e),
            },
            Err(refusal) => refusal,
        };
        self.store.dead_letter_failed(self.lease, letter.id, refused.code, &refused.detail).await?;
        Ok(Outlook::Refused(refused))
    }
}

fn item(source: &Arc<Source>, letter: &Letter, row: Option<&Row>) -> Result<Item, Refusal> {
    let key = letter.source_key.as_str();
    let refuse = |code, detail: &str| Refusal {
        subject: source.identity.subject(key),
        source_key: key.to_owned(),
        code,
        detail: detail.to_owned(),
    };
    let Some(row) = row else {
        return Err(refuse(code::VANISHED, "the row is no longer in its source"));
    };
    match source.map(row) {
        Mapped::Handoffs(handoffs) => Ok(Item {
            source: Arc::clone(source),
            key: key.to_owned(),
            watermark: source.watermark(row),
            handoffs,
        }),
        Mapped::Excluded => {
            Err(refuse(code::EXCLUDED, "the source's definition leaves this row out; discard the letter"))
        }
        Mapped::Refused(refusal) => Err(refusal),
    }
}
