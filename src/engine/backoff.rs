//! Pauses that grow and are drawn at random, so that contenders do not ask at the same moments.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(128);

/// Exponential backoff with full jitter.
#[derive(Debug)]
pub(crate) struct Backoff {
    ceiling: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { ceiling: FIRST }
    }

    /// The next pause: between zero and a ceiling that doubles each time.
    pub(crate) fn next(&mut self) -> Duration {
        // Drawn from the whole range down to zero. With a fixed part, threads that collided once would
        // come back close together and collide again.
        let pause = self.ceiling.mul_f64(fastrand::f64());
        self.ceiling = (self.ceiling * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_differ() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..100).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= FIRST);
        assert!(pauses.iter().all(|&pause| pause <= LONGEST));
        assert!(pauses[10..].iter().any(|&pause| pause > LONGEST / 2));
        assert!(pauses[10..].iter().any(|&pause| pause < LONGEST / 2));
    }
}
