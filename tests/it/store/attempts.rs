//! Attempts: which entry begins one, how a POST's end is recorded, and what progress changes.

use std::time::Duration;

use judge_relay::protocol::submission::{Applied, NoNeed};
use judge_relay::protocol::{Generation, SubmissionId, Verdict};
use judge_relay::store::attempts::{Begun, Progress, Request, SendOutcome, begin, progress, record};
use uuid::Uuid;

use crate::harness::database::TestDatabase;
use crate::harness::seed::{attempt_rules, finish, request_text, sent, unknown_attempt};
use crate::harness::settled::violations;

const ROW: &str = "select state, attempts_used, rescues_used from submissions";
const ATTEMPTS: &str = "select state, coalesce(close_reason, '-'), http_status from judge_attempts order by started_at";

impl TestDatabase {
    async fn begin_any(&self, entries: &[Request]) -> Vec<Begun> {
        begin(&self.pool, entries, &attempt_rules()).await.unwrap()
    }
}

fn progress_of(attempt: &judge_relay::store::attempts::ToSend, state: &str) -> Progress {
    Progress { judge_id: attempt.judge_id, state: state.to_owned(), is_running: state == "judging" }
}

#[tokio::test]
async fn an_entry_begins_one_attempt_with_the_stored_text_and_a_deadline() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let entry = database.entry(submission).await;
    let attempt = database.begin(&[entry]).await.remove(0);
    assert_eq!(attempt.body, request_text(2));
    assert_eq!((attempt.generation, attempt.is_rescue), (Generation(1), false));
    assert_eq!(database.row(ROW).await, "judging 1 0");
    // Two cases of 1 s, twice as long, plus 10 s to compile, plus a minute in the queue; the floor for the running limit.
    let times =
        "select round(extract(epoch from deadline_at - started_at)), running_limit_ms, instance_id from judge_attempts";
    assert_eq!(database.row(times).await, format!("74 30000 {}", attempt_rules().instance));
}

#[tokio::test]
async fn entries_without_need_are_named() {
    let database = TestDatabase::fresh().await;
    let submissions = database.submit(3).await;
    let entry = database.entry(submissions[0]).await;
    let unknown = Request { submission: SubmissionId(Uuid::from_u128(5)), ..entry.clone() };
    let future = Request { generation: Generation(2), ..entry.clone() };
    let over = database.entry(submissions[1]).await;
    database.execute(&format!("update submissions set state = 'cancelled' where id = '{}'", submissions[1])).await;
    let superseded = database.entry(submissions[2]).await;
    database.rejudge(submissions[2]).await;
    let second_copy = Request { stream_id: "other".to_owned(), ..entry.clone() };
    let begun = database.begin_any(&[unknown, future, over, superseded, entry.clone(), second_copy, entry]).await;
    assert!(matches!(begun[4], Begun::Send(_)));
    let no_need = |begun: &Begun| match begun {
        Begun::NoNeed(why) => Some(*why),
        _ => None,
    };
    let expected = [
        Some(NoNeed::Unknown),
        Some(NoNeed::Future),
        Some(NoNeed::Over),
        Some(NoNeed::Superseded),
        None,
        Some(NoNeed::LiveElsewhere),
        Some(NoNeed::LiveElsewhere),
    ];
    assert_eq!(begun.iter().map(no_need).collect::<Vec<_>>(), expected);
    assert_eq!(database.row("select count(*) from judge_attempts").await, "1");
}

#[tokio::test]
async fn two_copies_of_an_entry_on_two_connections_begin_one_attempt() {
    let database = TestDatabase::fresh().await;
    for submission in database.submit(10).await {
        let entry = database.entry(submission).await;
        let copy = Request { stream_id: "copy".to_owned(), ..entry.clone() };
        let (one, other) = ([entry], [copy]);
        let (one, other) = tokio::join!(database.begin_any(&one), database.begin_any(&other));
        let sent = [&one[0], &other[0]].into_iter().filter(|begun| matches!(begun, Begun::Send(_))).count();
        assert_eq!(sent, 1, "{one:?} {other:?}");
    }
    assert_eq!(database.row("select count(*) from judge_attempts").await, "10");
}

