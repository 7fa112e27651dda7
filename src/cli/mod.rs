//! The command line: one verb, one file. `--help` of each teaches it; nothing here knows how the work is done.

mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Delivers the submissions of an online judge to heng-controller and applies each verdict exactly once.
#[derive(Parser)]
#[command(name = "judge-relay", version, about, after_help = "Try it without any configuration: judge-relay demo")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service. Configured by environment variables only; see `serve --help` for all of them.
    #[command(after_long_help = serve::variables_help())]
    Serve,
    /// Apply pending database migrations and exit. Needs DATABASE_URL only; several at once wait for each other.
    Migrate,
    /// Print the OpenAPI document of the HTTP API.
    Openapi,
}

/// Runs the command that the command line names.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Serve => serve::serve(),
        Command::Migrate => serve::migrate(),
        Command::Openapi => print(&crate::http::document()),
    }
}

/// Prints a document as JSON.
#[expect(clippy::print_stdout, reason = "the document is what was asked for")]
fn print(document: &impl serde::Serialize) -> ExitCode {
    match serde_json::to_string_pretty(document) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&format!("the document cannot be printed: {error}")),
    }
}

/// Says on standard error why the command failed.
#[expect(clippy::print_stderr, reason = "whoever ran the command reads it there")]
fn fail(why: &str) -> ExitCode {
    eprintln!("judge-relay: {why}");
    ExitCode::FAILURE
}
