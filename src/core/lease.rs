//! The lease: one instance per worker may write. The decision uses only the database's state and clock.
//!
//! ```text
//!             claimed: a new term
//!   ┌──────────┐ ─────────────▶ ┌──────────────────┐ ──┐ renewed, and every effect fenced:
//!   │ standing │                │ leading { term } │   │ owner and term match, and the lease
//!   │ by       │ ◀───────────── │                  │ ◀─┘ is fresh
//!   └──────────┘ resigned; or   └──────────────────┘
//!    │   ▲       expired, or taken over: batches
//!    └───┘       in flight are rejected
//!    another holds it: wait, and look again
//! ```
//!
//! `daemon::standby::seek` stands by and `daemon::supervisor` leads. The one that runs is the state of the instance.
//! [`decide`] says what an instance that stands by does next.
//!
//! The lease of a killed holder is free at once, because its sessions are gone (`gov_lease_claim`). A holder that hangs
//! or cannot be reached keeps the lease until it expires. A decision is only an intention: the statement that carries
//! it out checks owner and term again. So an instance that acts on an old view fails and never writes beside the new
//! holder. An expired lease is lost even if no other instance wants it. Its holder may have been stopped for hours, and
//! its batches in flight are older than they look. The holder stands by and claims the lease again.

use std::time::Duration;

/// The lease as the database shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    pub owner: Option<String>,
    pub term: i64,
    /// The time since the owner's last tick, by the database's clock. The clocks of two instances need not agree.
    pub age: Duration,
    pub ttl: Duration,
}

impl LeaseView {
    /// The lease belongs to its owner for the whole TTL. At the end of the TTL any instance may claim it.
    pub fn is_expired(&self) -> bool {
        self.age >= self.ttl
    }
}

/// What to attempt next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseDecision {
    /// Try to become the owner, under the next term.
    Claim,
    /// Tick as the owner.
    Renew,
    /// Another instance holds the lease; look again after this time.
    Wait(Duration),
}

/// The shortest timeout: with less, a slow server would be taken for a dead one.
const SOONEST: Duration = Duration::from_secs(1);
/// A standby loses nothing by asking again, so it waits at most this long for the first answer.
const LATEST: Duration = Duration::from_secs(5);

/// How long a claim waits for a session and for each answer. It waits no longer than the lease lasts: while a standby
/// waits on a dead connection, a lease that comes free would stay unused. A slow server must be able to answer in the
/// end, so each `unanswered` claim doubles the wait, up to [`statement_patience`]. A claim that was abandoned but
/// carried out does no harm: the next claim has the same owner and finds the lease held.
pub fn claim_patience(ttl: Duration, unanswered: u32) -> Duration {
    let first = ttl.clamp(SOONEST, LATEST);
    first.saturating_mul(1 << unanswered.min(8)).min(statement_patience(ttl))
}

/// How long the keeper waits for an answer: until the lease ends. After that any instance may claim the lease, and the
/// answer is worthless. It does not wait less, because an open session shows other instances that the holder is alive.
pub fn keeper_patience(ttl: Duration) -> Duration {
    ttl.max(SOONEST)
}

/// How long the daemon waits for any other statement: a large batch takes its time, and so does the first statement
/// after a crash recovery.
pub fn statement_patience(ttl: Duration) -> Duration {
    ttl.max(LATEST)
}

/// How long a writer waits for a batch, after the server has ended `ended` batches by timeout. A batch that takes
/// longer than the lease does not mean a dead server: the keeper renews the lease meanwhile, and the fence is checked
/// last. With the same timeout the batch would be ended again, indefinitely. So each attempt gets twice the time of the
/// one before.
#[must_use]
pub fn writer_patience(ttl: Duration, ended: u32) -> Duration {
    const MOST: Duration = Duration::from_secs(600);
    let usual = statement_patience(ttl);
    usual.saturating_mul(1 << ended.min(10)).min(MOST.max(usual))
}

