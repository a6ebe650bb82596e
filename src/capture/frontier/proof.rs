//! What is known about one source's completeness: when it was certified, what that cost, what was repaired since.

use super::PassSeen;
use crate::capture::reconcile::Repairs;
use crate::capture::shared::Shared;
use crate::config::Config;
use crate::core::certificate::{Certificate, REHEARSAL};
use crate::core::conservation::{Conservation, Ledger};
use crate::core::finding::Severity;
use crate::core::frontier::Distrust;
use crate::core::handoff::Source;
use crate::core::repair::Reason;
use crate::error::Result;
use crate::failpoint::failpoint;
use crate::store::Writer;
use crate::store::findings::Finding;
use serde_json::json;
use std::time::{Duration, Instant};

/// A certificate that says nothing new goes to the history this often.
const QUIET_HISTORY: Duration = Duration::from_secs(3600);
/// The pause between passes is at least this many times the cost of a pass, so that a huge table is not scanned back
/// to back.
const DUTY: u32 = 20;

#[derive(Default)]
pub struct Proof {
    pub repairs: Repairs,
    certified_at: Option<Instant>,
    history_at: Option<Instant>,
    /// How long the last pass took.
    cost: Duration,
    ledger: Ledger,
}

impl Proof {
    pub fn is_due(&self, config: &Config) -> bool {
        self.due_in(config).is_zero()
    }

    /// How long until the next certificate.
    pub fn due_in(&self, config: &Config) -> Duration {
        let pause = self.pause(config);
        self.certified_at.map_or(Duration::ZERO, |at| pause.saturating_sub(at.elapsed()))
    }

    /// Due for so long, in a session that began at `begun`, that it goes before the reading of rows.
    pub fn is_overdue(&self, config: &Config, begun: Instant) -> bool {
        self.certified_at.unwrap_or(begun).elapsed() >= self.pause(config) * 2
    }

    fn pause(&self, config: &Config) -> Duration {
        config.certify_interval.max(self.cost * DUTY)
    }

    /// A pass over the source has ended.
    pub(super) fn ended(&mut self, cost: Duration) {
        self.cost = cost;
        self.repairs.looked();
    }

    /// Rows that vanish from a source, or come again under the same ids, are a finding: a row that comes again is
    /// absorbed. Only an operator can tell that the cause is gone, so only an operator resolves it.
    pub(super) async fn conserve(&mut self, store: &Writer, source: &Source, seen: &PassSeen) -> Result<()> {
        // Right after a table was rewritten, an older snapshot may show no row at all. The next pass counts the rows.
        let Some(found) = seen.counted.as_ref().filter(|_| seen.full != Some(Distrust::AnotherTable)) else {
            return Ok(());
        };
        if !self.ledger.enter(found) {
            return Ok(());
        }
        let Conservation { handed_off, rows, highest_handed_off, highest, .. } = found;
        tracing::warn!(source = source.name(), handed_off, rows, "rows that were handed off are gone");
        let key = format!("source_not_conserved:{}", source.name());
        let detail = json!({
            "source": source.name(), "handed_off": handed_off, "rows": rows,
            "highest_handed_off": highest_handed_off, "highest": highest,
            "meaning": "rows were deleted or their ids will come again; a row under an id that was handed off is absorbed",
        });
        let severity = Severity::Warning;
        store.raise(&Finding { kind: "source_not_conserved", key, severity, detail }).await
    }

    /// Leaves a certificate of a complete pass.
    pub(super) async fn certify(
        &mut self,
        shared: &Shared,
        store: &Writer,
        source: &Source,
        seen: &PassSeen,
    ) -> Result<()> {
        let worker = &shared.term.config.worker;
        let certificate = self.certificate(source, seen);
        let news = certificate.rows_checked > 0 || certificate.repaired_total() > 0;
        // The certificates of a selftest prove nothing about production.
        let history =
            worker != REHEARSAL && (news || self.history_at.is_none_or(|at| at.elapsed() > QUIET_HISTORY));
        failpoint("before_certificate");
        store.put_certificate(&shared.term.lease, worker, &certificate, history, source.version).await?;
        // A certificate without a miss resolves the finding, but only if the stream was running and could have missed
        // a row.
        if seen.passed && certificate.repaired.get(&Reason::MissedByStream).is_none_or(|n| *n == 0) {
            let key = format!("handoff_missed:{}", source.name());
            store.resolve(&key, "certified without a miss").await?;
        }
        self.certified_at = Some(Instant::now());
        self.repairs.repaired.clear();
        if history {
            self.history_at = Some(Instant::now());
        }
        Ok(())
    }

    fn certificate(&self, source: &Source, seen: &PassSeen) -> Certificate {
        let PassSeen { snapshot, full, .. } = seen;
        Certificate {
            source: source.name().to_owned(),
            kind: "certify",
            full: full.is_some(),
            full_because: *full,
            since: None,
            frontier: snapshot.xmin.to_string(),
            system_identifier: snapshot.system_identifier.clone(),
            lsn: snapshot.lsn.map(|l| l.to_string()),
            taken_at: snapshot.taken_at.clone(),
            rows_checked: seen.total.seen.try_into().unwrap_or(u64::MAX),
            already_recorded: seen.recorded.try_into().unwrap_or(u64::MAX),
            backlog: seen.backlog.try_into().unwrap_or(u64::MAX),
            repaired: self.repairs.repaired.clone(),
            duplicates: None,
            digest: seen.digest,
            duration_ms: self.cost.as_millis().try_into().unwrap_or(u64::MAX),
        }
    }
}
