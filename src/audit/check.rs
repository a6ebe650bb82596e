//! One chunk of an audit: rows against signals, signals against rows.

use super::progress::Progress;
use super::{GRACE, millis};
use crate::core::captured_by::CapturedBy;
use crate::core::certificate::Digest;
use crate::core::handoff::Source;
use crate::core::repair::Reason;
use crate::core::row::Row;
use crate::core::watermark::Key;
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::handoff::deliver::Delivery;
use crate::handoff::mapped_row::MappedRow;
use crate::store::apply::Advance;
use crate::store::audit::{Checkpoint, Discrepancy, Recorded};
use crate::store::lease::Lease;
use crate::store::proof::Expected;
use crate::store::{Store, role};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The result of comparing one chunk of rows.
pub(super) struct AuditChunk {
    pub rows: u64,
    /// Those of the rows that are in the backlog of the source.
    pub backlog: u64,
    pub digest: Digest,
    /// Rows with a signal that is nowhere, or was nowhere until this audit repaired it, and why.
    pub lacking: Vec<(Row, Reason)>,
    /// Signals that are nowhere now.
    missing: HashSet<Uuid>,
}

impl AuditChunk {
    pub fn keys(&self, source: &Source) -> Vec<(String, Reason)> {
        self.lacking.iter().map(|(row, reason)| (source.key(row).to_owned(), *reason)).collect()
    }

    pub fn names(&self, source: &Source) -> Vec<(Discrepancy, String)> {
        self.lacking.iter().map(|(row, _)| (Discrepancy::Missing, source.key(row).to_owned())).collect()
    }
}

/// Compares rows with signals and signals with rows, hands off what is missing, and stores what it found.
pub(super) struct Checker<'a> {
    pub store: &'a Store,
    pub lease: &'a Lease,
    pub intake: &'a str,
    pub source: &'a Arc<Source>,
    pub full: bool,
}

