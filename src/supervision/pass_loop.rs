//! The loop around a pass: one at a time, each under a limit, errors waited out, no pass after a drain began.
//!
//! It knows nothing of what a pass does, and it never restarts anything: its panics are its actor's, whose supervisor acts.

use std::time::Duration;

use actix::fut::wrap_future;
use actix::{Actor, AsyncContext, Context, SpawnHandle};
use tokio::sync::futures::Notified;

use super::back_off::{BackOff, full_jitter, half_jitter};
use super::cell::ActorHandle;
use super::outage::Announcement;
use super::status::PassOutcome;

/// An error that asks for a longer wait than this is mistaken.
const LONGEST_HINT: Duration = Duration::from_secs(60 * 60);

/// What a pass that went well says it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done and more may be waiting: the next pass follows at once.
    More,
    /// There is nothing to do for now: the next pass follows a wake-up or the idle delay.
    Idle,
}

/// An error that knows how long it is useless to try again. Return it from a pass, bare or under a context.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unavailable {
    /// What is not available, for the log line and the status.
    pub why: String,
    /// The next pass follows this long after, or later; at most an hour counts.
    pub wait_at_least: Duration,
}

/// The loop of one actor.
#[derive(Debug)]
pub struct PassLoop {
    handle: ActorHandle,
    back_off: BackOff,
}

/// What comes between this pass and the next.
enum Pause {
    /// Only the other futures of this thread.
    None,
    /// A wake-up, or this long without one.
    Idle(Duration),
    /// This long, whoever calls.
    Error(Duration),
}

impl Pause {
    fn length(&self) -> Duration {
        match *self {
            Self::None => Duration::ZERO,
            Self::Idle(delay) | Self::Error(delay) => delay,
        }
    }
}

/// A pass in progress; dropped with it, whatever ends it.
struct RunningPass<'a>(&'a ActorHandle);

impl<'a> RunningPass<'a> {
    /// `None` once the process is draining.
    fn begin(handle: &'a ActorHandle) -> Option<Self> {
        handle.registry.admit_pass().then(|| {
            handle.cell.pass_begins();
            Self(handle)
        })
    }
}

impl Drop for RunningPass<'_> {
    fn drop(&mut self) {
        self.0.cell.pass_dropped();
        self.0.registry.discharge_pass();
    }
}

impl PassLoop {
    /// Repeats `pass` as a future of the actor: call it in `started`, once, so that every restart begins the loop anew.
    ///
    /// The limits are those of the actor's policy. A pass that exceeds its limit is dropped where it stands. The handle is
    /// the loop's; an actor that cancels it counts as hung.
    pub fn spawn<A>(
        handle: &ActorHandle,
        ctx: &mut Context<A>,
        pass: impl AsyncFnMut() -> Result<Progress, anyhow::Error> + 'static,
    ) -> SpawnHandle
    where
        A: Actor<Context = Context<A>>,
    {
        let pace = &handle.policy().passes;
        let back_off = BackOff::new(pace.back_off_base, pace.back_off_max);
        let pass_loop = Self { handle: handle.clone(), back_off };
        // Due from here on: a loop that is never polled is as dead as one that ended.
        handle.cell.loop_begins();
        ctx.spawn(wrap_future(pass_loop.run(pass)))
    }

    async fn run(mut self, mut pass: impl AsyncFnMut() -> Result<Progress, anyhow::Error>) {
        let handle = self.handle.clone();
        while let Some(running) = RunningPass::begin(&handle) {
            // Registered before the pass looks for work: what arrives after the look ends the wait, and what arrived
            // before it is seen by the look.
            let woken = handle.cell.wake().notified();
            let mut woken = std::pin::pin!(woken);
            if woken.as_mut().enable() {
                woken.set(handle.cell.wake().notified());
                woken.as_mut().enable();
            }
            let result = self.limited(&mut pass).await;
            let pause = self.settle(result);
            drop(running);
            self.pause(pause, woken).await;
        }
        handle.cell.loop_ends();
        handle.registry.changed();
    }

    async fn limited(
        &self,
        pass: &mut impl AsyncFnMut() -> Result<Progress, anyhow::Error>,
    ) -> Result<Progress, anyhow::Error> {
        let limit = self.handle.policy().passes.limit;
        match tokio::time::timeout(limit, pass()).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("the pass was given up after its limit of {limit:?}")),
        }
    }

    /// Records how the pass ended and says what comes before the next.
    fn settle(&mut self, result: Result<Progress, anyhow::Error>) -> Pause {
        let (outcome, pause) = match result {
            Ok(progress) => {
                self.back_off.reset();
                match progress {
                    Progress::More => (PassOutcome::Progress, Pause::None),
                    Progress::Idle => (PassOutcome::Idle, Pause::Idle(half_jitter(self.handle.policy().passes.idle))),
                }
            }
            Err(error) => {
                let asked = error.downcast_ref::<Unavailable>().map_or(Duration::ZERO, |hint| hint.wait_at_least);
                let delay = full_jitter(self.back_off.next()).max(asked.min(LONGEST_HINT));
                (PassOutcome::Error(format!("{error:#}")), Pause::Error(delay))
            }
        };
        let announcement = self.handle.cell.pass_ends(outcome.clone(), pause.length());
        self.announce(&announcement, &outcome);
        pause
    }

    fn announce(&self, announcement: &Announcement, outcome: &PassOutcome) {
        let name = self.handle.name();
        match (announcement, outcome) {
            (Announcement::Begins, PassOutcome::Error(error)) => log::warn!("{name}: passes fail: {error}"),
            (Announcement::Lasts(errors), PassOutcome::Error(error)) => {
                log::warn!("{name}: passes still fail, {errors} in a row: {error}");
            }
            (Announcement::Recovered(errors), _) => log::info!("{name}: passes work again after {errors} errors"),
            (Announcement::Nothing | Announcement::Begins | Announcement::Lasts(_), _) => {}
        }
    }

    /// Waits, but never longer than until a drain begins.
    async fn pause(&self, pause: Pause, woken: std::pin::Pin<&mut Notified<'_>>) {
        let waited = async {
            match pause {
                Pause::None => tokio::task::yield_now().await,
                Pause::Error(delay) => sleep(delay).await,
                Pause::Idle(delay) => tokio::select! {
                    () = woken => {}
                    () = sleep(delay) => {}
                },
            }
        };
        tokio::select! {
            () = self.handle.registry.drain_begins() => {}
            () = waited => {}
        }
    }
}

/// Sleeps, and gives the other futures of this thread their turn even if there is nothing to sleep.
async fn sleep(delay: Duration) {
    if delay.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(delay).await;
    }
}
