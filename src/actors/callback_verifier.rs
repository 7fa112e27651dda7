//! CallbackVerifier: turns an authentic callback into a stored fact before it is answered. The tag was checked before its body was
//! read; what the body means for the submission is not decided here.
//!
//! Boundary: untrusted → verified; stored before the 2xx.
//! Takes: `VerifyCallback`, which only a valid tag can make.
//! Leaves: a finish applied by the ResultApplier, or, while PostgreSQL is silent, waiting in the `results` stream; then the answer.
//! If it dies here: the controller gets no 2xx and comes again within 70 seconds.
//! Poison: an authentic body that makes no sense is a system error of its attempt, recorded and answered 2xx.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Context, Handler, ResponseActFuture, Supervised, WrapFuture};
use actix_web::web::Bytes;
use sha2::{Digest, Sha256};

use super::result_applier::ResultApplier;
use super::{ApplyResults, Engine, NotStored, VerifyCallback, Wake, policy};
use crate::protocol::callback_url::AuthenticCallback;
use crate::protocol::heng::result::{UpdateState, parse_finish, parse_update};
use crate::protocol::{CallbackKind, JudgeId};
use crate::store::results::{Incoming, Via};
use crate::store::{attempts, instances};
use crate::stream::{SpilledFinish, StreamError};
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PassLoop, PolicyError, Progress, catch_item};
use crate::telemetry::METRICS;

/// The actor's name.
pub const NAME: &str = "CallbackVerifier";
/// PostgreSQL silent for this long: the finish goes to Redis.
const APPLY_LIMIT: Duration = Duration::from_secs(1);
/// Redis silent for this long as well: the controller must come again.
const SPILL_LIMIT: Duration = Duration::from_millis(700);
/// Progress is written down this often at most.
const FLUSH: Duration = Duration::from_millis(200);
/// Attempts whose progress is held; more are dropped, they are hints.
const PROGRESS_MAX: usize = 20_000;

/// How it is supervised.
pub fn supervised() -> Result<CheckedPolicy, PolicyError> {
    let mut policy = policy(NAME, Escalation::EndProcess);
    policy.passes.idle = Duration::from_secs(5);
    policy.checked()
}

/// The actor.
pub struct CallbackVerifier {
    handle: ActorHandle,
    door: Rc<Door>,
}

/// What the callbacks share. The progress in it are hints: a crash loses them and nothing else.
struct Door {
    engine: Arc<Engine>,
    applier: Addr<ResultApplier>,
    /// The newest progress of each attempt that is not written down yet.
    progress: RefCell<HashMap<JudgeId, attempts::Progress>>,
}

impl CallbackVerifier {
    /// An actor that has finishes applied by `applier`.
    pub fn new(handle: ActorHandle, engine: Arc<Engine>, applier: Addr<ResultApplier>) -> CallbackVerifier {
        CallbackVerifier { handle, door: Rc::new(Door { engine, applier, progress: RefCell::default() }) }
    }
}

impl Actor for CallbackVerifier {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let door = Rc::clone(&self.door);
        PassLoop::spawn(&self.handle, ctx, async move || door.flush().await);
    }
}

impl Supervised for CallbackVerifier {
    fn restarting(&mut self, _: &mut Self::Context) {
        let (engine, applier) = (Arc::clone(&self.door.engine), self.door.applier.clone());
        self.door = Rc::new(Door { engine, applier, progress: RefCell::default() });
    }
}

impl Handler<VerifyCallback> for CallbackVerifier {
    type Result = ResponseActFuture<Self, Result<(), NotStored>>;

    fn handle(&mut self, message: VerifyCallback, _: &mut Self::Context) -> Self::Result {
        let (door, handle) = (Rc::clone(&self.door), self.handle.clone());
        let work = async move {
            door.engine.controller_was_heard.store(true, Ordering::Relaxed);
            let VerifyCallback { callback, body, received_at } = message;
            match callback.kind() {
                CallbackKind::Update => {
                    door.note_progress(&callback, &body);
                    handle.wake();
                    Ok(())
                }
                CallbackKind::Finish => door.finish(&callback, body, received_at).await,
            }
        };
        Box::pin(work.into_actor(self))
    }
}

impl Handler<Wake> for CallbackVerifier {
    type Result = ();

