//! From rows to durable effects: map, coalesce, apply; what cannot be handed off is set aside, never dropped.

use crate::core::certificate::Digest;
use crate::core::coalesce::{Batch, coalesce};
use crate::core::dead_letter::code;
use crate::core::handoff::{Handoff, Mapped, Source};
use crate::core::row::Row;
use crate::core::watermark::{self, Watermark};
use crate::error::{Error, Result};
use crate::intake::failpoint;
use crate::store::Store;
use crate::store::apply::{Advance, CursorStep};
use crate::store::findings::Finding;
use crate::store::lease::Lease;
use crate::store::proof::Expected;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;

/// Refused at the first attempt, which is also the last.
const FIRST: u32 = 1;
const UNIQUE_VIOLATION: &str = "23505";

/// What a delivery came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub seen: usize,
    pub emitted: i64,
    pub captured: i64,
    /// Staged for a retry.
    pub staged: i64,
    /// Dead-lettered.
    pub refused: i64,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.seen += other.seen;
        self.emitted += other.emitted;
        self.captured += other.captured;
        self.staged += other.staged;
        self.refused += other.refused;
    }
}

/// A row and what it comes to. Mapping is most of a client's work for a row, and is done while an earlier batch commits.
pub struct MappedRow {
    pub source: Arc<Source>,
    key: String,
    pub watermark: Option<Watermark>,
    mapped: Mapped,
    /// Some of its signals are recorded. A row is handed off whole, so what is missing came to be due afterwards: by another rule, or
    /// because the row was changed.
    pub partly: bool,
    /// Its key was another row's, which was handed off: it has identities of its own.
    pub replaced: bool,
}

impl MappedRow {
    pub fn of(source: Arc<Source>, row: &Row) -> Self {
        Self {
            key: source.key(row).to_owned(),
            watermark: source.watermark(row),
            mapped: source.map(row),
            partly: false,
            replaced: false,
            source,
        }
    }

    /// The signals that it should have, each with the number that retention remembers it by. A row that cannot be handed off has
    /// none: only its letter accounts for it, under an identity that no signal has.
    pub fn expected(&self) -> Vec<(Uuid, Option<i64>)> {
        match &self.mapped {
            Mapped::Handoffs(handoffs) => handoffs.iter().map(|h| (h.id, h.number)).collect(),
            Mapped::Excluded => vec![],
            Mapped::Refused(refusal) => vec![(refusal.subject, None)],
        }
    }

    /// Whether its signals count for a digest.
    pub fn is_handed_off(&self) -> bool {
        matches!(self.mapped, Mapped::Handoffs(_))
    }

    fn is_unreadable(&self) -> bool {
        matches!(&self.mapped, Mapped::Refused(refusal) if refusal.code == code::UNREADABLE)
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    fn handoffs(&self) -> &[Handoff] {
        if let Mapped::Handoffs(handoffs) = &self.mapped { handoffs } else { &[] }
    }

    /// Gives those of its signals that are recorded for another row an identity of their own.
    fn replace(&mut self, taken: &HashSet<Uuid>) {
        let Mapped::Handoffs(handoffs) = &mut self.mapped else { return };
        for handoff in handoffs.iter_mut().filter(|h| taken.contains(&h.id)) {
            handoff.replace(&self.source.identity);
            self.replaced = true;
        }
    }

    /// Leaves out every signal but these. What is delivered again is absorbed where it is recorded, but not where retention
    /// took it.
    #[must_use]
    pub fn only(mut self, missing: &HashSet<Uuid>) -> Self {
        if let Mapped::Handoffs(handoffs) = &mut self.mapped {
            let all = handoffs.len();
            handoffs.retain(|handoff| missing.contains(&handoff.id));
            self.partly |= handoffs.len() < all;
        }
        self
    }
}

/// One mapped row, whole: a row is handed off or set aside with all its signals.
pub(super) struct Item {
    pub source: Arc<Source>,
    pub key: String,
    pub watermark: Option<Watermark>,
    pub handoffs: Vec<Handoff>,
}

/// What a look behind the stream found.
pub struct Missing {
    pub rows: Vec<MappedRow>,
    /// Rows of which nothing is missing.
    pub recorded: usize,
    /// Signals, or letters of rows that cannot be handed off, that are nowhere.
    pub signals: usize,
    /// Of every signal that the rows should have.
    pub digest: Digest,
}

/// Rows against what is recorded.
struct Compared {
    unrecorded: HashSet<Uuid>,
    /// The signals that each row should have.
    of_row: Vec<Vec<(Uuid, Option<i64>)>>,
    digest: Digest,
}

pub struct Delivery<'a> {
    pub store: &'a Store,
    pub lease: &'a Lease,
    pub captured_by: &'a str,
}

