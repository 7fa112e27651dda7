//! An actor that panics, stops or hangs goes on, with its addresses and its queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::MailboxError;
use judge_relay::supervision::{ActorState, Escalation, FailureKind, Fault, PanicText, catch_item, crash};

use super::boundary::{Ask, Fail, NAME, Plan, Scene, quick};

async fn survives(fail: Fail, kind: FailureKind, text: &str) {
    let plan = Plan::default();
    let rebuilt = plan.rebuilt.clone();
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    let bad = scene.address.send(fail);
    let behind: Vec<_> = (0..5).map(|number| scene.address.send(Ask(number))).collect();

    assert_eq!(bad.await, Err(MailboxError::Closed), "{fail:?}: its sender learns that it was not answered");
    for (number, answer) in (0..5).zip(behind) {
        assert_eq!(answer.await.unwrap().0, number, "{fail:?}: a message queued behind it is answered");
    }
    let status = scene.running_after(1).await;
    let (number, whole) = scene.address.send(Ask(9)).await.unwrap();
    assert!(number == 9 && whole, "{fail:?}: state was rebuilt");
    assert_eq!(rebuilt.load(Ordering::SeqCst), 1);
    let failure = status.last_failure.unwrap();
    assert_eq!((failure.kind, failure.text.as_str()), (kind, text));
    assert!(scene.escalated().is_empty());
}

#[actix::test]
async fn a_panic_in_a_handler_costs_one_message_and_not_the_mailbox() {
    survives(Fail::InHandler, FailureKind::Panic, "panicked: in a handler").await;
}

#[actix::test]
async fn a_panic_in_a_future_of_the_actor_costs_one_message_and_not_the_mailbox() {
    survives(Fail::InFuture, FailureKind::Panic, "panicked: in a future").await;
}

#[actix::test]
async fn a_panic_in_an_interval_does_not_cost_the_mailbox() {
    survives(Fail::InInterval, FailureKind::Panic, "panicked: in an interval").await;
}

#[actix::test]
async fn an_actor_that_stops_itself_goes_on() {
    survives(Fail::Stop, FailureKind::Stop, "it stopped itself").await;
    survives(Fail::Terminate, FailureKind::Stop, "it stopped itself").await;
}

#[actix::test]
async fn an_actor_that_takes_no_turn_any_more_is_hung_and_goes_on() {
    survives(Fail::Hang, FailureKind::Hang, "it took no turn for 200ms").await;
}

#[actix::test]
async fn every_injected_fault_is_one_restart() {
    let scene = Scene::set(quick(Escalation::EndProcess), Plan::default());
    scene.running_after(0).await;
    let faults =
        [(Fault::Panic, FailureKind::Panic), (Fault::Stop, FailureKind::Stop), (Fault::Hang, FailureKind::Hang)];
    for (restarts, (fault, kind)) in (1..).zip(faults) {
        assert!(scene.registry.inject(NAME, fault));
        let status = scene.running_after(restarts).await;
        assert_eq!(status.last_failure.unwrap().kind, kind);
    }
    assert!(!scene.registry.inject("nobody", Fault::Panic));
}

#[actix::test]
async fn crashes_in_started_and_in_restarting_are_failures_like_any_other() {
    let plan = Plan::default();
    plan.bad_starts.store(2, Ordering::SeqCst);
    plan.bad_restarts.store(1, Ordering::SeqCst);
    let scene = Scene::set(quick(Escalation::EndProcess), plan);
    assert_eq!(scene.address.send(Ask(1)).await.unwrap().0, 1);
    let status = scene.running_after(3).await;
    assert_eq!(status.last_failure.unwrap().text, "panicked: in started");
}

#[actix::test]
async fn a_future_that_panics_when_it_is_dropped_kills_neither_the_thread_nor_the_actor() {
    let scene = Scene::set(quick(Escalation::EndProcess), Plan::default());
    assert_eq!(scene.address.send(Fail::WithBomb).await, Err(MailboxError::Closed));
    let status = scene.running_after(2).await;
    assert_eq!(status.last_failure.unwrap().text, "panicked: in a drop");
    assert_eq!(scene.address.send(Ask(1)).await.unwrap().0, 1);
}

#[actix::test]
async fn an_actor_that_nobody_addresses_is_restarted_all_the_same() {
    let mut scene = Scene::set(quick(Escalation::EndProcess), Plan::default());
    scene.running_after(0).await;
    let elsewhere = Scene::set(quick(Escalation::EndProcess), Plan::default());
    scene.address = elsewhere.address.clone();
    scene.registry.inject(NAME, Fault::Panic);
    scene.running_after(1).await;
}

#[actix::test]
async fn the_back_off_doubles_and_a_healthy_period_resets_it() {
    let mut policy = quick(Escalation::EndProcess);
    policy.back_off_base = Duration::from_millis(20);
    policy.back_off_max = Duration::from_secs(1);
    policy.hang_after = Duration::from_secs(3600);
    let scene = Scene::set(policy.clone(), Plan::default());
    scene.running_after(0).await;
    for (restarts, ceiling) in (0..).zip([20, 40, 80, 160]) {
        fail_and_expect_back_off(&scene, restarts, ceiling).await;
    }

    policy.healthy_after = Duration::ZERO;
    policy.hang_after = Duration::from_millis(200);
    let scene = Scene::set(policy, Plan::default());
    scene.running_after(0).await;
    for restarts in 0..4 {
        fail_and_expect_back_off(&scene, restarts, 20).await;
    }
}

async fn fail_and_expect_back_off(scene: &Scene, restarts: u64, ceiling: u64) {
    scene.registry.inject(NAME, Fault::Panic);
    let status = scene.until("it backs off", |status| status.state == ActorState::BackingOff).await;
    assert_eq!(status.restarts, restarts);
    let delay = status.back_off_ms.unwrap();
    assert!((ceiling / 2..=ceiling).contains(&delay), "{delay} ms of back-off, at most {ceiling}");
    scene.running_after(restarts + 1).await;
}

#[actix::test]
async fn an_ordered_restart_is_no_failure_and_ends_a_back_off() {
    let mut policy = quick(Escalation::EndProcess);
    policy.max_restarts = 1;
    policy.back_off_base = Duration::from_secs(3600);
    policy.back_off_max = Duration::from_secs(3600);
    let scene = Scene::set(policy, Plan::default());
    scene.running_after(0).await;
    for restarts in 1..=10 {
        assert!(scene.registry.restart(NAME));
        assert!(scene.running_after(restarts).await.last_failure.is_none());
    }
    scene.registry.inject(NAME, Fault::Panic);
    scene.until("it backs off", |status| status.state == ActorState::BackingOff).await;
    scene.registry.restart(NAME);
    scene.running_after(11).await;
    assert!(scene.escalated().is_empty());
}

#[actix::test]
async fn a_poisonous_item_is_found_alone_and_its_neighbours_are_done() {
    let done = Arc::new(AtomicU64::new(0));
    let mut poison = Vec::new();
    for item in 0..5_u64 {
        let done = done.clone();
        let work = async move {
            actix::clock::sleep(Duration::ZERO).await;
            if item == 3 {
                crash(format!("item {item}"));
            }
            done.fetch_add(1, Ordering::SeqCst)
        };
        poison.extend(catch_item(work).await.err());
    }
    assert_eq!(poison, [PanicText("item 3".to_owned())]);
    assert_eq!(done.load(Ordering::SeqCst), 4);
}
