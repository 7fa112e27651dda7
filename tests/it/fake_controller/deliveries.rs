//! How callbacks are sent, what counts as delivered, and when a failed one comes again.

use std::time::Duration;

use judge_relay::embedded::fake_controller::{FakeController, Ledger, Outcome, Weights};
use judge_relay::protocol::{CallbackKind, Verdict};

use super::client::{Request, job, job_body, status};
use super::sink::{Act, Sink};
use super::{ACCEPTED, JUDGING, PATIENCE, PREPARING, TRAFFIC, accepting, start};

fn finishes(ledger: &Ledger, job: u64) -> Vec<Outcome> {
    let records = ledger.callbacks_of(job).filter(|record| record.kind == CallbackKind::Finish);
    records.map(|record| record.outcome).collect()
}

const DELIVERED: Outcome = Outcome::Delivered { status: 200, swallowed: false };

/// Runs one job without updates against a sink, until nothing is left to do.
async fn run(sink: &Sink) -> FakeController {
    let controller = start(accepting());
    controller.set(|switches| {
        switches.judge_updates = false;
        switches.cb_timeout = Some(1.0);
    });
    assert_eq!(status(controller.address(), job(sink, "a", "")).await, Some(201));
    controller.wait_until(PATIENCE, |ledger| ledger.counters.created == 1 && ledger.is_quiet()).await.unwrap();
    controller
}

/// The requests of part B or C, in order, with CRLF.
fn recorded_callbacks(part: char) -> Vec<String> {
    let start = TRAFFIC.find(&format!("\n{part}. ")).unwrap();
    let part = &TRAFFIC[start..];
    let requests = part.split("### ").skip(1).filter(|piece| piece.lines().next().unwrap().contains(" REQ "));
    let text = |piece: &str| {
        let (head, body) = piece.split_once('\n').unwrap().1.split_once("\n\n").unwrap();
        format!("{}\r\n\r\n{}", head.replace('\n', "\r\n"), body.lines().next().unwrap_or_default())
    };
    requests.map(text).collect()
}

#[actix_web::test]
async fn a_job_is_told_in_the_recorded_bytes_and_a_refused_finish_comes_again_unchanged() {
    let mut config = accepting();
    config.weights = Weights::only(Verdict::WrongAnswer);
    let controller = start(config);
    let mut sink = Sink::new(|before, _| Act::status(if before == 2 { 503 } else { 200 }));
    let request = Request::new(job_body(sink.address(), "demo-0", "int main(){return 0;}", 2, "all"));
    assert_eq!(status(controller.address(), request.signed()).await, Some(201));
    for recorded in &recorded_callbacks('B')[..4] {
        let seen = sink.next().await;
        assert_eq!(seen.text.replace(&sink.address().to_string(), "127.0.0.1:28090"), *recorded);
    }
    controller.wait_until(PATIENCE, Ledger::is_quiet).await.unwrap();
    let outcomes = finishes(&controller.ledger(), 0);
    assert_eq!(outcomes, [Outcome::Refused { status: 503 }, DELIVERED]);
    assert_eq!(controller.ledger().job(0).unwrap().finishes_delivered, 1);
}

#[actix_web::test]
async fn a_302_swallows_the_result_on_a_new_connection_with_the_recorded_bytes() {
    let mut sink = Sink::new(|before, _| if before == 0 { Act::redirect(302, "/landing") } else { Act::status(200) });
    let controller = run(&sink).await;
    let (post, get) = (sink.next().await, sink.next().await);
    let recorded = recorded_callbacks('C');
    let addressed = |text: &str| text.replace(&sink.address().to_string(), "127.0.0.1:28090");
    assert_eq!(addressed(&post.text), recorded[0].replace("/d-0/", "/a/"));
    assert_eq!(addressed(&get.text), recorded[1]);
    assert_ne!(post.connection, get.connection);
    assert_eq!(finishes(&controller.ledger(), 0), [Outcome::Delivered { status: 200, swallowed: true }]);
    assert_eq!(controller.ledger().counters.finishes_swallowed, 1);
    assert_eq!(sink.rest(), []);
}

#[actix_web::test]
async fn a_307_repeats_the_post_with_its_body() {
    let mut sink = Sink::new(|before, _| if before == 0 { Act::redirect(307, "/e2") } else { Act::status(200) });
    let controller = run(&sink).await;
    let bodies = sink.next_bodies(2).await;
    assert_eq!(bodies[1], ("POST /e2".to_owned(), ACCEPTED.to_owned()));
    assert_eq!(finishes(&controller.ledger(), 0), [DELIVERED]);
}

#[actix_web::test]
async fn redirects_without_end_and_redirects_not_to_be_followed_are_failures() {
    let sink = Sink::new(|before, _| if before < 22 { Act::redirect(308, "/again") } else { Act::status(200) });
    let controller = run(&sink).await;
    assert_eq!(finishes(&controller.ledger(), 0), [Outcome::Broken, DELIVERED]);

    controller.set(|switches| switches.cb_follow_redirects = false);
    let sink = Sink::new(|before, _| if before == 0 { Act::redirect(302, "/landing") } else { Act::status(200) });
    assert_eq!(status(controller.address(), job(&sink, "a", "")).await, Some(201));
    controller.wait_until(PATIENCE, |ledger| finishes(ledger, 1).len() == 2).await.unwrap();
    assert_eq!(finishes(&controller.ledger(), 1), [Outcome::Refused { status: 302 }, DELIVERED]);
}

