//! JudgeDispatcher: has each wanted judging POSTed to the controller once, as far as anyone can know. It applies no verdict.
//!
//! Boundary: Redis → controller; it may have happened.
//! Takes: entries of the lanes' streams, one permit each, and entries that the PelReaper took over.
//! Leaves: the attempt row, the POST, its outcome on the row; then the entry is acked and deleted.
//! If it dies here: the entry stays pending; whoever gets it next closes an attempt that was being sent and sends a new one.
//! Poison: a request that the controller refuses is parked with the controller's words; an entry that cannot be read is a dead letter.

mod intake;
mod sending;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, AsyncContext, Context, Handler, ResponseActFuture, Supervised, WrapFuture};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::{Dispatch, Engine, Wake, policy};
use crate::controller::Controller;
use crate::protocol::breaker::Breaker;
use crate::protocol::retry::Backoff;
use crate::store::attempts::Rules;
use crate::stream::Entry;
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PassLoop, PolicyError};

/// The actor's name.
pub const NAME: &str = "JudgeDispatcher";
/// Pauses of the breaker.
const BREAKER: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(30) };

/// How it is supervised.
pub fn supervised(poll: Duration) -> Result<CheckedPolicy, PolicyError> {
    let mut policy = policy(NAME, Escalation::EndProcess);
    policy.passes.idle = poll;
    policy.checked()
}

/// The actor.
pub struct JudgeDispatcher {
    handle: ActorHandle,
    desk: Rc<Desk>,
}

/// A batch on its way, with the permits that it holds until its outcomes are written down.
struct Batch {
    entries: Vec<Entry>,
    permits: OwnedSemaphorePermit,
}

/// What the passes and the batches under way share on the actor's thread. Everything in it can be lost: it is rebuilt from the
/// pending list and the attempt rows.
pub struct Desk {
    engine: Arc<Engine>,
    controller: Controller,
    rules: Rules,
    /// One for each POST that may be under way.
    permits: Arc<Semaphore>,
    breaker: RefCell<Breaker>,
    /// Entries being handled now: what is re-read from the own pending list must not be handled twice at once.
    in_hand: RefCell<HashSet<(String, String)>>,
    /// The own pending list must be read again: at the start and after anything that left entries there.
    reread: Cell<bool>,
    lanes: RefCell<intake::Lanes>,
}

impl Desk {
    /// A desk with nothing on it.
    pub fn new(engine: Arc<Engine>, controller: Controller) -> Desk {
        let pace = &engine.config.pace;
        let rules = Rules { instance: engine.instance, budget: pace.budget, deadlines: pace.deadlines };
        Desk {
            permits: Arc::new(Semaphore::new(engine.config.controller.concurrency)),
            controller,
            rules,
            breaker: RefCell::new(Breaker::new(BREAKER)),
            in_hand: RefCell::new(HashSet::new()),
            reread: Cell::new(true),
            lanes: RefCell::new(intake::Lanes::default()),
            engine,
        }
    }

    /// Reads what there are permits for and handles it to the end: one pass for whoever repeats it by hand.
    pub async fn pass(&self) -> anyhow::Result<usize> {
        let Some(batch) = self.take().await? else { return Ok(0) };
        let count = batch.entries.len();
        self.handle_batch(batch).await;
        Ok(count)
    }

    /// Takes entries into the hand that are not in it yet.
    fn pick_up(&self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut in_hand = self.in_hand.borrow_mut();
        entries.into_iter().filter(|entry| in_hand.insert((entry.key.clone(), entry.id.clone()))).collect()
    }

    fn put_down(&self, entry: &Entry) {
        self.in_hand.borrow_mut().remove(&(entry.key.clone(), entry.id.clone()));
    }
}

impl JudgeDispatcher {
    /// An actor at a desk of its own.
    pub fn new(handle: ActorHandle, engine: Arc<Engine>, controller: Controller) -> JudgeDispatcher {
        JudgeDispatcher { handle, desk: Rc::new(Desk::new(engine, controller)) }
    }
}

impl Actor for JudgeDispatcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // As many batches may wait as there are permits; the permits are what really bounds them.
        let (batches, waiting) = mpsc::channel(self.desk.engine.config.controller.concurrency);
        let (desk, handle) = (Rc::clone(&self.desk), self.handle.clone());
        ctx.spawn(handle_batches(desk, handle, waiting).into_actor(self));
        let desk = Rc::clone(&self.desk);
        PassLoop::spawn(&self.handle, ctx, async move || intake::pass(&desk, &batches).await);
    }
}

impl Supervised for JudgeDispatcher {
    fn restarting(&mut self, _: &mut Self::Context) {
        // Whatever was in the hand is in the own pending list.
        let desk = &self.desk;
        self.desk = Rc::new(Desk::new(Arc::clone(&desk.engine), desk.controller.clone()));
    }
}

/// Handles batches side by side, so that one slow POST holds its own permit and nobody else's.
async fn handle_batches(desk: Rc<Desk>, handle: ActorHandle, mut waiting: mpsc::Receiver<Batch>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            batch = waiting.recv() => match batch {
                Some(batch) => under_way.push(desk.handle_batch(batch)),
                None => break,
            },
            Some(()) = under_way.next(), if !under_way.is_empty() => handle.wake(),
        }
    }
    while under_way.next().await.is_some() {}
}

impl Handler<Wake> for JudgeDispatcher {
    type Result = ();

    fn handle(&mut self, _: Wake, _: &mut Self::Context) {
        self.handle.wake();
    }
}

impl Handler<Dispatch> for JudgeDispatcher {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, Dispatch(entries): Dispatch, _: &mut Self::Context) -> Self::Result {
        let desk = Rc::clone(&self.desk);
        let work = async move {
            let count = u32::try_from(entries.len()).unwrap_or(1);
            let Ok(permits) = Arc::clone(&desk.permits).acquire_many_owned(count).await else { return };
            let entries = desk.pick_up(entries);
            desk.handle_batch(Batch { entries, permits }).await;
        };
        Box::pin(work.into_actor(self))
    }
}

/// Since when something is so.
fn seconds_since(then: Instant) -> f64 {
    then.elapsed().as_secs_f64()
}
