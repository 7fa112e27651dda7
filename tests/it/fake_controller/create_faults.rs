//! The switches of job creation and of authentication.

use judge_relay::embedded::fake_controller::{
    CreateAnswer, Ledger, LoseAnswer, OrphanAnswer, Outcome, StatusAnswer, Switch, When,
};
use tokio::net::TcpStream;

use super::client::{Client, exchange, job, status, status_of};
use super::sink::{Act, Sink};
use super::{ACCEPTED, PATIENCE, PREPARING, accepting, start};

#[actix_web::test]
async fn any_status_can_be_answered_for_a_number_of_requests_and_nothing_is_created() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    let busy = StatusAnswer { status: 429, retry_after: Some(7), location: None };
    controller.set(|switches| switches.create_status = When::Next(2).with(busy));
    for _ in 0..2 {
        let answer = exchange(controller.address(), job(&sink, "a", "")).await;
        assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{answer}");
        assert!(answer.contains("\r\nRetry-After: 7\r\n"), "{answer}");
    }
    assert_eq!(controller.ledger().counters.created, 0);
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(201));
    let away = StatusAnswer { status: 302, retry_after: None, location: Some("/login".to_owned()) };
    controller.set(|switches| switches.create_status = When::Always.with(away));
    let answer = exchange(controller.address(), job(&sink, "a", "")).await;
    assert!(answer.contains("\r\nLocation: /login\r\n"), "{answer}");
}

#[actix_web::test]
async fn a_delayed_request_is_not_looked_at_while_others_pass() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    controller.set(|switches| switches.create_delay = When::Next(1).with(3600.0));
    let mut delayed = Client::connect(controller.address()).await;
    delayed.send(job(&sink, "delayed", "")).await;
    controller.wait_until(PATIENCE, |ledger| ledger.counters.requests == 1).await.unwrap();
    assert_eq!(status(controller.address(), job(&sink, "quick", "")).await, Some(201));
    let ledger = controller.ledger();
    assert_eq!(ledger.counters.created, 1);
    assert!(ledger.job(0).unwrap().finish_url.ends_with("/quick/finish"));
    controller.set(|switches| switches.create_delay = When::Next(1).with(0.01));
    assert_eq!(status(controller.address(), job(&sink, "late", "")).await, Some(201));
}

#[actix_web::test]
async fn a_lost_answer_leaves_a_job_that_runs() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    for (number, how) in [LoseAnswer::Close, LoseAnswer::Reset, LoseAnswer::AnswerAfter(0.01)].into_iter().enumerate() {
        controller.set(|switches| switches.create_lose_answer = When::Next(1).with(how.clone()));
        let (expected, told) = match how {
            LoseAnswer::AnswerAfter(_) => (Some(201), CreateAnswer::Created),
            _ => (None, CreateAnswer::Nothing),
        };
        assert_eq!(status(controller.address(), job(&sink, "a", "")).await, expected, "{how:?}");
        assert_eq!(controller.ledger().job(number as u64).unwrap().answer, told, "{how:?}");
    }
    controller.wait_until(PATIENCE, |ledger| ledger.counters.finishes_delivered == 3).await.unwrap();
}

#[actix_web::test]
async fn an_answer_that_never_comes_leaves_the_connection_open() {
    let controller = start(accepting());
    let mut sink = Sink::agreeing();
    controller.set(|switches| switches.create_lose_answer = When::Always.with(LoseAnswer::Hang));
    let mut client = Client::connect(controller.address()).await;
    client.send(job(&sink, "a", "")).await;
    assert_eq!(sink.next_bodies(3).await[2].1, ACCEPTED);
    assert!(is_silent(&client.stream));
}

fn is_silent(stream: &TcpStream) -> bool {
    let mut byte = [0];
    matches!(stream.try_read(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[actix_web::test]
async fn a_500_says_nothing_about_the_job() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    controller.set(|switches| switches.create_500_not_created = When::Next(1).into());
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(500));
    assert_eq!(controller.ledger().counters.created, 0);
    controller.set(|switches| switches.create_500_created = When::Next(1).into());
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(500));
    controller.wait_until(PATIENCE, |ledger| ledger.counters.finishes_delivered == 1).await.unwrap();
    assert_eq!(controller.ledger().job(0).unwrap().answer, CreateAnswer::ServerError);
}