impl Delivery<'_> {
    /// Makes the effects of `rows` durable, then, in the same commit as the last of them, moves the reader as `advance`
    /// says. When this returns the caller may acknowledge; when it fails nothing has moved, and doing it again is safe.
    ///
    /// The order is right because whatever precedes the last commit moves nothing: rows set aside and parts of a bisected
    /// batch are idempotent by identity, and a crash between them leaves the reader where it was.
    pub async fn deliver(&self, rows: Vec<MappedRow>, advance: Advance<'_>) -> Result<Outcome> {
        let mut outcome = Outcome { seen: rows.len(), ..Outcome::default() };
        let mut items = Vec::with_capacity(rows.len());
        // Of every row, also of those that come to nothing: their ids leave the ranges by what the definition says.
        let versions = versions(rows.iter().map(|row| &row.source));
        for MappedRow { source, key, watermark, mapped, .. } in rows {
            match mapped {
                // Its id leaves the ranges by `advance`; it is not counted, because the stream never sees it, and our
                // own audit rows would otherwise call for the next audit row.
                Mapped::Excluded => {}
                Mapped::Handoffs(handoffs) => items.push(Item { source, key, watermark, handoffs }),
                // A contract violation: trying it again would not change it.
                Mapped::Refused(refusal) => {
                    outcome.refused += self.set_aside(&source, &refusal, &[], FIRST).await?
                }
            }
        }
        match self.apply(&items, advance, &versions).await {
            Err(e) if self.is_poison(&e).await => {
                let (applied, steps) = self.bisect(items, e).await?;
                outcome += applied;
                failpoint("after_bisect");
                // Every row is recorded, staged or set aside by now, so the reader may move past all of them. A poison row
                // holds back neither the slot nor the watermark.
                let nothing = Batch::default();
                self.store.apply(self.lease, self.captured_by, &nothing, &steps, advance, &versions).await?;
            }
            applied => outcome += applied?,
        }
        Ok(outcome)
    }

    /// Notices rows of one source whose key was another row's (`truncate … restart identity`, deleted and inserted again): what
    /// is recorded under the key is about something else. They are handed off under identities of their own. Asked by whatever
    /// proves completeness; the fast paths take such a row for recorded until then.
    pub async fn notice_replaced(&self, rows: &mut [MappedRow]) -> Result<()> {
        let Some(source) = rows.first().map(|row| Arc::clone(&row.source)) else { return Ok(()) };
        self.notice_recorded(&source, rows).await?;
        let handoffs: Vec<&Handoff> = rows.iter().flat_map(MappedRow::handoffs).collect();
        let taken = self.taken(&source, &handoffs).await?;
        if !taken.is_empty() {
            rows.iter_mut().for_each(|row| row.replace(&taken));
        }
        Ok(())
    }

    /// Those of a source's signals whose row took the key of another.
    ///
    /// The order is right because a key is noted as reused before any signal of the new row is recorded under an identity of
    /// its own, and because it is looked again after the note: a fast path may have recorded the row under the key's own
    /// identity in between, as it may when the former signal has just gone. After the note no path does.
    async fn taken(&self, source: &Source, handoffs: &[&Handoff]) -> Result<HashSet<Uuid>> {
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

    /// A row that was handed off, and whose contents cannot be read since somebody changed them, needs no letter.
    async fn notice_recorded(&self, source: &Source, rows: &mut [MappedRow]) -> Result<()> {
        let unreadable: Vec<_> = rows.iter_mut().filter(|row| row.is_unreadable()).collect();
        if unreadable.is_empty() {
            return Ok(());
        }
        let of = |row: &MappedRow| -> Vec<_> {
            source.signals(&row.key).into_iter().map(|id| Expected::new(source, &row.key, id)).collect()
        };
        let expected: Vec<_> = unreadable.iter().flat_map(|row| of(row)).collect();
        let nowhere: HashSet<Uuid> =
            self.store.unaccounted(source.name(), &expected).await?.into_iter().collect();
        for row in unreadable {
            if source.signals(&row.key).iter().any(|id| !nowhere.contains(id)) {
                row.mapped = Mapped::Handoffs(vec![]);
            }
        }
        Ok(())
    }

    /// Tells the operator of rows that took the key of others and are handed off now.
    pub async fn say_replaced(&self, source: &Source, rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        tracing::warn!(
            source = source.name(),
            rows,
            "rows took the keys of others; handed off by themselves"
        );
        let detail = json!({
            "source": source.name(), "rows": rows,
            "meaning": "keys that were handed off belong to other rows now; the new rows are handed off under identities of their own",
        });
        let key = format!("row_replaced:{}", source.name());
        self.store.raise(&Finding { kind: "row_replaced", key, severity: "high", detail }).await
    }

    /// Tells rows with an unrecorded signal from the rest. Passes that look behind the stream find almost everything
    /// recorded, and must not hold locks that the stream waits for; so they ask first and write only what is missing.
    pub async fn missing(&self, mut rows: Vec<MappedRow>) -> Result<Missing> {
        let missing = self.compare(&rows).await?;
        // What seems missing may be recorded under an identity of its own, because its key was another row's.
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
        let Compared { unrecorded, of_row, digest } = missing;
        let seen = rows.len();
        let lacking = |own: &[(Uuid, Option<i64>)]| own.iter().any(|(id, _)| unrecorded.contains(id));
        let rows: Vec<_> = rows
            .into_iter()
            .zip(&of_row)
            .filter(|(_, of)| lacking(of))
            .map(|(row, _)| row.only(&unrecorded))
            .collect();
        Ok(Missing { recorded: seen - rows.len(), rows, signals: unrecorded.len(), digest })
    }

    async fn compare(&self, rows: &[MappedRow]) -> Result<Compared> {
        let mut digest = Digest::default();
        let mut ids = Vec::with_capacity(rows.len());
        let mut of_row = Vec::with_capacity(rows.len());
        for row in rows {
            let own = row.expected();
            if row.is_handed_off() {
                own.iter().for_each(|(id, _)| digest.add(*id));
            }
            ids.extend(own.iter().map(|(id, _)| *id));
            of_row.push(own);
        }
        let mut unrecorded: HashSet<Uuid> = self.store.unrecorded(&ids).await?.into_iter().collect();
        if !unrecorded.is_empty() {
            unrecorded = self.unaccounted(rows, &of_row, &unrecorded).await?;
        }
        Ok(Compared { unrecorded, of_row, digest })
    }

    /// Those of `unrecorded` that are not staged, that retention did not take and no dead letter stands for: a full
    /// comparison would otherwise emit what was retired. Asked only about what seems missing, so that it costs nothing where nothing is.
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

    async fn apply(&self, items: &[Item], advance: Advance<'_>, versions: &[Uuid]) -> Result<Outcome> {
        let batch = coalesce(items.iter().flat_map(|item| &item.handoffs).collect());
        let applied = self
            .store
            .apply(self.lease, self.captured_by, &batch, &cursor_steps(items), advance, versions)
            .await?;
        Ok(Outcome { emitted: applied.emitted, captured: applied.captured, ..Outcome::default() })
    }

    /// Records what of one row is not recorded, and was not retired after it was; another path may have done so meanwhile. The
    /// row was counted as seen when it was staged.
    pub(super) async fn apply_again(&self, item: &mut Item) -> Result<()> {
        // Its key may have been another row's: then its signals have, or get, identities of their own.
        let taken = self.taken(&item.source, &item.handoffs.iter().collect::<Vec<_>>()).await?;
        for handoff in item.handoffs.iter_mut().filter(|h| taken.contains(&h.id)) {
            handoff.replace(&item.source.identity);
        }
        let ids: Vec<Uuid> = item.handoffs.iter().map(|h| h.id).collect();
        let mut due: HashSet<Uuid> = self.store.unrecorded(&ids).await?.into_iter().collect();
        if !due.is_empty() {
            for retired in self.store.retired(&ids).await? {
                due.remove(&retired);
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        let batch = coalesce(item.handoffs.iter().filter(|h| due.contains(&h.id)).collect());
        let mut steps = cursor_steps(std::slice::from_ref(item));
        steps.iter_mut().for_each(|step| step.seen = 0);
        let versions = versions([&item.source]);
        self.store.apply(self.lease, self.captured_by, &batch, &steps, Advance::Nothing, &versions).await?;
        Ok(())
    }

    /// Whether a refusal is about rows. Where it may also be about the gate itself, or a table that it writes, the gate is
    /// asked to write nothing: if that fails as well no row is to blame, and none is set aside for it.
    pub(super) async fn is_poison(&self, cause: &Error) -> bool {
        cause.is_poison() || cause.may_be_poison() && self.store.probe_gates().await.is_ok()
    }

    /// Halves a refused batch until the poison rows stand alone. Each half commits by itself and moves nothing. Returns how
    /// the cursors move past the poison rows.
    async fn bisect(&self, items: Vec<Item>, cause: Error) -> Result<(Outcome, Vec<CursorStep>)> {
        let policy = self.store.retry_policy().await?;
        let mut outcome = Outcome::default();
        let mut poison = Vec::new();
        let mut stack = vec![(items, cause)];
        let of = |items: &[Item]| versions(items.iter().map(|item| &item.source));
        while let Some((mut items, cause)) = stack.pop() {
            if items.len() == 1 {
                // Two writers that record the same row in the same moment may meet in an index that is not the one the
                // gate expects; the other has committed by now, so a second look finds the row recorded.
                if cause.code.as_deref() == Some(UNIQUE_VIOLATION)
                    && let Ok(applied) = self.apply(&items, Advance::Nothing, &of(&items)).await
                {
                    outcome += applied;
                    continue;
                }
                outcome += self.stage(&items[0], &cause, policy).await?;
                poison.append(&mut items);
                continue;
            }
            let right = items.split_off(items.len() / 2);
            for half in [right, items].into_iter().filter(|h| !h.is_empty()) {
                match self.apply(&half, Advance::Nothing, &of(&half)).await {
                    Ok(applied) => outcome += applied,
                    Err(e) if self.is_poison(&e).await => stack.push((half, e)),
                    Err(e) => return Err(e),
                }
            }
        }
        poison.iter_mut().for_each(|item| item.handoffs.clear());
        Ok((outcome, cursor_steps(&poison)))
    }
}

/// The definitions that mapped these rows, once each.
fn versions<'s>(sources: impl IntoIterator<Item = &'s Arc<Source>>) -> Vec<Uuid> {
    let mut out: Vec<Uuid> = Vec::new();
    for version in sources.into_iter().filter_map(|source| source.version) {
        if out.last() != Some(&version) && !out.contains(&version) {
            out.push(version);
        }
    }
    out
}

fn cursor_steps(items: &[Item]) -> Vec<CursorStep> {
    let mut steps: Vec<CursorStep> = Vec::new();
    for item in items {
        let at = steps.iter().position(|s| s.source == item.source.name()).unwrap_or_else(|| {
            steps.push(CursorStep {
                source: item.source.name().to_owned(),
                watermark: None,
                seen: 0,
                signals: 0,
            });
            steps.len() - 1
        });
        let step = &mut steps[at];
        step.seen += 1;
        step.signals += i64::try_from(item.handoffs.len()).unwrap_or(i64::MAX);
        // A row of the end of time would leave the watermark there, and no later row would move it.
        if let Some(seen) = item.watermark.as_ref().filter(|w| w.at.is_none_or(|at| at.is_finite())) {
            watermark::advance(&mut step.watermark, seen.clone());
        }
    }
    steps
}
