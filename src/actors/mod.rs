//! The actors: one file, one failure boundary, in the order in which a submission meets them, and the messages between them.
//!
//! A message never carries the only copy of anything: the row, its lease, the stream entry and its pending list, and the
//! controller's own retry are the truth, so an actor may die at any await.

pub mod outbox_poller;

pub mod stream_publisher;

pub mod judge_dispatcher;

pub mod pel_reaper;

pub mod callback_verifier;

pub mod result_applier;

pub mod reconciler;

pub mod retention_sweeper;

pub mod heartbeat;

pub mod gauge_collector;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::time::{Duration, Instant};

use actix::Message;
use actix_web::web::Bytes;
use uuid::Uuid;

use crate::config::Config;
use crate::protocol::callback_url::AuthenticCallback;
use crate::protocol::submission::Applied;
use crate::store::Pool;
use crate::store::outbox::Leased;
use crate::store::results::Incoming;
use crate::stream::{Entry, Streams};
use crate::supervision::{Escalation, Policy};

/// What every actor of a process shares: configuration and adapters, and hints that may be lost.
pub struct Engine {
    /// The configuration.
    pub config: Arc<Config>,
    /// Connections of the engine; the HTTP edge has its own, so that neither starves the other.
    pub pool: Pool,
    /// The streams.
    pub streams: Streams,
    /// This process: the owner of leases, the name of its consumers.
    pub instance: Uuid,
    /// Attempts begun minus attempts ended here since PostgreSQL was last asked how many are in flight.
    pub in_flight_delta: AtomicI64,
    /// Batches whose POSTs or outcomes are under way.
    pub dispatching: AtomicUsize,
    /// Does the dispatcher take the controller's door for open?
    pub controller_is_open: AtomicBool,
    /// Something authentic has come from the controller since this was last written down.
    pub controller_was_heard: AtomicBool,
}

impl Engine {
    /// The name of this process's consumers.
    pub fn consumer(&self) -> String {
        self.instance.to_string()
    }
}

/// Leased rows to publish. The instant lies before their claim: what is older than the lease allows is not sent any more.
#[derive(Message)]
#[rtype(result = "PublishReport")]
pub struct PublishBatch {
    /// The rows.
    pub rows: Vec<Leased>,
    /// Before they were claimed.
    pub claimed_at: Instant,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishReport {
    /// Rows published and marked.
    pub published: usize,
    /// Rows put into quarantine.
    pub quarantined: usize,
    /// Why the rest was not published, if it was for a reason outside the rows.
    pub outage: Option<String>,
}

/// Entries of a lane's stream, read or taken over, that ask for a judging. The sender waits until they are handled.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Dispatch(pub Vec<Entry>);

/// A callback whose tag is authentic; its body has not been looked at.
#[derive(Message)]
#[rtype(result = "Result<(), NotStored>")]
pub struct VerifyCallback {
    /// What its URL says.
    pub callback: AuthenticCallback,
    /// Its body as it came.
    pub body: Bytes,
    /// When its last byte came.
    pub received_at: Instant,
}

/// Neither PostgreSQL nor Redis has it: the controller must come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotStored;

/// Verified finishes to apply; the answer comes after their transaction has committed.
#[derive(Message)]
#[rtype(result = "Result<Vec<Applied>, NotApplied>")]
pub struct ApplyResults(pub Vec<Incoming>);

/// The transaction did not commit, or nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not applied: {0}")]
pub struct NotApplied(pub String);

/// Work has arrived: look now instead of at the next poll. Losing it costs latency only.
#[derive(Message, Clone, Copy)]
#[rtype(result = "()")]
pub struct Wake;

/// The limits that all actors share; each file changes what is its own.
fn policy(name: &'static str, escalation: Escalation) -> Policy {
    let mut policy = Policy::new(name, escalation);
    policy.hang_after = Duration::from_secs(60);
    policy.passes.limit = Duration::from_secs(20);
    policy
}
