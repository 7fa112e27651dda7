//! `serve` and `migrate`: configuration, system, signals, exit codes.

use std::process::ExitCode;

use actix_rt::Arbiter;

use super::fail;
use crate::app::App;
use crate::config::{Config, EXIT_CONFIGURATION, VARIABLES};
use crate::telemetry::logging;

/// The table of variables at the end of `serve --help`.
pub(super) fn variables_help() -> String {
    let mut help = "Environment variables (an empty one counts as unset):\n".to_owned();
    for variable in VARIABLES {
        let default = match variable.default {
            None => "required".to_owned(),
            Some("") => "optional".to_owned(),
            Some(default) => format!("default {default}"),
        };
        help.push_str(&format!("\n  {}  ({default})\n      {}\n", variable.name, variable.meaning));
    }
    help.push_str(
        "\nExit codes: 0 after a drain, 64 configuration, 70 an actor kept failing, 71 a thread was stuck.\n\
         RUST_LOG chooses what is logged (default warn,judge_relay=info).\n",
    );
    help
}

/// Runs the service until SIGTERM or SIGINT.
pub(super) fn serve() -> ExitCode {
    logging::start(logging::SERVICE);
    let config = match Config::read(&|name: &str| std::env::var(name).ok()) {
        Ok(config) => config,
        Err(problems) => return refuse(&problems),
    };
    let system = actix::System::new();
    let started = system.block_on(async {
        let app = App::build(config)?;
        log::info!("judge-relay {} listens on {}", env!("CARGO_PKG_VERSION"), app.address()?);
        let run = async {
            let ended = app.run(asked_to_stop()).await;
            if let Err(error) = &ended {
                log::error!("the service ends: {error:#}");
            }
            actix::System::current().stop_with_code(i32::from(ended.is_err()));
        };
        // Beside the system, not inside a `block_on`: an actor that keeps failing stops the system with its own code.
        Arbiter::current().spawn(run);
        anyhow::Ok(())
    });
    if let Err(error) = started {
        return fail(&format!("{error:#}"));
    }
    match system.run_with_code() {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Err(error) => fail(&error.to_string()),
    }
}

/// Every problem at once, each with its variable.
#[expect(clippy::print_stderr, reason = "whoever ran the command reads it there")]
fn refuse(problems: &[String]) -> ExitCode {
    eprintln!("judge-relay: the configuration cannot work; `judge-relay serve --help` explains every variable");
    for problem in problems {
        eprintln!("  - {problem}");
    }
    ExitCode::from(u8::try_from(EXIT_CONFIGURATION).unwrap_or(u8::MAX))
}

async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        log::error!("signals cannot be listened to: only a kill ends this process");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

/// Applies pending migrations and says which.
#[expect(clippy::print_stdout, reason = "the list is what was asked for")]
pub(super) fn migrate() -> ExitCode {
    logging::start(logging::SERVICE);
    let Ok(url) = std::env::var("DATABASE_URL") else {
        return refuse(&["DATABASE_URL must be set: postgres://user:password@host/database".to_owned()]);
    };
    match actix::System::new().block_on(crate::store::migrations::run(&url)) {
        Ok(applied) if applied.is_empty() => println!("nothing to apply: the database is up to date"),
        Ok(applied) => applied.iter().for_each(|name| println!("applied {name}")),
        Err(error) => return fail(&error.to_string()),
    }
    ExitCode::SUCCESS
}
