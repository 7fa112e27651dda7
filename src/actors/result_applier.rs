//! ResultApplier: gives each verified finish its effect, once. It parses no callback and answers none.
//!
//! Boundary: committed, not yet answered (2xx or XACK).
//! Takes: `ApplyResults` of verified finishes, and entries of the `results` stream that waited for PostgreSQL.
//! Leaves: one transaction per batch: inbox row, verdict, counters, the outbox event; then the answer, or the ack.
//! If it dies here: the finish is sent or delivered again, and finds its inbox row and the submission's state.
//! Poison: a batch that is refused is applied one by one; the bad one alone becomes a dead letter.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use actix::{Actor, Context, Handler, ResponseActFuture, Supervised, WrapFuture};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::{ApplyResults, Engine, NotApplied, Wake, policy};
use crate::protocol::heng::result::parse_finish;
use crate::protocol::submission::Applied;
use crate::store::dead_letters::{self, DeadEntry};
use crate::store::results::{self, Incoming, Rules, Via};
use crate::store::{StoreError, StoreResult};
use crate::stream::{Entry, SpilledFinish, StreamError, Undecodable};
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PassLoop, PolicyError, Progress, catch_item};
use crate::telemetry::METRICS;

/// The actor's name.
pub const NAME: &str = "ResultApplier";
/// The results stream is looked at this often.
const SPILL_POLL: Duration = Duration::from_millis(500);
/// Bodies in one transaction, bytes; a single one may be bigger.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How it is supervised.
pub fn supervised() -> Result<CheckedPolicy, PolicyError> {
    let mut policy = policy(NAME, Escalation::EndProcess);
    policy.passes.idle = SPILL_POLL;
    policy.passes.back_off_max = Duration::from_secs(1);
    policy.checked()
}

/// The actor.
pub struct ResultApplier {
    handle: ActorHandle,
    bench: Rc<Bench>,
}

type Answer = oneshot::Sender<Result<Vec<Applied>, NotApplied>>;

/// What waits for the next transaction. Whoever sent it still has it, or the stream does.
pub struct Bench {
    engine: Arc<Engine>,
    /// Told when events were written.
    poller: Option<actix::Recipient<Wake>>,
    queue: RefCell<VecDeque<(Vec<Incoming>, Answer)>>,
    spill_seen_at: RefCell<Option<Instant>>,
    reread: RefCell<bool>,
}

impl Bench {
    /// A bench with nothing on it.
    pub fn new(engine: Arc<Engine>, poller: Option<actix::Recipient<Wake>>) -> Bench {
        Bench {
            engine,
            poller,
            queue: RefCell::default(),
            spill_seen_at: RefCell::default(),
            reread: RefCell::new(true),
        }
    }

    fn rules(&self) -> Rules {
        Rules { budget: self.engine.config.pace.budget, retry: self.engine.config.pace.retry }
    }

    /// One pass: a transaction for what waits, then a look at the results stream.
    pub async fn pass(&self) -> anyhow::Result<Progress> {
        let waiting = self.take();
        if !waiting.is_empty() {
            self.apply_waiting(waiting).await?;
            if !self.queue.borrow().is_empty() {
                return Ok(Progress::More);
            }
        }
        let is_due = self.spill_seen_at.borrow().is_none_or(|at| at.elapsed() >= SPILL_POLL);
        if !is_due {
            return Ok(Progress::Idle);
        }
        self.apply_spilled().await
    }

    fn take(&self) -> Vec<(Vec<Incoming>, Answer)> {
        let mut queue = self.queue.borrow_mut();
        let (mut taken, mut count, mut bytes) = (Vec::new(), 0, 0);
        while let Some((next, answer)) = queue.pop_front() {
            if answer.is_closed() {
                // Nobody waits any more: it was spilled, or the controller comes again.
                continue;
            }
            count += next.len();
            bytes += next.iter().map(|incoming| incoming.body.len()).sum::<usize>();
            taken.push((next, answer));
            if count >= self.engine.config.pace.batch || bytes >= BATCH_BYTES_MAX {
                break;
            }
        }
        taken
    }

