//! What happens when restarting no longer helps: the process ends, and its orchestrator starts a fresh one.
//!
//! It does not decide when that is: the supervisor counts restarts, the watchdog counts missed beats.

/// The exit code after an actor spent its restarts (`EX_SOFTWARE` of sysexits).
pub const EXIT_RESTARTS_EXHAUSTED: i32 = 70;

/// The exit code after a thread stayed stuck in synchronous code, which nothing inside the process can restart.
pub const EXIT_THREAD_STUCK: i32 = 71;

/// What follows when an actor fails more often than its policy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escalation {
    /// The registry's hook is called; in production it ends the process. For boundaries without which the service is of no use.
    EndProcess,
    /// The actor goes on at most once a minute and is shown as failing. For clean-up and repair: never worth the process.
    BackOffToAMinute,
}

/// The hook of production: stops the actix system with [`EXIT_RESTARTS_EXHAUSTED`], so that `main` can still flush and exit.
///
/// `main` must return the code of `SystemRunner::run_with_code`. Outside a system the process exits at once.
pub fn exit_process_hook() -> impl Fn(&str, &str) + Send + Sync + 'static {
    |actor, why| {
        log::error!("{actor} keeps failing, ending the process with code {EXIT_RESTARTS_EXHAUSTED}: {why}");
        match actix::System::try_current() {
            Some(system) => system.stop_with_code(EXIT_RESTARTS_EXHAUSTED),
            None => std::process::exit(EXIT_RESTARTS_EXHAUSTED),
        }
    }
}

/// The watchdog's action in production: exits with [`EXIT_THREAD_STUCK`] without waiting for the stuck thread.
pub fn exit_stuck_process(thread: &str) {
    log::error!("thread {thread} is stuck, ending the process with code {EXIT_THREAD_STUCK}");
    std::process::exit(EXIT_THREAD_STUCK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_documented_ones_and_differ() {
        assert_eq!((EXIT_RESTARTS_EXHAUSTED, EXIT_THREAD_STUCK), (70, 71));
    }

    #[test]
    fn the_hook_of_production_stops_the_system_with_its_code() {
        let system = actix::System::new();
        system.block_on(async { exit_process_hook()("outbox-poller", "panicked: on purpose") });
        assert_eq!(system.run_with_code().expect("the system stops"), EXIT_RESTARTS_EXHAUSTED);
    }
}
