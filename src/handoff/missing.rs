//! Compares rows with what is recorded: which of their signals are missing, and which rows took the key of another.

use crate::core::captured_by::CapturedBy;
use crate::core::certificate::Digest;
use crate::core::finding::Severity;
use crate::core::handoff::{Handoff, Source};
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::handoff::deliver::Delivery;
use crate::handoff::mapped_row::MappedRow;
use crate::store::findings::Finding;
use crate::store::proof::Expected;
use crate::store::role::Writes;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;

/// The result of comparing rows with what is recorded.
pub struct Missing {
    pub rows: Vec<MappedRow>,
    /// Rows without a missing signal.
    pub recorded: usize,
    /// Rows of the backlog: they have no signal, and none is missing.
    pub backlog: usize,
    /// How many signals, or dead letters of rows that cannot be handed off, are nowhere.
    pub signals: usize,
    /// Over every signal that the rows should have.
    pub digest: Digest,
}

/// Rows against what is recorded.
struct ComparedRows {
    unrecorded: HashSet<Uuid>,
    /// The signals that each row should have.
    of_row: Vec<Vec<(Uuid, Option<i64>)>>,
    backlog: usize,
    digest: Digest,
}

impl<R: Writes> Delivery<'_, R> {
    /// Notices rows of one source whose key was another row's (`truncate … restart identity`, or deleted and inserted
    /// again). What is recorded under the key is about the other row, so these rows are handed off under identities
    /// of their own. Only passes that prove completeness call this; until then the fast paths take such a row for
    /// recorded.
    pub async fn notice_replaced(&self, rows: &mut [MappedRow]) -> Result<()> {
        let Some(source) = rows.first().map(|row| Arc::clone(&row.source)) else { return Ok(()) };
        let handoffs: Vec<&Handoff> = rows.iter().flat_map(MappedRow::handoffs).collect();
        let taken = self.taken(&source, &handoffs).await?;
        if !taken.is_empty() {
            rows.iter_mut().for_each(|row| row.replace(&taken));
        }
        Ok(())
    }

    /// The signals of a source whose row took the key of another row.
    ///
    /// The order is right for two reasons. A key is noted as reused before any signal of the new row is recorded
    /// under an identity of its own. And the signals are compared again after the note: in between, a fast path may
    /// have recorded the row under the key's own identity, if the former signal had just gone. After the note no path
    /// does so.
    pub(super) async fn taken(&self, source: &Source, handoffs: &[&Handoff]) -> Result<HashSet<Uuid>> {
        let mut found = self.store.replaced(source, handoffs).await?;
        let fresh: HashSet<Uuid> = found.iter().filter(|(_, noted)| !noted).map(|(id, _)| *id).collect();
        if !fresh.is_empty() {
            let subjects: HashSet<Uuid> =
                handoffs.iter().filter(|h| fresh.contains(&h.id)).map(|h| h.subject).collect();
            let subjects: Vec<Uuid> = subjects.into_iter().collect();
            self.store.note_reused(self.lease, source.name(), &subjects).await?;
            failpoint("after_note_reused");
            found = self.store.replaced(source, handoffs).await?;
        }
        Ok(found.into_iter().map(|(id, _)| id).collect())
    }

    /// Reports rows that took the keys of other rows and are handed off now.
    pub async fn say_replaced(&self, source: &Source, rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        tracing::warn!(
            source = source.name(),
            rows,
            "rows took the keys of other rows; handed off under identities of their own"
        );
        let detail = json!({
            "source": source.name(), "rows": rows,
            "meaning": "keys that were handed off belong to other rows now; the new rows are handed off under identities of their own",
        });
        let key = format!("row_replaced:{}", source.name());
        self.store.raise(&Finding { kind: "row_replaced", key, severity: Severity::High, detail }).await
    }

    /// Finds the rows with an unrecorded signal. A pass behind the stream finds almost everything recorded, and must
    /// not hold locks that the stream waits for. So it asks first and writes only what is missing.
    pub async fn missing(&self, mut rows: Vec<MappedRow>) -> Result<Missing> {
        let missing = self.compare(&rows).await?;
        // A signal that seems missing may be recorded under an identity of its own, because the key was another
        // row's.
        let subjects: Vec<Uuid> = rows
            .iter()
            .flat_map(MappedRow::handoffs)
            .filter(|h| missing.unrecorded.contains(&h.id))
            .map(|h| h.subject)
            .collect();
        let missing = if subjects.is_empty() || self.store.reused(&subjects).await?.is_empty() {
            missing
        } else {
            self.notice_replaced(&mut rows).await?;
            self.compare(&rows).await?
        };
        let ComparedRows { unrecorded, of_row, backlog, digest } = missing;
        let seen = rows.len();
        let lacking = |own: &[(Uuid, Option<i64>)]| own.iter().any(|(id, _)| unrecorded.contains(id));
        let rows: Vec<_> = rows
            .into_iter()
            .zip(&of_row)
            .filter(|(_, of)| lacking(of))
            .map(|(row, _)| row.only(&unrecorded))
            .collect();
        let recorded = seen - rows.len() - backlog;
        Ok(Missing { recorded, backlog, rows, signals: unrecorded.len(), digest })
    }

    async fn compare(&self, rows: &[MappedRow]) -> Result<ComparedRows> {
        let mut digest = Digest::default();
        let mut of_row: Vec<_> = rows.iter().map(MappedRow::expected).collect();
        let ids: Vec<Uuid> = of_row.iter().flatten().map(|(id, _)| *id).collect();
        let mut unrecorded: HashSet<Uuid> = self.store.unrecorded(&ids).await?.into_iter().collect();
        let mut backlog = 0;
        if !unrecorded.is_empty() {
            // Rows of the backlog have no signal. They are counted apart, and are in no digest.
            for row in self.of_the_backlog(rows, &of_row, &unrecorded).await? {
                let own = std::mem::take(&mut of_row[row]);
                own.iter().for_each(|(id, _)| _ = unrecorded.remove(id));
                backlog += 1;
            }
            unrecorded = self.unaccounted(rows, &of_row, &unrecorded).await?;
        }
        for (_, own) in rows.iter().zip(&of_row).filter(|(row, _)| row.is_handed_off()) {
            own.iter().for_each(|(id, _)| digest.add(*id));
        }
        Ok(ComparedRows { unrecorded, of_row, backlog, digest })
    }

    /// Which of the rows that lack a signal are in the backlog of their source. For a replay none are: it hands the
    /// backlog off, and the gate takes its rows out of the backlog.
    async fn of_the_backlog(
        &self,
        rows: &[MappedRow],
        of_row: &[Vec<(Uuid, Option<i64>)>],
        unrecorded: &HashSet<Uuid>,
    ) -> Result<Vec<usize>> {
        if self.captured_by == CapturedBy::Replay {
            return Ok(vec![]);
        }
        let mut by_source: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, own) in of_row.iter().enumerate() {
            if own.iter().any(|(id, _)| unrecorded.contains(id)) {
                by_source.entry(rows[i].source.name()).or_default().push(i);
            }
        }
        let mut held = Vec::new();
        for (source, lacking) in by_source {
            let keys: Vec<_> = lacking.iter().map(|&i| rows[i].backlog_key()).collect();
            held.extend(self.store.in_backlog(source, &keys).await?.into_iter().map(|n| lacking[n]));
        }
        Ok(held)
    }

    /// Those of `unrecorded` that are not staged, not retired and not covered by a dead letter. Without this a full
    /// comparison would emit retired signals again. Asked only about what seems missing, so it costs nothing when
    /// nothing is missing.
    async fn unaccounted(
        &self,
        rows: &[MappedRow],
        of_row: &[Vec<(Uuid, Option<i64>)>],
        unrecorded: &HashSet<Uuid>,
    ) -> Result<HashSet<Uuid>> {
        let mut by_source: BTreeMap<&str, Vec<Expected>> = BTreeMap::new();
        for (row, ids) in rows.iter().zip(of_row) {
            for (id, number) in ids.iter().filter(|(id, _)| unrecorded.contains(id)) {
                let at = row.watermark.as_ref().and_then(|w| w.at);
                let expected = Expected::numbered(&row.source, &row.key, *id, *number).of(at);
                by_source.entry(row.source.name()).or_default().push(expected);
            }
        }
        let mut nowhere = HashSet::new();
        for (source, expected) in by_source {
            nowhere.extend(self.store.unaccounted(source, &expected).await?);
        }
        Ok(nowhere)
    }
}
