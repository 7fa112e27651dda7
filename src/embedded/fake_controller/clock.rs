//! The controller's own clock, which may be off, and the `Date` header that shows it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 on a clock that is `skew` milliseconds ahead of this machine's.
pub(super) fn unix_milliseconds(skew: i64) -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX).saturating_add(skew)
}

/// A number of seconds as a duration; what is no duration counts as none.
pub(super) fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

/// The text of the `Date` header, written anew only when the second changes.
#[derive(Default)]
pub(super) struct DateText {
    second: i64,
    text: String,
}

impl DateText {
    /// The text for this moment.
    pub(super) fn at(&mut self, unix_milliseconds: i64) -> &str {
        let second = unix_milliseconds.div_euclid(1000);
        if self.text.is_empty() || self.second != second {
            let moment = chrono::DateTime::from_timestamp(second, 0).unwrap_or_default();
            self.text = moment.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
            self.second = second;
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_written_as_in_the_recorded_traffic() {
        let mut date = DateText::default();
        assert_eq!(date.at(1_796_031_074_484), "Mon, 30 Nov 2026 09:31:14 GMT");
        assert_eq!(date.at(1_796_031_075_000), "Mon, 30 Nov 2026 09:31:15 GMT");
    }

    #[test]
    fn a_number_that_is_no_duration_counts_as_none() {
        assert_eq!(seconds(-1.0), Duration::ZERO);
        assert_eq!(seconds(f64::NAN), Duration::ZERO);
        assert_eq!(seconds(0.25), Duration::from_millis(250));
    }
}
