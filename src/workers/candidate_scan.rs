//! `gov_candidate_scan`: a verdict for every dirty group and its members, and the expansion of invalidations.
//!
//! ```text
//!   an open invalidation ─▶ mark the next groups of it (the first scan only)
//!   dirty groups, by key ─▶ members behind the place of the scan ─▶ core::scan ─▶ one gate, one commit
//!   none is dirty        ─▶ mark groups that are past their time; else wait
//! ```
//!
//! Several scans may share the groups: each has those whose key hashes to its number, and a lease of its own. The holder of
//! the first scan's lease says how many there are; the gate refuses a page of another division.

use crate::config::Config;
use crate::core::finding::Severity;
use crate::core::pace;
use crate::core::scan::judge;
use crate::daemon::finding_flag::Flag;
use crate::daemon::pages::{self, PageContext, PageDone, PageWorker};
use crate::daemon::term::Term;
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::store::scan::{Expanded, ScanControl, ScanLimits, Shard, Verdicts};
use crate::store::{Writer, role};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::watch;

pub const NAME: &str = "gov_candidate_scan";

/// Groups of one page. Few enough that a page takes milliseconds, and many enough that its commit does not matter.
const GROUPS: i64 = 400;
/// Members of one page, divided among its groups.
const MEMBERS: i64 = 2_000;
/// Groups that one step of an expansion reads, and groups past their time that are marked at once.
const MARKED_AT_ONCE: i32 = 5_000;
/// A storm counts as over when there was none for this long.
const CALM: Duration = Duration::from_secs(5);

/// Runs as many scans as the configuration says.
pub async fn run(config: Config, once: bool, shutdown: watch::Receiver<bool>) -> Result<()> {
    let names: Vec<_> = (1..=config.scan_shards).map(name).collect();
    if once {
        // The first scan divides the groups, so it comes first; the others take their parts after it.
        for name in &names {
            pages::run::<CandidateScan>(&config, name, true, shutdown.clone()).await?;
        }
        return Ok(());
    }
    let scans = names.iter().map(|name| pages::run::<CandidateScan>(&config, name, false, shutdown.clone()));
    try_join_all(scans).await.map(|_| ())
}

/// The name of a scan's lease: the first has no number.
fn name(number: u8) -> String {
    if number == 1 { NAME.to_owned() } else { format!("{NAME}_{number}") }
}

struct CandidateScan {
    number: i32,
    /// The key of the last group that was scanned. The next page goes on behind it, so that no group waits for others.
    after: String,
    divided: bool,
    storm: Flag,
    storm_seen: Option<Instant>,
    scanned: u64,
    shards: i32,
}

impl PageWorker for CandidateScan {
    type Role = role::Writer;

    fn new(term: &Term) -> Self {
        let worker = &term.lease.worker;
        let number = worker.rsplit_once('_').and_then(|(_, n)| n.parse().ok()).unwrap_or(1);
        let storm = Flag::new("group_invalidation_storm", worker);
        Self { number, after: String::new(), divided: false, storm, storm_seen: None, scanned: 0, shards: 1 }
    }

    async fn page(&mut self, store: &mut Writer, page: PageContext<'_>) -> Result<PageDone> {
        let term = page.term;
        let mut control = store.scan_control().await?;
        if self.number == 1 && !self.divided {
            self.divide(store, term, &mut control).await?;
        }
        self.shards = control.shards;
        let idle = term.config.poll_interval;
        if self.number > control.shards {
            return Ok(PageDone::idle(0, idle));
        }
        let expanding = self.number == 1 && self.expand(store, term, &control).await?;
        let begun = Instant::now();
        let scanned = self.scan(store, &control, &page).await?;
        if expanding || scanned > 0 {
            // A scan that has much to do rests as long as it works: the intake comes first.
            if !term.once {
                term.stopped_within(begun.elapsed()).await;
            }
            return Ok(PageDone::more(scanned));
        }
        if control.stale {
            let shard = self.shard();
            let marked = store.mark_stale(&term.lease, shard, MARKED_AT_ONCE).await?;
            if marked > 0 {
                return Ok(PageDone::more(0));
            }
        }
        Ok(PageDone::idle(0, idle))
    }

