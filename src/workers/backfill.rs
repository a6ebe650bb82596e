//! `gov_backfill_sweep`: the objects of a backlog become candidates, without a signal.
//!
//! ```text
//!   seeding ──▶ reconciling ──▶ incremental
//!   every row    every row again,   done; another look when the definition changes
//!   by key       what has no         and rows were left out
//!                candidate is marked
//! ```
//!
//! A page is a stretch of the table by key. Its rows go through the mapping of the intake and are marked by the gate of the
//! intake; the place moves in the same commit. So a sweep that is killed anywhere repeats nothing that was committed.

use crate::config::Config;
use crate::core::definition::Grain;
use crate::core::finding::Severity;
use crate::core::handoff::{Handoff, Source, Standing};
use crate::core::sweep::{Page, SweepPhase, SweepPlace};
use crate::daemon::pages::{self, PageContext, PageDone, PageWorker};
use crate::daemon::term::Term;
use crate::error::{Error, Result};
use crate::failpoint::failpoint;
use crate::handoff::mapped_row::MappedRow;
use crate::store::backlog::{BacklogSweep, Held, SweepPage};
use crate::store::findings::Finding;
use crate::store::read::{Bound, Span};
use crate::store::{Store, role};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_postgres::error::SqlState;

pub const NAME: &str = "gov_backfill_sweep";

/// How often a sweep that is done looks for sources that were registered since.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The most rows of a page.
const MOST: i64 = 5_000;
/// A page that takes too long is halved down to this; fewer rows do not take less time.
const SMALLEST: i64 = 50;

pub async fn run(config: Config, once: bool, shutdown: watch::Receiver<bool>) -> Result<()> {
    pages::run::<Sweeper>(&config, NAME, once, shutdown).await
}

/// One holding of the lease. What it knows is read again after an error.
struct Sweeper {
    current: Option<Current>,
    /// Sources that this run has done, for an operator who asks for another look at sources that are done.
    done: HashSet<String>,
    /// The size of the next page, when pages have to be smaller than usual.
    limit: i64,
    /// The session bounds its reads.
    bounded: bool,
    report: Value,
}

/// A source whose backlog is swept.
struct Current {
    source: Arc<Source>,
    sweep: BacklogSweep,
    held: Held,
    place: SweepPlace,
}

/// A page that was read and mapped, and is not committed yet.
struct ReadPage<'a> {
    /// Rows of the table, whether or not they are in the backlog.
    read: u64,
    counts: Page,
    marks: Vec<&'a Handoff>,
    /// Only objects that have no candidate are marked.
    missing_only: bool,
    /// The sweep ends with this page.
    finished: bool,
    certificate: Option<Value>,
}

impl PageWorker for Sweeper {
    type Role = role::ReadWriter;

    fn new(_: &Term) -> Self {
        Self { current: None, done: HashSet::new(), limit: MOST, bounded: false, report: Value::Null }
    }

    async fn page(&mut self, store: &mut Store, page: PageContext<'_>) -> Result<PageDone> {
        let (begun, config) = (Instant::now(), &page.term.config);
        if page.begins || !self.bounded {
            // A read of a page is an ordinary read.
            store.bound_reads(config.read_timeout).await?;
        }
        // After an error the next page has another session.
        self.bounded = false;
        let current = match self.current.take() {
            Some(current) => current,
            None => match self.next(store, config).await? {
                Some(current) => current,
                None => return Ok(PageDone::idle(0, LOOK_EVERY)),
            },
        };
        let read = self.turn(store, &page, current, begun).await;
        match read {
            Ok(rows) => {
                self.limit = (self.limit * 2).min(MOST);
                self.bounded = true;
                spread(page.term, rows, begun).await;
                Ok(PageDone::more(rows))
            }
            Err(e) if self.may_shrink(&e) => {
                tracing::info!(error = %e, rows = self.limit, "a page of the backlog is done again in smaller parts");
                Ok(PageDone::more(0))
            }
            Err(e) => Err(e),
        }
    }

    fn report(&self) -> Value {
        self.report.clone()
    }
}

impl Sweeper {
    /// Halves the page after an error that smaller pages may avoid.
    fn may_shrink(&mut self, e: &Error) -> bool {
        let too_long = e.code.as_deref() == Some(SqlState::QUERY_CANCELED.code()) && self.limit > SMALLEST;
        let poison = e.is_poison() && self.limit > 1;
        if too_long || poison {
            self.limit = (self.limit / 2).max(if poison { 1 } else { SMALLEST });
        }
        too_long || poison
    }

