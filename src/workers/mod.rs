//! The worker family. Each worker is a name and a small file; the frame in [`daemon`](crate::daemon) does the rest.
//!
//! | worker                    | page of work                                    | effects                                        |
//! |---------------------------|-------------------------------------------------|------------------------------------------------|
//! | `gov_handoff_intake`      | rows of the sources                             | signals, captures, marks of groups and objects |
//! | `gov_backfill_sweep`      | rows of a backlog, by key                       | marks without a signal; a certificate at the end |
//! | `gov_input_gate`          | pending candidates of a source; walks over all  | accepted or rejected, with a reason; marks     |
//! | `gov_candidate_scan`      | dirty and stale groups, open invalidations      | verdicts of groups and objects, counts         |
//! | `gov_periodic_full_audit` | every source in full, then stale candidates     | repairs, certificates; candidates for the input gate |
//! | `gov_event_feed`          | events without a position                       | positions in the feed, certificates            |
//! | `gov_queue_tick`          | delayed groups, routing, escalations, jobs that are due | roll-ups, releases, recipients, events, jobs |

pub mod backfill;
pub mod candidate_scan;
pub mod event_feed;
pub mod full_audit;
pub mod input_gate;
pub mod intake;
pub mod queue_tick;

use crate::config::Config;
use crate::core::certificate::REHEARSAL;
use crate::daemon::backoff::Pause;
use crate::error::{Error, Result};
use crate::store::worker::FamilyMember;
use futures_util::future::BoxFuture;
use std::time::Instant;
use tokio::sync::watch;

type RunMember = fn(Config, bool, watch::Receiver<bool>) -> BoxFuture<'static, Result<()>>;

/// A worker of the family: its name, and how it is run.
pub struct Member {
    pub name: &'static str,
    run: RunMember,
}

/// The name of the intake, unless the configuration gives it another one.
pub const INTAKE: &str = "gov_handoff_intake";

/// A member, whose function is boxed so that all have one type.
macro_rules! member {
    ($name:expr, $run:path) => {
        Member { name: $name, run: |config, once, stop| Box::pin($run(config, once, stop)) }
    };
}

/// In the order in which a single run goes through them: each may leave work for the next.
pub const FAMILY: &[Member] = &[
    member!(INTAKE, intake::run),
    member!(backfill::NAME, backfill::run),
    member!(input_gate::NAME, input_gate::run),
    member!(candidate_scan::NAME, candidate_scan::run),
    member!(full_audit::NAME, full_audit::run),
    member!(event_feed::NAME, event_feed::feed),
    member!(queue_tick::NAME, queue_tick::tick),
];

/// The members that the configuration asks for.
pub fn asked_for(config: &Config) -> Result<Vec<&'static Member>> {
    // A selftest plays with the intake of its own shadow tables. The other workers are production's.
    if config.worker == REHEARSAL {
        return Ok(FAMILY.iter().filter(|member| member.name == INTAKE).collect());
    }
    let Some(names) = &config.workers else { return Ok(FAMILY.iter().collect()) };
    let known = |name: &String| FAMILY.iter().any(|m| m.name == name) || *name == config.worker;
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<_> = FAMILY.iter().map(|member| member.name).collect();
        return Err(Error::config(format!("unknown worker {unknown}; known are {}", all.join(", "))));
    }
    let is_asked =
        |m: &&Member| names.iter().any(|name| *name == m.name || m.name == INTAKE && *name == config.worker);
    Ok(FAMILY.iter().filter(is_asked).collect())
}

/// The sessions of the intake at most: its keeper, its lanes with the readers and writers that they open, the replication
/// role's.
const OF_THE_INTAKE: usize = 9;
/// The sessions of another worker at most: its keeper's, its lane's, and one that reads sources.
const OF_ANOTHER: usize = 3;

/// How many connections one process takes at most with the workers that the configuration asks for.
pub fn connections(config: &Config) -> Result<usize> {
    let of = |member: &&Member| match member.name {
        INTAKE => OF_THE_INTAKE,
        candidate_scan::NAME => OF_ANOTHER * usize::from(config.scan_shards),
        _ => OF_ANOTHER,
    };
    Ok(asked_for(config)?.iter().map(of).sum())
}

/// Whether the configuration asks for the worker of this name.
#[must_use]
pub fn is_asked_for(config: &Config, worker: &str) -> bool {
    let is = |m: &&Member| if m.name == INTAKE { worker == config.worker } else { worker == m.name };
    asked_for(config).is_ok_and(|members| members.iter().any(is))
}

/// Adds the members of the family that have never ticked.
pub fn complete(config: &Config, members: &mut Vec<FamilyMember>) {
    for member in FAMILY {
        let name = if member.name == INTAKE { &config.worker } else { member.name };
        if members.iter().all(|there| there.worker != name) {
            members.push(FamilyMember::that_never_ran(name));
        }
    }
}

/// Runs the workers that the configuration asks for: all at once until `shutdown` turns true, or with `once` one after the
/// other until each has nothing left to do. A single run returns the first error, after every worker has had its turn.
///
/// A fault of one worker stops no other: the worker is started again, with backoff. The exception is a fault of the intake
/// that no retry can mend, such as a setting that cannot work. It ends the process, so that the service manager shows it.
pub async fn run(config: Config, once: bool, mut shutdown: watch::Receiver<bool>) -> Result<()> {
    let members = asked_for(&config)?;
    if once {
        let mut outcome = Ok(());
        for member in members {
            if !*shutdown.borrow() {
                let ran = (member.run)(config.clone(), true, shutdown.clone()).await;
                outcome = outcome.and(ran);
            }
        }
        return outcome;
    }
    let (stop, told) = watch::channel(false);
    let mut tasks = tokio::task::JoinSet::new();
    for member in members {
        tasks.spawn(keep_running(member, config.clone(), told.clone()));
    }
    let mut outcome = Ok(());
    loop {
        tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop), if !*stop.borrow() => {
                let _ = stop.send(true);
            }
            ended = tasks.join_next() => match ended {
                None => return outcome,
                Some(Ok(Ok(()))) => {}
                // The first error is the cause; the others drain and end.
                Some(Ok(Err(e))) => {
                    outcome = outcome.and(Err(e));
                    let _ = stop.send(true);
                }
                Some(Err(e)) => {
                    outcome = outcome.and(Err(Error::new(crate::error::Kind::Internal, e.to_string())));
                    let _ = stop.send(true);
                }
            }
        }
    }
}

/// Starts a worker again that ended with an error, until told to stop.
async fn keep_running(member: &'static Member, config: Config, told: watch::Receiver<bool>) -> Result<()> {
    let mut pause = Pause::up_to(config.lease_ttl);
    let mut stop = told.clone();
    loop {
        let begun = Instant::now();
        match (member.run)(config.clone(), false, told.clone()).await {
            Err(e) if member.name != INTAKE => {
                tracing::error!(worker = member.name, error = %e.told(), "the worker failed, starting it again");
            }
            ended => return ended,
        }
        if begun.elapsed() > config.lease_ttl {
            pause.reset();
        }
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
            () = tokio::time::sleep(pause.grow()) => {}
        }
    }
}
