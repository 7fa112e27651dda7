//! The fake controller against the recorded traffic of the real one, and every one of its switches.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's helper fails the test")]

mod answers;
mod client;
mod control;
mod create_faults;
mod deliveries;
mod job_faults;
mod restarts;
mod sink;

use std::time::Duration;

use judge_relay::embedded::fake_controller::{Config, FakeController, Measurements, Weights};
use judge_relay::protocol::Verdict;

/// How long anything may take before a test gives up; nothing is measured with it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The recorded traffic, parts A to E.
const TRAFFIC: &str = include_str!("../../fixtures/heng-traffic.txt");

/// A fake with results as in the recorded traffic: every source without a directive is accepted.
fn accepting() -> Config {
    let weights = Weights::only(Verdict::Accepted);
    Config { weights, measurements: Measurements::Recorded, ..Config::default() }
}

fn start(config: Config) -> FakeController {
    FakeController::start(config).unwrap()
}

const ACCEPTED: &str = r#"{"result":{"cases":[{"kind":"Accepted","time":15,"memory":1048576,"extraMessage":""}]}}"#;
const PREPARING: &str = r#"{"state":"preparing"}"#;
const JUDGING: &str = r#"{"state":"judging"}"#;
