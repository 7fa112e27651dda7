//! Ready or not, and the reasons in words.

use std::time::Duration;

use actix::MailboxError;
use judge_relay::supervision::{Escalation, Fault, Progress, Registry};
use tokio::sync::Notify;

use super::boundary::{Fail, NAME, Plan, Scene, quick};

fn reasons(registry: &Registry) -> Vec<String> {
    registry.ready().err().unwrap_or_default()
}

#[actix::test]
async fn a_process_without_actors_is_not_ready() {
    let registry = Registry::new(|_, _| {});
    assert_eq!(reasons(&registry), ["no actor has been started yet"]);
}

#[actix::test]
async fn a_process_is_ready_once_every_actor_started_and_every_loop_ended_a_pass() {
    static GATE: Notify = Notify::const_new();
    let mut policy = quick(Escalation::EndProcess);
    (policy.passes.limit, policy.hang_after) = (Duration::from_secs(60), Duration::from_secs(120));
    let plan = Plan::with_pass(async |_, _| {
        GATE.notified().await;
        Err(anyhow::anyhow!("PostgreSQL is down"))
    });
    let scene = Scene::set(policy, plan);
    assert_eq!(reasons(&scene.registry), ["boundary has not started yet"]);
    scene.running_after(0).await;
    assert_eq!(reasons(&scene.registry), ["boundary has not ended its first pass yet"]);
    GATE.notify_one();
    scene.until_registry("an error is a turn as well", |registry| registry.ready().is_ok()).await;
    scene.registry.drain();
    assert_eq!(reasons(&scene.registry), ["the process is draining"]);
}

#[actix::test]
async fn an_actor_in_back_off_for_longer_than_its_limit_is_not_ready_and_says_why() {
    let mut policy = quick(Escalation::EndProcess);
    policy.back_off_base = Duration::from_secs(3600);
    policy.back_off_max = Duration::from_secs(3600);
    let scene = Scene::set(policy, Plan::with_pass(async |_, _| Ok(Progress::Idle)));
    scene.until_registry("it is ready", |registry| registry.ready().is_ok()).await;
    // Its loop sleeps for an hour, which is no silence; but a crash ends that excuse.
    scene.registry.inject(NAME, Fault::Panic);
    scene.until("it backs off", |status| status.back_off_ms.is_some()).await;
    scene.until_registry("it is not ready", |registry| registry.ready().is_err()).await;
    let reason = reasons(&scene.registry).join(", ");
    let expected = "boundary is backing off after a failure (panicked: on purpose), its last turn was ";
    assert!(reason.starts_with(expected), "{reason}");
    scene.registry.restart(NAME);
    scene.until_registry("it is ready again", |registry| registry.ready().is_ok()).await;
}

#[actix::test]
async fn health_is_answered_while_the_actor_hangs_and_names_it() {
    let mut policy = quick(Escalation::EndProcess);
    policy.back_off_base = Duration::from_secs(3600);
    policy.back_off_max = Duration::from_secs(3600);
    let scene = Scene::set(policy, Plan::default());
    scene.until_registry("it is ready", |registry| registry.ready().is_ok()).await;
    let hung = scene.address.send(Fail::Hang);
    scene.until_registry("it is not ready", |registry| registry.ready().is_err()).await;
    assert!(reasons(&scene.registry)[0].starts_with("boundary "), "{:?}", reasons(&scene.registry));
    scene.until("it was found out", |status| status.last_failure.is_some()).await;
    scene.registry.restart(NAME);
    assert_eq!(hung.await, Err(MailboxError::Closed));
}

#[actix::test]
async fn an_actor_that_was_given_up_is_a_reason_for_ever() {
    let mut policy = quick(Escalation::EndProcess);
    policy.max_restarts = 0;
    let scene = Scene::set(policy, Plan::default());
    scene.running_after(0).await;
    scene.registry.inject(NAME, Fault::Stop);
    scene.until_registry("it is not ready", |registry| registry.ready().is_err()).await;
    assert_eq!(reasons(&scene.registry), ["boundary has stopped"]);
}

#[actix::test]
async fn a_status_is_plain_json() {
    let scene = Scene::set(quick(Escalation::EndProcess), Plan::with_pass(async |_, _| Err(anyhow::anyhow!("down"))));
    scene.until("a pass failed", |status| status.passes > 0 && status.turns > 0).await;
    let json = serde_json::to_value(scene.registry.snapshot()).unwrap();
    assert_eq!(json[0]["name"], NAME);
    assert_eq!(json[0]["state"], "running");
    assert_eq!(json[0]["last_pass"]["outcome"]["error"], "down");
}
