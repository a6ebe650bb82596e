//! Exponential backoff with jitter. The only user of the `backoff` crate, which is unmaintained: nothing else may depend
//! on it.

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff;
use std::time::Duration;

pub struct Pause(ExponentialBackoff);

impl Pause {
    /// Starts at a tenth of a second and grows to `longest`.
    #[must_use]
    pub fn up_to(longest: Duration) -> Self {
        let first = Duration::from_millis(100).min(longest);
        Self(ExponentialBackoff {
            initial_interval: first,
            current_interval: first,
            max_interval: longest,
            multiplier: 2.0,
            randomization_factor: 0.3,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        })
    }

    pub fn grow(&mut self) -> Duration {
        self.0.next_backoff().unwrap_or(self.0.max_interval)
    }

    pub fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_to_the_longest_and_starts_over() {
        let mut pause = Pause::up_to(Duration::from_secs(1));
        assert!(pause.grow() < Duration::from_millis(140));
        for _ in 0..20 {
            assert!(pause.grow() <= Duration::from_millis(1_300));
        }
        pause.reset();
        assert!(pause.grow() < Duration::from_millis(140));
    }
}
