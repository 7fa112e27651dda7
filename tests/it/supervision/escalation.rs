//! What ends the process, what never does, and what uses up no restarts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Arbiter, Context, MailboxError, Supervised};
use judge_relay::supervision::{
    ActorState, Escalation, Fault, PassOutcome, Policy, Progress, Registry, Watchdog, crash, supervise,
};

use super::boundary::{Ask, NAME, Plan, Scene, quick};

#[actix::test]
async fn spent_restarts_are_escalated_once_with_the_actors_name() {
    let mut policy = quick(Escalation::EndProcess);
    policy.max_restarts = 3;
    let scene = Scene::set(policy, Plan::default());
    for restarts in 0..=3 {
        scene.running_after(restarts).await;
        assert!(scene.escalated().is_empty(), "{restarts} restarts are allowed");
        scene.registry.inject(NAME, Fault::Panic);
    }
    scene.until("it was given up", |status| status.state == ActorState::Stopped).await;
    assert_eq!(scene.address.send(Ask(1)).await.err(), Some(MailboxError::Closed));
    assert_eq!(scene.escalated(), [(NAME.to_owned(), "panicked: on purpose".to_owned())]);
}

#[actix::test]
async fn failures_further_apart_than_the_window_never_escalate() {
    let mut policy = quick(Escalation::EndProcess);
    policy.max_restarts = 1;
    policy.within = Duration::from_micros(1);
    let scene = Scene::set(policy, Plan::default());
    for restarts in 0..10 {
        scene.running_after(restarts).await;
        scene.registry.inject(NAME, Fault::Panic);
    }
    scene.running_after(10).await;
    assert!(scene.escalated().is_empty());
}

#[actix::test]
async fn an_actor_not_worth_the_process_is_shown_as_failing_until_it_is_healthy() {
    let mut policy = quick(Escalation::BackOffToAMinute);
    policy.max_restarts = 2;
    policy.healthy_after = Duration::from_millis(300);
    let scene = Scene::set(policy, Plan::default());
    let mut longest = 0;
    for restarts in 0..6 {
        let alive = |state| matches!(state, ActorState::Running | ActorState::Failing);
        scene
            .until("it is up", |status| {
                status.restarts == restarts && alive(status.state) && status.back_off_ms.is_none()
            })
            .await;
        scene.registry.inject(NAME, Fault::Panic);
        let down = scene.until("it backs off", |status| status.back_off_ms.is_some()).await;
        let expected = if restarts < 2 { ActorState::BackingOff } else { ActorState::Failing };
        assert_eq!(down.state, expected, "after {restarts} restarts");
        longest = longest.max(down.back_off_ms.unwrap());
        assert_eq!(scene.registry.ready(), Ok(()), "a failing side road keeps no pod from its work");
    }
    assert!(longest > 4, "it backs off further than its ordinary maximum of 4 ms, but only to {longest} ms");
    scene.running_after(6).await;
    assert!(scene.escalated().is_empty());
}

#[actix::test]
async fn an_outage_of_a_thousand_passes_uses_up_no_restart_and_leaves_the_process_ready() {
    let plan = Plan::with_pass(async |nth, _| match nth {
        ..=1000 => Err(anyhow::anyhow!("connection refused").context("claiming")),
        _ => std::future::pending().await,
    });
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    let status = scene.until("a thousand passes failed", |status| status.passes == 1000).await;
    let outcome = PassOutcome::Error("claiming: connection refused".to_owned());
    assert_eq!(status.last_pass.unwrap().outcome, outcome);
    assert_eq!((status.consecutive_errors, status.restarts, status.state), (1000, 0, ActorState::Running));
    assert_eq!(scene.registry.ready(), Ok(()));
    assert!(scene.escalated().is_empty());
}

#[actix::test]
async fn errors_in_a_row_are_counted_until_a_pass_goes_well() {
    let plan = Plan::with_pass(async |nth, _| match nth {
        ..=3 => Err(anyhow::anyhow!("down")),
        _ => Ok(Progress::Idle),
    });
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    let status = scene.until("it recovered", |status| status.passes == 4).await;
    assert_eq!((status.consecutive_errors, status.last_pass.unwrap().outcome), (0, PassOutcome::Idle));
}

struct Stillborn;

impl Actor for Stillborn {
    type Context = Context<Self>;
}

impl Supervised for Stillborn {}

#[actix::test]
async fn an_actor_that_cannot_be_made_is_escalated() {
    let (escalated, list) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let seen = escalated.clone();
    let registry = Registry::new(move |name, why| seen.lock().unwrap().push(format!("{name} {why}")));
    let policy = Policy::new("stillborn", Escalation::EndProcess).checked().unwrap();
    let address = supervise(&Arbiter::current(), &registry, policy, move |handle| -> Stillborn {
        list.lock().unwrap().push(handle);
        crash("no configuration")
    });
    registry.until(|registry| registry.snapshot()[0].state == ActorState::Stopped).await;
    assert_eq!(*escalated.lock().unwrap(), ["stillborn panicked: no configuration"]);
    assert!(!address.connected());
}

#[actix::test]
async fn a_thread_stuck_in_synchronous_code_is_named_by_the_watchdog_and_others_are_not() {
    let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let limit = Duration::from_millis(400);
    let watchdog = Watchdog::start(limit, move |name: &str| report.send(name.to_owned()).unwrap()).unwrap();
    let (alive, stuck, ended) = (Arbiter::new(), Arbiter::new(), Arbiter::new());
    watchdog.watch("alive", &alive.handle());
    watchdog.watch("stuck", &stuck.handle());
    watchdog.watch("ended", &ended.handle());
    ended.stop();
    let (release, released) = std::sync::mpsc::channel::<()>();
    stuck.spawn_fn(move || assert!(released.recv().is_err()));

    assert_eq!(reports.recv().await.as_deref(), Some("stuck"));
    drop(release);
    drop(watchdog);
    assert_eq!(reports.recv().await, None, "nothing else was reported, and the watchdog ended with its owner");
    alive.stop();
    stuck.stop();
}
