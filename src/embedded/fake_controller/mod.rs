//! A heng-controller that behaves as the real one does on the wire, its failures included: for tests, the demo and the
//! benches. It judges nothing; verdicts come from a directive in the source (see `directive`) or from chance.
//!
//! Not played: other endpoints than creating a job, `POST /judges/testurl` and `GET /`; compressed request bodies (415);
//! https towards callbacks; charsets other than UTF-8. Syntax errors of a body are worded as JavaScript engines worded them
//! for years, not as the newest one does.

mod answer;
mod auth;
mod callbacks;
mod clock;
mod config;
mod connection;
mod control;
mod courier;
mod create;
mod directive;
mod door;
mod handle;
mod head;
mod judge;
mod ledger;
mod nonces;
mod random;
mod runs;
mod switches;
mod target;
mod wire;
mod world;

pub use config::{Config, Key, LedgerDetail, Measurements, Role, Timing, Weights};
pub use door::Restart;
pub use handle::{FakeController, FakeHandle, FakeThread, NotInTime, run};
pub use ledger::{CallbackRecord, Counters, CreateAnswer, JobRecord, Ledger, Outcome, Pending, Refusal};
pub use random::Random;
pub use switches::{
    DuplicateAfter, DuplicateFinish, LoseAnswer, OddBody, OrphanAnswer, Rejudge, StatusAnswer, Switch, Switches, When,
};
