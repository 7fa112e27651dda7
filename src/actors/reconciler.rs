//! Reconciler: compares what PostgreSQL says is under way with what still holds it, and makes lost work due again. It neither POSTs nor
//! appends.
//!
//! Boundary: silence.
//! Takes: streams or groups that are missing, entries that are not in their stream, attempts whose deadline has passed.
//! Leaves: the loss recorded, the stream created, unfinished work due again as new outbox rows.
//! If it dies here: the next pass finds the same; every change is a compare-and-set.
//! Poison: none that it reads; an attempt budget that is spent parks the submission.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Handler, Supervised};

use super::{Engine, Wake, policy};
use crate::store::lost::{self, Suspect};
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
/// A published row may still be on its way to its mark, its reading or its attempt for this long.
const UNDER_WAY: Duration = Duration::from_secs(10);
/// Published rows looked at together, and how many such pages in one pass.
const PAGE: i32 = 1_000;
const PAGES_MAX: usize = 20;

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

/// Finishes repairs that were begun, then looks for what is missing now.
async fn restore_streams(engine: &Engine) -> anyhow::Result<()> {
    let lanes: Vec<String> =
        lanes::list(&engine.pool).await?.into_iter().map(|lane| format!("judge:{}", lane.name)).collect();
    for destination in lanes.iter().map(String::as_str).chain([EVENTS, "results"]) {
        let Some(what) = engine.streams.missing(destination).await? else { continue };
        instances::record_loss(&engine.pool, destination, what).await?;
        METRICS.stream_losses_total.with_label_values(&[destination]).inc();
        log::warn!("{NAME}: the {what} of {destination} is missing and is created");
        engine.streams.create(destination).await?;
    }
    for (loss, destination) in instances::open_losses(&engine.pool).await? {
        // Whoever recorded it may have died before the creation.
        engine.streams.create(&destination).await?;
        // Whatever was published before the stream was missed is gone with it; no need to wait for what is under way.
        let due = look_up(engine, &destination, Duration::ZERO).await?;
        instances::close_loss(&engine.pool, loss, due).await?;
        log::warn!("{NAME}: {destination} is repaired, {due} submissions are due again");
    }
    for destination in &lanes {
        let due = look_up(engine, destination, UNDER_WAY).await?;
        if due > 0 {
            log::warn!("{NAME}: {due} entries of {destination} were lost, their submissions are due again");
        }
    }
    Ok(())
}

/// Looks up in their stream the judgings that were published `age` ago or earlier and have begun no attempt: absent is lost and due
/// again, present is waiting. Returns how many are due again.
async fn look_up(engine: &Engine, destination: &str, age: Duration) -> anyhow::Result<usize> {
    let (mut due, mut from, mut is_settled) = (0, None, true);
    for _ in 0..PAGES_MAX {
        let suspects = lost::suspects(&engine.pool, destination, age, from, PAGE).await?;
        let Some(newest) = suspects.last().map(|suspect| suspect.published_at) else { break };
        let waiting: Vec<&Suspect> = suspects.iter().filter(|suspect| suspect.is_waiting).collect();
        let ids: Vec<String> = waiting.iter().map(|suspect| suspect.stream_id.clone()).collect();
        let present = if ids.is_empty() { Vec::new() } else { engine.streams.present(destination, &ids).await? };
        let (there, absent): (Vec<_>, Vec<_>) = waiting.into_iter().zip(present).partition(|(_, present)| *present);
        let absent: Vec<&Suspect> = absent.into_iter().map(|(suspect, _)| suspect).collect();
        if !absent.is_empty() {
            due += lost::due_again(&engine.pool, &absent).await?;
        }
        if is_settled {
            // The mark stops at the first that waits; what lies behind it is looked at from here on, and again next time.
            let until = there.first().map_or(newest, |(suspect, _)| suspect.published_at);
            lost::settle_until(&engine.pool, destination, until).await?;
            is_settled = there.is_empty();
        }
        from = Some(newest);
        if suspects.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
            break;
        }
    }
    Ok(due)
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