#[tokio::test]
async fn an_entry_whose_sender_died_is_sent_again_until_rescues_are_spent() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let entry = database.entry(submission).await;
    let first = database.begin(std::slice::from_ref(&entry)).await.remove(0);
    for rescue in 1..=2 {
        let again = database.begin(std::slice::from_ref(&entry)).await.remove(0);
        assert!(again.is_rescue && again.judge_id != first.judge_id);
        assert_eq!(database.row(ROW).await, format!("judging 1 {rescue}"));
    }
    let begun = database.begin_any(&[entry]).await;
    assert!(matches!(begun[0], Begun::Parked(_)), "{begun:?}");
    assert_eq!(database.rows(ATTEMPTS).await, ["closed sender_died ∅", "closed sender_died ∅", "closed parked ∅"]);
    let letters = "select boundary, cause_class, submission_id from dead_letters";
    assert_eq!(database.row(letters).await, format!("JudgeDispatcher rescue_budget_spent {submission}"));
    database.publish_the_rest().await;
    assert_eq!(violations(&database.client).await, Vec::<String>::new());

    // The first one reached the controller after all.
    assert_eq!(database.apply(&[finish(&first, "Accepted")]).await, [Applied::Verdict(Verdict::Accepted)]);
    database.publish_the_rest().await;
    assert_eq!(violations(&database.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_entry_that_was_recorded_but_not_acked_is_not_sent_again() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let entry = database.entry(submission).await;
    let attempt = database.begin(std::slice::from_ref(&entry)).await.remove(0);
    database.record(&attempt, SendOutcome::Ambiguous("reset".to_owned()), None).await;
    assert_eq!(database.begin_any(&[entry]).await, [Begun::NoNeed(NoNeed::LiveElsewhere)]);
    assert_eq!(database.rows(ATTEMPTS).await, ["ambiguous - ∅"]);
}

#[tokio::test]
async fn a_text_written_by_sql_is_read_at_its_first_attempt_and_parked_with_the_path_when_it_is_broken() {
    let database = TestDatabase::fresh().await;
    let submissions = database.submit(3).await;
    database.execute("update judge_requests set case_count = null, cpu_time_ms = null, compile_time_ms = null").await;
    database
        .execute(&format!("update judge_requests set body = '{{}}' where submission_id = '{}'", submissions[1]))
        .await;
    database.execute(&format!("delete from judge_requests where submission_id = '{}'", submissions[2])).await;
    let mut entries = Vec::new();
    for submission in submissions {
        entries.push(database.entry(submission).await);
    }
    let begun = database.begin_any(&entries).await;
    assert!(matches!(begun[0], Begun::Send(_)), "{begun:?}");
    assert_eq!(begun[1], Begun::Parked("$.judge: should not be empty".to_owned()));
    assert_eq!(begun[2], Begun::Parked("the request's text is missing".to_owned()));
    let letters = database.rows("select cause_class, message from dead_letters order by message").await;
    assert_eq!(
        letters,
        ["unreadable_request $.judge: should not be empty", "unreadable_request the request's text is missing"]
    );
    assert_eq!(database.row("select count(*) from submissions where state = 'parked'").await, "2");
    assert_eq!(
        database.row("select round(extract(epoch from deadline_at - started_at)) from judge_attempts").await,
        "74"
    );
}

#[tokio::test]
async fn each_end_of_a_post_is_recorded() {
    let database = TestDatabase::fresh().await;
    let outcomes = [
        (SendOutcome::Accepted, Some(201), "judging 1 0", "accepted - 201"),
        (SendOutcome::Ambiguous("reset".to_owned()), None, "judging 1 0", "ambiguous - ∅"),
        (SendOutcome::Door("429".to_owned(), Duration::from_secs(5)), Some(429), "pending 0 0", "closed door 429"),
        (SendOutcome::Refused("no".to_owned()), Some(400), "parked 1 0", "closed refused 400"),
    ];
    let mut batch = Vec::new();
    for (outcome, status, ..) in &outcomes {
        let submission = database.submit(1).await[0];
        let entry = database.entry(submission).await;
        let attempt = database.begin(&[entry]).await.remove(0);
        batch.push(sent(&attempt, outcome.clone(), *status));
    }
    record(&database.pool, &batch).await.unwrap();
    let rows = database.rows(&format!("{ROW} order by id")).await;
    assert_eq!(rows, outcomes.iter().map(|row| row.2).collect::<Vec<_>>());
    assert_eq!(database.rows(ATTEMPTS).await, outcomes.iter().map(|row| row.3).collect::<Vec<_>>());
    let due = "select cause, aggregate_sequence, available_at > clock_timestamp() + interval '4 seconds'
               from outbox_events where destination <> 'events' and published_at is null";
    assert_eq!(database.rows(due).await, ["door 2 t"]);
    assert_eq!(database.rows("select cause_class, message from dead_letters").await, ["refused_400 no"]);
    let events = "select event_type, payload ->> 'cause' from outbox_events where destination = 'events'";
    assert_eq!(database.rows(events).await, ["SubmissionParked refused_400"]);

    record(&database.pool, &batch).await.unwrap();
    assert_eq!(database.rows(&format!("{ROW} order by id")).await, rows, "recording again changes nothing");
    assert_eq!(database.rows(due).await, ["door 2 t"]);
}

#[tokio::test]
async fn a_callback_that_came_before_the_answer_is_left_as_it_is() {
    let database = TestDatabase::fresh().await;
    let submissions = database.submit(3).await;
    let mut attempts = Vec::new();
    for submission in &submissions {
        let entry = database.entry(*submission).await;
        attempts.push(database.begin(&[entry]).await.remove(0));
    }
    progress(&database.pool, &[progress_of(&attempts[0], "confirmed")]).await.unwrap();
    database.apply(&[finish(&attempts[1], "Accepted")]).await;
    database.apply(&[finish(&attempts[2], "SystemError")]).await;
    let before = database.rows("select state, close_reason from judge_attempts order by started_at").await;
    assert_eq!(before, ["accepted ∅", "finished ∅", "closed system_error"]);
    for attempt in &attempts {
        for outcome in [SendOutcome::Ambiguous("timeout".to_owned()), SendOutcome::Door("x".to_owned(), Duration::ZERO)]
        {
            database.record(attempt, outcome, None).await;
        }
    }
    assert_eq!(database.rows("select state, close_reason from judge_attempts order by started_at").await, before);
    assert_eq!(database.rows("select state from submissions order by id").await, ["judging", "judged", "pending"]);
}

#[tokio::test]
async fn a_door_that_shuts_on_a_rescue_gives_the_budgets_place_back() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let entry = database.entry(submission).await;
    database.begin(std::slice::from_ref(&entry)).await;
    let rescue = database.begin(&[entry]).await.remove(0);
    assert_eq!(database.row(ROW).await, "judging 1 1");
    database.record(&rescue, SendOutcome::Door("refused".to_owned(), Duration::ZERO), None).await;
    assert_eq!(database.row(ROW).await, "pending 0 1");
    database.accepted(submission).await;
    assert_eq!(database.row(ROW).await, "judging 1 1");
}