    async fn apply_waiting(&self, waiting: Vec<(Vec<Incoming>, Answer)>) -> anyhow::Result<()> {
        let (batches, answers): (Vec<Vec<Incoming>>, Vec<Answer>) = waiting.into_iter().unzip();
        let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
        let all: Vec<Incoming> = batches.into_iter().flatten().collect();
        let applied = self.apply(&all, None).await;
        match applied {
            Ok(applied) => {
                let mut applied = applied.into_iter();
                for (size, answer) in sizes.into_iter().zip(answers) {
                    // A receiver that is gone has given up waiting; the effect stands.
                    drop(answer.send(Ok(applied.by_ref().take(size).collect())));
                }
                Ok(())
            }
            Err(error) => {
                for answer in answers {
                    drop(answer.send(Err(NotApplied(error.to_string()))));
                }
                Err(error.into())
            }
        }
    }

    /// Applies finishes together, or one by one when the batch is refused; a finish that is refused alone becomes a dead letter.
    /// Errors: PostgreSQL is unavailable.
    pub async fn apply(&self, incoming: &[Incoming], entries: Option<&[Entry]>) -> StoreResult<Vec<Applied>> {
        let started = Instant::now();
        let applied = match self.transaction(incoming).await {
            Err(StoreError::Refused(why)) if incoming.len() == 1 => {
                self.bury(&incoming[0], entries.map(|entries| &entries[0]), &why).await?;
                vec![Applied::Unknown]
            }
            Err(StoreError::Refused(_)) => {
                let mut all = Vec::with_capacity(incoming.len());
                for (index, one) in incoming.iter().enumerate() {
                    let entry = entries.map(|entries| std::slice::from_ref(&entries[index]));
                    all.extend(Box::pin(self.apply(std::slice::from_ref(one), entry)).await?);
                }
                return Ok(all);
            }
            other => other?,
        };
        METRICS.apply_seconds.observe(started.elapsed().as_secs_f64());
        self.count(&applied);
        Ok(applied)
    }

    /// A panic over these rows is a refusal of these rows.
    async fn transaction(&self, incoming: &[Incoming]) -> StoreResult<Vec<Applied>> {
        catch_item(results::apply(&self.engine.pool, incoming, &self.rules(), rand::random()))
            .await
            .unwrap_or_else(|panic| Err(StoreError::Refused(panic.to_string())))
    }

    fn count(&self, applied: &[Applied]) {
        let ended = applied.iter().filter(|applied| applied.has_effect()).count();
        for one in applied {
            METRICS.results_total.with_label_values(&[one.disposition()]).inc();
            if matches!(one, Applied::Future | Applied::Unknown) {
                log::error!("a finish of an unknown {} was kept: did PostgreSQL lose its tail?", one.disposition());
            }
        }
        self.engine.in_flight_delta.fetch_sub(i64::try_from(ended).unwrap_or(i64::MAX), Ordering::Relaxed);
        if let (true, Some(poller)) = (ended > 0, &self.poller) {
            drop(poller.try_send(Wake));
        }
    }

    async fn bury(&self, incoming: &Incoming, entry: Option<&Entry>, why: &str) -> StoreResult<()> {
        log::error!("{NAME}: the finish of attempt {} is a dead letter: {why}", incoming.judge_id);
        let letter = DeadEntry {
            boundary: NAME,
            cause_class: "result_refused",
            message: why.to_owned(),
            stream: entry.map_or_else(|| "callback".to_owned(), |entry| entry.key.clone()),
            stream_id: entry.map_or_else(|| incoming.judge_id.to_string(), |entry| entry.id.clone()),
            payload: Some(incoming.body.to_vec()),
            submission: Some((incoming.submission, incoming.generation)),
        };
        dead_letters::keep(&self.engine.pool, &letter).await
    }