impl Checker<'_> {
    /// Compares `rows`, each with whether it is younger than the last certificate. `known`: keys that a killed
    /// attempt found missing.
    pub async fn look(&self, rows: Vec<(bool, Row)>, known: &[(String, Reason)]) -> Result<AuditChunk> {
        let (mut expected, mut digest) = (Vec::new(), Digest::default());
        let (mut fresh, mut young) = (HashSet::new(), HashSet::new());
        let mapped = self.mapped(rows.iter().map(|(_, row)| row)).await?;
        let places: Vec<_> = mapped.iter().map(MappedRow::backlog_key).collect();
        let backlog = self.store.in_backlog(self.source.name(), &places).await?;
        for (i, ((is_young, row), mapped)) in rows.iter().zip(&mapped).enumerate() {
            if backlog.contains(&i) {
                continue;
            }
            let own = mapped.expected();
            if mapped.is_handed_off() {
                own.iter().for_each(|(id, _)| digest.add(*id));
            }
            let key = self.source.key(row);
            if *is_young {
                fresh.extend(own.iter().map(|(id, _)| *id));
                young.insert(key);
            }
            let at = mapped.watermark.as_ref().and_then(|w| w.at);
            let of = |(id, number)| Expected::numbered(self.source, key, id, number).of(at);
            expected.extend(own.into_iter().map(of));
        }
        let replaced: HashSet<&str> = mapped.iter().filter(|m| m.replaced).map(MappedRow::key).collect();
        let missing = self.settled(&expected, &fresh).await?;
        let keys: HashSet<&str> =
            expected.iter().filter(|e| missing.contains(&e.id)).map(|e| e.key.as_str()).collect();
        let unread = self.never_read(keys.intersection(&young).copied().collect()).await?;
        let mut why: HashMap<String, Reason> = keys
            .iter()
            .map(|key| match *key {
                key if replaced.contains(key) => (key, Reason::Replaced),
                key if unread.contains(key) => (key, Reason::NotYetRead),
                key => (key, Reason::Vanished),
            })
            .map(|(key, reason)| (key.to_owned(), reason))
            .collect();
        // The reasons that were stored before a kill stand: by now the row may be certified.
        why.extend(known.iter().cloned());
        let count = u64::try_from(rows.len()).unwrap_or(0);
        let lacking = rows.into_iter().filter_map(|(_, row)| {
            let reason = why.get(self.source.key(&row)).copied();
            reason.map(|reason| (row, reason))
        });
        let backlog = u64::try_from(backlog.len()).unwrap_or(0);
        Ok(AuditChunk { rows: count, backlog, digest, lacking: lacking.collect(), missing })
    }

    /// Those of `young` that no path has read. `young` are the keys of missing rows that no certificate covers. The
    /// other keys left the ranges with a handoff, which is gone.
    async fn never_read<'k>(&self, young: HashSet<&'k str>) -> Result<HashSet<&'k str>> {
        let number = |key: &str| Key::parse(self.source.id_type(), key).and_then(|k| k.as_int());
        let numbers: Vec<i64> = young.iter().filter_map(|key| number(key)).collect();
        if numbers.is_empty() {
            return Ok(young);
        }
        let open = self.store.never_read(self.intake, self.source.name(), &numbers).await?;
        let open: HashSet<i64> = open.into_iter().collect();
        Ok(young.into_iter().filter(|key| number(key).is_none_or(|n| open.contains(&n))).collect())
    }

    /// Hands off what is missing. Idempotent, as every delivery is.
    pub async fn repair(&self, chunk: &AuditChunk) -> Result<()> {
        if chunk.lacking.is_empty() {
            return Ok(());
        }
        let rows = self.mapped(chunk.lacking.iter().map(|(row, _)| row)).await?;
        let replaced = rows.iter().filter(|row| row.replaced).count();
        let rows = rows.into_iter().map(|row| row.only(&chunk.missing)).collect();
        let delivery = self.delivery();
        delivery.deliver(rows, Advance::Nothing).await?;
        delivery.say_replaced(self.source, replaced).await
    }

    fn delivery(&self) -> Delivery<'_, role::ReadWriter> {
        Delivery { store: self.store, lease: self.lease, captured_by: CapturedBy::Audit }
    }

    /// Maps rows. Rows that took another row's key get identities of their own.
    async fn mapped<'r>(&self, rows: impl Iterator<Item = &'r Row>) -> Result<Vec<MappedRow>> {
        let mut mapped: Vec<_> = rows.map(|row| MappedRow::of(Arc::clone(self.source), row)).collect();
        self.delivery().notice_replaced(&mut mapped).await?;
        Ok(mapped)
    }

    /// What is missing after the intake had time to bring rows that were on their way. Only rows younger than the
    /// last certificate can still be on their way.
    async fn settled(&self, expected: &[Expected], fresh: &HashSet<Uuid>) -> Result<HashSet<Uuid>> {
        let begun = Instant::now();
        loop {
            let missing: HashSet<Uuid> =
                self.store.unaccounted(self.source.name(), expected).await?.into_iter().collect();
            if missing.is_disjoint(fresh) || begun.elapsed() > GRACE {
                return Ok(missing);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Counts and names what is wrong among recorded signals. A key that the source's type cannot have has no row. A
    /// signal whose id is not the identity of its key and kind was not recorded by gov-handoff. If the row's own
    /// signal is there, this one is doubled; otherwise it is an orphan. A retired signal that is there again is
    /// doubled too.
    pub async fn judge(
        &self,
        stretch: &[Recorded],
        progress: &mut Progress,
    ) -> Result<Vec<(Discrepancy, String)>> {
        let named: Vec<_> = stretch.iter().filter(|s| s.named).map(|s| (s, self.canonical_key(s))).collect();
        let keys: BTreeSet<&String> = named.iter().filter_map(|(_, key)| key.as_ref()).collect();
        let keys: Vec<String> = keys.into_iter().cloned().collect();
        let absent: HashSet<String> = self.store.absent_keys(self.source, &keys).await?.into_iter().collect();
        // Each signal with its key, if a row has that key.
        let with_row: Vec<_> =
            named.into_iter().map(|(s, key)| (s, key.filter(|key| !absent.contains(key)))).collect();
        let nowhere = self.own_signals_nowhere(&with_row).await?;
        let mut names = Vec::new();
        for (signal, key) in with_row {
            let Some(verdict) = self.verdict(signal, key.as_deref(), &nowhere) else { continue };
            // A signal without a key is named by its id.
            let name = signal.key.clone().unwrap_or_else(|| signal.id.to_string());
            if verdict == Discrepancy::Doubled {
                progress.doubled += 1;
            } else if progress.last_orphan.replace(name.clone()).as_ref() == Some(&name) {
                continue;
            } else {
                progress.orphans += 1;
            }
            names.push((verdict, name));
        }
        Ok(names)
    }

    /// What is wrong with one signal, if anything. `key`: its key, if a row has it. `nowhere`: see
    /// [`Self::own_signals_nowhere`].
    fn verdict(&self, signal: &Recorded, key: Option<&str>, nowhere: &HashSet<Uuid>) -> Option<Discrepancy> {
        let own = key.map(|key| self.own_identity(key, signal));
        match own {
            None => Some(Discrepancy::Orphan),
            Some(own) if own != signal.id && nowhere.contains(&own) => Some(Discrepancy::Orphan),
            Some(own) if own != signal.id || signal.twice || self.is_retired(signal) => {
                Some(Discrepancy::Doubled)
            }
            Some(_) => None,
        }
    }

    /// The signal's key as the source's type writes it; `None` if the type cannot have such a key.
    fn canonical_key(&self, signal: &Recorded) -> Option<String> {
        let key = signal.key.as_deref().and_then(|key| Key::parse(self.source.id_type(), key));
        key.map(|key| key.to_string())
    }

    /// The identity that a signal of this key and kind should have. The identity of a row that took another row's key is
    /// its own as well.
    fn own_identity(&self, key: &str, signal: &Recorded) -> Uuid {
        let identity = &self.source.identity;
        let object = signal.object_ref.as_deref().unwrap_or_default();
        let replacement = identity.signal_of_replacement(key, &signal.kind, object);
        if replacement == signal.id { replacement } else { identity.signal(key, &signal.kind) }
    }

    /// For the signals whose id is not their own identity: which of those identities no signal accounts for.
    async fn own_signals_nowhere(&self, with_row: &[(&Recorded, Option<String>)]) -> Result<HashSet<Uuid>> {
        let stray = |(signal, key): &(&Recorded, Option<String>)| {
            let key = key.as_ref()?;
            let own = self.own_identity(key, signal);
            (own != signal.id).then(|| Expected::new(self.source, key, own))
        };
        let strays: Vec<Expected> = with_row.iter().filter_map(stray).collect();
        if strays.is_empty() {
            return Ok(HashSet::new());
        }
        Ok(self.store.unaccounted(self.source.name(), &strays).await?.into_iter().collect())
    }

    /// The key was retired whole, and this signal is the row's own, not that of a row that took the key.
    fn is_retired(&self, signal: &Recorded) -> bool {
        let key = self.canonical_key(signal).filter(|_| signal.key_retired);
        key.is_some_and(|key| self.source.identity.signal(&key, &signal.kind) == signal.id)
    }

    /// The chunk's counts, names and end are one commit. Its repairs were committed before and are idempotent. So a
    /// kill in between repeats the reading of a chunk, never its counting.
    pub async fn keep(
        &self,
        after: Option<&str>,
        progress: &mut Progress,
        names: &[(Discrepancy, String)],
        begun: Instant,
    ) -> Result<()> {
        progress.spent_ms += millis(begun);
        let value = serde_json::to_value(&*progress)?;
        let checkpoint = Checkpoint { full: self.full, after, progress: &value, anew: progress.anew, names };
        failpoint("audit_before_keep");
        self.store.keep_audit(self.lease, self.source.name(), &checkpoint).await?;
        progress.anew = false;
        failpoint("audit_after_keep");
        Ok(())
    }
}
