//! The supervisor of one actor: drives the actor's own context, sees it panic, stop or hang, and starts it anew in place.
//!
//! It never makes a new actor nor a new mailbox: addresses and queued messages survive every restart. Its counts concern
//! one actor only; one actor's crashes never use up another's restarts.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use actix::dev::ContextFut;
use actix::dev::channel::{AddressReceiver, channel};
use actix::fut::wrap_future;
use actix::{Actor, ActorContext, Addr, ArbiterHandle, AsyncContext, Context, Supervised};
use futures_util::FutureExt;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::back_off::{BackOff, half_jitter};
use super::cell::{ActorHandle, Order};
use super::escalation::Escalation;
use super::panics::{PanicText, crash};
use super::policy::{CheckedPolicy, Policy};
use super::registry::{Fault, Registry};
use super::status::FailureKind;

/// Messages that wait before `try_send` reports a full mailbox; an actor may set another capacity in `started`.
const MAILBOX_CAPACITY: usize = 16;

/// Heartbeats per hang period; so many missed in a row mean hung. Counting beats instead of reading a clock spares an
/// actor that could take no turn because its whole thread was held up.
const BEATS_PER_HANG: u32 = 4;

/// How rarely an actor is tried that goes on failing without being worth the process.
const A_MINUTE: Duration = Duration::from_secs(60);

type Child<A> = ContextFut<A, Context<A>>;

/// Starts an actor under supervision on the given arbiter and returns its address, which stays valid over every restart.
///
/// `make` runs on the arbiter, once, and must do no I/O: that belongs into `started`, which runs again at every restart.
pub fn supervise<A>(
    arbiter: &ArbiterHandle,
    registry: &Registry,
    policy: CheckedPolicy,
    make: impl FnOnce(ActorHandle) -> A + Send + 'static,
) -> Addr<A>
where
    A: Supervised + Actor<Context = Context<A>>,
{
    let handle = registry.enroll(policy);
    let (sender, receiver) = channel(MAILBOX_CAPACITY);
    let unborn = handle.clone();
    if !arbiter.spawn_fn(move || start(unborn, receiver, make)) {
        log::error!("{}: its thread has ended, it was not started", handle.name());
        handle.cell.stopped();
        registry.changed();
    }
    Addr::new(sender)
}

/// Makes the actor on its own thread and lets its supervisor run there.
fn start<A>(handle: ActorHandle, receiver: AddressReceiver<A>, make: impl FnOnce(ActorHandle) -> A)
where
    A: Supervised + Actor<Context = Context<A>>,
{
    let mut supervisor = Supervisor::new(handle.clone());
    match catch_unwind(AssertUnwindSafe(|| make(handle))) {
        Ok(actor) => {
            let child = Context::with_receiver(receiver).into_future(actor);
            #[expect(clippy::disallowed_methods, reason = "the supervisor itself catches every panic of its child")]
            actix_rt::spawn(supervisor.run(child));
        }
        Err(payload) => supervisor.give_up(&Failure::panic(&*payload)),
    }
}

/// One failure of the child.
struct Failure {
    kind: FailureKind,
    text: String,
}

impl Failure {
    fn panic(payload: &(dyn std::any::Any + Send)) -> Self {
        Self { kind: FailureKind::Panic, text: PanicText::of(payload).to_string() }
    }

    fn stop() -> Self {
        Self { kind: FailureKind::Stop, text: "it stopped itself".to_owned() }
    }

    fn hang(text: String) -> Self {
        Self { kind: FailureKind::Hang, text }
    }
}

/// How one life of the child ended.
enum End {
    Failed(Failure),
    Ordered,
}

/// The heartbeat of one life: a future spawned into the child, which runs only if the child takes turns.
struct Heart {
    beat: Interval,
    turned: Rc<std::cell::Cell<bool>>,
    missed: u32,
    born: Instant,
}

impl Heart {
    fn new(policy: &Policy) -> Self {
        let mut beat = interval((policy.hang_after / BEATS_PER_HANG).max(Duration::from_millis(1)));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { beat, turned: Rc::new(std::cell::Cell::new(true)), missed: 0, born: Instant::now() }
    }
}

struct Supervisor {
    handle: ActorHandle,
    back_off: BackOff,
    /// When the failures happened that still count.
    failures: VecDeque<Instant>,
    /// The restarts were spent, and the policy is to go on all the same.
    failing: bool,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.handle.cell.stopped();
        self.handle.registry.changed();
    }
}

impl Supervisor {
    fn new(handle: ActorHandle) -> Self {
        let policy = handle.policy();
        let back_off = BackOff::new(policy.back_off_base, policy.back_off_max);
        Self { handle, back_off, failures: VecDeque::new(), failing: false }
    }

