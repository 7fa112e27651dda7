//! What an operator sees of an actor: plain values, taken at one moment.
//!
//! They carry no handle to the actor, so reading them never waits for it.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

/// Where an actor is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActorState {
    /// Made, but it has taken no turn yet. Left by its first turn.
    Starting,
    /// It takes turns. A loop whose passes end in errors is running: an outage is no crash.
    Running,
    /// It failed and waits to be restarted.
    BackingOff,
    /// It failed more often than its policy allows and goes on at most once a minute, until it is healthy again.
    Failing,
    /// It finishes what it has and takes no new pass.
    Draining,
    /// Its loop has ended after a drain, its thread has stopped, or it was given up.
    Stopped,
}

/// How an actor failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A handler, a future, a timer or a pass of it panicked.
    Panic,
    /// It stopped itself.
    Stop,
    /// It took no turn within its hang period.
    Hang,
}

/// The last failure of an actor.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FailureStatus {
    /// How.
    pub kind: FailureKind,
    /// What it said.
    pub text: String,
    /// When, by this process's clock.
    pub at: DateTime<Utc>,
}

/// How a pass ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PassOutcome {
    /// Something was done and more may be waiting.
    Progress,
    /// There was nothing (more) to do.
    Idle,
    /// The boundary failed; the text says why.
    Error(String),
}

/// The last pass of a loop.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PassStatus {
    /// How it ended.
    pub outcome: PassOutcome,
    /// When it ended, by this process's clock.
    pub at: DateTime<Utc>,
    /// How long ago that was, in milliseconds, by a clock that never jumps.
    pub age_ms: u64,
}

/// One actor at one moment.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ActorStatus {
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: ActorState,
    /// Restarts since the process started, the ordered ones included.
    pub restarts: u64,
    /// The wait before the restart that is pending, in milliseconds.
    pub back_off_ms: Option<u64>,
    /// Its last failure, if it ever failed.
    pub last_failure: Option<FailureStatus>,
    /// Its last pass, if it runs a loop and one has ended.
    pub last_pass: Option<PassStatus>,
    /// Passes in a row that ended in an error.
    pub consecutive_errors: u64,
    /// Passes that have ended.
    pub passes: u64,
    /// Turns that it is known to have taken: one per heartbeat.
    pub turns: u64,
}
