//! PelReaper: finds stream entries whose reader died before it acked them, and hands them to the actor that handles them.
//!
//! Boundary: the consumer died before XACK.
//! Takes: pending entries of dead processes at once, of living ones after they have idled longer than any handling takes.
//! Leaves: the entry handled by the JudgeDispatcher or the ResultApplier, one at a time, or a dead letter and a parked submission.
//! If it dies here: the entry is pending under its name, and the next pass of any reaper finds it.
//! Poison: an entry over its delivery budget is looked at first; needless ones are acked, others become dead letters.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::{Actor, Addr, Context, Supervised};

use super::judge_dispatcher::JudgeDispatcher;
use super::result_applier::ResultApplier;
use super::{ApplyResults, Dispatch, Engine, policy};
use crate::store::dead_letters::{self, DeadEntry};
use crate::store::{attempts, instances, lanes};
use crate::stream::{Entry, JudgeRequested, Pending, SpilledFinish, Undecodable};
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PassLoop, PolicyError, Progress};
use crate::telemetry::METRICS;

/// The actor's name.
pub const NAME: &str = "PelReaper";
/// Between two looks at the pending lists.
const EVERY: Duration = Duration::from_secs(2);
/// Pending entries looked at in one call.
const PAGE: usize = 100;
/// Entries of a living process are left alone for its longest handling and this.
const MARGIN: Duration = Duration::from_secs(30);
/// An empty consumer that is idle for this long is deleted.
const CONSUMER_IDLE: Duration = Duration::from_secs(60);
/// An entry that was handed over is handled within this, or met again.
const HANDLE_LIMIT: Duration = Duration::from_secs(15);

/// How it is supervised.
pub fn supervised() -> Result<CheckedPolicy, PolicyError> {
    let mut policy = policy(NAME, Escalation::BackOffToAMinute);
    policy.passes.idle = EVERY;
    policy.checked()
}

/// The actor.
pub struct PelReaper {
    handle: ActorHandle,
    passes: Arc<Passes>,
}

/// What a pass needs; it holds no state between passes.
pub struct Passes {
    engine: Arc<Engine>,
    dispatcher: Addr<JudgeDispatcher>,
    applier: Addr<ResultApplier>,
}

/// What becomes of a pending entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its reader may still be at it.
    Leave,
    /// Its reader is gone.
    TakeOver,
    /// It has been handed out too often.
    Judge,
}

/// Decides by who reads it, for how long and how often.
fn fate(pending: &Pending, alive: &HashSet<String>, handling_max: Duration, deliveries_max: usize) -> Fate {
    let is_abandoned = !alive.contains(&pending.consumer) || pending.idle >= handling_max;
    match is_abandoned {
        false => Fate::Leave,
        true if pending.deliveries > deliveries_max => Fate::Judge,
        true => Fate::TakeOver,
    }
}

impl PelReaper {
    /// An actor that hands entries over to the two that handle them.
    pub fn new(
        handle: ActorHandle,
        engine: Arc<Engine>,
        dispatcher: Addr<JudgeDispatcher>,
        applier: Addr<ResultApplier>,
    ) -> PelReaper {
        PelReaper { handle, passes: Arc::new(Passes::new(engine, dispatcher, applier)) }
    }
}

impl Passes {
    /// Passes without an actor around them, for whoever repeats them by hand.
    pub fn new(engine: Arc<Engine>, dispatcher: Addr<JudgeDispatcher>, applier: Addr<ResultApplier>) -> Passes {
        Passes { engine, dispatcher, applier }
    }

    /// One pass over every work stream. One bad stream does not stop the others; the first error is the pass's.
    pub async fn pass(&self) -> anyhow::Result<Progress> {
        // Without PostgreSQL nothing that is taken over could be handled: the entries stay where they are, uncounted.
        let living = instances::alive(&self.engine.pool).await?;
        let lanes = lanes::list(&self.engine.pool).await?;
        let mut failure = None;
        let mut destinations = vec!["results".to_owned()];
        // The same for the controller's door, and for lanes that are paused.
        if self.engine.controller_is_open.load(Ordering::Relaxed) {
            destinations.extend(lanes.iter().filter(|lane| !lane.paused).map(|lane| format!("judge:{}", lane.name)));
        }
        let alive: HashSet<String> = living.iter().map(ToString::to_string).collect();
        for destination in &destinations {
            if let Err(error) = self.reap(destination, &alive).await {
                failure = Some(error.context(format!("stream {destination}")));
            } else if let Err(error) = self.engine.streams.delete_consumers(destination, CONSUMER_IDLE, &living).await {
                failure = Some(error.into());
            }
        }
        failure.map_or(Ok(Progress::Idle), Err)
    }