    async fn run<A>(mut self, mut child: Child<A>)
    where
        A: Supervised + Actor<Context = Context<A>>,
    {
        // Without an address of its own, a child that nobody else addresses would end instead of being restarted.
        let address = child.address();
        let mut end = self.live(&mut child).await;
        loop {
            if let End::Failed(failure) = end
                && self.recover(&failure).await.is_break()
            {
                break;
            }
            end = match self.restart(&mut child) {
                Ok(()) => self.live(&mut child).await,
                Err(failure) => End::Failed(failure),
            };
        }
        drop(address);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(child))) {
            log::error!("{}: {} while it was dropped", self.handle.name(), PanicText::of(&*payload));
        }
    }

    /// Drives the child until it fails or somebody orders its restart.
    async fn live<A>(&mut self, child: &mut Child<A>) -> End
    where
        A: Supervised + Actor<Context = Context<A>>,
    {
        let handle = self.handle.clone();
        let mut heart = Heart::new(handle.policy());
        loop {
            // The child first: after a held-up thread it takes its turn before anybody asks whether it took one. The
            // others outside the budget of the runtime: a busy child may use all of that up, every time.
            tokio::select! {
                biased;
                end = AssertUnwindSafe(&mut *child).catch_unwind() => {
                    return End::Failed(end.map_or_else(|payload| Failure::panic(&*payload), |()| Failure::stop()));
                }
                order = tokio::task::unconstrained(handle.cell.order()) => match order {
                    Order::Restart => return End::Ordered,
                    Order::Inject(fault) => inject(child, fault),
                },
                _ = tokio::task::unconstrained(heart.beat.tick()) => {
                    if let Some(failure) = self.beat(child, &mut heart) {
                        return End::Failed(failure);
                    }
                }
            }
        }
    }

    /// Looks whether the child took a turn since the last beat, and asks for the next one.
    fn beat<A>(&mut self, child: &mut Child<A>, heart: &mut Heart) -> Option<Failure>
    where
        A: Actor<Context = Context<A>>,
    {
        let hang_after = self.handle.policy().hang_after;
        if !heart.turned.replace(false) {
            heart.missed += 1;
            let hung = heart.missed >= BEATS_PER_HANG;
            return hung.then(|| Failure::hang(format!("it took no turn for {hang_after:?}")));
        }
        heart.missed = 0;
        if let Some(late) = self.handle.cell.loop_overdue() {
            let silence = hang_after + late;
            return Some(Failure::hang(format!("its loop took no turn for {silence:.1?}")));
        }
        if heart.born.elapsed() >= self.handle.policy().healthy_after {
            self.recovered();
        }
        let (turned, handle, failing) = (heart.turned.clone(), self.handle.clone(), self.failing);
        child.ctx().spawn(wrap_future(async move {
            turned.set(true);
            if handle.cell.turned(failing) {
                handle.registry.changed();
            }
        }));
        None
    }

    /// A healthy period has passed: what happened before it is forgotten.
    fn recovered(&mut self) {
        self.back_off.reset();
        if std::mem::take(&mut self.failing) {
            log::info!("{}: healthy again", self.handle.name());
        }
    }

    /// Counts the failure and waits until the child may be restarted; breaks if it may not.
    async fn recover(&mut self, failure: &Failure) -> std::ops::ControlFlow<()> {
        let policy = self.handle.policy();
        if failure.kind == FailureKind::Stop && self.handle.registry.draining() {
            return std::ops::ControlFlow::Break(());
        }
        let now = Instant::now();
        self.failures.push_back(now);
        while self.failures.front().is_some_and(|first| now.duration_since(*first) > policy.within) {
            self.failures.pop_front();
        }
        if self.failures.len() > policy.max_restarts {
            match policy.escalation {
                Escalation::EndProcess => {
                    self.give_up(failure);
                    return std::ops::ControlFlow::Break(());
                }
                Escalation::BackOffToAMinute => self.failing = true,
            }
        }
        self.back_off(failure).await;
        std::ops::ControlFlow::Continue(())
    }

    async fn back_off(&mut self, failure: &Failure) {
        let ceiling = if self.failing { self.back_off.next_up_to(A_MINUTE) } else { self.back_off.next() };
        let delay = half_jitter(ceiling);
        let cell = &self.handle.cell;
        log::warn!("{}: {}; it is restarted in {delay:.1?}", self.handle.name(), failure.text);
        cell.failed(failure.kind, &failure.text);
        cell.backs_off(delay, self.failing);
        self.handle.registry.changed();
        let ordered = async { while cell.order().await != Order::Restart {} };
        // Either way the restart follows: the wait has passed, or somebody asked for it now.
        drop(tokio::time::timeout(delay, ordered).await);
    }

    /// Drops the child's futures, lets it rebuild itself and makes it start again on its next turn.
    fn restart<A>(&self, child: &mut Child<A>) -> Result<(), Failure>
    where
        A: Supervised + Actor<Context = Context<A>>,
    {
        self.handle.cell.restarts(self.failing);
        self.handle.registry.changed();
        match catch_unwind(AssertUnwindSafe(|| child.restart())) {
            Ok(_) => Ok(()),
            Err(payload) => Err(Failure::panic(&*payload)),
        }
    }

    fn give_up(&mut self, failure: &Failure) {
        let name = self.handle.name();
        log::error!("{name}: {}; it is not restarted any more", failure.text);
        self.handle.cell.failed(failure.kind, &failure.text);
        self.handle.cell.stopped();
        if self.handle.policy().escalation == Escalation::EndProcess {
            self.handle.registry.escalate(name, &failure.text);
        }
        self.handle.registry.changed();
    }
}

/// Makes the child fail on its next turn.
fn inject<A>(child: &mut Child<A>, fault: Fault)
where
    A: Actor<Context = Context<A>>,
{
    match fault {
        Fault::Panic => {
            child.ctx().spawn(wrap_future(async { crash("on purpose") }));
        }
        Fault::Stop => child.ctx().stop(),
        Fault::Hang => child.ctx().wait(wrap_future(std::future::pending())),
    }
}
