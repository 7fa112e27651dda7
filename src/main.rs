//! The `judge-relay` command: reads the command line and hands over.

use std::process::ExitCode;

fn main() -> ExitCode {
    judge_relay::cli::run()
}
