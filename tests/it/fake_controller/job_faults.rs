//! The switches of judging and of what callbacks say.

use judge_relay::embedded::fake_controller::{
    DuplicateAfter, DuplicateFinish, FakeController, Ledger, OddBody, Outcome, Rejudge, Switches, When,
};

use super::client::{job, status};
use super::sink::{Act, Sink};
use super::{ACCEPTED, JUDGING, PATIENCE, PREPARING, accepting, start};

/// Runs one job under these switches, until nothing is left to do; returns the bodies of its callbacks in their order.
async fn told(
    source: &str,
    answer: fn(usize) -> u16,
    change: impl FnOnce(&mut Switches),
) -> (Vec<String>, FakeController) {
    let controller = start(accepting());
    controller.set(change);
    let mut sink = Sink::new(move |before, _| Act::status(answer(before)));
    assert_eq!(status(controller.address(), job(&sink, "a", source)).await, Some(201));
    controller.wait_until(PATIENCE, Ledger::is_quiet).await.unwrap();
    (sink.rest().iter().map(|seen| seen.body().to_owned()).collect(), controller)
}

fn always_200(_: usize) -> u16 {
    200
}

#[actix_web::test]
async fn a_lost_job_tells_its_states_and_no_finish() {
    let (bodies, controller) = told("", always_200, |switches| switches.job_lost = When::Always.into()).await;
    assert_eq!(bodies, [PREPARING, JUDGING]);
    assert!(controller.ledger().job(0).unwrap().lost);
    let (bodies, _) = told("// verdict: never", always_200, |_| ()).await;
    assert_eq!(bodies, [PREPARING, JUDGING]);
}

#[actix_web::test]
async fn a_job_judged_again_starts_its_states_over_and_reports_once() {
    let thrice = Rejudge { runs: 3, differ: true };
    let change = |switches: &mut Switches| switches.job_rejudge = When::Always.with(thrice);
    let (bodies, controller) = told("", always_200, change).await;
    assert_eq!(bodies[..6], [PREPARING, JUDGING, PREPARING, JUDGING, PREPARING, JUDGING]);
    assert_eq!(bodies.len(), 7);
    assert!(bodies[6].contains("WrongAnswer"), "{}", bodies[6]);
    assert_eq!(controller.ledger().job(0).unwrap().runs, 3);
}

#[actix_web::test]
async fn a_job_judged_twice_at_once_interleaves_its_states_and_reports_once() {
    let change = |switches: &mut Switches| switches.job_twice_at_once = When::Always.into();
    let (bodies, controller) = told("", always_200, change).await;
    assert_eq!(bodies, [PREPARING, PREPARING, JUDGING, JUDGING, ACCEPTED]);
    assert_eq!(controller.ledger().counters.callbacks_dropped, 1);
}

#[actix_web::test]
async fn a_second_finish_can_follow_an_acknowledged_one_and_say_the_same_or_not() {
    for differ in [false, true] {
        let duplicate = DuplicateFinish { differ, after: DuplicateAfter::Acknowledged };
        let change = |switches: &mut Switches| switches.cb_dup_finish = When::Always.with(duplicate);
        let (bodies, controller) = told("", always_200, change).await;
        assert_eq!(bodies.len(), 4);
        assert_eq!(bodies[2], ACCEPTED);
        assert_eq!(bodies[3] != bodies[2], differ, "{bodies:?}");
        assert_eq!(controller.ledger().job(0).unwrap().finishes_delivered, 2);
    }
}

#[actix_web::test]
async fn a_second_finish_of_one_process_comes_only_after_the_first_failed() {
    let duplicate = DuplicateFinish { differ: true, after: DuplicateAfter::Failed };
    let change = |switches: &mut Switches| switches.cb_dup_finish = When::Always.with(duplicate);
    let (bodies, _) = told("", always_200, change).await;
    assert_eq!(bodies, [PREPARING, JUDGING, ACCEPTED]);
    let third_fails = |before| if before == 2 { 500 } else { 200 };
    let (bodies, controller) = told("", third_fails, change).await;
    assert_eq!(bodies.len(), 4);
    assert!(bodies[3].contains("WrongAnswer"), "{}", bodies[3]);
    // The first one's turn comes again, but by then its job is finished.
    assert_eq!(controller.ledger().counters.callbacks_dropped, 1);
}

#[actix_web::test]
async fn a_late_update_follows_the_finish_however_that_one_was_answered() {
    let change = |switches: &mut Switches| switches.cb_late_update = When::Always.into();
    let (bodies, _) = told("", always_200, change).await;
    assert_eq!(bodies, [PREPARING, JUDGING, ACCEPTED, JUDGING]);
    let third_fails = |before| if before == 2 { 500 } else { 200 };
    let (bodies, _) = told("", third_fails, change).await;
    assert_eq!(bodies, [PREPARING, JUDGING, ACCEPTED, JUDGING, ACCEPTED]);
}

