//! The status cell of one actor: written by its supervisor and its loop, read by anyone without waiting for the actor.
//!
//! It decides nothing; and no message passes through it, so health never queues behind work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Utc};
use tokio::sync::Notify;

use super::outage::{Announcement, Outage};
use super::policy::Policy;
use super::registry::{Fault, Registry};
use super::status::{ActorState, ActorStatus, FailureKind, FailureStatus, PassOutcome, PassStatus};

/// What somebody outside asks a supervisor to do to its actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Inject(Fault),
    Restart,
}

/// What is known of one actor.
#[derive(Debug)]
pub(super) struct StatusCell {
    policy: Policy,
    life: Mutex<Life>,
    order: Mutex<Option<Order>>,
    ordered: Notify,
    wake: Notify,
}

#[derive(Debug)]
struct Life {
    state: ActorState,
    restarts: u64,
    back_off: Option<Duration>,
    last_failure: Option<FailureStatus>,
    last_pass: Option<EndedPass>,
    outage: Outage,
    passes: u64,
    turns: u64,
    pass_running: bool,
    pacing: Pacing,
    /// The last heartbeat, or for an actor with a loop the last end of a pass.
    last_turn: Instant,
    /// Without a further turn the actor is not ready from here on.
    ready_until: Instant,
}

/// Whether the actor runs a pass loop, and when that must show a turn at the latest.
#[derive(Debug)]
enum Pacing {
    NoLoop,
    LoopDue(Instant),
    LoopEnded,
}

#[derive(Debug)]
struct EndedPass {
    outcome: PassOutcome,
    at: DateTime<Utc>,
    ended: Instant,
}

/// This process's clock: for display only, never compared with the database's.
fn wall_clock() -> DateTime<Utc> {
    SystemTime::now().into()
}

