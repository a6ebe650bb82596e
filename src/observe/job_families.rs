//! The metrics of the job queue: lanes, subscriptions, and the queue as a whole.

use crate::core::exposition::Type::{Counter, Gauge};
use crate::core::exposition::Value::{Real, Whole};
use crate::core::exposition::{Family, Value};
use crate::store::job_metrics::{JobReading, LaneReading, SubscriptionReading};

pub(super) fn families(jobs: &JobReading) -> Vec<Family> {
    let mut families = lanes(&jobs.lanes);
    families.extend(subscriptions(&jobs.subscriptions));
    families.extend([
        Family::of(
            Whole(i64::try_from(jobs.lanes.len()).unwrap_or(i64::MAX)),
            "gov_handoff_job_lanes",
            Gauge,
            "Lanes of jobs that are shown: 500 at most, those with most ready jobs.",
        ),
        Family::of(
            Whole(jobs.deferred),
            "gov_handoff_jobs_deferred",
            Gauge,
            "Jobs that wait for their start or their next attempt, counted to 10000 at most.",
        ),
        Family::of(
            Whole(jobs.overdue),
            "gov_handoff_jobs_overdue",
            Gauge,
            "Jobs whose deadline passed before they ended, counted to 10000 at most.",
        ),
        Family::of(
            Whole(jobs.dead_letters),
            "gov_handoff_job_dead_letters_open",
            Gauge,
            "Jobs that are dead letters and that nobody has decided about, counted to 10000 at most.",
        ),
    ]);
    families
}

fn lanes(lanes: &[LaneReading]) -> Vec<Family> {
    let each = |name, help, value: &dyn Fn(&LaneReading) -> Option<Value>| {
        lanes.iter().fold(Family::new(name, Gauge, help), |family, lane| {
            let [executor, kind, domain, priority] = lane.labels.each_ref().map(String::as_str);
            let labels = [("executor", executor), ("kind", kind), ("domain", domain), ("priority", priority)];
            family.with(&labels, value(lane))
        })
    };
    vec![
        each(
            "gov_handoff_jobs_ready",
            "Jobs that may be claimed now, each lane counted to 10000 at most.",
            &|lane| Some(Whole(lane.ready)),
        ),
        each("gov_handoff_jobs_oldest_ready_seconds", "How long the oldest ready job has waited.", &|lane| {
            // An empty lane has no oldest job. A zero keeps the series there, so that an alert can end.
            Some(Real(lane.oldest.unwrap_or(0.0)))
        }),
    ]
}

fn subscriptions(subscriptions: &[SubscriptionReading]) -> Vec<Family> {
    let each = |name, kind, help, value: &dyn Fn(&SubscriptionReading) -> i64| {
        subscriptions.iter().fold(Family::new(name, kind, help), |family, s| {
            let [executor, kind, domain] = s.labels.each_ref().map(String::as_str);
            let labels = [("executor", executor), ("kind", kind), ("domain", domain)];
            family.with(&labels, Whole(value(s)))
        })
    };
    vec![
        each("gov_handoff_executor_alive", Gauge, "1 while the executor's heartbeat is fresh.", &|s| {
            i64::from(s.alive)
        }),
        each("gov_handoff_jobs_running", Gauge, "Jobs that are leased or in progress.", &|s| s.running),
        each("gov_handoff_jobs_claimed_total", Counter, "Jobs that were claimed.", &|s| s.claimed),
        each(
            "gov_handoff_jobs_finished_total",
            Counter,
            "Claimed jobs whose executor gave them up or finished them.",
            &|s| s.finished,
        ),
        each(
            "gov_handoff_jobs_rescued_total",
            Counter,
            "Claimed jobs that were taken from a lost executor.",
            &|s| s.rescued,
        ),
    ]
}
