//! Restarts: what survives them, what comes again and what never does; and the end.

use std::time::Duration;

use judge_relay::embedded::fake_controller::{FakeController, Ledger, Restart};
use tokio::net::TcpStream;

use super::client::{Client, job, status};
use super::sink::{Act, Sink};
use super::{ACCEPTED, JUDGING, PATIENCE, PREPARING, accepting, start};

/// Long enough to be interrupted by any restart.
const LONG: &str = "// verdict: ac, slow 360000s";

async fn with_a_long_job(sink: &mut Sink) -> FakeController {
    let mut config = accepting();
    // Preparing is a fifth of it: the second state would come after 720 s.
    config.timing.judging_scale = 0.01;
    let controller = start(config);
    assert_eq!(status(controller.address(), job(sink, "a", LONG)).await, Some(201));
    assert_eq!(sink.next().await.body(), PREPARING);
    controller.wait_until(PATIENCE, |ledger| ledger.counters.updates_delivered == 1).await.unwrap();
    controller
}

#[actix_web::test]
async fn what_a_judger_held_is_judged_again_from_the_start() {
    let mut sink = Sink::agreeing();
    let controller = with_a_long_job(&mut sink).await;
    let mut idle = Client::connect(controller.address()).await;
    controller.restart(Restart::default()).await;
    assert_eq!(idle.try_answer().await, None);
    assert_eq!(sink.next().await.body(), PREPARING);
    let ledger = controller.ledger();
    assert_eq!((ledger.counters.restarts, ledger.job(0).unwrap().runs), (1, 2));
}

#[actix_web::test]
async fn a_new_process_with_the_old_id_never_judges_again_what_was_held() {
    let mut sink = Sink::agreeing();
    let controller = with_a_long_job(&mut sink).await;
    controller.restart(Restart { lose_held: true, ..Restart::default() }).await;
    assert_eq!(status(controller.address(), job(&sink, "b", "")).await, Some(201));
    controller.wait_until(PATIENCE, |ledger| ledger.counters.finishes_delivered == 1).await.unwrap();
    let ledger = controller.ledger();
    assert!(ledger.job(0).unwrap().lost);
    assert_eq!((ledger.job(0).unwrap().runs, ledger.pending.runs_held, ledger.pending.jobs), (1, 0, 1));
}

#[actix_web::test]
async fn a_callback_under_way_is_sent_again_after_a_restart() {
    let controller = start(accepting());
    controller.set(|switches| switches.judge_updates = false);
    let mut sink = Sink::new(|before, _| if before == 0 { Act::Hang } else { Act::status(200) });
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(201));
    assert_eq!(sink.next().await.body(), ACCEPTED);
    controller.restart(Restart::default()).await;
    assert_eq!(sink.next().await.body(), ACCEPTED);
    controller.wait_until(PATIENCE, Ledger::is_quiet).await.unwrap();
    assert_eq!(controller.ledger().counters.finishes_delivered, 1);
}

#[actix_web::test]
async fn callbacks_that_wait_survive_a_restart() {
    let mut config = accepting();
    // What hangs does not come again within this test, so that only what waited is seen.
    config.timing.retry_expire = Duration::from_secs(3600);
    let controller = start(config);
    let mut sink = Sink::new(|before, _| if before == 0 { Act::Hang } else { Act::status(200) });
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(201));
    assert_eq!(sink.next().await.body(), PREPARING);
    controller.restart(Restart::default()).await;
    let bodies: Vec<String> = sink.next_bodies(2).await.into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, [JUDGING, ACCEPTED]);
}

#[actix_web::test]
async fn a_flush_forgets_jobs_and_keys() {
    let mut sink = Sink::agreeing();
    let controller = with_a_long_job(&mut sink).await;
    controller.restart(Restart { flush: true, ..Restart::default() }).await;
    let ledger = controller.ledger();
    assert!(ledger.is_quiet() && ledger.pending.jobs == 0);
    assert!(ledger.job(0).unwrap().lost);
    assert_eq!(status(controller.address(), job(&sink, "b", "")).await, Some(500));
    controller.restore_keys();
    assert_eq!(status(controller.address(), job(&sink, "b", "")).await, Some(201));
}

#[actix_web::test]
async fn a_fake_on_its_own_thread_is_steered_from_here_and_ends_when_dropped() {
    let controller = FakeController::spawn_thread(accepting()).unwrap();
    let address = controller.address();
    assert_eq!(controller.base_url(), format!("http://{address}/c/v1"));
    let sink = Sink::agreeing();
    assert_eq!(status(address, job(&sink, "a", "")).await, Some(201));
    controller.wait_until(PATIENCE, |ledger| ledger.counters.finishes_delivered == 1).await.unwrap();
    controller.restart(Restart::default()).await;
    assert_eq!(status(address, job(&sink, "b", "")).await, Some(201));
    drop(controller);
    assert!(TcpStream::connect(address).await.is_err());
}

#[actix_web::test]
async fn what_does_not_happen_in_time_is_reported_with_the_counters() {
    let controller = start(accepting());
    let error = controller.wait_until(Duration::ZERO, |ledger| ledger.counters.created == 1).await.unwrap_err();
    assert!(error.to_string().contains("created: 0"), "{error}");
}