#[actix_web::test]
async fn an_orphan_is_written_down_and_never_judged() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    controller.set(|switches| switches.create_orphan = When::Next(1).into());
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(201));
    controller.set(|switches| switches.create_orphan = When::Next(1).with(OrphanAnswer::Reset));
    assert_eq!(status(controller.address(), job(&sink, "b", "")).await, None);
    // The judging of a later job shows that the earlier ones are not merely late.
    assert_eq!(status(controller.address(), job(&sink, "c", "")).await, Some(201));
    controller.wait_until(PATIENCE, |ledger| ledger.counters.finishes_delivered == 1).await.unwrap();
    let ledger = controller.ledger();
    let runs: Vec<(bool, u32)> = ledger.jobs().map(|job| (job.orphan, job.runs)).collect();
    assert_eq!(runs, [(true, 0), (true, 0), (false, 1)]);
    assert_eq!(ledger.pending.jobs, 2);
}

#[actix_web::test]
async fn a_controller_that_is_down_refuses_connections_and_comes_back_at_the_same_port() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    let mut client = Client::connect(controller.address()).await;
    client.send(job(&sink, "a", "")).await;
    assert_eq!(status_of(&client.answer().await), 201);
    controller.go_down().await;
    assert_eq!(client.try_answer().await, None);
    let refused = TcpStream::connect(controller.address()).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    controller.come_up().await;
    assert_eq!(status(controller.address(), job(&sink, "b", "")).await, Some(201));
}

#[actix_web::test]
async fn a_reused_connection_is_reset_and_nothing_is_created() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    controller.set(|switches| switches.create_reset_reused = When::Always.into());
    let mut client = Client::connect(controller.address()).await;
    client.send(job(&sink, "a", "")).await;
    assert_eq!(status_of(&client.answer().await), 201);
    client.send(job(&sink, "b", "")).await;
    assert_eq!(client.try_answer().await, None);
    assert_eq!(controller.ledger().counters.created, 1);
}

#[actix_web::test]
async fn a_skewed_clock_forbids_everybody_and_shows_in_the_date() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    controller.set(|switches| switches.auth_skew = -10.0 * 365.0 * 86_400.0);
    let answer = exchange(controller.address(), job(&sink, "a", "")).await;
    assert_eq!(status_of(&answer), 403);
    let date = answer.lines().find_map(|line| line.strip_prefix("Date: ")).unwrap();
    let shown = chrono::DateTime::parse_from_rfc2822(date).unwrap().timestamp();
    assert!(super::client::now() - shown > 9 * 365 * 86_400, "{date}");
    controller.set(|switches| switches.auth_skew = 0.0);
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(201));
}

#[actix_web::test]
async fn forgotten_keys_are_a_server_error_for_everybody() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    controller.set(|switches| switches.auth_forget_keys = When::Always.into());
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(500));
    controller.set(|switches| switches.auth_forget_keys = Switch::default());
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(201));
}

#[actix_web::test]
async fn a_callback_can_come_before_the_201() {
    let controller = start(accepting());
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let mut sink = Sink::new(move |before, _| {
        if before == 0 {
            released.lock().unwrap().recv().unwrap();
        }
        Act::status(200)
    });
    controller.set(|switches| switches.cb_before_201 = When::Next(1).into());
    let mut client = Client::connect(controller.address()).await;
    client.send(job(&sink, "a", "")).await;
    assert_eq!(sink.next().await.body(), PREPARING);
    assert!(is_silent(&client.stream));
    release.send(()).unwrap();
    assert_eq!(status_of(&client.answer().await), 201);
    controller.wait_until(PATIENCE, Ledger::is_quiet).await.unwrap();
    let outcomes: Vec<Outcome> = controller.ledger().callbacks().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Outcome::Delivered { status: 200, swallowed: false }; 3]);
}

#[actix_web::test]
async fn a_switch_with_a_chance_holds_for_some() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    controller.set(|switches| switches.create_status = When::Chance(0.5).into());
    let mut told = Vec::new();
    for _ in 0..40 {
        told.push(status(controller.address(), job(&sink, "a", "")).await.unwrap());
    }
    assert!(told.contains(&201) && told.contains(&503), "{told:?}");
}
