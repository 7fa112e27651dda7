//! Reconciler: compares what PostgreSQL says is under way with what still holds it, and makes lost work due again. It neither POSTs nor
//! appends.
//!
//! Boundary: silence.
//! Takes: streams or groups that are missing, and attempts whose deadline has passed.
//! Leaves: the loss recorded, the stream created, unfinished work due again as new outbox rows.
//! If it dies here: the next pass finds the same; every change is a compare-and-set.
//! Poison: none that it reads; an attempt budget that is spent parks the submission.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Handler, Supervised};

use super::{Engine, Wake, policy};
use crate::store::outbox::EVENTS;
use crate::store::{instances, lanes, overdue};
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PassLoop, PolicyError, Progress};
use crate::telemetry::METRICS;

/// The actor's name.
pub const NAME: &str = "Reconciler";
/// Between two passes without a call.
const EVERY: Duration = Duration::from_secs(1);
/// Overdue attempts that one pass ends.
const OVERDUE_MAX: i32 = 100;

/// How it is supervised.
pub fn supervised() -> Result<CheckedPolicy, PolicyError> {
    let mut policy = policy(NAME, Escalation::BackOffToAMinute);
    policy.passes.idle = EVERY;
    policy.checked()
}

/// The actor.
pub struct Reconciler {
    handle: ActorHandle,
    engine: Arc<Engine>,
}

impl Reconciler {
    /// An actor for this process's streams and tables.
    pub fn new(handle: ActorHandle, engine: Arc<Engine>) -> Reconciler {
        Reconciler { handle, engine }
    }
}

/// One pass: streams first, because what is due again needs somewhere to go. Redis being away must not stop the deadlines.
pub async fn pass(engine: &Engine) -> anyhow::Result<Progress> {
    let streams = restore_streams(engine).await;
    let rules = overdue::Rules { budget: engine.config.pace.budget, retry: engine.config.pace.retry };
    let ended = overdue::end(&engine.pool, &rules, OVERDUE_MAX, rand::random()).await?;
    if ended.due_again + ended.parked > 0 {
        log::warn!("{NAME}: {} overdue attempts are due again, {} submissions parked", ended.due_again, ended.parked);
    }
    streams?;
    Ok(Progress::Idle)
}

/// Creates what is missing, after its loss was written down, and makes what was in it due again.
async fn restore_streams(engine: &Engine) -> anyhow::Result<()> {
    let mut destinations: Vec<String> =
        lanes::list(&engine.pool).await?.into_iter().map(|lane| format!("judge:{}", lane.name)).collect();
    destinations.extend([EVENTS.to_owned(), "results".to_owned()]);
    for destination in destinations {
        let Some(what) = engine.streams.missing(&destination).await? else { continue };
        let loss = instances::record_loss(&engine.pool, &destination, what).await?;
        engine.streams.create(&destination).await?;
        METRICS.stream_losses_total.with_label_values(&[&destination]).inc();
        // A group that is gone while its stream is there reads everything again: nothing was lost with it.
        let lost_lane = (what == "stream" && destination.starts_with("judge:")).then_some(&*destination);
        let due = instances::recover(&engine.pool, loss, lost_lane).await?;
        log::warn!("{NAME}: {what} of {destination} was missing and is created; {due} submissions are due again");
    }
    Ok(())
}

impl Actor for Reconciler {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let engine = Arc::clone(&self.engine);
        let mut has_begun = false;
        PassLoop::spawn(&self.handle, ctx, async move || {
            if !has_begun {
                // While this process was not there, nobody may have heard the controller.
                instances::grant_grace(&engine.pool).await?;
                has_begun = true;
            }
            pass(&engine).await
        });
    }
}

impl Supervised for Reconciler {}

impl Handler<Wake> for Reconciler {
    type Result = ();

    fn handle(&mut self, _: Wake, _: &mut Self::Context) {
        self.handle.wake();
    }
}
