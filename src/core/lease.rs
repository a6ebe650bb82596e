//! Who may write: one instance per scope, decided from what the database says and by its clock alone.
//!
//! ```text
//!             claimed: a new term
//!   ┌──────────┐ ─────────────▶ ┌──────────────────┐ ──┐ renewed, and every effect fenced:
//!   │ standing │                │ leading { term } │   │ owner and term match, and the lease
//!   │ by       │ ◀───────────── │                  │ ◀─┘ is fresh
//!   └──────────┘ resigned; or   └──────────────────┘
//!    │   ▲       expired, or taken over: whatever
//!    └───┘       is in flight is refused
//!    another holds it: wait, and look again
//! ```
//!
//! `intake::standby::seek` stands by, `intake::lead` leads; which of the two runs is the state, and [`decide`] is what standing
//! by does next.
//!
//! A killed holder's lease is free at once, because its sessions are gone (`gov_lease_claim`); one that hangs or
//! cannot be reached keeps it until it expires. A decision is only an intention. The statement that carries it out matches
//! owner and term again, so an instance that acts on an old view loses the race instead of writing beside the winner. An expired
//! lease is lost even while nobody wants it: its holder may have been stopped for hours, and what it had in flight when it was
//! is older than it looks. It stands by, and claims it anew.

use std::time::Duration;

/// The lease as the database shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    pub owner: Option<String>,
    pub term: i64,
    /// Since the owner's last tick, by the database's clock: the clocks of two instances need not agree.
    pub age: Duration,
    pub ttl: Duration,
}

impl LeaseView {
    /// An owner is given its whole TTL; at the very end of it the lease is anyone's.
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
    /// Another owns it; look again after this long.
    Wait(Duration),
}

/// Below this a slow server is taken for a dead one.
const SOONEST: Duration = Duration::from_secs(1);
/// Whoever only waits for the lease loses nothing by asking again, so it does not wait for an answer any longer than this.
const LATEST: Duration = Duration::from_secs(5);

/// How long a claim waits: for a session, and for each answer. No longer than the lease lasts, because a lease that comes
/// free meanwhile would lie idle for as long as we listen to a dead connection. A server that is slow but alive must be
/// able to answer in the end, so each claim that went `unanswered` doubles it, up to what any statement is waited for.
/// A claim that was given up and carried out all the same does no harm: the next one has the same owner and finds it held.
pub fn claim_patience(ttl: Duration, unanswered: u32) -> Duration {
    let first = ttl.clamp(SOONEST, LATEST);
    first.saturating_mul(1 << unanswered.min(8)).min(statement_patience(ttl))
}

/// How long the holder waits for an answer to its keeper: to the end of the lease, after which it is anyone's and the answer
/// says nothing any more. Not less, because an open session tells others that we live.
pub fn keeper_patience(ttl: Duration) -> Duration {
    ttl.max(SOONEST)
}

/// How long any other statement of the daemon is waited for: a large batch takes its time, and so does a crash
/// recovery's first statement.
pub fn statement_patience(ttl: Duration) -> Duration {
    ttl.max(LATEST)
}

/// How long a writer waits for a batch, after so many that the server ended for their time. One that takes longer than a lease is
/// no sign of a dead server: the keeper renews beside it, and the fence comes last. Given the same time again it would be ended
/// again, for ever; so each gets twice as long as the one before it.
#[must_use]
pub fn writer_patience(ttl: Duration, ended: u32) -> Duration {
    const MOST: Duration = Duration::from_secs(600);
    let usual = statement_patience(ttl);
    usual.saturating_mul(1 << ended.min(10)).min(MOST.max(usual))
}

/// A resignation or a killed holder is noticed within this, however long the lease would have lasted.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Decides from one view. An expired lease is claimed even if it is ours: the claim gives it a new term, which fences off
/// whatever this instance still has in flight from before it fell silent.
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