    /// The next source with something to do.
    async fn next(&self, store: &Store, config: &Config) -> Result<Option<Current>> {
        let mut sources = None;
        for sweep in store.sweeps(NAME).await? {
            if config.backfill.source.as_ref().is_some_and(|only| *only != sweep.source) {
                continue;
            }
            let known: Option<SweepPlace> = sweep.place.clone().and_then(|p| serde_json::from_value(p).ok());
            let known = known.filter(|place| place.boundary == sweep.boundary.to_string());
            let asked_again = config.backfill.again && !self.done.contains(&sweep.source);
            let whole = |p: &SweepPlace| p.phase == SweepPhase::Incremental && !p.left_out() && !asked_again;
            if known.as_ref().is_some_and(whole) {
                continue;
            }
            let sources = match &mut sources {
                Some(sources) => sources,
                None => sources.insert(store.registered(&config.worker).await?.sources),
            };
            let Some(source) = sources.iter().find(|s| s.name() == sweep.source) else { continue };
            let place = match known {
                Some(place) if place.phase != SweepPhase::Incremental => place,
                // Rows were left out, and may be taken now: a producer is trusted, a rule was added.
                Some(place) if asked_again || place.version != source.version.map(|v| v.to_string()) => {
                    place.again()
                }
                Some(_) => continue,
                None => SweepPlace::begin(&sweep.boundary.to_string()),
            };
            let held = store.backlog_held(sweep.boundary).await?;
            return Ok(Some(Current { source: Arc::clone(source), sweep, held, place }));
        }
        Ok(None)
    }

    /// Commits one page. Returns how many rows were read.
    async fn turn(
        &mut self,
        store: &Store,
        page: &PageContext<'_>,
        mut current: Current,
        begun: Instant,
    ) -> Result<u64> {
        let limit = paced(&page.term.config, self.limit.min(current.source.definition.batch_size.into()));
        let rows = current.read(store, limit).await?;
        failpoint("backfill_after_read");
        let read = u64::try_from(rows.len()).unwrap_or(0);
        let end = rows.last().map(|row| row.key().to_owned());
        let (mapped, counts) = current.backlog_rows(store, rows).await?;
        let marks = |h: &&Handoff| h.standing == Standing::Normal && h.rule.grain == Grain::Object;
        let marks: Vec<&Handoff> = mapped.iter().flat_map(MappedRow::handoffs).filter(marks).collect();
        let missing_only = current.place.phase == SweepPhase::Reconciling;
        let mut place = current.place.clone();
        let finished = place.advance(end, &counts);
        place.spent_ms += millis(begun);
        if finished {
            place.version = current.version();
        }
        let certificate = if finished { Some(current.certificate(store, &place).await?) } else { None };
        let done = ReadPage { read, counts, marks, missing_only, finished, certificate };
        let created = current.commit(store, page, done, &mut place).await?;
        failpoint("backfill_after_commit");
        place.created(created, missing_only);
        current.place = place;
        self.report = current.report();
        if finished {
            current.say_left_out(store).await?;
            self.done.insert(current.source.name().to_owned());
            tracing::info!(
                source = current.source.name(),
                rows = current.place.rows,
                "the backlog is seeded"
            );
        } else {
            self.current = Some(current);
        }
        Ok(read)
    }
}

impl Current {
    /// The next rows of the table, by key; none at the end of the backlog.
    async fn read(&self, store: &Store, limit: i64) -> Result<Vec<MappedRow>> {
        if self.held.rows == 0 {
            return Ok(vec![]);
        }
        let key = |id: i64| Some(Bound::Key(id.to_string()));
        let span = self.held.ids.map_or_else(Span::default, |(lo, hi)| Span { from: key(lo), to: key(hi) });
        let rows = store.rows_in_span(&self.source, &span, self.place.after.as_deref(), limit, None).await?;
        Ok(rows.iter().map(|(_, row)| MappedRow::of(Arc::clone(&self.source), row)).collect())
    }

    /// Those of the rows that are in the backlog, and what they amount to.
    async fn backlog_rows(&self, store: &Store, rows: Vec<MappedRow>) -> Result<(Vec<MappedRow>, Page)> {
        let keys: Vec<_> = rows.iter().map(MappedRow::backlog_key).collect();
        let held = store.in_boundary(self.sweep.boundary, &keys).await?;
        let mut page = Page::default();
        let rows = rows.into_iter().enumerate().filter(|(i, _)| held.contains(i));
        let rows: Vec<MappedRow> = rows.map(|(_, row)| row).collect();
        for row in &rows {
            page.rows += 1;
            if row.is_refused() {
                page.refused += 1;
            }
            for handoff in row.handoffs() {
                page.digest.add(handoff.id);
            }
            match row.handoffs().first().map(|h| h.standing) {
                Some(Standing::Untrusted) => page.untrusted += 1,
                Some(Standing::Unmapped) => page.unmapped += 1,
                _ => {}
            }
        }
        Ok((rows, page))
    }

