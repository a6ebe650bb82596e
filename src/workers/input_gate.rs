//! `gov_input_gate`: looks at the source row behind each pending candidate, and accepts or rejects the candidate.
//!
//! ```text
//!   source by source:  an open walk ─▶ its next candidates ─┐
//!                      pending      ─▶ the next of them ────┴▶ rows by key ─▶ core::input_gate ─▶ one gate, one commit
//! ```
//!
//! A source that cannot be read keeps its candidates pending, and its walks open. It is tried again later; the others go on.

use crate::config::Config;
use crate::core::finding::Severity;
use crate::core::handoff::Source;
use crate::core::input_gate::{Candidate, check};
use crate::core::row::Row;
use crate::core::watermark::Key;
use crate::daemon::pages::{self, PageContext, PageDone, PageWorker};
use crate::daemon::term::Term;
use crate::error::{Error, Result};
use crate::failpoint::failpoint;
use crate::store::findings::Finding;
use crate::store::input_gate::{GateControl, Walk};
use crate::store::{Reader, Writer, connect, role};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tokio::sync::watch;

pub const NAME: &str = "gov_input_gate";

/// Candidates of one page.
const PAGE: i64 = 1_000;
/// A source that could not be read is left alone for this long.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(30);
/// An open finding about an unreadable source is counted again this often.
const UNREADABLE_EVERY: Duration = Duration::from_secs(60);

pub async fn run(config: Config, once: bool, shutdown: watch::Receiver<bool>) -> Result<()> {
    pages::run::<InputGate>(&config, NAME, once, shutdown).await
}

struct InputGate {
    reader: Option<Reader>,
    /// The last pending candidate that was looked at, by source.
    after: HashMap<String, String>,
    /// Sources that could not be read, and until when they are left alone.
    unreadable: HashMap<String, Instant>,
    /// Sources that were read since they last could not be. A predecessor may have left a finding about any other.
    read: HashSet<String>,
    checked: u64,
    rejected: u64,
}

impl PageWorker for InputGate {
    type Role = role::Writer;

    fn new(_: &Term) -> Self {
        Self {
            reader: None,
            after: HashMap::new(),
            unreadable: HashMap::new(),
            read: HashSet::new(),
            checked: 0,
            rejected: 0,
        }
    }

    async fn page(&mut self, store: &mut Writer, page: PageContext<'_>) -> Result<PageDone> {
        let term = page.term;
        let control = store.gate_control().await?;
        let mut looked_at = 0;
        for source in store.registered(&term.config.worker).await?.sources {
            if term.stopping()
                || self.unreadable.get(source.name()).is_some_and(|until| *until > Instant::now())
            {
                continue;
            }
            let begins = page.begins && looked_at == 0;
            looked_at += self.source(store, term, &control, &source, begins).await?;
        }
        if looked_at > 0 {
            return Ok(PageDone::more(looked_at));
        }
        Ok(PageDone::idle(0, term.config.poll_interval))
    }

    fn report(&self) -> Value {
        let mut unreadable: Vec<_> = self.unreadable.keys().collect();
        unreadable.sort();
        json!({ "checked": self.checked, "rejected": self.rejected, "unreadable": unreadable })
    }
}

