//! Everything that is known of the stream, as one value.
//!
//! The table lane needs several of these facts at once. Whether the stream should have delivered a missing row depends
//! on the mode, on the position, and on the rows that the stream may miss. Facts that are read one after another may
//! belong to different moments. So they are one value, and only the methods below change it.

use crate::core::continuity::Continuity;
use crate::core::lsn::Lsn;
use crate::core::mode::{Intent, Mode, StreamNews};
use std::collections::BTreeSet;
use std::time::Instant;

/// Rows that the running stream may still miss: rows of transactions that were open while the publication or a table
/// was not as it should be. A slot decodes with the catalogue of that time, so the slot does not deliver these rows,
/// however late they are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsettled {
    /// The rows were written by transactions below this id.
    pub below: u64,
    /// When the last of those transactions had ended.
    pub closed_at: Option<Instant>,
}

/// What is known of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    pub mode: Mode,
    /// Counts changes of the mode.
    pub mode_changes: u64,
    /// Everything that was committed before this position is handed off by the stream. The position only grows during
    /// one stream and starts again with the next. After a restore from a backup, the server counts its log from the
    /// time of the backup. An old position would then cover rows that no reader has seen.
    pub reached: Lsn,
    /// Since when the slot has had no gap.
    pub continuous_since: Option<Instant>,
    /// When the slot was last found not to continue at the position where the daemon stopped.
    pub gap_at: Option<Instant>,
    /// Rows that the running stream may still miss; `None` when there are none.
    pub unsettled: Option<Unsettled>,
    /// The sources that the stream does not deliver at present. They are read from their tables only.
    pub unstreamed: BTreeSet<String>,
    /// Why the stream must end, if it must.
    pub objection: Option<String>,
    /// When the daemon may create a slot again, after it dropped one that was too large.
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

    /// The lanes start, for the first time or after a pause: no stream is open, and no position of the last one counts. Rows
    /// that the last stream could not vouch for may still come.
    pub fn rest(&mut self, intent: Intent) {
        let first = Self::first(intent);
        if first.mode != self.mode {
            (self.mode, self.mode_changes) = (first.mode, self.mode_changes + 1);
        }
        (self.reached, self.continuous_since) = (first.reached, first.continuous_since);
    }

    /// A new attempt to stream begins. Earlier objections do not apply to it.
    pub fn attempt(&mut self) {
        self.objection = None;
    }

    /// Sets the sources whose tables cannot be published.
    pub fn leave_out(&mut self, sources: BTreeSet<String>) {
        self.unstreamed = sources;
    }

    /// The slot was compared with the recorded position, where the stream starts. That may be before the position that
    /// the previous stream had reached. Until the server has sent that part again, the state claims less than is true,
    /// never more.
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

    /// The stream ended because of a fault. The same fault again does not change the mode.
    pub fn faulted(&mut self, reason: &str) {
        self.switch(StreamNews::Faulted { reason: reason.to_owned() });
    }

    fn switch(&mut self, news: StreamNews) {
        let mode = self.mode.clone().after(news);
        if mode != self.mode {
            (self.mode, self.mode_changes) = (mode, self.mode_changes + 1);
        }
    }

    /// Everything that was committed before `lsn` is handed off. True if the position grew.
    pub fn move_to(&mut self, lsn: Lsn) -> bool {
        let news = lsn > self.reached;
        self.reached = self.reached.max(lsn);
        news
    }

    /// The stream does not deliver everything that transactions below `below` wrote, even if they commit later. If the
    /// table lane hands such rows off, the stream did not miss them.
    pub fn cannot_vouch(&mut self, below: u64, now: Instant) {
        (self.continuous_since, self.gap_at) = (Some(now), Some(now));
        self.unsettled = Some(Unsettled { below, closed_at: None });
    }

    /// Replaces `before` by what is left of it, unless another gap has replaced it meanwhile.
    pub fn settle(&mut self, before: Unsettled, left: Option<Unsettled>) {
        if self.unsettled.is_some_and(|now| now.below == before.below) {
            self.unsettled = left;
        }
    }

    /// A table does not fit its definition: only the table lane reads its rows.
    pub fn leave_to_the_tables(&mut self, source: &str) {
        self.unstreamed.insert(source.to_owned());
    }

    /// The stream delivers this source again.
    pub fn rejoin(&mut self, source: &str) {
        self.unstreamed.remove(source);
    }

    /// The stream must end.
    pub fn object(&mut self, problem: String) {
        self.objection = Some(problem);
    }

    /// The slot is dropped because of its size, and no slot is created before `until`.
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
        // A backup was restored: its log is behind.
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
    fn after_a_pause_no_stream_is_waited_for_and_what_is_unsettled_stays() {
        let (mut state, now) = streaming_at(50);
        state.cannot_vouch(10, now);
        let before = state.mode_changes;
        state.rest(Intent::Auto);
        assert!(!state.is_streaming() && !state.brings("a"));
        assert_eq!((state.reached, state.mode_changes), (Lsn::ZERO, before + 1));
        assert_eq!((state.continuous_since, state.unsettled.map(|u| u.below)), (None, Some(10)));
        state.rest(Intent::Auto);
        assert_eq!(state.mode_changes, before + 1, "nothing has changed");
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
