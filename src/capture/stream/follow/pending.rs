//! What the stream has brought and no commit has made durable yet.

use crate::capture::shared::Shared;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::core::row::Row;
use crate::error::{Error, Kind, Result};
use crate::handoff::mapped_row::MappedRow;
use crate::store::Writer;
use std::sync::Arc;
use std::time::Duration;

/// What has arrived and is not durable yet.
#[derive(Default)]
pub(super) struct Pending {
    pub rows: Vec<Arrived>,
    pub bytes: usize,
    /// A transaction has begun and its commit has not arrived.
    pub open: bool,
    /// Rows of the open transaction, pending or already applied.
    pub in_transaction: usize,
    /// The end of the last complete transaction among the rows.
    pub whole: Option<Lsn>,
    /// When the open transaction was committed at the server, since the Unix epoch.
    pub committed: Duration,
    /// When each complete transaction among the rows was committed.
    pub commits: Vec<Duration>,
    /// A position before which the server has nothing for us.
    pub idle: Option<Lsn>,
    pub asked: bool,
}

impl Pending {
    /// Rows to record, or a position to move to.
    pub fn is_work(&self) -> bool {
        !self.rows.is_empty() || self.whole.is_some()
    }

    /// Adds a row of the open transaction.
    pub fn push(&mut self, size: usize, row: Arrived) {
        self.bytes += size;
        self.in_transaction += 1;
        self.rows.push(row);
    }
}

/// A row as the stream brought it.
pub(super) enum Arrived {
    Mapped(MappedRow),
    /// Its texts are in the database's own encoding.
    Foreign(Arc<Source>, Vec<Option<bytes::Bytes>>),
}

/// Asks the server, which knows its own encoding, to convert the texts. A row with a text that cannot be converted
/// counts as unreadable, as on every other path. If such a row has no readable key, it is left to the tables.
pub(super) async fn legible(shared: &Shared, store: &Writer, rows: Vec<Arrived>) -> Result<Vec<MappedRow>> {
    let texts = rows.iter().flat_map(|row| match row {
        Arrived::Mapped(_) => &[][..],
        Arrived::Foreign(_, values) => values,
    });
    let texts: Vec<&[u8]> = texts.flatten().map(AsRef::as_ref).collect();
    let said = if texts.is_empty() { vec![] } else { store.legible(&texts).await? };
    if said.len() != texts.len() {
        return Err(Error::new(
            Kind::Internal,
            "the server returned another number of texts than it was asked for",
        ));
    }
    let mut said = said.into_iter();
    let mut out = Vec::with_capacity(rows.len());
    for row in rows {
        let (source, values) = match row {
            Arrived::Mapped(row) => {
                out.push(row);
                continue;
            }
            Arrived::Foreign(source, values) => (source, values),
        };
        let mut unsaid = None;
        let mut say = |value: Option<bytes::Bytes>| {
            value?;
            said.next()?.map_err(|code| unsaid = Some(code)).ok()
        };
        let mut row = Row::new(values.into_iter().map(&mut say).collect());
        if let Some(code) = unsaid {
            if !source.has_key(&row) {
                shared.not_vouched_for(store).await?;
                continue;
            }
            row = source.unreadable(source.key(&row).to_owned(), code);
        }
        out.push(MappedRow::of(source, &row));
    }
    Ok(out)
}