impl InputGate {
    /// One page of a source: of its open walk, if there is one, otherwise of its pending candidates.
    async fn source(
        &mut self,
        store: &Writer,
        term: &Term,
        control: &GateControl,
        source: &Source,
        begins: bool,
    ) -> Result<u64> {
        let name = source.name();
        let walking = control.walks.iter().any(|walk| walk == name);
        let walk = if walking { store.walk_page(name, PAGE).await? } else { None };
        let (walk, candidates) = match walk {
            Some((walk, candidates)) => (Some(walk), candidates),
            None => (None, self.pending(store, name).await?),
        };
        if candidates.is_empty() && walk.is_none() {
            return Ok(0);
        }
        let rows = match self.read(term, source, &candidates).await {
            Ok(rows) => rows,
            Err(e) if e.of_source || e.code.is_some() => {
                self.reader = None;
                return self.not_read(store, term, name, &e).await.map(|()| 0);
            }
            Err(e) => {
                self.reader = None;
                return Err(e);
            }
        };
        self.readable(store, name).await?;
        let found = candidates
            .into_iter()
            .map(|candidate| {
                let row = candidate.source_key.as_ref().and_then(|key| rows.get(key));
                let why = check(&control.checks, source, &candidate, row);
                (candidate, why)
            })
            .collect::<Vec<_>>();
        failpoint("gate_before_put");
        let ends =
            walk.as_ref().is_none_or(|walk| walk.ends) && i64::try_from(found.len()).is_ok_and(|n| n < PAGE);
        store.put_input(&term.lease, &found, walk.as_ref(), begins, ends).await?;
        failpoint("gate_after_put");
        self.checked += found.len() as u64;
        self.rejected += found.iter().filter(|(_, why)| why.is_some()).count() as u64;
        Ok(read_of(found.len(), walk.as_ref()))
    }

    async fn pending(&mut self, store: &Writer, name: &str) -> Result<Vec<Candidate>> {
        let after = self.after.get(name).cloned().unwrap_or_default();
        let mut candidates = store.pending_candidates(name, &after, PAGE).await?;
        if candidates.is_empty() && !after.is_empty() {
            candidates = store.pending_candidates(name, "", PAGE).await?;
        }
        let last = candidates.last().map(|candidate| candidate.key.clone()).unwrap_or_default();
        self.after.insert(name.to_owned(), last);
        Ok(candidates)
    }

    /// The source rows of these candidates, by key. Only this worker's own session for sources reads them.
    async fn read(
        &mut self,
        term: &Term,
        source: &Source,
        candidates: &[Candidate],
    ) -> Result<HashMap<String, Row>> {
        let keys: HashSet<String> = candidates
            .iter()
            .filter_map(|candidate| candidate.source_key.clone())
            // A key of another type cannot be the key of a row: the source was redefined since.
            .filter(|key| Key::parse(source.id_type(), key).is_some())
            .collect();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                let reader: Reader = connect::open_reader(&term.config.target, "gov-handoff input gate")
                    .await?
                    .only_tables()
                    .await?;
                reader.bound_reads(term.config.read_timeout).await?;
                reader
            }
        };
        let rows = reader.rows_by_key(source, &keys.into_iter().collect::<Vec<_>>()).await?;
        self.reader = Some(reader);
        Ok(rows.into_iter().map(|row| (source.key(&row).to_owned(), row)).collect())
    }

    async fn not_read(&mut self, store: &Writer, term: &Term, name: &str, e: &Error) -> Result<()> {
        tracing::warn!(source = name, error = %e, "the source rows of candidates cannot be read");
        self.read.remove(name);
        self.unreadable.insert(name.to_owned(), Instant::now() + UNREADABLE_PAUSE.min(term.config.lease_ttl));
        let detail =
            json!({ "source": name, "problem": e.to_string(), "meaning": "its candidates stay pending" });
        let key = format!("source_unreadable:{name}:gate");
        let finding = Finding { kind: "source_unreadable", key, severity: Severity::High, detail };
        store.sustain(&finding, UNREADABLE_EVERY).await
    }

    async fn readable(&mut self, store: &Writer, name: &str) -> Result<()> {
        self.unreadable.remove(name);
        if self.read.insert(name.to_owned()) {
            store.resolve(&format!("source_unreadable:{name}:gate"), "readable again").await?;
        }
        Ok(())
    }
}

/// How much was looked at: a page of a walk counts, even if none of its candidates is of the source.
fn read_of(candidates: usize, walk: Option<&Walk>) -> u64 {
    let candidates = candidates as u64;
    if walk.is_some_and(|walk| !walk.ends) { candidates.max(1) } else { candidates }
}
