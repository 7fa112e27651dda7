//! Heartbeat: says in PostgreSQL that this process lives. It has a thread and a connection of its own, so
//! that nothing else can keep it from it.
//!
//! Boundary: alive → taken for dead.
//! Takes: the passing of two seconds.
//! Leaves: a fresh `heartbeat_at` on this process's row.
//! If it dies here: after six seconds others take this process's entries over; fences and the attempt index keep that harmless.
//! Poison: none.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Supervised};

use super::{Engine, policy};
use crate::store::{Pool, instances};
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PassLoop, PolicyError, Progress};

/// The actor's name.
pub const NAME: &str = "Heartbeat";
/// Between two beats.
const EVERY: Duration = Duration::from_secs(2);

/// How it is supervised.
pub fn supervised() -> Result<CheckedPolicy, PolicyError> {
    let mut policy = policy(NAME, Escalation::EndProcess);
    policy.passes.idle = EVERY;
    policy.passes.back_off_max = Duration::from_secs(1);
    policy.checked()
}

/// The actor.
pub struct Heartbeat {
    handle: ActorHandle,
    engine: Arc<Engine>,
    /// One connection that nobody else uses.
    pool: Pool,
    hostname: Arc<str>,
}

impl Heartbeat {
    /// An actor for this process, with a connection of its own.
    pub fn new(handle: ActorHandle, engine: Arc<Engine>, pool: Pool) -> Heartbeat {
        // Kubernetes sets it to the pod's name.
        let hostname = std::env::var("HOSTNAME").unwrap_or_else(|_| "unknown".to_owned());
        Heartbeat { handle, engine, pool, hostname: hostname.into() }
    }
}

impl Actor for Heartbeat {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let (instance, pool, hostname) = (self.engine.instance, self.pool.clone(), Arc::clone(&self.hostname));
        PassLoop::spawn(&self.handle, ctx, async move || {
            instances::heartbeat(&pool, instance, &hostname).await?;
            Ok(Progress::Idle)
        });
    }
}

impl Supervised for Heartbeat {}