/// A standby notices a resignation or a killed holder within this time, however long the lease would have lasted.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Decides from one view of the lease. An expired lease is claimed even by its own holder: the claim gives it a new
/// term. The new term fences off everything that this instance still has in flight from before.
pub fn decide(view: &LeaseView, me: &str) -> LeaseDecision {
    match view.owner.as_deref() {
        None => LeaseDecision::Claim,
        Some(_) if view.is_expired() => LeaseDecision::Claim,
        Some(owner) if owner == me => LeaseDecision::Renew,
        Some(_) => LeaseDecision::Wait((view.ttl - view.age).min(view.ttl / 3).min(LOOK_AGAIN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view(owner: Option<&str>, age: u64, ttl: u64) -> LeaseView {
        let (age, ttl) = (Duration::from_millis(age), Duration::from_millis(ttl));
        LeaseView { owner: owner.map(str::to_owned), term: 7, age, ttl }
    }

    #[test]
    fn a_batch_that_was_ended_gets_twice_the_time_up_to_minutes() {
        let seconds = |ttl, ended| writer_patience(Duration::from_secs(ttl), ended).as_secs();
        assert_eq!([0, 1, 2, 3, 9, 99].map(|ended| seconds(15, ended)), [15, 30, 60, 120, 600, 600]);
        assert_eq!(seconds(900, 5), 900, "but never less than usual");
    }

    #[test]
    fn a_free_lease_is_claimed() {
        assert_eq!(decide(&view(None, 0, 30), "a"), LeaseDecision::Claim);
    }

    #[test]
    fn an_expired_lease_is_claimed_by_anyone_its_owner_included() {
        for me in ["a", "b"] {
            assert_eq!(decide(&view(Some("a"), 30, 30), me), LeaseDecision::Claim);
        }
    }

    #[test]
    fn the_owner_renews() {
        assert_eq!(decide(&view(Some("a"), 29, 30), "a"), LeaseDecision::Renew);
    }

    #[test]
    fn a_standby_waits_no_longer_than_the_lease_lasts() {
        assert_eq!(decide(&view(Some("a"), 0, 30), "b"), LeaseDecision::Wait(Duration::from_millis(10)));
        assert_eq!(decide(&view(Some("a"), 25, 30), "b"), LeaseDecision::Wait(Duration::from_millis(5)));
    }

    #[test]
    fn a_claim_waits_about_a_lease_and_longer_each_time_it_was_not_answered() {
        let waits = |ttl, unanswered| claim_patience(Duration::from_millis(ttl), unanswered).as_millis();
        assert_eq!(
            [waits(100, 0), waits(1_000, 0), waits(3_000, 0), waits(15_000, 0)],
            [1_000, 1_000, 3_000, 5_000]
        );
        assert_eq!([waits(1_000, 1), waits(1_000, 2), waits(1_000, 3)], [2_000, 4_000, 5_000]);
        assert_eq!([waits(15_000, 1), waits(15_000, 2), waits(15_000, u32::MAX)], [10_000, 15_000, 15_000]);
    }

    proptest! {
        #[test]
        fn nobody_claims_a_fresh_lease_and_one_at_most_renews(
            owner in "[abc]", me in "[abc]", other in "[abc]", ttl in 1..u64::MAX, age: u64,
        ) {
            prop_assume!(me != other);
            let view = view(Some(&owner), age % ttl, ttl);
            let decisions = [decide(&view, &me), decide(&view, &other)];
            prop_assert!(!decisions.contains(&LeaseDecision::Claim));
            prop_assert!(decisions.iter().filter(|d| **d == LeaseDecision::Renew).count() <= 1);
        }

        #[test]
        fn a_wait_ends_by_the_time_the_lease_expires(ttl: u64, age: u64) {
            let view = view(Some("a"), age, ttl);
            if let LeaseDecision::Wait(wait) = decide(&view, "b") {
                prop_assert!(view.age + wait <= view.ttl);
            } else {
                prop_assert!(view.is_expired());
            }
        }
    }
}
