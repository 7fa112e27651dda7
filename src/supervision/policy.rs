//! How one actor is supervised: its limits, and the relations between them that are checked before anything starts.
//!
//! It holds no state of a running actor.

use std::time::Duration;

use super::escalation::Escalation;

/// The limits of one actor. Fill the fields, then [`checked`](Policy::checked).
#[derive(Clone, Debug)]
pub struct Policy {
    /// The actor's name in logs, status and orders; unique in its registry.
    pub name: String,
    /// Failures tolerated `within`; one more escalates.
    pub max_restarts: usize,
    /// The window in which failures count.
    pub within: Duration,
    /// An actor that takes no turn for this long is hung and is restarted.
    pub hang_after: Duration,
    /// The first wait before a restart is at most this; each further one doubles.
    pub back_off_base: Duration,
    /// No wait before a restart is longer, unless the actor went on failing under [`Escalation::BackOffToAMinute`].
    pub back_off_max: Duration,
    /// After this long without a failure the back-off starts again at its base.
    pub healthy_after: Duration,
    /// What follows when `max_restarts` is exceeded.
    pub escalation: Escalation,
    /// The pace of the actor's pass loop; without effect for an actor that spawns none.
    pub passes: PassPolicy,
}

/// The pace of a pass loop.
#[derive(Clone, Debug)]
pub struct PassPolicy {
    /// A pass that takes longer is dropped and counts as an error. Below `hang_after`.
    pub limit: Duration,
    /// The longest wait for a wake-up after a pass that found nothing to do.
    pub idle: Duration,
    /// The first wait after an error is at most this; each further one doubles.
    pub back_off_base: Duration,
    /// No wait after an error is longer, unless the error itself asks for it.
    pub back_off_max: Duration,
}

impl Default for PassPolicy {
    fn default() -> Self {
        Self {
            limit: Duration::from_secs(15),
            idle: Duration::from_millis(200),
            back_off_base: Duration::from_millis(100),
            back_off_max: Duration::from_secs(5),
        }
    }
}

/// A policy whose limits fit together; the only kind that [`supervise`](super::supervise) takes.
#[derive(Clone, Debug)]
pub struct CheckedPolicy(pub(super) Policy);

impl CheckedPolicy {
    /// The limits.
    pub fn get(&self) -> &Policy {
        &self.0
    }
}

/// Why a policy cannot work, as a sentence for the operator who set its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The loop's own limit would never be reached.
    #[error(
        "{name}: a pass may take {limit:?}, but the actor counts as hung after {hang_after:?}; the limit of a pass must be shorter"
    )]
    PassOutlivesHang {
        /// The actor.
        name: String,
        /// The limit of a pass.
        limit: Duration,
        /// The hang period.
        hang_after: Duration,
    },
    /// A limit of zero can never be met.
    #[error("{name}: {what} must be longer than zero")]
    Zero {
        /// The actor.
        name: String,
        /// The limit's name.
        what: &'static str,
    },
    /// A back-off that starts above its own cap.
    #[error("{name}: {what} starts at {base:?}, above its maximum of {max:?}")]
    BaseAboveMax {
        /// The actor.
        name: String,
        /// Which back-off.
        what: &'static str,
        /// Where it starts.
        base: Duration,
        /// Its cap.
        max: Duration,
    },
}

impl Policy {
    /// The defaults: 5 restarts in 60 s, hung after 30 s, back-off of 100 ms to 10 s, healthy again after 60 s.
    pub fn new(name: impl Into<String>, escalation: Escalation) -> Self {
        Self {
            name: name.into(),
            max_restarts: 5,
            within: Duration::from_secs(60),
            hang_after: Duration::from_secs(30),
            back_off_base: Duration::from_millis(100),
            back_off_max: Duration::from_secs(10),
            healthy_after: Duration::from_secs(60),
            escalation,
            passes: PassPolicy::default(),
        }
    }

    /// Checks that the limits fit together, or says in a sentence which do not.
    pub fn checked(self) -> Result<CheckedPolicy, PolicyError> {
        for (what, limit) in [("hang_after", self.hang_after), ("the limit of a pass", self.passes.limit)] {
            if limit.is_zero() {
                return Err(PolicyError::Zero { name: self.name, what });
            }
        }
        if self.passes.limit >= self.hang_after {
            let (limit, hang_after) = (self.passes.limit, self.hang_after);
            return Err(PolicyError::PassOutlivesHang { name: self.name, limit, hang_after });
        }
        let back_offs = [
            ("the back-off before a restart", self.back_off_base, self.back_off_max),
            ("the back-off after an error", self.passes.back_off_base, self.passes.back_off_max),
        ];
        for (what, base, max) in back_offs {
            if base > max {
                return Err(PolicyError::BaseAboveMax { name: self.name, what, base, max });
            }
        }
        Ok(CheckedPolicy(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy::new("outbox-poller", Escalation::EndProcess)
    }

    #[test]
    fn the_defaults_fit_together() {
        policy().checked().expect("the defaults are a valid policy");
    }

    #[test]
    fn a_pass_that_may_outlive_the_hang_period_is_refused_with_a_sentence() {
        let mut policy = policy();
        policy.passes.limit = policy.hang_after;
        let refusal = policy.checked().expect_err("equal is too long").to_string();
        assert_eq!(
            refusal,
            "outbox-poller: a pass may take 30s, but the actor counts as hung after 30s; the limit of a pass must be shorter"
        );
    }

    #[test]
    fn limits_of_zero_and_back_offs_above_their_cap_are_refused() {
        let zero = Policy { hang_after: Duration::ZERO, ..policy() };
        assert!(matches!(zero.checked(), Err(PolicyError::Zero { what: "hang_after", .. })));
        let above = Policy { back_off_base: Duration::from_secs(11), ..policy() };
        assert!(matches!(above.checked(), Err(PolicyError::BaseAboveMax { .. })));
    }
}