    fn report(&self) -> Value {
        json!({ "shard": self.number, "shards": self.shards, "scanned": self.scanned })
    }
}

impl CandidateScan {
    fn shard(&self) -> Shard {
        Shard { number: self.number, of: self.shards }
    }

    /// Puts this instance's division and time to live in force.
    async fn divide(&mut self, store: &Writer, term: &Term, control: &mut ScanControl) -> Result<()> {
        let shards = i32::from(term.config.scan_shards);
        let stale_ms = i64::try_from(term.config.stale_after.as_millis()).unwrap_or(i64::MAX);
        if (control.shards, control.stale_ms) != (shards, stale_ms) {
            store.divide_scan(&term.lease, shards, stale_ms).await?;
            (control.shards, control.stale_ms) = (shards, stale_ms);
        }
        self.divided = true;
        Ok(())
    }

    /// One step of the oldest open invalidation. In a storm the expansion pauses, and nothing else does.
    async fn expand(&mut self, store: &Writer, term: &Term, control: &ScanControl) -> Result<bool> {
        if !control.invalidated {
            self.calm(store).await?;
            return Ok(false);
        }
        let begun = Instant::now();
        let Some(step) = store.expand_invalidation(&term.lease, MARKED_AT_ONCE).await? else {
            return Ok(false);
        };
        failpoint("expand_after");
        let Expanded { total, seen, marked, .. } = step;
        let positive = |n: i64| u64::try_from(n).unwrap_or(0);
        if pace::is_storm(positive(total), positive(seen), &term.config.pace) {
            self.storm_seen = Some(Instant::now());
            let detail = json!({ "worker": term.lease.worker, "marked": total, "of": seen,
                "meaning": "one handoff concerns most groups; they are scanned again at a bounded pace" });
            self.storm.set(store, Some((Severity::Warning, detail))).await?;
            if marked > 0 && !term.once {
                term.stopped_within(pace::storm_pause(begun.elapsed(), &term.config.pace)).await;
            }
        } else {
            self.calm(store).await?;
        }
        Ok(true)
    }

    async fn calm(&mut self, store: &Writer) -> Result<()> {
        if self.storm_seen.is_none_or(|at| at.elapsed() >= CALM) {
            self.storm_seen = None;
            self.storm.set(store, None).await?;
        }
        Ok(())
    }

    /// One page of groups. Returns how many there were.
    async fn scan(&mut self, store: &Writer, control: &ScanControl, page: &PageContext<'_>) -> Result<u64> {
        let size = ScanLimits { groups: GROUPS, members: MEMBERS };
        let (mut version, mut groups) = store.scan_page(&self.after, self.shard(), size).await?;
        if groups.is_empty() && !self.after.is_empty() {
            self.after.clear();
            (version, groups) = store.scan_page("", self.shard(), size).await?;
        }
        let Some(last) = groups.last().map(|group| group.key.clone()) else { return Ok(0) };
        if version != control.version {
            // The rules that were read are of another version: read both again.
            return Ok(1);
        }
        let n = groups.len();
        let judged: Vec<_> = groups.into_iter().map(|group| judge(&control.rules, version, group)).collect();
        failpoint("scan_before_put");
        let ends = i64::try_from(n).unwrap_or(GROUPS) < GROUPS && judged.iter().all(|group| group.done);
        let verdicts = Verdicts { shard: self.shard(), version, groups: &judged, begins: page.begins, ends };
        store.put_verdicts(&page.term.lease, &verdicts).await?;
        failpoint("scan_after_put");
        // A group that is larger than a page goes on at once, if it stands alone.
        if n > 1 || judged.iter().all(|group| group.done) {
            self.after = last;
        }
        self.scanned += n as u64;
        Ok(n as u64)
    }
}
