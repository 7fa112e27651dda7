//! With what the fake controller starts; what can be changed while it runs is in the switches.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::switches::Switches;
use crate::protocol::Verdict;

/// What a key may do, as the controller's key table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Passes everywhere.
    Root,
    /// Administers keys and judgers; refused at `/judges`.
    Admin,
    /// Connects judgers; refused at `/judges`.
    Judger,
    /// Creates jobs.
    User,
    /// Reads the system's status; refused at `/judges`.
    Observer,
}

/// The other half of an access key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The secret that signs, as text.
    pub secret: String,
    /// What the key may do.
    pub role: Role,
}

impl Key {
    /// A key that may create jobs.
    pub fn user(secret: &str) -> Self {
        Self { secret: secret.to_owned(), role: Role::User }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("role", &self.role).finish_non_exhaustive()
    }
}

/// Every clock of the controller. [`Timing::real`] is what its default configuration gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// An idle connection is closed after this long, incoming and outgoing ones.
    pub idle_close: Duration,
    /// A callback without response headers, or without a further byte of the body, is given up after this long. Zero: never.
    pub callback_timeout: Duration,
    /// How often failed callbacks are looked for; the first look is at a random moment within one such span.
    pub retry_scan: Duration,
    /// How old a failed callback must be, not counting `retry_block`.
    pub retry_expire: Duration,
    /// How long a worker waits for the next callback before its entry's clock starts anew.
    pub retry_block: Duration,
    /// Within this long after a restart the jobs that judgers held are queued again.
    pub held_again: Duration,
    /// How far a request's timestamp may be off.
    pub skew_limit: Duration,
    /// How long a nonce is remembered.
    pub nonce_lifetime: Duration,
    /// Factor on the time a job takes to judge.
    pub judging_scale: f64,
}

impl Timing {
    /// The controller's own defaults.
    pub fn real() -> Self {
        Self {
            idle_close: Duration::from_secs(5),
            callback_timeout: Duration::from_secs(10),
            retry_scan: Duration::from_secs(30),
            retry_expire: Duration::from_secs(30),
            retry_block: Duration::from_secs(10),
            held_again: Duration::from_secs(6),
            skew_limit: Duration::from_secs(60),
            nonce_lifetime: Duration::from_secs(120),
            judging_scale: 1.0,
        }
    }

    /// The retry clock, the wait after a restart and the judging shortened by `time_scale` (0.01: a hundred times faster).
    ///
    /// The limits that meet the other side's real work stay real: its answers do not become faster, its pool does not drop
    /// idle connections earlier, and its clock does not run faster. Set those fields by hand where a test wants them short.
    pub fn scaled(time_scale: f64) -> Self {
        let real = Self::real();
        Self {
            retry_scan: real.retry_scan.mul_f64(time_scale),
            retry_expire: real.retry_expire.mul_f64(time_scale),
            retry_block: real.retry_block.mul_f64(time_scale),
            held_again: real.held_again.mul_f64(time_scale),
            judging_scale: time_scale,
            ..real
        }
    }
}

/// How often each outcome is drawn for a source without a directive; only their proportions matter.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// One weight for each verdict named.
    pub verdicts: Vec<(Verdict, u32)>,
    /// The weight of a failure of the judge itself.
    pub system_error: u32,
}

impl Default for Weights {
    fn default() -> Self {
        let verdicts = vec![
            (Verdict::Accepted, 60),
            (Verdict::WrongAnswer, 16),
            (Verdict::TimeLimitExceeded, 7),
            (Verdict::RuntimeError, 5),
            (Verdict::CompileError, 5),
            (Verdict::MemoryLimitExceeded, 3),
            (Verdict::PresentationError, 2),
            (Verdict::OutputLimitExceeded, 2),
        ];
        Self { verdicts, system_error: 0 }
    }
}

impl Weights {
    /// Only this verdict.
    pub fn only(verdict: Verdict) -> Self {
        Self { verdicts: vec![(verdict, 1)], system_error: 0 }
    }
}

/// Where the numbers and the texts of a result come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measurements {
    /// Drawn by chance, within the limits of the job.
    #[default]
    Drawn,
    /// Always those of the recorded traffic, so that a result can be compared byte for byte.
    Recorded,
}

/// How much the ledger keeps besides its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerDetail {
    /// Nothing: for benches.
    Counters,
    /// The newest jobs and the newest callback attempts, at most this many of each.
    Records {
        /// How many jobs, and how many callback attempts.
        max: usize,
    },
}

/// With what a fake controller starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// The path in front of every route, without a slash at its end.
    pub prefix: String,
    /// Access key → secret and role.
    pub keys: BTreeMap<String, Key>,
    /// Every clock.
    pub timing: Timing,
    /// Outcomes of sources without a directive.
    pub weights: Weights,
    /// Numbers and texts of the results.
    pub measurements: Measurements,
    /// The seed of all chance.
    pub seed: u64,
    /// How much is remembered for oracles.
    pub ledger: LedgerDetail,
    /// The switches at the start.
    pub switches: Switches,
}

impl Config {
    /// The access key of [`Config::default`] that may create jobs.
    pub const ACCESS_KEY: &str = "ak-demo-user-0001";
    /// Its secret, made up and public.
    pub const SECRET_KEY: &str = "sk-demo-user-0001-made-up";
    /// The access key of [`Config::default`] that belongs to a judger.
    pub const JUDGER_ACCESS_KEY: &str = "ak-demo-judger-0001";
    /// Its secret, made up and public.
    pub const JUDGER_SECRET_KEY: &str = "sk-demo-judger-0001-made-up";
}

impl Default for Config {
    /// For tests: a free local port, two made-up keys, a retry clock a hundred times faster, instant judging.
    fn default() -> Self {
        let judger = Key { secret: Self::JUDGER_SECRET_KEY.to_owned(), role: Role::Judger };
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            prefix: "/c/v1".to_owned(),
            keys: BTreeMap::from([
                (Self::ACCESS_KEY.to_owned(), Key::user(Self::SECRET_KEY)),
                (Self::JUDGER_ACCESS_KEY.to_owned(), judger),
            ]),
            timing: Timing::scaled(0.01),
            weights: Weights::default(),
            measurements: Measurements::default(),
            seed: 1,
            ledger: LedgerDetail::Records { max: 100_000 },
            switches: Switches::default(),
        }
    }
}
