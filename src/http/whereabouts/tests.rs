//! Every place on the way, from seeded rows.

use super::*;
use crate::http::timeline::tests::{attempt, intent, journey, later, letter};

fn stage(journey: &Journey) -> Stage {
    whereabouts(journey).stage
}

#[test]
fn a_fresh_submission_waits_in_the_outbox() {
    let mut journey = journey("pending");
    journey.intents.push(intent("judge:default"));
    let place = whereabouts(&journey);
    assert_eq!((place.stage, place.next_at), (Stage::WaitingInOutbox, None));
    assert!(place.next.contains("lane default"), "{}", place.next);
    journey.lane_paused = true;
    assert!(whereabouts(&journey).next.contains("paused"));
}

#[test]
fn a_leased_intent_names_the_process_and_the_end_of_the_lease() {
    let mut journey = journey("pending");
    let mut leased = intent("judge:default");
    (leased.claimed_host, leased.claim_until) = (Some("pod-7".to_owned()), Some(later(30)));
    journey.intents.push(leased);
    let place = whereabouts(&journey);
    assert_eq!((place.stage, place.next_at), (Stage::BeingPublished, Some(later(30))));
    assert!(place.holder.contains("pod-7"), "{}", place.holder);
    journey.intents[0].claim_until = Some(later(-1));
    assert_eq!(stage(&journey), Stage::WaitingInOutbox, "the lease is over");
    journey.intents[0].claim_until = Some(later(7_200));
    assert_eq!(stage(&journey), Stage::WaitingInOutbox, "no lease is that long");
}

#[test]
fn a_retry_says_when_it_is_due_and_why() {
    let mut journey = journey("pending");
    let mut retry = intent("judge:default");
    (retry.cause, retry.available_at) = ("system_error".to_owned(), later(60));
    journey.intents.push(retry);
    let place = whereabouts(&journey);
    assert_eq!((place.stage, place.next_at), (Stage::WaitingForRetry, Some(later(60))));
    assert!(place.holder.contains("the judge failed"), "{}", place.holder);
    journey.intents[0].available_at = later(2 * 86_400);
    assert_eq!(stage(&journey), Stage::WaitingInOutbox, "no back-off is that long");
}

#[test]
fn a_published_intent_is_found_by_its_entry() {
    let mut journey = journey("pending");
    let mut published = intent("judge:default");
    (published.published_at, published.stream_id) = (Some(later(-5)), Some("17-0".to_owned()));
    journey.intents.push(published);
    let place = whereabouts(&journey);
    assert_eq!(place.stage, Stage::InStream);
    assert!(place.holder.contains("17-0") && place.holder.contains("judge:default"), "{}", place.holder);
}

#[test]
fn intents_of_other_generations_and_events_say_nothing_of_the_place() {
    let mut journey = journey("pending");
    journey.submission.generation = 2;
    journey.intents.extend([intent("judge:default"), intent("events")]);
    assert_eq!(stage(&journey), Stage::Unheld);
    journey.intents.push(IntentRow { generation: 2, ..intent("judge:default") });
    assert_eq!(stage(&journey), Stage::WaitingInOutbox);
}

#[test]
fn a_quarantined_intent_waits_for_a_person() {
    let mut journey = journey("pending");
    let mut poison = intent("judge:default");
    (poison.quarantined_at, poison.last_error) = (Some(later(-5)), Some("too large".to_owned()));
    journey.intents.push(poison);
    let place = whereabouts(&journey);
    assert_eq!(place.stage, Stage::Quarantined);
    assert!(place.holder.contains("too large"));
}

#[test]
fn a_live_attempt_says_what_is_known_of_it() {
    let mut journey = journey("judging");
    journey.attempts.push(attempt("sending"));
    assert_eq!(stage(&journey), Stage::BeingSent);
    journey.attempts[0] = attempt("ambiguous");
    journey.attempts[0].answer = Some("connection reset".to_owned());
    let place = whereabouts(&journey);
    assert_eq!((place.stage, place.next_at), (Stage::AnswerAmbiguous, Some(later(100))));
    assert!(place.holder.contains("connection reset"), "{}", place.holder);
    journey.attempts[0] = attempt("accepted");
    journey.attempts[0].progress = Some("preparing".to_owned());
    let place = whereabouts(&journey);
    assert_eq!((place.stage, place.next_at), (Stage::AtController, Some(later(100))));
    assert!(place.holder.contains(&attempt_name(journey.attempts[0].judge_id)), "{}", place.holder);
    assert!(place.holder.contains("preparing"), "{}", place.holder);
}

#[test]
fn a_passed_deadline_says_what_to_look_at() {
    let mut journey = journey("judging");
    journey.attempts.push(AttemptRow { deadline_at: later(-1), ..attempt("accepted") });
    assert!(whereabouts(&journey).next.contains("BASE_URL"));
}

#[test]
fn a_submission_without_a_live_attempt_is_for_the_reconciler() {
    let mut journey = journey("judging");
    let mut published = intent("judge:default");
    (published.published_at, published.stream_id) = (Some(later(-5)), Some("17-0".to_owned()));
    journey.intents.push(published);
    journey.attempts.push(AttemptRow { close_reason: Some("deadline".to_owned()), ..attempt("closed") });
    assert_eq!(stage(&journey), Stage::Unheld);
}

#[test]
fn a_parked_submission_says_why_and_what_a_person_can_do() {
    let mut journey = journey("parked");
    journey.letters.push(letter());
    let place = whereabouts(&journey);
    assert_eq!(place.stage, Stage::Parked);
    assert!(place.holder.contains("refused_400: test.cases should not be empty"), "{}", place.holder);
    assert!(place.next.contains("redrive"), "{}", place.next);
}

#[test]
fn a_judged_submission_shows_whether_its_event_has_left() {
    let mut journey = journey("judged");
    journey.intents.push(intent("events"));
    assert!(whereabouts(&journey).next.contains("is published"));
    (journey.intents[0].published_at, journey.intents[0].stream_id) = (Some(later(0)), Some("1-0".to_owned()));
    let place = whereabouts(&journey);
    assert!(place.holder.contains("accepted stands"), "{}", place.holder);
    assert!(place.next.starts_with("Nothing"));
}

#[test]
fn a_cancelled_submission_is_held_by_nobody() {
    assert_eq!(stage(&journey("cancelled")), Stage::Cancelled);
}
