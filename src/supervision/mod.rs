//! Supervision of the actors: what is restarted, what ends the process, and what an operator sees of it.
//!
//! It is not `actix::Supervisor`, which loses an actor, its mailbox and its queued messages at the first panic. It decides
//! nothing about the work itself: an outage is the actor's error, recorded here, and never a crash.
//!
//! An actor takes an [`ActorHandle`] when it is made by [`supervise`], spawns its [`PassLoop`] in `started`, and rebuilds
//! what may be half-written in `actix::Supervised::restarting`. Rules that make it work: every await inside an actor has a
//! limit below `hang_after`; only `ResponseActFuture`, `AtomicResponse` and `ctx.spawn` are used, because the panics of
//! anything spawned elsewhere are seen by nobody; constructors do no I/O.

mod back_off;
mod cell;
mod escalation;
mod outage;
mod panics;
mod pass_loop;
mod policy;
mod registry;
mod status;
mod supervisor;
mod watchdog;

pub use cell::ActorHandle;
pub use escalation::{EXIT_RESTARTS_EXHAUSTED, EXIT_THREAD_STUCK, Escalation, exit_process_hook, exit_stuck_process};
pub use panics::{PanicText, catch_item, crash};
pub use pass_loop::{PassLoop, Progress, Unavailable};
pub use policy::{CheckedPolicy, PassPolicy, Policy, PolicyError};
pub use registry::{Fault, Registry};
pub use status::{ActorState, ActorStatus, FailureKind, FailureStatus, PassOutcome, PassStatus};
pub use supervisor::supervise;
pub use watchdog::Watchdog;
