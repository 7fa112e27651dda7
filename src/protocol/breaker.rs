//! When to stop knocking at the controller's door, and when to try again. Time comes in as an argument.

use std::time::{Duration, Instant};

use super::retry::Backoff;

/// What a POST's answer says of the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knock {
    /// The controller took the job, or spoke of the row: the door is open.
    Open,
    /// The door is shut; the controller may have said for how long.
    Shut(Option<Duration>),
    /// Nobody knows.
    Unknown,
}

/// Unknown outcomes in a row, without one that was taken, that shut the door.
const UNKNOWN_IN_A_ROW_MAX: u32 = 5;
/// The controller's own wish is obeyed up to here.
const WISH_MAX: Duration = Duration::from_secs(300);

/// The breaker of one process.
#[derive(Clone, Debug)]
pub struct Breaker {
    backoff: Backoff,
    /// Openings in a row; 0 while closed.
    openings: u32,
    unknown_in_a_row: u32,
    /// Nothing is sent before this.
    shut_until: Option<Instant>,
    /// A probe is on its way and has not been answered.
    probing: bool,
}

/// How much may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Whatever there are permits for.
    Any,
    /// One submission, to see whether the door is open again; another one each time.
    OneProbe,
    /// Nothing, for this long at least.
    Nothing(Duration),
}

impl Breaker {
    /// A closed breaker whose pauses grow by `backoff`.
    pub fn new(backoff: Backoff) -> Breaker {
        Breaker { backoff, openings: 0, unknown_in_a_row: 0, shut_until: None, probing: false }
    }

    /// Is the door taken for shut?
    pub fn is_shut(&self) -> bool {
        self.openings > 0
    }

    /// What may be sent now.
    pub fn allowance(&self, now: Instant) -> Allowance {
        match self.shut_until {
            _ if self.openings == 0 => Allowance::Any,
            Some(until) if until > now => Allowance::Nothing(until - now),
            _ if self.probing => Allowance::Nothing(Duration::from_millis(100)),
            _ => Allowance::OneProbe,
        }
    }

    /// A probe was sent.
    pub fn probe_sent(&mut self) {
        self.probing = true;
    }

    /// A probe came to nothing before it was sent.
    pub fn probe_dropped(&mut self) {
        self.probing = false;
    }

    /// Learns from an answer. `random` in [0, 1) spreads the pauses of several processes.
    pub fn learn(&mut self, knock: Knock, now: Instant, random: f64) {
        self.probing = false;
        match knock {
            Knock::Open => *self = Breaker::new(self.backoff),
            Knock::Unknown if self.openings == 0 && self.unknown_in_a_row + 1 < UNKNOWN_IN_A_ROW_MAX => {
                self.unknown_in_a_row += 1;
            }
            Knock::Unknown => self.shut(None, now, random),
            Knock::Shut(wish) => self.shut(wish, now, random),
        }
    }

    /// Answers that were under way when the door was shut do not shut it again.
    fn shut(&mut self, wish: Option<Duration>, now: Instant, random: f64) {
        if self.shut_until.is_some_and(|until| until > now) {
            return;
        }
        let ceiling = self.backoff.ceiling(self.openings.saturating_add(1));
        // Between half and the whole: a full jitter would sometimes not wait at all.
        let own = ceiling.mul_f64(0.5 + random / 2.0);
        let pause = own.max(wish.unwrap_or_default().min(WISH_MAX));
        self.openings = self.openings.saturating_add(1);
        self.unknown_in_a_row = 0;
        self.shut_until = Some(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(Backoff { base: Duration::from_secs(1), max: Duration::from_secs(30) })
    }

    #[test]
    fn one_shut_door_stops_everything_until_a_probe_is_taken() {
        let (mut breaker, now) = (breaker(), Instant::now());
        breaker.learn(Knock::Shut(None), now, 0.0);
        assert!(matches!(breaker.allowance(now), Allowance::Nothing(_)));
        let later = now + Duration::from_secs(1);
        assert_eq!(breaker.allowance(later), Allowance::OneProbe);
        breaker.probe_sent();
        assert!(matches!(breaker.allowance(later), Allowance::Nothing(_)), "one probe at a time");
        breaker.learn(Knock::Open, later, 0.0);
        assert_eq!(breaker.allowance(later), Allowance::Any);
    }

    #[test]
    fn pauses_grow_and_answers_that_were_under_way_do_not_lengthen_them() {
        let (mut breaker, start) = (breaker(), Instant::now());
        breaker.learn(Knock::Shut(None), start, 0.0);
        for _ in 0..50 {
            breaker.learn(Knock::Shut(None), start, 0.0);
        }
        assert_eq!(breaker.allowance(start), Allowance::Nothing(Duration::from_millis(500)));
        let second = start + Duration::from_secs(1);
        breaker.learn(Knock::Shut(None), second, 0.0);
        assert_eq!(breaker.allowance(second), Allowance::Nothing(Duration::from_secs(1)));
    }

    #[test]
    fn the_controllers_wish_is_obeyed_up_to_a_limit() {
        let (mut breaker, now) = (breaker(), Instant::now());
        breaker.learn(Knock::Shut(Some(Duration::from_secs(86_400))), now, 0.0);
        assert_eq!(breaker.allowance(now), Allowance::Nothing(WISH_MAX));
    }

    #[test]
    fn only_a_row_of_unknown_outcomes_shuts_the_door() {
        let (mut breaker, now) = (breaker(), Instant::now());
        for _ in 1..UNKNOWN_IN_A_ROW_MAX {
            breaker.learn(Knock::Unknown, now, 0.0);
        }
        assert_eq!(breaker.allowance(now), Allowance::Any);
        breaker.learn(Knock::Open, now, 0.0);
        for _ in 0..UNKNOWN_IN_A_ROW_MAX {
            breaker.learn(Knock::Unknown, now, 0.0);
        }
        assert!(breaker.is_shut());
    }
}
