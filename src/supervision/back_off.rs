//! How long to wait after the n-th failure in a row: doubling, with jitter, never overflowing.
//!
//! It keeps no time and does not sleep.

use std::time::Duration;

/// A doubling series of ceilings.
#[derive(Clone, Debug)]
pub(super) struct BackOff {
    base: Duration,
    max: Duration,
    failures: u32,
}

impl BackOff {
    pub(super) fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: 0 }
    }

    /// The next ceiling; each is twice the one before.
    pub(super) fn next(&mut self) -> Duration {
        self.next_up_to(self.max)
    }

    /// The next ceiling under another cap, for a boundary that has been failing for long.
    pub(super) fn next_up_to(&mut self, max: Duration) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        self.base.saturating_mul(factor).min(max)
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Anywhere between nothing and the ceiling: replicas that failed together come back apart.
pub(super) fn full_jitter(ceiling: Duration) -> Duration {
    ceiling.mul_f64(rand::random::<f64>())
}

/// Anywhere in the upper half: spread out, but never at once.
pub(super) fn half_jitter(ceiling: Duration) -> Duration {
    let half = ceiling / 2;
    half + full_jitter(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(1);

    #[test]
    fn the_ceiling_doubles_up_to_its_cap_and_starts_again_after_a_reset() {
        let mut back_off = BackOff::new(BASE, MAX);
        let ceilings: Vec<u128> = (0..6).map(|_| back_off.next().as_millis()).collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1000, 1000]);
        back_off.reset();
        assert_eq!(back_off.next(), BASE);
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        let mut back_off = BackOff::new(Duration::from_secs(1 << 40), Duration::MAX);
        for _ in 0..1000 {
            back_off.next();
        }
        assert!(back_off.next() >= Duration::from_secs(1 << 40));
        assert_eq!(back_off.next_up_to(MAX), MAX);
    }

    #[test]
    fn jitter_stays_inside_its_bounds() {
        for _ in 0..1000 {
            assert!(full_jitter(MAX) <= MAX);
            assert!((MAX / 2..=MAX).contains(&half_jitter(MAX)));
        }
    }
}
