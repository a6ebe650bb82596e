//! Everything that is known of the stream, as one value.
//!
//! The table readers decide by several of these facts at once: whether a row that they found missing was the stream's to
//! bring depends on the mode, on the position, and on what the stream cannot vouch for. Read one after another, such facts
//! may belong to different moments. So they are one value, changed by the methods below and by nothing else.

use crate::core::continuity::Continuity;
use crate::core::lsn::Lsn;
use crate::core::mode::{Intent, Mode, StreamNews};
use std::collections::BTreeSet;
use std::time::Instant;

/// Rows that the running stream may still miss: those of transactions that were open while the publication or a table was
/// not as it should be. A slot decodes with the catalogue of the time, so they do not come through it, however late they
/// commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsettled {
    /// They were written by a transaction below this id.
    pub below: u64,
    /// When none of those transactions was open any more.
    pub closed_at: Option<Instant>,
}

/// What is known of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    pub mode: Mode,
    /// Counts changes of the mode.
    pub mode_changes: u64,
    /// The stream has handed off everything that was committed before here. It only grows while one stream lasts, and
    /// starts over with the next: a server put back from a backup counts its log from where the backup was taken, and a
    /// position of the server before it would vouch for rows that no reader has seen.
    pub reached: Lsn,
    /// Since when nothing can have passed the slot by.
    pub continuous_since: Option<Instant>,
    /// When the slot was last found not to continue where the daemon stopped.
    pub gap_at: Option<Instant>,
    /// Rows that the running stream may still miss; `None` when there are none.
    pub unsettled: Option<Unsettled>,
    /// The sources that the stream does not bring, or not now: they are read from their tables alone.
    pub unstreamed: BTreeSet<String>,
    /// Why the stream must end, if it must.
    pub objection: Option<String>,
    /// When the slot may be taken again, after it was given up for its size.
    pub rejoin_at: Option<Instant>,
}

