//! RetentionSweeper: removes what has expired, a little at a time. Nothing that a verdict or a promise rests on.
//!
//! Boundary: clean-up.
//! Takes: rows and `events` entries older than their keeping time.
//! Leaves: them gone, in small batches.
//! If it dies here: the next pass goes on; every deletion stands by itself.
//! Poison: none.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Supervised};

use super::{Engine, policy};
use crate::store::retention;
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PassLoop, PolicyError, Progress};

/// The actor's name.
pub const NAME: &str = "RetentionSweeper";
/// Between two passes that found nothing.
const EVERY: Duration = Duration::from_secs(60);
/// Rows of each kind in one pass.
const BATCH: i32 = 1_000;

/// How it is supervised.
pub fn supervised() -> Result<CheckedPolicy, PolicyError> {
    let mut policy = policy(NAME, Escalation::BackOffToAMinute);
    policy.passes.idle = EVERY;
    policy.passes.back_off_max = EVERY;
    policy.checked()
}

/// The actor.
pub struct RetentionSweeper {
    handle: ActorHandle,
    engine: Arc<Engine>,
}

impl RetentionSweeper {
    /// An actor for this process's tables and streams.
    pub fn new(handle: ActorHandle, engine: Arc<Engine>) -> RetentionSweeper {
        RetentionSweeper { handle, engine }
    }
}

/// One pass.
pub async fn pass(engine: &Engine) -> anyhow::Result<Progress> {
    let swept = retention::sweep(&engine.pool, BATCH).await?;
    engine.streams.trim_events(engine.config.pace.events_age).await?;
    Ok(if swept > 0 { Progress::More } else { Progress::Idle })
}

impl Actor for RetentionSweeper {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let engine = Arc::clone(&self.engine);
        PassLoop::spawn(&self.handle, ctx, async move || pass(&engine).await);
    }
}

impl Supervised for RetentionSweeper {}