#[tokio::test]
async fn a_door_that_shuts_after_a_lost_attempts_system_error_loses_nothing() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let entry = database.entry(submission).await;
    let attempt = database.begin(&[entry]).await.remove(0);
    let lost = unknown_attempt(submission, 1);
    assert!(matches!(database.apply(&[finish(&lost, "SystemError")]).await[0], Applied::Retry(_)));
    let retry = database.entry(submission).await;
    assert_eq!(database.begin_any(&[retry]).await, [Begun::NoNeed(NoNeed::LiveElsewhere)], "acked");
    database.record(&attempt, SendOutcome::Door("refused".to_owned(), Duration::ZERO), None).await;
    let due = "select count(*) from outbox_events where published_at is null and superseded_at is null";
    assert_eq!(database.row(due).await, "1");
    database.accepted(submission).await;
}

#[tokio::test]
async fn progress_proves_that_the_controller_has_it_and_starts_the_running_deadline() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let entry = database.entry(submission).await;
    let attempt = database.begin(&[entry]).await.remove(0);
    database.record(&attempt, SendOutcome::Ambiguous("timeout".to_owned()), None).await;
    assert_eq!(progress(&database.pool, &[progress_of(&attempt, "pending")]).await.unwrap(), 1);
    let row =
        "select state, progress, round(extract(epoch from deadline_at - clock_timestamp()) / 10) from judge_attempts";
    assert_eq!(database.row(row).await, "accepted pending 7");
    assert_eq!(progress(&database.pool, &[progress_of(&attempt, "judging")]).await.unwrap(), 1);
    assert_eq!(database.row(row).await, "accepted judging 3");

    database.apply(&[finish(&attempt, "Accepted")]).await;
    assert_eq!(progress(&database.pool, &[progress_of(&attempt, "pending")]).await.unwrap(), 0, "it is over");
    assert_eq!(progress(&database.pool, &[progress_of(&unknown_attempt(submission, 1), "judging")]).await.unwrap(), 0);
    assert_eq!(database.row("select state, progress from judge_attempts").await, "finished judging");
}