impl StreamState {
    #[must_use]
    pub fn first(intent: Intent) -> Self {
        Self {
            mode: Mode::first(intent),
            mode_changes: 0,
            reached: Lsn::ZERO,
            continuous_since: None,
            gap_at: None,
            unsettled: None,
            unstreamed: BTreeSet::new(),
            objection: None,
            rejoin_at: None,
        }
    }

    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.mode == Mode::Streaming
    }

    /// Whether the running stream should bring the rows of this source.
    #[must_use]
    pub fn brings(&self, source: &str) -> bool {
        self.is_streaming() && !self.unstreamed.contains(source)
    }

    /// A new attempt begins; it answers for no earlier objection.
    pub fn attempt(&mut self) {
        self.objection = None;
    }

    /// The sources whose tables cannot be published.
    pub fn leave_out(&mut self, sources: BTreeSet<String>) {
        self.unstreamed = sources;
    }

    /// The slot was compared with what is durable. The stream starts where that ends, which may lie behind what the stream
    /// before it had reached: less is vouched for until the server has sent that again, never too much.
    pub fn begin(&mut self, continuity: &Continuity, now: Instant) {
        match continuity {
            Continuity::Resume(_) => self.continuous_since = self.continuous_since.or(Some(now)),
            Continuity::First(_) => self.continuous_since = Some(now),
            Continuity::Gap { .. } => (self.continuous_since, self.gap_at) = (Some(now), Some(now)),
        }
        self.reached = continuity.start();
    }

    /// The stream runs.
    pub fn started(&mut self) {
        self.switch(StreamNews::Started);
    }

    /// The stream ended by a fault. The same fault again is no news.
    pub fn faulted(&mut self, reason: &str) {
        self.switch(StreamNews::Faulted { reason: reason.to_owned() });
    }

    fn switch(&mut self, news: StreamNews) {
        let mode = self.mode.clone().after(news);
        if mode != self.mode {
            (self.mode, self.mode_changes) = (mode, self.mode_changes + 1);
        }
    }

    /// Everything that was committed before `lsn` is handed off. Whether that is news.
    pub fn move_to(&mut self, lsn: Lsn) -> bool {
        let news = lsn > self.reached;
        self.reached = self.reached.max(lsn);
        news
    }

    /// The stream does not bring everything that a transaction below `below` wrote, though it be committed later. What the
    /// tables bring of it was not missed by the stream.
    pub fn cannot_vouch(&mut self, below: u64, now: Instant) {
        (self.continuous_since, self.gap_at) = (Some(now), Some(now));
        self.unsettled = Some(Unsettled { below, closed_at: None });
    }

    /// What is left of `before`, unless another gap took its place meanwhile.
    pub fn settle(&mut self, before: Unsettled, left: Option<Unsettled>) {
        if self.unsettled.is_some_and(|now| now.below == before.below) {
            self.unsettled = left;
        }
    }

    /// A table is not as its definition says: its rows are left to the table readers.
    pub fn leave_to_the_tables(&mut self, source: &str) {
        self.unstreamed.insert(source.to_owned());
    }

    /// The stream brings this source again.
    pub fn rejoin(&mut self, source: &str) {
        self.unstreamed.remove(source);
    }

    /// The stream must end.
    pub fn object(&mut self, problem: String) {
        self.objection = Some(problem);
    }

    /// The slot is given up for its size, and not taken again before `until`.
    pub fn give_up(&mut self, until: Instant, problem: String) {
        (self.rejoin_at, self.objection) = (Some(until), Some(problem));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn streaming_at(lsn: u64) -> (StreamState, Instant) {
        let (mut state, now) = (StreamState::first(Intent::Auto), Instant::now());
        state.begin(&Continuity::First(lsn.into()), now);
        state.started();
        (state, now)
    }

    #[test]
    fn the_position_never_goes_back_within_a_stream_and_starts_over_with_the_next() {
        let (mut state, now) = streaming_at(50);
        assert!(state.move_to(70.into()));
        assert!(!state.move_to(60.into()));
        assert_eq!(state.reached, 70.into());
        // A backup was put back: its log is behind.
        state.begin(&Continuity::Gap { start: 20.into(), reason: "behind".to_owned() }, now);
        assert_eq!(state.reached, 20.into());
        assert!(state.move_to(30.into()));
    }

    #[test]
    fn the_same_fault_again_is_no_news() {
        let (mut state, _) = streaming_at(1);
        let before = state.mode_changes;
        state.faulted("no slot");
        state.faulted("no slot");
        assert_eq!(state.mode_changes, before + 1);
        state.faulted("no server");
        state.started();
        assert_eq!(state.mode_changes, before + 3);
    }

    #[test]
    fn a_resumed_stream_is_continuous_since_the_first_and_a_gap_is_not() {
        let (mut state, first) = streaming_at(1);
        let later = first + Duration::from_secs(1);
        state.begin(&Continuity::Resume(5.into()), later);
        assert_eq!((state.continuous_since, state.gap_at), (Some(first), None));
        state.begin(&Continuity::Gap { start: 9.into(), reason: "lost".to_owned() }, later);
        assert_eq!((state.continuous_since, state.gap_at), (Some(later), Some(later)));
    }

    #[test]
    fn a_gap_that_another_replaced_is_not_settled() {
        let (mut state, now) = streaming_at(1);
        state.cannot_vouch(10, now);
        let first = state.unsettled.expect("just said");
        state.cannot_vouch(20, now);
        state.settle(first, None);
        assert_eq!(state.unsettled.map(|u| u.below), Some(20));
        state.settle(Unsettled { below: 20, closed_at: None }, None);
        assert_eq!(state.unsettled, None);
    }

    #[test]
    fn only_a_running_stream_brings_a_source_and_not_one_that_it_leaves_out() {
        let (mut state, _) = streaming_at(1);
        state.leave_to_the_tables("a");
        assert!(!state.brings("a") && state.brings("b"));
        state.rejoin("a");
        assert!(state.brings("a"));
        state.faulted("gone");
        assert!(!state.brings("b"));
    }
}
