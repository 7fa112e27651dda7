//! The loop around a pass: one at a time, limited, woken, backed off, drained.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::MailboxError;
use anyhow::Context as _;
use judge_relay::supervision::{ActorState, Escalation, FailureKind, PassOutcome, Progress, Unavailable, crash};
use tokio::sync::Notify;

use super::boundary::{Ask, LoseLoop, NAME, Plan, Scene, quick};

#[actix::test]
async fn a_pass_that_panics_is_the_actors_failure_and_the_loop_begins_anew() {
    let plan = Plan::with_pass(async |nth, _| if nth == 2 { crash("in a pass") } else { Ok(more_until(nth, 4)) });
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    let status = scene.until("three passes ended", |status| status.passes == 3).await;
    assert_eq!(status.restarts, 1);
    assert_eq!(status.last_failure.unwrap().text, "panicked: in a pass");
}

fn more_until(nth: u64, last: u64) -> Progress {
    if nth < last { Progress::More } else { Progress::Idle }
}

#[actix::test]
async fn progress_is_followed_by_the_next_pass_at_once_and_messages_come_between() {
    let answered = Arc::new(AtomicU64::new(0));
    let seen = answered.clone();
    // Ends only if the actor answers a message while its passes follow each other.
    let plan = Plan::with_pass(move |_, _| {
        let done = seen.load(Ordering::SeqCst) > 0;
        async move { Ok(if done { Progress::Idle } else { Progress::More }) }
    });
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    scene.until("it works", |status| status.passes > 10).await;
    assert_eq!(scene.address.send(Ask(1)).await.unwrap().0, 1);
    answered.store(1, Ordering::SeqCst);
    let idle = |outcome| matches!(outcome, Some(PassOutcome::Idle));
    scene.until("it rests", |status| idle(status.last_pass.clone().map(|pass| pass.outcome))).await;
}

#[actix::test]
async fn a_pass_that_never_ends_is_given_up_as_an_error_and_costs_no_restart() {
    let plan = Plan::with_pass(async |nth, _| match nth {
        1 => std::future::pending().await,
        _ => Ok(Progress::Idle),
    });
    let mut policy = quick(Escalation::EndProcess);
    policy.passes.back_off_base = Duration::from_secs(3600);
    policy.passes.back_off_max = Duration::from_secs(3600);
    let scene = Scene::set(policy, plan);
    let status = scene.until("the pass was given up", |status| status.passes == 1).await;
    let outcome = PassOutcome::Error("the pass was given up after its limit of 100ms".to_owned());
    assert_eq!(status.last_pass.unwrap().outcome, outcome);
    assert_eq!((status.restarts, status.consecutive_errors), (0, 1));
}

#[actix::test]
async fn a_loop_that_is_lost_while_its_actor_lives_is_a_hang_and_begins_anew() {
    let mut policy = quick(Escalation::EndProcess);
    policy.passes.idle = Duration::from_millis(1);
    let scene = Scene::set(policy, Plan::with_pass(async |_, _| Ok(Progress::Idle)));
    scene.until("it works", |status| status.passes > 0 && status.state == ActorState::Running).await;
    scene.address.send(LoseLoop).await.unwrap();
    let status = scene.running_after(1).await;
    let failure = status.last_failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Hang);
    assert!(failure.text.starts_with("its loop took no turn for"), "{}", failure.text);
    scene.until("the loop works again", |later| later.passes > status.passes).await;
}

#[actix::test]
async fn a_wake_up_between_the_look_and_the_sleep_is_not_lost() {
    let plan = Plan::with_pass(async |nth, handle| {
        // The look is over, nothing was found; now work arrives, before the loop sleeps for an hour.
        if nth <= 3 {
            handle.wake();
        }
        Ok(Progress::Idle)
    });
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    scene.until("every wake-up was followed by a look", |status| status.passes == 4).await;
    assert!(scene.registry.wake(NAME));
    scene.until("a sleeping loop is woken", |status| status.passes == 5).await;
}