    /// Walks a pending list from its start to its end: a failing head does not stop what is behind it.
    async fn reap(&self, destination: &str, alive: &HashSet<String>) -> anyhow::Result<()> {
        let handling_max = self.engine.config.controller.timeout * 2 + MARGIN;
        let mut after = "-".to_owned();
        let mut failure = None;
        loop {
            let page = self.engine.streams.pending(destination, &after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.id);
            for pending in &page {
                let handled = match fate(pending, alive, handling_max, self.engine.config.pace.deliveries_max) {
                    Fate::Leave => Ok(()),
                    Fate::TakeOver => self.take_over(destination, pending).await,
                    Fate::Judge => self.judge(destination, pending).await,
                };
                if let Err(error) = handled {
                    failure = Some(error.context(format!("entry {}", pending.id)));
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn take_over(&self, destination: &str, pending: &Pending) -> anyhow::Result<()> {
        let taken = self.engine.streams.take_over(destination, pending, &self.engine.consumer()).await?;
        let Some(entry) = taken else {
            METRICS.stream_reclaimed_total.with_label_values(&["lost"]).inc();
            return Ok(());
        };
        METRICS.stream_reclaimed_total.with_label_values(&["taken_over"]).inc();
        if destination == "results" {
            return self.hand_to_applier(entry).await;
        }
        self.dispatcher.send(Dispatch(vec![entry])).timeout(HANDLE_LIMIT).await?;
        Ok(())
    }

    async fn hand_to_applier(&self, entry: Entry) -> anyhow::Result<()> {
        let finish = match SpilledFinish::read(&entry) {
            Ok(finish) => finish,
            Err(Undecodable::Newer(_)) => return Ok(()),
            Err(Undecodable::Broken(why)) => return self.bury(&entry, "undecodable_entry", why, None).await,
        };
        let incoming = super::result_applier::from_stream(finish).await;
        self.applier.send(ApplyResults(vec![incoming])).timeout(HANDLE_LIMIT).await??;
        // Only what is committed is acked.
        self.engine.streams.ack_entries(std::iter::once(&entry)).await?;
        Ok(())
    }

    /// Over the budget: looked at without claiming it.
    async fn judge(&self, destination: &str, pending: &Pending) -> anyhow::Result<()> {
        let Some(entry) = self.engine.streams.look(destination, &pending.id).await? else {
            // Its body is gone: only the pending list remembers it.
            return Ok(self
                .engine
                .streams
                .ack(&self.engine.streams.key(destination), std::slice::from_ref(&pending.id))
                .await?);
        };
        let why = format!("handed out {} times without being handled", pending.deliveries);
        if destination == "results" {
            return self.bury(&entry, "delivery_budget_spent", why, None).await;
        }
        match JudgeRequested::read(&entry) {
            Ok(wanted) => {
                let is_needed =
                    attempts::is_needed(&self.engine.pool, wanted.submission, wanted.generation, &entry.id).await?;
                if !is_needed {
                    METRICS.stream_reclaimed_total.with_label_values(&["needless"]).inc();
                    return Ok(self.engine.streams.ack_entries(std::iter::once(&entry)).await?);
                }
                self.bury(&entry, "delivery_budget_spent", why, Some(wanted)).await
            }
            Err(Undecodable::Newer(_)) => Ok(()),
            Err(Undecodable::Broken(broken)) => self.bury(&entry, "undecodable_entry", broken, None).await,
        }
    }

    /// Dead letter and parking in one transaction, then the ack.
    async fn bury(
        &self,
        entry: &Entry,
        cause_class: &'static str,
        why: String,
        wanted: Option<JudgeRequested>,
    ) -> anyhow::Result<()> {
        METRICS.stream_reclaimed_total.with_label_values(&["dead_letter"]).inc();
        log::error!("{NAME}: entry {} of {} is a dead letter: {why}", entry.id, entry.key);
        let letter = DeadEntry {
            boundary: NAME,
            cause_class,
            message: why,
            stream: entry.key.clone(),
            stream_id: entry.id.clone(),
            payload: wanted.is_none().then(|| entry.to_json()),
            submission: wanted.map(|wanted| (wanted.submission, wanted.generation)),
        };
        dead_letters::keep(&self.engine.pool, &letter).await?;
        self.engine.streams.ack_entries(std::iter::once(entry)).await?;
        Ok(())
    }
}

impl Actor for PelReaper {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let passes = Arc::clone(&self.passes);
        PassLoop::spawn(&self.handle, ctx, async move || passes.pass().await);
    }
}

impl Supervised for PelReaper {}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(consumer: &str, idle_seconds: u64, deliveries: usize) -> Pending {
        Pending {
            id: "1-0".to_owned(),
            consumer: consumer.to_owned(),
            idle: Duration::from_secs(idle_seconds),
            deliveries,
        }
    }

    #[test]
    fn a_dead_process_loses_its_entries_at_once_and_a_living_one_only_after_its_longest_handling() {
        let alive = HashSet::from(["alive".to_owned()]);
        let fate = |pending: &Pending| fate(pending, &alive, Duration::from_secs(40), 10);
        assert_eq!(fate(&pending("dead", 0, 1)), Fate::TakeOver);
        assert_eq!(fate(&pending("alive", 39, 1)), Fate::Leave);
        assert_eq!(fate(&pending("alive", 40, 1)), Fate::TakeOver);
        assert_eq!(fate(&pending("alive", 39, 99)), Fate::Leave, "somebody is at it");
        assert_eq!(fate(&pending("dead", 0, 10)), Fate::TakeOver, "the budget is not spent yet");
        assert_eq!(fate(&pending("dead", 0, 11)), Fate::Judge);
    }
}
