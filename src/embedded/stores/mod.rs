//! A private PostgreSQL and a private Redis, started from this machine's installed programs for one owner and gone with it.
//! Not an installer, and not a place for data that matters: the directory is removed when the handle is dropped.
//!
//! Three things keep a server from outliving its owner: dropping the handle stops it; when the owner is killed, the
//! kernel signals it (`setpriv --pdeathsig`); and the directory that a killed owner left is removed by the next start.

mod address;
mod directory;
mod postgres;
mod programs;
mod redis;
mod server;

use std::{io, path::PathBuf, process::ExitStatus, time::Duration};

pub use self::{postgres::PrivatePostgres, redis::PrivateRedis};

/// Where a private store listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// A socket inside the private directory: no port to collide with, and no other user of the machine gets in.
    UnixSocket,
    /// 127.0.0.1 and a free port, with a random password. For drills that put a network in between.
    Loopback,
}

/// How to run a private store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    listen: Listen,
    durable: bool,
    settings: Vec<(String, String)>,
}

impl StoreOptions {
    /// Nothing is flushed to disk: fast, and all of it may be lost when the *machine* fails. A private Redis that is
    /// killed starts again empty; a private PostgreSQL that is killed keeps its commits, as the kernel still has them.
    pub fn disposable() -> Self {
        Self { listen: Listen::UnixSocket, durable: false, settings: Vec::new() }
    }

    /// As in production: PostgreSQL flushes every commit, Redis appends to its file and flushes it every second.
    pub fn durable() -> Self {
        Self { durable: true, ..Self::disposable() }
    }

    /// The same options, listening there.
    #[must_use]
    pub fn listen(mut self, listen: Listen) -> Self {
        self.listen = listen;
        self
    }

    /// The same options with one setting of the server (of postgresql.conf or redis.conf), which overrides ours.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Why a private store could not be started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A program is missing on this machine.
    #[error("{program} was not found in {searched}; on Debian: apt-get install {package}")]
    NotInstalled {
        /// The missing program.
        program: &'static str,
        /// Debian's package that has it.
        package: &'static str,
        /// Where it was looked for.
        searched: String,
    },
    /// The private directory could not be made, or a file in it not written.
    #[error("cannot prepare {}: {source}", path.display())]
    Directory {
        /// The file or directory concerned.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system allows no socket with so long a path.
    #[error("the socket path {} has more than {max} bytes; set TMPDIR to a shorter directory", path.display())]
    SocketPathTooLong {
        /// The path that the socket would have.
        path: PathBuf,
        /// The longest path allowed, in bytes.
        max: usize,
    },
    /// The system refused to start the program, or to signal it or wait for it.
    #[error("cannot {verb} {program}: {source}")]
    Process {
        /// What was tried.
        verb: &'static str,
        /// The program concerned.
        program: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The program ended instead of serving.
    #[error("{program} ended ({status}) instead of serving; its last words:\n{last_words}")]
    Ended {
        /// The program concerned.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        last_words: String,
    },
    /// The program runs, but does not answer.
    #[error("{program} did not answer within {} s; its last words:\n{last_words}", limit.as_secs())]
    NotReady {
        /// The program concerned.
        program: &'static str,
        /// How long it was waited for.
        limit: Duration,
        /// The end of its log.
        last_words: String,
    },
}