#[actix_web::test]
async fn whatever_is_not_a_complete_2xx_in_time_comes_again() {
    const CUT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npartial";
    let failures: [(fn() -> Act, Outcome); 7] = [
        (|| Act::status(404), Outcome::Refused { status: 404 }),
        (|| Act::status(410), Outcome::Refused { status: 410 }),
        (|| Act::SayAndClose(String::new()), Outcome::Broken),
        (|| Act::SayAndClose("nonsense\r\n\r\n".to_owned()), Outcome::Broken),
        (|| Act::Hang, Outcome::TimedOut),
        (|| Act::SayAndClose(CUT.to_owned()), Outcome::Broken),
        (|| Act::Say(CUT.to_owned()), Outcome::TimedOut),
    ];
    // Side by side, because each of them waits for the retry clock.
    futures_util::future::join_all(failures.map(|(failure, outcome)| async move {
        let sink = Sink::new(move |before, _| if before == 0 { failure() } else { Act::status(204) });
        let controller = run(&sink).await;
        let delivered = Outcome::Delivered { status: 204, swallowed: false };
        assert_eq!(finishes(&controller.ledger(), 0), [outcome, delivered]);
    }))
    .await;
}

#[actix_web::test]
async fn every_framing_of_a_complete_answer_counts() {
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ] {
        let sink = Sink::new(move |_, _| Act::SayAndClose(answer.to_owned()));
        let controller = run(&sink).await;
        assert_eq!(finishes(&controller.ledger(), 0), [DELIVERED], "{answer}");
    }
}

#[actix_web::test]
async fn a_connection_is_used_again_until_it_was_idle_for_too_long() {
    let mut config = accepting();
    config.timing.idle_close = Duration::from_secs(3600);
    let controller = start(config);
    let mut sink = Sink::agreeing();
    for name in ["a", "b"] {
        assert_eq!(status(controller.address(), job(&sink, name, "")).await, Some(201));
    }
    let mut connections = Vec::new();
    for _ in 0..6 {
        connections.push(sink.next().await.connection);
    }
    assert_eq!(connections, [1; 6]);

    let mut config = accepting();
    config.timing.idle_close = Duration::from_nanos(1);
    let controller = start(config);
    assert_eq!(status(controller.address(), job(&sink, "c", "")).await, Some(201));
    let connections = [sink.next().await.connection, sink.next().await.connection, sink.next().await.connection];
    assert_eq!(connections, [2, 3, 4]);
}

#[actix_web::test]
async fn a_failed_update_comes_after_the_later_state_and_not_after_the_finish() {
    let controller = start(accepting());
    let mut sink = Sink::new(|before, _| Act::status(if before == 0 { 500 } else { 200 }));
    assert_eq!(status(controller.address(), job(&sink, "a", "// verdict: never")).await, Some(201));
    let bodies: Vec<String> = sink.next_bodies(3).await.into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, [PREPARING, JUDGING, PREPARING]);

    let mut sink = Sink::new(|before, _| Act::status(if before == 0 { 500 } else { 200 }));
    assert_eq!(status(controller.address(), job(&sink, "b", "")).await, Some(201));
    controller.wait_until(PATIENCE, |ledger| ledger.counters.callbacks_dropped == 1).await.unwrap();
    let bodies: Vec<String> = sink.next_bodies(3).await.into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, [PREPARING, JUDGING, ACCEPTED]);
    assert_eq!(sink.rest(), []);
}

/// A silent receiver's job and then a quick one's.
async fn silent_then_quick(workers: usize, limit: Option<f64>) -> (FakeController, [Sink; 2]) {
    let controller = start(accepting());
    controller.set(|switches| {
        switches.judge_updates = false;
        switches.cb_workers = workers;
        switches.cb_timeout = limit;
    });
    let sinks = [Sink::new(|_, _| Act::Hang), Sink::agreeing()];
    for sink in &sinks {
        assert_eq!(status(controller.address(), job(sink, "a", "")).await, Some(201));
    }
    controller.wait_until(PATIENCE, |ledger| ledger.counters.finishes_delivered == 1).await.unwrap();
    (controller, sinks)
}

#[actix_web::test]
async fn one_silent_receiver_holds_up_every_other_unless_there_are_more_workers() {
    let (controller, _sinks) = silent_then_quick(1, Some(0.1)).await;
    let ledger = controller.ledger();
    let first = ledger.callbacks().next().unwrap();
    assert_eq!((first.job, first.outcome), (0, Outcome::TimedOut));

    // Without a limit the silent one would never be given up: the quick one did not wait for it.
    let (controller, _sinks) = silent_then_quick(2, Some(0.0)).await;
    let ledger = controller.ledger();
    let order: Vec<u64> = ledger.callbacks().map(|record| record.job).collect();
    assert_eq!((order, ledger.pending.callbacks_held), (vec![1], 1));
}

#[actix_web::test]
async fn what_can_never_be_sent_is_tried_for_ever() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    for url in ["example.com", "https://example.com", "http://example.com/中"] {
        let body = job_body(sink.address(), "a", "", 1, "all");
        let finish = format!("http://{}", sink.address());
        let request = Request::new(body.replace(&finish, url));
        assert_eq!(status(controller.address(), request.signed()).await, Some(201));
    }
    let tried_again = |ledger: &Ledger| ledger.jobs().len() == 3 && ledger.jobs().all(|job| job.finishes_tried >= 2);
    controller.wait_until(PATIENCE, tried_again).await.unwrap();
    assert!(controller.ledger().callbacks().all(|record| record.outcome == Outcome::Undeliverable));
}
