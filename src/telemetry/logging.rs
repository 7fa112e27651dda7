//! The log's form: time with milliseconds and zone, level, module, message. It never decides what is logged.

use std::io::Write;

/// Starts logging to standard error; `RUST_LOG` chooses what, by default warnings of libraries and information of ours.
pub fn start(default_filter: &str) {
    let environment = env_logger::Env::default().default_filter_or(default_filter.to_owned());
    let started = env_logger::Builder::from_env(environment)
        .format(|out, record| {
            let time = crate::clock::now().format("%Y-%m-%dT%H:%M:%S%.3fZ");
            writeln!(out, "{time} {:5} {}: {}", record.level(), record.target(), record.args())
        })
        .try_init();
    if started.is_err() {
        log::debug!("logging was started before");
    }
}

/// What `serve` logs unless `RUST_LOG` says otherwise.
pub const SERVICE: &str = "warn,judge_relay=info";
