//! When a failing boundary is worth a log line: when it begins, once a minute while it lasts, when it ends.
//!
//! It does not log and reads no clock; the caller does both.

use std::time::{Duration, Instant};

/// While an outage lasts, one line per this period reminds of it.
const REMINDER: Duration = Duration::from_secs(60);

/// The errors in a row of one pass loop.
#[derive(Debug, Default)]
pub(super) struct Outage {
    errors: u64,
    said_at: Option<Instant>,
}

/// What is worth saying about the pass that just ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    Nothing,
    Begins,
    /// With the number of errors in a row.
    Lasts(u64),
    /// With the number of errors that were in a row.
    Recovered(u64),
}

impl Outage {
    /// Errors in a row up to now.
    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    pub(super) fn failed(&mut self, now: Instant) -> Announcement {
        self.errors += 1;
        match self.said_at {
            None => {
                self.said_at = Some(now);
                Announcement::Begins
            }
            Some(said_at) if now.duration_since(said_at) >= REMINDER => {
                self.said_at = Some(now);
                Announcement::Lasts(self.errors)
            }
            Some(_) => Announcement::Nothing,
        }
    }

    pub(super) fn succeeded(&mut self) -> Announcement {
        match std::mem::take(self).errors {
            0 => Announcement::Nothing,
            errors => Announcement::Recovered(errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_a_thousand_errors_in_three_minutes_is_four_lines() {
        let mut outage = Outage::default();
        let start = Instant::now();
        let mut said: Vec<Announcement> = (0..1000)
            .map(|nth| outage.failed(start + Duration::from_millis(150 * nth)))
            .filter(|announcement| *announcement != Announcement::Nothing)
            .collect();
        said.push(outage.succeeded());
        let expected =
            [Announcement::Begins, Announcement::Lasts(401), Announcement::Lasts(801), Announcement::Recovered(1000)];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_success_after_a_success_says_nothing_and_a_new_outage_begins_again() {
        let mut outage = Outage::default();
        let now = Instant::now();
        assert_eq!(outage.succeeded(), Announcement::Nothing);
        assert_eq!(outage.failed(now), Announcement::Begins);
        assert_eq!(outage.succeeded(), Announcement::Recovered(1));
        assert_eq!(outage.failed(now), Announcement::Begins);
    }
}
