//! How long an attempt may be silent before the silence means something.

use std::time::Duration;

/// How deadlines are made from a request's own limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeadlinePolicy {
    /// Judging takes at most the sum of the CPU limits times this: wall time exceeds CPU time, machines are slow.
    pub factor: f64,
    /// Waiting in the controller's queue, which serves others, too.
    pub queue_allowance: Duration,
    /// No deadline is shorter.
    pub floor: Duration,
    /// No deadline is longer.
    pub ceiling: Duration,
}

/// The two deadlines of an attempt, counted from when it is sent and from when judging is reported to have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From the POST until the finish.
    pub total: Duration,
    /// From the update `judging` until the finish.
    pub running: Duration,
}

impl DeadlinePolicy {
    /// The deadlines of one request, from its number of cases and its CPU limits for one case and for the compiler.
    pub fn deadlines(&self, cases: u32, cpu_time_ms: u32, compile_time_ms: u32) -> Deadlines {
        let cpu_ms = f64::from(cases.max(1)) * f64::from(cpu_time_ms);
        let running_ms = cpu_ms * self.factor + f64::from(compile_time_ms);
        let running = Duration::try_from_secs_f64(running_ms / 1000.0).unwrap_or(self.ceiling);
        Deadlines { total: self.bounded(running.saturating_add(self.queue_allowance)), running: self.bounded(running) }
    }

    fn bounded(&self, deadline: Duration) -> Duration {
        deadline.max(self.floor).min(self.ceiling)
    }
}
