//! What the lanes of the intake share.

use crate::core::captured_by::CapturedBy;
use crate::core::handoff::Source;
use crate::core::lsn::Lsn;
use crate::daemon::lag::Looks;
use crate::daemon::pacer::Pacing;
use crate::daemon::stream_progress::StreamProgress;
use crate::daemon::term::Term;
use crate::error::Result;
use crate::store::Writer;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How long a reader of tables waits for the stream to bring the rows it has just read, before they count as missing.
const STREAM_GRACE: Duration = Duration::from_secs(2);

/// How a lane's session ended when nothing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Told to stop, or everything that is there is handled.
    Done,
    /// The sources were redefined.
    Redefined,
}

pub struct Shared {
    pub term: Arc<Term>,
    /// What is known of the stream.
    pub stream: StreamProgress,
    pub pacing: Pacing,
    pub looks: Looks,
    /// Counts redefinitions of the sources.
    pub definitions: watch::Sender<u64>,
    /// Asks the table lane for a pass now.
    pub look: Notify,
}

impl Shared {
    pub fn new(term: Arc<Term>) -> Self {
        Self {
            stream: StreamProgress::new(term.config.intent),
            pacing: Pacing::new(&term.config.pace),
            looks: Looks::default(),
            definitions: watch::Sender::new(0),
            look: Notify::new(),
            term,
        }
    }

    /// The stream may miss rows that were written before now, even if they are committed later. So the tables are
    /// read at once, and fast for as long as a transaction of now may be open.
    pub async fn not_vouched_for(&self, store: &Writer) -> Result<()> {
        let below = store.snapshot().await?.next;
        self.stream.update(|s| s.cannot_vouch(below, Instant::now()));
        self.look.notify_one();
        Ok(())
    }

    /// The rows that were just read were committed before `then`, or before now. Once the stream is past that
    /// position, it has missed every row that is still missing. False if the stream did not get there in time.
    pub async fn let_the_stream_have_them(&self, store: &Writer, then: Option<Lsn>) -> Result<bool> {
        if self.term.once {
            return Ok(true);
        }
        let then = match then {
            Some(lsn) => lsn,
            None => store.current_lsn().await?,
        };
        Ok(self.stream.passes(then, STREAM_GRACE).await)
    }

    /// Which path a row counts for when the table lane finds it.
    pub fn captured_by(&self) -> CapturedBy {
        let (once, intent) = (self.term.once, self.term.config.intent);
        self.stream.read(|stream| {
            // A single run without a stream has nothing to reconcile with: it polls.
            if once && !stream.is_streaming() { CapturedBy::Poll } else { stream.mode.keyset_capture(intent) }
        })
    }
}

/// Looks a source up by name.
pub fn named(sources: &[Arc<Source>], name: &str) -> Option<Arc<Source>> {
    sources.iter().find(|s| s.name() == name).cloned()
}
