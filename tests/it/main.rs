//! The integration tests: one binary, real PostgreSQL and Redis.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "all of it is tests; clippy.toml's exceptions reach only the functions that are marked as such"
)]

mod harness;

mod accounting;
mod fake_controller;
mod http;
mod journey;
mod oracle;
mod private_stores;
mod schema;
mod store;
mod stream;
mod supervision;
