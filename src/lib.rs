//! The service between an online judge and heng-controller: submissions in, verdicts applied exactly once.
//!
//! Read it in this order. What is decided, without any I/O:

pub mod protocol;

// The adapters: the only code that speaks SQL, Redis, and the controller's HTTP.

pub mod store;

pub mod stream;

pub mod controller;

// The journey of a submission: the edge where it enters, then actor by actor, and what keeps the actors going.

pub mod http;

pub mod actors;

pub mod supervision;

// What holds it together.

pub mod config;

pub mod app;

pub mod cli;

pub mod telemetry;

pub mod tls;

pub mod clock;

// What stands around it in demos, benches, drills and tests.

pub mod embedded;