    fn handle(&mut self, _: Wake, _: &mut Self::Context) {
        self.handle.wake();
    }
}

impl Door {
    /// Keeps the newest progress of an attempt in memory, never in front of a finish.
    fn note_progress(&self, callback: &AuthenticCallback, body: &[u8]) {
        let state = parse_update(body);
        let progress = attempts::Progress {
            judge_id: callback.judge_id(),
            is_running: state == UpdateState::Judging,
            // PostgreSQL's text cannot hold it, and one such hint must not fail its neighbours.
            state: state.as_str().replace('\0', "\u{fffd}"),
        };
        METRICS.callbacks_total.with_label_values(&["update", "noted"]).inc();
        let mut held = self.progress.borrow_mut();
        if held.len() < PROGRESS_MAX || held.contains_key(&progress.judge_id) {
            held.insert(progress.judge_id, progress);
        }
    }

    /// One pass: writes down progress, and that the controller was heard.
    async fn flush(&self) -> anyhow::Result<Progress> {
        // Gathered for a moment: one statement for many attempts.
        tokio::time::sleep(FLUSH).await;
        let pool = &self.engine.pool;
        if self.engine.controller_was_heard.load(Ordering::Relaxed) {
            instances::controller_heard(pool).await?;
            self.engine.controller_was_heard.store(false, Ordering::Relaxed);
        }
        let held: Vec<attempts::Progress> = self.progress.borrow_mut().drain().map(|(_, progress)| progress).collect();
        if !held.is_empty() {
            attempts::progress(pool, &held).await?;
        }
        Ok(Progress::Idle)
    }

    /// Has a finish applied, or keeps it in Redis; `Ok` means that it is stored.
    async fn finish(&self, callback: &AuthenticCallback, body: Bytes, received_at: Instant) -> Result<(), NotStored> {
        // Its attempt's progress would come too late: the finish says more.
        self.progress.borrow_mut().remove(&callback.judge_id());
        let incoming = incoming(callback, body, received_at.elapsed(), Via::Callback).await;
        let spilled = SpilledFinish {
            submission: incoming.submission,
            generation: incoming.generation,
            judge_id: incoming.judge_id,
            received_ms: crate::clock::now().timestamp_millis(),
            body: incoming.body.clone(),
        };
        let why = match self.applier.send(ApplyResults(vec![incoming])).timeout(APPLY_LIMIT).await {
            Ok(Ok(_)) => {
                METRICS.callbacks_total.with_label_values(&["finish", "applied"]).inc();
                return Ok(());
            }
            Ok(Err(not_applied)) => not_applied.to_string(),
            // Silent, or restarted with it in hand: it may have been applied, and the inbox knows.
            Err(mailbox) => mailbox.to_string(),
        };
        self.spill(&spilled, &why).await
    }

    async fn spill(&self, finish: &SpilledFinish, why: &str) -> Result<(), NotStored> {
        let spill = self.engine.streams.spill(finish, self.engine.config.callbacks.spill_max);
        let spilled = tokio::time::timeout(SPILL_LIMIT, spill)
            .await
            .unwrap_or_else(|_| Err(StreamError::Unavailable("no answer".to_owned())));
        match spilled {
            Ok(()) => {
                METRICS.callbacks_total.with_label_values(&["finish", "spilled"]).inc();
                log::debug!("finish of attempt {} waits in Redis: {why}", finish.judge_id);
                Ok(())
            }
            Err(error) => {
                METRICS.callbacks_total.with_label_values(&["finish", "not_stored"]).inc();
                log::warn!(
                    "finish of attempt {} is not stored, the controller must come again: {why}; {error}",
                    finish.judge_id
                );
                Err(NotStored)
            }
        }
    }
}

/// Reads a finish's body. A panic over it makes it a system error like any other body without sense.
async fn incoming(callback: &AuthenticCallback, body: Bytes, age: Duration, via: Via) -> Incoming {
    let read = catch_item(async { parse_finish(&body) }).await;
    let report = read.unwrap_or_else(|_| parse_finish(b""));
    Incoming {
        judge_id: callback.judge_id(),
        submission: callback.submission(),
        generation: callback.generation(),
        report,
        body_hash: Sha256::digest(&body).into(),
        body,
        age,
        via,
    }
}