    /// Commits a page: its marks, its counts and the place after it. Returns how many candidates it made.
    async fn commit(
        &self,
        store: &Store,
        page: &PageContext<'_>,
        mut read: ReadPage<'_>,
        place: &mut SweepPlace,
    ) -> Result<i64> {
        let mut refused = read.counts.refused;
        loop {
            let value = serde_json::to_value(&*place)?;
            let commit = SweepPage {
                source: &self.source,
                boundary: self.sweep.boundary,
                phase: place.phase.name(),
                place: &value,
                missing_only: read.missing_only,
                rows: i64::try_from(read.counts.rows).unwrap_or(0),
                refused: i64::try_from(refused).unwrap_or(0),
                begins: page.begins,
                ends: read.finished,
                certificate: read.certificate.clone(),
                marks: &read.marks,
            };
            failpoint("backfill_before_commit");
            match store.sweep_page(&page.term.lease, &commit).await {
                // The row alone is refused. It is counted and left out, so that the others go on.
                Err(e) if e.is_poison() && read.read == 1 && !read.marks.is_empty() => {
                    tracing::warn!(source = self.source.name(), error = %e.about_row(), "a row of the backlog is left out");
                    read.marks.clear();
                    refused += 1;
                    place.refuse();
                }
                committed => return committed,
            }
        }
    }

    fn version(&self) -> Option<String> {
        self.source.version.map(|version| version.to_string())
    }

    fn report(&self) -> Value {
        json!({
            "source": self.source.name(), "phase": self.place.phase.name(), "rows": self.place.rows,
            "of": self.held.rows, "candidates": self.place.candidates, "after": self.place.after,
        })
    }

    /// What the whole sweep comes to. The gate adds the time.
    async fn certificate(&self, store: &Store, place: &SweepPlace) -> Result<Value> {
        let decided = store.backlogs().await?.into_iter().find(|b| b.source == self.sweep.source);
        let held = store.backlog_held(self.sweep.boundary).await?;
        let lost = if place.repaired > 0 { json!({ "lost_candidate": place.repaired }) } else { json!({}) };
        Ok(json!({
            "source": self.source.name(), "kind": "backfill", "full": true,
            "snapshot": decided.as_ref().and_then(|d| d.snapshot.clone()),
            "lsn": decided.as_ref().and_then(|d| d.lsn.clone()),
            "boundary_rows": self.sweep.rows, "rows": place.rows, "rows_checked": place.rows,
            "candidates": place.candidates, "repaired": lost,
            // Rows of the backlog that were deleted since.
            "gone": u64::try_from(held.rows).unwrap_or(0).saturating_sub(place.rows),
            "refused": place.refused, "unmapped": place.unmapped, "untrusted": place.untrusted,
            "digest": place.digest, "duration_ms": place.spent_ms,
        }))
    }

    /// Reports rows that have no candidate, because they cannot be mapped, no rule knows them, or their producer is not
    /// trusted.
    async fn say_left_out(&self, store: &Store) -> Result<()> {
        let (place, source) = (&self.place, self.source.name());
        let key = format!("backlog_not_seeded:{source}");
        if !place.left_out() {
            store.resolve(&key, "every row of the backlog has its candidate").await?;
            return Ok(());
        }
        let detail = json!({
            "source": source, "refused": place.refused, "unmapped": place.unmapped, "untrusted": place.untrusted,
            "meaning": "rows of the backlog have no candidate: their rows cannot be mapped, no rule knows them, or their producer is not trusted; the sweep reads them again when the definition changes",
        });
        store.raise(&Finding { kind: "backlog_not_seeded", key, severity: Severity::Warning, detail }).await
    }
}

/// The size of a page: with a limited rate at most what a second allows.
fn paced(config: &Config, limit: i64) -> i64 {
    match i64::try_from(config.backfill_rate) {
        Ok(rate) if rate > 0 => limit.min(rate.max(1)),
        _ => limit,
    }
}

/// With a limited rate, waits until this many rows may have been read.
async fn spread(term: &Term, rows: u64, begun: Instant) {
    let rate = term.config.backfill_rate;
    if rate == 0 {
        return;
    }
    let due = Duration::from_micros(rows.saturating_mul(1_000_000) / rate);
    let left = due.saturating_sub(begun.elapsed());
    if !left.is_zero() {
        term.stopped_within(left).await;
    }
}

fn millis(since: Instant) -> u64 {
    since.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
}
