//! The actor of these tests: it panics, stops, hangs and errs when it is told to.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use actix::prelude::*;
use futures_util::future::LocalBoxFuture;
use judge_relay::supervision::{
    ActorHandle, ActorState, ActorStatus, Escalation, PassLoop, Policy, Progress, Registry, crash, supervise,
};

pub const NAME: &str = "boundary";

/// The longest that any condition may take on a loaded machine; nothing is measured with it.
const DEADLINE: Duration = Duration::from_secs(30);

type Pass = Arc<dyn Fn(u64, ActorHandle) -> LocalBoxFuture<'static, anyhow::Result<Progress>> + Send + Sync>;

/// What the boundary does without being asked; shared with the test.
#[derive(Clone, Default)]
pub struct Plan {
    /// Calls of `started` that still crash.
    pub bad_starts: Arc<AtomicU64>,
    /// Calls of `restarting` that still crash.
    pub bad_restarts: Arc<AtomicU64>,
    /// Calls of `restarting` that rebuilt the actor.
    pub rebuilt: Arc<AtomicU64>,
    /// What the loop does in its n-th pass, counted from 1 over all restarts; without one there is no loop.
    pub pass: Option<Pass>,
    pub passes: Arc<AtomicU64>,
}

impl Plan {
    pub fn with_pass<F>(pass: impl Fn(u64, ActorHandle) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = anyhow::Result<Progress>> + 'static,
    {
        let pass: Pass = Arc::new(move |nth, handle| Box::pin(pass(nth, handle)));
        Self { pass: Some(pass), ..Self::default() }
    }
}

pub struct Boundary {
    handle: ActorHandle,
    plan: Plan,
    pass_loop: Option<SpawnHandle>,
    half_written: bool,
}

fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Actor for Boundary {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if take_one(&self.plan.bad_starts) {
            crash("in started");
        }
        let Some(pass) = self.plan.pass.clone() else { return };
        let (handle, passes) = (self.handle.clone(), self.plan.passes.clone());
        let turn = async move || pass(passes.fetch_add(1, Ordering::SeqCst) + 1, handle.clone()).await;
        self.pass_loop = Some(PassLoop::spawn(&self.handle, ctx, turn));
    }
}

impl Supervised for Boundary {
    fn restarting(&mut self, _: &mut Self::Context) {
        if take_one(&self.plan.bad_restarts) {
            crash("in restarting");
        }
        self.half_written = false;
        self.plan.rebuilt.fetch_add(1, Ordering::SeqCst);
    }
}

/// Answers with its number, and whether the actor's state is whole.
#[derive(Message)]
#[rtype(result = "(u32, bool)")]
pub struct Ask(pub u32);

impl Handler<Ask> for Boundary {
    type Result = MessageResult<Ask>;

    fn handle(&mut self, ask: Ask, _: &mut Self::Context) -> Self::Result {
        MessageResult((ask.0, !self.half_written))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Message)]
#[rtype(result = "()")]
pub enum Fail {
    InHandler,
    InFuture,
    InInterval,
    Stop,
    Terminate,
    Hang,
    /// Leaves a future behind that panics when it is dropped, then panics.
    WithBomb,
}

struct Bomb(Cell<bool>);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0.get() {
            crash("in a drop");
        }
    }
}

impl Handler<Fail> for Boundary {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, fail: Fail, ctx: &mut Self::Context) -> Self::Result {
        self.half_written = true;
        match fail {
            Fail::InHandler => panic!("in a handler"),
            Fail::InFuture => return Box::pin(async { crash("in a future") }.into_actor(self)),
            Fail::InInterval => {
                ctx.run_interval(Duration::from_millis(1), |_, _| crash("in an interval"));
            }
            Fail::Stop => ctx.stop(),
            Fail::Terminate => ctx.terminate(),
            Fail::Hang => ctx.wait(std::future::pending().into_actor(self)),
            Fail::WithBomb => {
                let bomb = Bomb(Cell::new(true));
                let keep = async move {
                    std::future::pending::<()>().await;
                    drop(bomb);
                };
                ctx.spawn(keep.into_actor(self));
                ctx.run_later(Duration::from_millis(1), |_, _| crash("over a bomb"));
            }
        }
        Box::pin(std::future::pending().into_actor(self))
    }
}

/// Cancels the loop's future, as a careless actor might.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LoseLoop;

impl Handler<LoseLoop> for Boundary {
    type Result = ();

    fn handle(&mut self, _: LoseLoop, ctx: &mut Self::Context) {
        if let Some(pass_loop) = self.pass_loop.take() {
            ctx.cancel_future(pass_loop);
        }
    }
}

/// A boundary under supervision on this thread, and what was escalated.
pub struct Scene {
    pub registry: Registry,
    pub address: Addr<Boundary>,
    escalated: Arc<Mutex<VecDeque<(String, String)>>>,
}

/// Quick limits: hung after 200 ms, restarted after 1 to 2 ms.
pub fn quick(escalation: Escalation) -> Policy {
    let mut policy = Policy::new(NAME, escalation);
    policy.hang_after = Duration::from_millis(200);
    policy.back_off_base = Duration::from_millis(2);
    policy.back_off_max = Duration::from_millis(4);
    policy.passes.limit = Duration::from_millis(100);
    policy.passes.idle = Duration::from_secs(3600);
    policy.passes.back_off_base = Duration::ZERO;
    policy.passes.back_off_max = Duration::ZERO;
    policy
}

impl Scene {
    pub fn set(policy: Policy, plan: Plan) -> Self {
        let escalated = Arc::new(Mutex::new(VecDeque::new()));
        let list = escalated.clone();
        let registry = Registry::new(move |name, why| {
            list.lock().unwrap().push_back((name.to_owned(), why.to_owned()));
        });
        let make = |handle| Boundary { handle, plan, pass_loop: None, half_written: false };
        let address = supervise(&Arbiter::current(), &registry, policy.checked().unwrap(), make);
        Self { registry, address, escalated }
    }

    pub fn status(&self) -> ActorStatus {
        self.registry.status(NAME).unwrap()
    }

    pub fn escalated(&self) -> Vec<(String, String)> {
        self.escalated.lock().unwrap().iter().cloned().collect()
    }

    /// Waits until the boundary's status is as wanted; looks at every change, and now and then for what only time changes.
    pub async fn until(&self, what: &str, wanted: impl Fn(&ActorStatus) -> bool) -> ActorStatus {
        self.until_registry(what, |registry| wanted(&registry.status(NAME).unwrap())).await;
        self.status()
    }

    pub async fn until_registry(&self, what: &str, wanted: impl Fn(&Registry) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !wanted(&self.registry) {
            assert!(Instant::now() < deadline, "still waiting until {what}: {:?}", self.status());
            let change = self.registry.until(&wanted);
            drop(actix::clock::timeout(Duration::from_millis(5), change).await);
        }
    }

    /// Waits until the boundary runs after so many restarts.
    pub async fn running_after(&self, restarts: u64) -> ActorStatus {
        let what = format!("it runs after {restarts} restarts");
        self.until(&what, |status| status.restarts == restarts && status.state == ActorState::Running).await
    }
}