#[actix::test]
async fn a_wake_up_before_the_look_is_answered_by_that_look() {
    let plan = Plan::with_pass(async |_, _| Ok(Progress::Idle));
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    // The actor has not started yet: it was placed on this very thread.
    scene.registry.wake(NAME);
    scene.until("it has looked and beaten since", |status| status.turns >= 3).await;
    assert_eq!(scene.status().passes, 1);
}

#[actix::test]
async fn a_loop_waits_as_long_as_the_error_asks_and_that_is_neither_a_hang_nor_ended_by_a_wake_up() {
    let plan = Plan::with_pass(async |_, _| {
        let why = "the breaker is open".to_owned();
        Err(Unavailable { why, wait_at_least: Duration::from_secs(3600) }).context("dispatching")
    });
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    scene.until("the pass failed", |status| status.passes == 1).await;
    scene.registry.wake(NAME);
    let turns = scene.status().turns;
    let status = scene.until("two hang periods passed", |status| status.turns > turns + 8).await;
    assert_eq!((status.passes, status.restarts), (1, 0));
    let outcome = PassOutcome::Error("dispatching: the breaker is open".to_owned());
    assert_eq!(status.last_pass.unwrap().outcome, outcome);
    assert_eq!(scene.registry.ready(), Ok(()));
}

#[actix::test]
async fn a_drain_lets_the_pass_finish_and_none_begins_again() {
    let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (begun.clone(), may_end.clone());
    let plan = Plan::with_pass(move |_, _| {
        let (tell, wait) = (tell.clone(), wait.clone());
        async move {
            tell.notify_one();
            wait.notified().await;
            Ok(Progress::More)
        }
    });
    let passes = plan.passes.clone();
    let mut policy = quick(Escalation::EndProcess);
    (policy.passes.limit, policy.hang_after) = (Duration::from_secs(60), Duration::from_secs(120));
    let scene = Scene::set(policy, plan);
    begun.notified().await;
    scene.registry.drain();
    let busy = scene.registry.drained(Duration::from_millis(10)).await;
    assert_eq!(busy, Err(vec![NAME.to_owned()]), "the pass is still running");
    assert_eq!(scene.status().state, ActorState::Draining);

    may_end.notify_one();
    scene.registry.drained(Duration::from_secs(30)).await.expect("the pass finishes");
    let status = scene.until("the loop ended", |status| status.state == ActorState::Stopped).await;
    assert_eq!((status.passes, passes.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(scene.address.send(Ask(1)).await.unwrap().0, 1, "messages are still answered");
}

#[actix::test]
async fn a_drain_ends_a_sleeping_loop_and_an_actor_that_then_stops_stays_stopped() {
    let scene = Scene::set(quick(Escalation::EndProcess), Plan::with_pass(async |_, _| Ok(Progress::Idle)));
    scene.until("it sleeps", |status| status.passes == 1).await;
    scene.registry.drain();
    scene.until("the loop ended", |status| status.state == ActorState::Stopped).await;
    let bad = scene.address.send(super::boundary::Fail::Stop).await;
    assert_eq!(bad, Err(MailboxError::Closed));
    assert_eq!(scene.address.send(Ask(1)).await.err(), Some(MailboxError::Closed));
    assert_eq!((scene.status().restarts, scene.escalated().len()), (0, 0));
}

#[actix::test]
async fn a_loop_restarted_during_a_drain_takes_no_pass() {
    let plan = Plan::with_pass(async |_, _| Ok(Progress::Idle));
    let passes = plan.passes.clone();
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    scene.until("it sleeps", |status| status.passes == 1).await;
    scene.registry.drain();
    scene.registry.restart(NAME);
    let turns = scene.status().turns;
    scene.until("it was restarted", |status| status.restarts == 1 && status.turns > turns).await;
    assert_eq!(scene.address.send(Ask(1)).await.unwrap().0, 1);
    assert_eq!(passes.load(Ordering::SeqCst), 1);
}