    /// Applies what waited in Redis while PostgreSQL was silent.
    async fn apply_spilled(&self) -> anyhow::Result<Progress> {
        let streams = &self.engine.streams;
        let count = self.engine.config.pace.batch;
        let read = if *self.reread.borrow() {
            streams.read_own(&self.engine.consumer(), "results", "0", count).await
        } else {
            streams.read_new(&self.engine.consumer(), &[("results".to_owned(), count)]).await
        };
        let entries = match read {
            Ok(entries) => entries,
            // The callbacks that PostgreSQL takes do not need Redis: its outage is no error of this actor.
            Err(error) => {
                *self.reread.borrow_mut() = true;
                *self.spill_seen_at.borrow_mut() = Some(Instant::now());
                if let StreamError::Missing(stream) = error {
                    log::debug!("{stream} is missing; the Reconciler creates it");
                }
                return Ok(Progress::Idle);
            }
        };
        let was_reread = self.reread.replace(false);
        if entries.is_empty() {
            *self.spill_seen_at.borrow_mut() = Some(Instant::now());
            return Ok(if was_reread { Progress::More } else { Progress::Idle });
        }
        *self.reread.borrow_mut() = was_reread;
        if let Err(error) = self.apply_entries(&entries).await {
            *self.reread.borrow_mut() = true;
            return Err(error);
        }
        Ok(Progress::More)
    }

    /// Applies entries of the results stream and acks them; what cannot be read becomes a dead letter.
    pub async fn apply_entries(&self, entries: &[Entry]) -> anyhow::Result<()> {
        let (mut finishes, mut readable, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            match SpilledFinish::read(entry) {
                Ok(finish) => {
                    finishes.push(from_stream(finish).await);
                    readable.push(entry.clone());
                }
                Err(Undecodable::Newer(_)) => {}
                Err(Undecodable::Broken(why)) => {
                    let letter = DeadEntry {
                        boundary: NAME,
                        cause_class: "undecodable_entry",
                        message: why,
                        stream: entry.key.clone(),
                        stream_id: entry.id.clone(),
                        payload: Some(entry.to_json()),
                        submission: None,
                    };
                    dead_letters::keep(&self.engine.pool, &letter).await?;
                    done.push(entry);
                }
            }
        }
        if !finishes.is_empty() {
            self.apply(&finishes, Some(&readable)).await?;
        }
        // Only what is committed is acked.
        self.engine.streams.ack_entries(readable.iter().chain(done)).await?;
        Ok(())
    }
}

pub(super) async fn from_stream(finish: SpilledFinish) -> Incoming {
    let report = catch_item(async { parse_finish(&finish.body) }).await.unwrap_or_else(|_| parse_finish(b""));
    let age_ms = crate::clock::now().timestamp_millis().saturating_sub(finish.received_ms);
    Incoming {
        judge_id: finish.judge_id,
        submission: finish.submission,
        generation: finish.generation,
        report,
        body_hash: Sha256::digest(&finish.body).into(),
        body: finish.body,
        age: Duration::from_millis(u64::try_from(age_ms).unwrap_or(0)),
        via: Via::Stream,
    }
}

impl ResultApplier {
    /// An actor that wakes `poller` when events were written.
    pub fn new(handle: ActorHandle, engine: Arc<Engine>, poller: Option<actix::Recipient<Wake>>) -> ResultApplier {
        ResultApplier { handle, bench: Rc::new(Bench::new(engine, poller)) }
    }
}

impl Actor for ResultApplier {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let bench = Rc::clone(&self.bench);
        PassLoop::spawn(&self.handle, ctx, async move || bench.pass().await);
    }
}

impl Supervised for ResultApplier {
    fn restarting(&mut self, _: &mut Self::Context) {
        // Whoever waits gets no answer and sends or spills again.
        self.bench = Rc::new(Bench::new(Arc::clone(&self.bench.engine), self.bench.poller.clone()));
    }
}

impl Handler<ApplyResults> for ResultApplier {
    type Result = ResponseActFuture<Self, Result<Vec<Applied>, NotApplied>>;

    fn handle(&mut self, ApplyResults(incoming): ApplyResults, _: &mut Self::Context) -> Self::Result {
        let (answer, answered) = oneshot::channel();
        self.bench.queue.borrow_mut().push_back((incoming, answer));
        self.handle.wake();
        // Callbacks are taken to the last: the loop has ended by then, so each one is its own pass.
        let alone = self.handle.draining().then(|| Rc::clone(&self.bench));
        let work = async move {
            if let Some(bench) = alone
                && let Err(error) = bench.pass().await
            {
                log::debug!("{NAME}: while draining: {error}");
            }
            answered.await.unwrap_or_else(|_| Err(NotApplied("restarted with it in hand".to_owned())))
        };
        Box::pin(work.into_actor(self))
    }
}
