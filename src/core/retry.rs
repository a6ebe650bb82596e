//! When failed work is retried, and when it becomes a dead letter.
//!
//! The decision is pure: the caller passes the number of failures and a random number, and carries out the decision.
//! Jitter is "full" (anywhere between zero and the bound), because workers that failed together would otherwise retry
//! together.

use std::time::Duration;

/// How often and how fast failed work is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The failure with this number is the last: the work becomes a dead letter. Zero and one both allow no retry.
    pub max_attempts: u32,
    /// The bound of the first wait.
    pub base_ms: u64,
    /// No wait is longer than this.
    pub cap_ms: u64,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAttempt {
    RetryAfter(Duration),
    DeadLetter,
}

impl RetryPolicy {
    /// The policy if `dot_config` has no usable value.
    pub const DEFAULT: Self = Self { max_attempts: 5, base_ms: 200, cap_ms: 30_000 };

    /// Decides after the failure number `attempts` (the first is 1). `jitter` is between 0 and 1; other values, NaN
    /// included, are clamped.
    pub fn next_attempt(&self, attempts: u32, jitter: f64) -> NextAttempt {
        if attempts >= self.max_attempts {
            return NextAttempt::DeadLetter;
        }
        let jitter = if jitter.is_nan() { 1.0 } else { jitter.clamp(0.0, 1.0) };
        let bound = self.bound_ms(attempts);
        // A bound beyond 2^53 is rounded as a float, possibly upwards. The minimum keeps the bound exact.
        let wait = ((bound as f64 * jitter) as u64).min(bound);
        NextAttempt::RetryAfter(Duration::from_millis(wait))
    }

    /// The longest wait after the failure number `attempts`: the base, doubled for each further failure, up to the cap.
    pub fn bound_ms(&self, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1);
        let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
        self.base_ms.saturating_mul(factor).min(self.cap_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: RetryPolicy = RetryPolicy { max_attempts: 5, base_ms: 100, cap_ms: 500 };

    #[test]
    fn the_bound_doubles_up_to_the_cap() {
        let bounds: Vec<u64> = (0..6).map(|attempts| POLICY.bound_ms(attempts)).collect();
        assert_eq!(bounds, [100, 100, 200, 400, 500, 500]);
    }

    #[test]
    fn jitter_spans_the_whole_wait() {
        assert_eq!(POLICY.next_attempt(2, 0.0), NextAttempt::RetryAfter(Duration::ZERO));
        assert_eq!(POLICY.next_attempt(2, 0.5), NextAttempt::RetryAfter(Duration::from_millis(100)));
        assert_eq!(POLICY.next_attempt(2, 1.0), NextAttempt::RetryAfter(Duration::from_millis(200)));
    }

    #[test]
    fn a_broken_random_source_waits_within_bounds() {
        for jitter in [f64::NAN, f64::INFINITY, 7.0] {
            assert_eq!(POLICY.next_attempt(1, jitter), NextAttempt::RetryAfter(Duration::from_millis(100)));
        }
        assert_eq!(POLICY.next_attempt(1, -1.0), NextAttempt::RetryAfter(Duration::ZERO));
    }

    proptest! {
        #[test]
        fn never_exceeds_the_cap(base_ms: u64, cap_ms: u64, attempts: u32, jitter: f64) {
            let policy = RetryPolicy { max_attempts: u32::MAX, base_ms, cap_ms };
            match policy.next_attempt(attempts, jitter) {
                NextAttempt::RetryAfter(wait) => prop_assert!(wait <= Duration::from_millis(cap_ms)),
                NextAttempt::DeadLetter => prop_assert_eq!(attempts, u32::MAX),
            }
        }

        #[test]
        fn the_bound_never_shrinks(base_ms: u64, cap_ms: u64, attempts in 0..200u32) {
            let policy = RetryPolicy { max_attempts: u32::MAX, base_ms, cap_ms };
            prop_assert!(policy.bound_ms(attempts) <= policy.bound_ms(attempts + 1));
        }

        #[test]
        fn dead_letters_exactly_at_the_last_attempt(max_attempts: u32, attempts: u32, jitter in 0.0..=1.0) {
            let policy = RetryPolicy { max_attempts, ..POLICY };
            let dead = policy.next_attempt(attempts, jitter) == NextAttempt::DeadLetter;
            prop_assert_eq!(dead, attempts >= max_attempts);
            if let Some(before) = max_attempts.checked_sub(1) {
                prop_assert_ne!(policy.next_attempt(before, jitter), NextAttempt::DeadLetter);
            }
            prop_assert_eq!(policy.next_attempt(max_attempts, jitter), NextAttempt::DeadLetter);
        }
    }
}