/// Locks even after a panic elsewhere: the values behind these locks are whole after every statement.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl StatusCell {
    pub(super) fn new(policy: Policy) -> Self {
        let now = Instant::now();
        let life = Life {
            state: ActorState::Starting,
            restarts: 0,
            back_off: None,
            last_failure: None,
            last_pass: None,
            outage: Outage::default(),
            passes: 0,
            turns: 0,
            pass_running: false,
            pacing: Pacing::NoLoop,
            last_turn: now,
            ready_until: now + policy.hang_after,
        };
        let (order, life) = (Mutex::new(None), Mutex::new(life));
        Self { policy, life, order, ordered: Notify::new(), wake: Notify::new() }
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        lock(&self.life)
    }

    pub(super) fn wake(&self) -> &Notify {
        &self.wake
    }

    pub(super) fn give_order(&self, order: Order) {
        *lock(&self.order) = Some(order);
        self.ordered.notify_one();
    }

    /// Waits for an order. Dropping this future loses none: an order stays until it is taken.
    pub(super) async fn order(&self) -> Order {
        loop {
            if let Some(order) = lock(&self.order).take() {
                return order;
            }
            self.ordered.notified().await;
        }
    }

    /// A heartbeat ran in the actor. Returns whether this is its first since it was made or restarted.
    pub(super) fn turned(&self, failing: bool) -> bool {
        let mut life = self.life();
        let state = if failing { ActorState::Failing } else { ActorState::Running };
        let first = std::mem::replace(&mut life.state, state) != state;
        life.turns += 1;
        life.back_off = None;
        if matches!(life.pacing, Pacing::NoLoop) {
            life.last_turn = Instant::now();
            life.ready_until = life.last_turn + self.policy.hang_after;
        }
        first
    }

    pub(super) fn failed(&self, kind: FailureKind, text: &str) {
        self.life().last_failure = Some(FailureStatus { kind, text: text.to_owned(), at: wall_clock() });
    }

    /// The actor waits `delay` before its restart. A pause that its loop announced excuses it no longer; but one that is
    /// only shown as failing stays ready for as long as it waits.
    pub(super) fn backs_off(&self, delay: Duration, failing: bool) {
        let mut life = self.life();
        life.back_off = Some(delay);
        life.state = if failing { ActorState::Failing } else { ActorState::BackingOff };
        let limit = Instant::now() + self.policy.hang_after;
        life.ready_until = if failing { limit + delay } else { life.ready_until.min(limit) };
    }

    /// The actor starts anew; what its former loop promised no longer holds.
    pub(super) fn restarts(&self, failing: bool) {
        let mut life = self.life();
        life.restarts += 1;
        life.back_off = None;
        life.state = if failing { ActorState::Failing } else { ActorState::Starting };
        if let Pacing::LoopDue(due) = &mut life.pacing {
            *due = Instant::now() + self.policy.hang_after;
        }
    }

    pub(super) fn stopped(&self) {
        let mut life = self.life();
        life.state = ActorState::Stopped;
        life.back_off = None;
    }

    /// How long the loop has been overdue, if it is.
    pub(super) fn loop_overdue(&self) -> Option<Duration> {
        match self.life().pacing {
            Pacing::LoopDue(due) => Instant::now().checked_duration_since(due).filter(|late| !late.is_zero()),
            Pacing::NoLoop | Pacing::LoopEnded => None,
        }
    }

    /// The loop takes a turn, or waits on purpose for `pause`: it must show the next turn within the hang period after that.
    fn loop_turns(&self, pause: Duration) {
        self.life().pacing = Pacing::LoopDue(Instant::now() + pause + self.policy.hang_after);
    }

    pub(super) fn loop_begins(&self) {
        self.loop_turns(Duration::ZERO);
    }

    pub(super) fn loop_ends(&self) {
        self.life().pacing = Pacing::LoopEnded;
    }

    pub(super) fn pass_begins(&self) {
        self.loop_turns(Duration::ZERO);
        self.life().pass_running = true;
    }

    /// The pass was dropped before its end: by a restart, a panic or the end of its thread.
    pub(super) fn pass_dropped(&self) {
        self.life().pass_running = false;
    }

    /// The pass ended, and the loop waits for `pause` before the next.
    pub(super) fn pass_ends(&self, outcome: PassOutcome, pause: Duration) -> Announcement {
        self.loop_turns(pause);
        let now = Instant::now();
        let mut life = self.life();
        life.pass_running = false;
        life.passes += 1;
        life.last_turn = now;
        life.ready_until = now + pause + self.policy.hang_after;
        let announcement = match &outcome {
            PassOutcome::Error(_) => life.outage.failed(now),
            PassOutcome::Progress | PassOutcome::Idle => life.outage.succeeded(),
        };
        life.last_pass = Some(EndedPass { outcome, at: wall_clock(), ended: now });
        announcement
    }

    pub(super) fn pass_running(&self) -> bool {
        self.life().pass_running
    }

    pub(super) fn status(&self, draining: bool) -> ActorStatus {
        let life = self.life();
        let last_pass = life.last_pass.as_ref().map(|pass| PassStatus {
            outcome: pass.outcome.clone(),
            at: pass.at,
            age_ms: milliseconds(pass.ended.elapsed()),
        });
        ActorStatus {
            name: self.policy.name.clone(),
            state: life.shown_state(draining),
            restarts: life.restarts,
            back_off_ms: life.back_off.map(milliseconds),
            last_failure: life.last_failure.clone(),
            last_pass,
            consecutive_errors: life.outage.errors(),
            passes: life.passes,
            turns: life.turns,
        }
    }

    /// Why this actor is not ready, in words, or `None` if it is.
    pub(super) fn unready(&self) -> Option<String> {
        let (name, life) = (&self.policy.name, self.life());
        let now = Instant::now();
        let silence = now.duration_since(life.last_turn);
        if life.state == ActorState::Stopped {
            Some(format!("{name} has stopped"))
        } else if now <= life.ready_until {
            life.unstarted().map(|what| format!("{name} {what}"))
        } else if life.back_off.is_some() {
            let failure = life.last_failure.as_ref().map_or("unknown", |failure| &failure.text);
            Some(format!("{name} is backing off after a failure ({failure}), its last turn was {silence:.1?} ago"))
        } else {
            Some(format!("{name} has taken no turn for {silence:.1?}"))
        }
    }
}

impl Life {
    fn shown_state(&self, draining: bool) -> ActorState {
        match (self.state, &self.pacing) {
            (ActorState::Stopped, _) => ActorState::Stopped,
            (_, Pacing::LoopEnded) if draining => ActorState::Stopped,
            _ if draining => ActorState::Draining,
            (state, _) => state,
        }
    }

    /// What an actor that has not been silent for long still lacks to count as started.
    fn unstarted(&self) -> Option<&'static str> {
        if self.turns == 0 {
            Some("has not started yet")
        } else if self.passes == 0 && !matches!(self.pacing, Pacing::NoLoop) {
            Some("has not ended its first pass yet")
        } else {
            None
        }
    }
}

/// What a supervised actor holds of its own supervision: its name, its wake-up and the way to spawn its loop.
#[derive(Clone, Debug)]
pub struct ActorHandle {
    pub(super) cell: Arc<StatusCell>,
    pub(super) registry: Registry,
}

impl ActorHandle {
    /// The actor's name in its registry.
    pub fn name(&self) -> &str {
        &self.cell.policy.name
    }

    /// The actor's limits.
    pub fn policy(&self) -> &Policy {
        &self.cell.policy
    }

    /// Ends the loop's wait for work at once. A hint: never lost, never more than one pass, and it shortens no back-off.
    pub fn wake(&self) {
        self.cell.wake.notify_one();
    }

    /// Whether the process is draining.
    pub fn draining(&self) -> bool {
        self.registry.draining()
    }
}
