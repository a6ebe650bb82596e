//! After the publication was mended: the transactions that were open then.
//!
//! A slot decodes with the catalogue of the time. What was written while the publication was not as it should be does not
//! come through it, though it be committed much later. So as long as a transaction of that time may be open, the tables are
//! read as often as if there were no stream, and the stream vouches for nothing.

use super::{Session, Turn};
use crate::error::Result;
use std::time::Instant;

/// What the stream does not bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsettled {
    /// Written by a transaction below this id.
    pub below: u64,
    /// When none of them was open any more.
    pub closed_at: Option<Instant>,
}

impl Session<'_> {
    /// Over once every source was read from a time on when all of them had ended: what they wrote was visible then.
    pub(super) async fn settle(&self, turns: &[Turn]) -> Result<()> {
        let Some(Unsettled { below, closed_at }) = *self.shared.unsettled.borrow() else { return Ok(()) };
        let closed_at = match closed_at {
            Some(at) => at,
            None if self.reader.snapshot().await?.xmin < below => return Ok(()),
            None => Instant::now(),
        };
        // One that cannot be read is not waited for: its rows are found whenever it can be.
        let read =
            |turn: &Turn| turn.unreadable || self.shared.looked_at(turn.source.name()) > Some(closed_at);
        let next =
            if turns.iter().all(read) { None } else { Some(Unsettled { below, closed_at: Some(closed_at) }) };
        // Mended again meanwhile: that is another one.
        self.shared.unsettled.send_if_modified(|known| {
            let same = known.is_some_and(|u| u.below == below);
            if same {
                *known = next;
            }
            same
        });
        Ok(())
    }
}