#[actix_web::test]
async fn without_retry_a_failed_callback_is_forgotten() {
    let always_500 = |_| 500;
    let (bodies, controller) = told("", always_500, |switches| switches.cb_retry = false).await;
    assert_eq!(bodies, [PREPARING, JUDGING, ACCEPTED]);
    assert_eq!(controller.ledger().counters.callbacks_failed, 3);
}

#[actix_web::test]
async fn a_callback_that_was_sent_and_abandoned_is_sent_again() {
    let change = |switches: &mut Switches| {
        switches.judge_updates = false;
        switches.cb_abort_after_send = When::Next(1).into();
    };
    let (bodies, controller) = told("", always_200, change).await;
    assert_eq!(bodies, [ACCEPTED, ACCEPTED]);
    let outcomes: Vec<Outcome> = controller.ledger().callbacks().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Outcome::Aborted, Outcome::Delivered { status: 200, swallowed: false }]);
}

#[actix_web::test]
async fn odd_bodies_are_sent_as_asked_for() {
    let case = |time: &str| format!(r#"{{"result":{{"cases":[{{"kind":"Accepted",{time}}}]}}}}"#);
    for (odd, expected) in [
        (OddBody::Empty, "{}".to_owned()),
        (OddBody::NullResult, r#"{"result":null}"#.to_owned()),
        (OddBody::EmptyResult, r#"{"result":{}}"#.to_owned()),
        (OddBody::NoCases, r#"{"result":{"cases":[]}}"#.to_owned()),
        (OddBody::CaseMissing, r#"{"result":{"cases":[]}}"#.to_owned()),
        (OddBody::UnknownKind, r#"{"result":{"cases":[{"kind":"Nonsense","time":15,"memory":1048576}]}}"#.to_owned()),
        (OddBody::Floats, case(r#""time":1.5,"memory":1048576.25"#)),
        (OddBody::Negative, case(r#""time":-1,"memory":-1"#)),
        (OddBody::Text("not json".to_owned()), "not json".to_owned()),
    ] {
        let (bodies, _) = told("", always_200, |switches| switches.cb_odd_body = When::Always.with(odd)).await;
        assert_eq!(bodies, [PREPARING, JUDGING, &expected]);
    }
    let change = |switches: &mut Switches| switches.cb_odd_body = When::Always.with(OddBody::UnknownState);
    assert_eq!(told("", always_200, change).await.0, [r#"{"state":"bogus"}"#, r#"{"state":"bogus"}"#, ACCEPTED]);
    let change = |switches: &mut Switches| switches.cb_odd_body = When::Always.with(OddBody::Nul);
    assert!(told("", always_200, change).await.0[2].contains(r#""extraMessage":"a\u0000b""#));
}

#[actix_web::test]
async fn ten_mebibytes_are_sent_and_one_byte_more_is_not() {
    const LIMIT: usize = 10 * 1024 * 1024;
    for (size, expected) in [(LIMIT, 1), (LIMIT + 1, 0)] {
        let change = |switches: &mut Switches| {
            switches.judge_updates = false;
            switches.cb_retry = false;
            switches.cb_odd_body = When::Always.with(OddBody::Huge(size));
        };
        let (bodies, controller) = told("", always_200, change).await;
        assert_eq!(bodies.len(), expected);
        assert!(bodies.iter().all(|body| body.len() == size));
        assert_eq!(controller.ledger().counters.finishes_delivered, expected as u64);
    }
}

#[actix_web::test]
async fn a_single_judger_takes_jobs_first_in_first_out() {
    let controller = start(accepting());
    controller.set(|switches| switches.judge_parallel = 1);
    let mut sink = Sink::agreeing();
    for (name, source) in [("a", "// verdict: ac, slow 5s"), ("b", "// verdict: wa"), ("c", "")] {
        assert_eq!(status(controller.address(), job(&sink, name, source)).await, Some(201));
    }
    let bodies = sink.next_bodies(9).await;
    let order: Vec<&str> = bodies.iter().map(|(what, _)| what.as_str()).collect();
    let (update, finish) = (|name| format!("POST /{name}/update"), |name| format!("POST /{name}/finish"));
    let expected: Vec<String> =
        ["a", "b", "c"].into_iter().flat_map(|name| [update(name), update(name), finish(name)]).collect();
    assert_eq!(order, expected);
    assert!(bodies[5].1.contains("WrongAnswer"), "{}", bodies[5].1);
}
