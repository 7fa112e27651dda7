//! The service between an online judge and heng-controller: submissions in, verdicts applied exactly once.
//!
//! Read it in the order in which a submission meets it: the modules below are listed that way.

pub mod protocol;

pub mod store;

pub mod stream;

pub mod tls;

pub mod clock;

pub mod supervision;

pub mod http;

pub mod embedded;

pub mod config;

pub mod telemetry;

pub mod controller;

pub mod actors;

pub mod http;

pub mod app;
