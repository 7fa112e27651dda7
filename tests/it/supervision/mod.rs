//! Supervision, shown on a boundary that fails on demand: restarts, escalation, loops, drain and health.
//!
//! No store takes part: the mechanism is written once and tested once, whatever the actors do.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests, and their boundary is there to fail")]

mod boundary;
mod escalation;
mod health;
mod loops;
mod restarts;
