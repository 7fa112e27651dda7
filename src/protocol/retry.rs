//! How long to wait after a failure: doubling, capped, with full jitter.
//!
//! Neither clock nor randomness: the random number comes in, the wait goes out.

use std::time::Duration;

/// Waits that double with each failure in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait after the first failure.
    pub base: Duration,
    /// No wait is longer.
    pub max: Duration,
}

impl Backoff {
    /// The longest wait after so many failures in a row; none after no failure.
    pub fn ceiling(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 2_u32.checked_pow(doublings);
        factor.and_then(|factor| self.base.checked_mul(factor)).map_or(self.max, |ceiling| ceiling.min(self.max))
    }

    /// A wait between nothing and the ceiling. `random` is uniform in [0, 1); what lies outside is moved to its border.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let share = if random.is_finite() { random.clamp(0.0, 1.0) } else { 1.0 };
        let ceiling = self.ceiling(failures);
        Duration::try_from_secs_f64(ceiling.as_secs_f64() * share).map_or(ceiling, |delay| delay.min(ceiling))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(60) };

    #[test]
    fn ceilings_double_up_to_the_cap() {
        let ceilings: Vec<u128> = (0..12).map(|failures| BACKOFF.ceiling(failures).as_millis()).collect();
        assert_eq!(ceilings, [0, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000]);
    }

    #[test]
    fn no_number_of_failures_overflows() {
        for failures in [31, 32, 33, 34, 63, 64, 65, 1_000_000, u32::MAX] {
            assert_eq!(BACKOFF.ceiling(failures), BACKOFF.max);
            assert_eq!(BACKOFF.delay(failures, 0.5), Duration::from_secs(30));
        }
        let endless = Backoff { base: Duration::MAX, max: Duration::MAX };
        assert_eq!(endless.ceiling(u32::MAX), Duration::MAX);
        assert!(endless.delay(2, 0.999_999) > Duration::MAX / 2);
        assert_eq!(endless.delay(2, 1.0), Duration::MAX);
        let patient = Backoff { base: Duration::from_nanos(1), max: Duration::MAX };
        assert_eq!(patient.ceiling(32), Duration::from_nanos(1 << 31));
    }

    #[test]
    fn a_cap_below_the_base_holds_from_the_first_failure() {
        let backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(1) };
        assert_eq!(backoff.ceiling(1), Duration::from_secs(1));
    }

    #[test]
    fn jitter_covers_the_whole_range() {
        assert_eq!(BACKOFF.delay(1, 0.0), Duration::ZERO);
        assert_eq!(BACKOFF.delay(3, 0.25), Duration::from_millis(200));
        assert_eq!(BACKOFF.delay(0, 0.9), Duration::ZERO);
        for outside in [-1.0, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(BACKOFF.delay(4, outside) <= BACKOFF.ceiling(4));
        }
    }

    proptest! {
        #[test]
        fn delays_never_exceed_their_ceiling(base in any::<Duration>(), max in any::<Duration>(), failures: u32, random in 0.0..1.0) {
            let backoff = Backoff { base, max };
            prop_assert!(backoff.ceiling(failures) <= max);
            prop_assert!(backoff.delay(failures, random) <= backoff.ceiling(failures));
            prop_assert!(backoff.ceiling(failures) <= backoff.ceiling(failures.saturating_add(1)));
        }
    }
}
