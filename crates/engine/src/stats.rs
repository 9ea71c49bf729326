//! What an engine has done and is doing, as plain numbers.

use std::time::Duration;

/// What an engine has done since it started, and how busy it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Requests whose reply is complete.
    pub finished: u64,
    /// Requests whose reader left before the end.
    pub cancelled: u64,
    /// Requests that ended in an error.
    pub failed: u64,
    /// Requests that found slots and queue full.
    pub refused: u64,
    /// Replies that can be under way at a time.
    pub slots: usize,
    /// Replies under way.
    pub slots_busy: usize,
    /// Requests that can wait for a slot.
    pub queue_limit: usize,
    /// Requests that wait for a slot.
    pub queue: usize,
    /// Prompt tokens that were computed. A prompt that is read again after it gave up its memory counts once.
    pub tokens_read: u64,
    /// Prompt tokens that needed no computing, as their state was kept. 0: nothing is kept yet.
    pub tokens_reused: u64,
    /// Tokens of replies.
    pub tokens_written: u64,
    /// How long steps took.
    pub step_times: StepTimes,
}

/// A histogram of the times that steps took, from the batch to the events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepTimes {
    counts: [u64; StepTimes::BOUNDS.len() + 1],
    sum: Duration,
}

impl StepTimes {
    /// Upper bounds of the classes in seconds; one more class holds whatever took longer.
    pub const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

    /// Steps in each class, one more than [`BOUNDS`](Self::BOUNDS).
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Number of steps.
    pub fn steps(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Time of all steps together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    pub(crate) fn add(&mut self, time: Duration) {
        let class = Self::BOUNDS.iter().position(|&bound| time.as_secs_f64() <= bound);
        self.counts[class.unwrap_or(Self::BOUNDS.len())] += 1;
        self.sum += time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_in_the_class_of_the_first_bound_that_it_does_not_pass() {
        let mut times = StepTimes::default();
        for micros in [0, 1000, 1001, 10_000_000, 10_000_001] {
            times.add(Duration::from_micros(micros));
        }
        assert_eq!(times.counts(), [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((times.steps(), times.sum()), (5, Duration::from_micros(20_002_002)));
    }
}
