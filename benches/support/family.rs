//! What the rest of the family costs the intake: the distance from commit to handoff with every worker beside it, and with the
//! feed, each against the same without; and the memory of one process with all workers.
//!
//! The runs alternate, and the lowest median of each kind counts. So a minute in which the machine was busy decides nothing.

use crate::support::latency::steadily;
use crate::support::options::Options;
use crate::support::report::{Goal, Report};
use crate::support::world::World;

const INTAKE: &str = "gov_handoff_intake";
const TURNS: usize = 3;
/// The intake as it was before there was a feed: its commit gives no positions.
const NO_FEED: &str = "\
    create or replace function gov_handoff.gov_feed_signals(p_new uuid[], r_table text[], r_kind text[], r_stream text[], \
        r_severity text[], s_id uuid[], s_ref uuid[], s_rule int[], s_actor text[]) returns void language sql as ''";

pub async fn measure(world: &World, options: &Options, report: &mut Report) {
    let kinds: [(&str, &str, &str); 4] = [
        ("no_feed", INTAKE, NO_FEED),
        ("intake", INTAKE, ""),
        ("fed", "gov_handoff_intake,gov_event_feed", ""),
        ("family", "all", ""),
    ];
    let mut medians = [f64::INFINITY; 4];
    let mut resident_kib = 0;
    for turn in 0..TURNS {
        for ((name, workers, prepare), median) in kinds.iter().zip(&mut medians) {
            let database = format!("{name}_{turn}");
            let steady = steadily(world, options.seconds, &database, workers, prepare).await;
            *median = median.min(steady.p50);
            if *name == "family" {
                resident_kib = resident_kib.max(steady.resident_kib);
            }
            world.drop(&database).await;
        }
    }
    let [no_feed, intake, fed, family] = medians;
    report.add("lone row with the feed, p50", "ms", fed, no_feed, Goal::AtMost(1.2));
    report.add("p50 beside all workers", "ms", family, intake, Goal::AtMost(1.3));
    report.memory("all workers, memory", resident_kib);
}
