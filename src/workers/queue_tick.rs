//! `gov_queue_tick`: does what becomes due in the queue, one gate after the other, each in a commit of its own.
//!
//! The gates say themselves what is due, by the clock of the database (`migrations/0022_tick.sql`). Any other session may
//! call the same gates by `fn_event_worker_tick()` at the same time; rows that one of them works on are skipped by the rest.

use crate::config::Config;
use crate::daemon::pages::{PageContext, PageDone, PageWorker, run};
use crate::daemon::term::Term;
use crate::error::Result;
use crate::store::{Writer, role};
use std::time::Duration;
use tokio::sync::watch;

pub const NAME: &str = "gov_queue_tick";

/// In the order in which they run; each may leave work for the next. A new gate is one line here, its function
/// `gov_tick_<name>`, and its name in `gov_tick_gate`.
const GATES: &[&str] = &[
    "gather",     // new pieces of the delayed lane are counted into their groups
    "delayed",    // one group that is due
    "routing",    // recipients, critical events and broadcasts of new events
    "escalation", // critical events that nobody acknowledged in time
    "jobs",       // due retries, schedules, expired leases, deadlines
];

/// The pause when nothing is due. The shortest debounce is zero, so this is how late a roll-up may be.
const PAUSE: Duration = Duration::from_millis(500);

pub async fn tick(config: Config, once: bool, stop: watch::Receiver<bool>) -> Result<()> {
    run::<QueueTick>(&config, NAME, once, stop).await
}

pub struct QueueTick;

impl PageWorker for QueueTick {
    type Role = role::Writer;

    fn new(_: &Term) -> Self {
        Self
    }

    /// One round through the gates. One that fails keeps none of the others from its turn: what fails may be due to one
    /// event or job, and is tried again in the next round.
    async fn page(&mut self, store: &mut Writer, page: PageContext<'_>) -> Result<PageDone> {
        let (mut rows, mut more, mut failed) = (0, false, Ok(()));
        for gate in GATES {
            match store.tick(&page.term.lease, gate, page.begins).await {
                Ok(ticked) => {
                    rows += ticked.done;
                    more |= ticked.more;
                }
                Err(e) => failed = failed.and(Err(e)),
            }
        }
        failed?;
        Ok(if more { PageDone::more(rows) } else { PageDone::idle(rows, PAUSE) })
    }
}
