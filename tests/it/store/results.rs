//! The one transaction of a verdict, apart from its counters: what is kept, what is told, and bodies that try to break it.

use judge_relay::protocol::Verdict;
use judge_relay::protocol::submission::Applied;

use crate::harness::database::TestDatabase;
use crate::harness::seed::{finish, finish_body, incoming, new_submission, unknown_attempt};
use crate::harness::settled::violations;

const RESULTS: &str = "select disposition, generation, via from results order by id";

impl TestDatabase {
    async fn assert_settled(&self) {
        self.publish_the_rest().await;
        assert_eq!(violations(&self.client).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_verdict_tells_consumers_ends_its_attempt_and_supersedes_what_waits() {
    let database = TestDatabase::fresh().await;
    let item = judge_relay::store::submissions::NewSubmission {
        external_id: Some("their 7".to_owned()),
        ..new_submission("key")
    };
    let submission = database.submit_all(&[item]).await[0];
    let first = database.accepted(submission).await;
    assert!(matches!(database.apply(&[finish(&first, "SystemError")]).await[0], Applied::Retry(_)));
    assert_eq!(database.row("select state from submissions").await, "pending");

    let late = incoming(&first, &finish_body(&["Accepted", "TimeLimitExceeded"]));
    assert_eq!(database.apply(&[late]).await, [Applied::Verdict(Verdict::TimeLimitExceeded)]);
    let events = "select aggregate_sequence, event_type, superseded_at is not null from outbox_events order by 1";
    assert_eq!(database.rows(events).await, ["1 JudgeRequested f", "2 JudgeRequested t", "3 SubmissionJudged f"]);
    let told =
        "select payload ->> 'external_id', payload ->> 'verdict', payload ->> 'sequence', payload ->> 'time_max_ms',
                       payload ->> 'time_total_ms', payload ->> 'memory_max_bytes'
                from outbox_events where event_type = 'SubmissionJudged'";
    assert_eq!(database.row(told).await, "their 7 time_limit_exceeded 3 15 30 1048576");
    let stands = "select verdict, time_max_ms, time_total_ms, memory_max_bytes, verdict_judge_id from submissions";
    assert_eq!(database.row(stands).await, format!("time_limit_exceeded 15 30 1048576 {}", first.judge_id.0));
    assert_eq!(database.row("select state, close_reason from judge_attempts").await, "finished ∅");
    database.assert_settled().await;
}

#[tokio::test]
async fn repetitions_are_counted_and_different_ones_kept() {
    let database = TestDatabase::fresh().await;
    let attempt = database.judged(new_submission("key"), "Accepted").await;
    let (same, other) = (finish(&attempt, "Accepted"), finish(&attempt, "WrongAnswer"));
    assert_eq!(
        database.apply(&[same.clone(), other.clone(), same]).await,
        [Applied::Duplicate, Applied::Conflicting, Applied::Duplicate]
    );
    assert_eq!(database.rows(RESULTS).await, ["applied 1 callback", "conflicting 1 callback"]);
    assert_eq!(database.row("select state, duplicate_count, conflict_count from judge_attempts").await, "finished 2 1");
    assert_eq!(database.row("select verdict from submissions").await, "accepted");
    database.assert_settled().await;
}

#[tokio::test]
async fn finishes_of_other_generations_and_of_nobody_are_kept_without_effect() {
    let database = TestDatabase::fresh().await;
    let old = database.judged(new_submission("key"), "Accepted").await;
    database.rejudge(old.submission).await;
    let future = unknown_attempt(old.submission, 3);
    let nobody = unknown_attempt(judge_relay::protocol::SubmissionId(uuid::Uuid::now_v7()), 1);
    let batch = [finish(&old, "WrongAnswer"), finish(&future, "WrongAnswer"), finish(&nobody, "WrongAnswer")];
    assert_eq!(database.apply(&batch).await, [Applied::Stale, Applied::Future, Applied::Unknown]);
    assert_eq!(
        database.rows(RESULTS).await,
        ["applied 1 callback", "stale 1 callback", "future 3 callback", "unknown 1 callback"]
    );
    assert_eq!(
        database.row("select state, verdict, generation, verdict_generation from submissions").await,
        "pending accepted 2 1"
    );
    let current = database.accepted(old.submission).await;
    database.apply(&[finish(&current, "WrongAnswer")]).await;
    database.assert_settled().await;
}

#[tokio::test]
async fn an_attempt_that_only_its_address_knows_is_created_again() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let live = database.accepted(submission).await;
    let lost = unknown_attempt(submission, 1);
    assert_eq!(database.apply(&[finish(&lost, "Accepted")]).await, [Applied::Verdict(Verdict::Accepted)]);
    let attempts = "select judge_id, state, coalesce(close_reason, '-') from judge_attempts order by state";
    assert_eq!(
        database.rows(attempts).await,
        [format!("{} closed overtaken", live.judge_id.0), format!("{} finished -", lost.judge_id.0)]
    );
    database.assert_settled().await;
}

#[tokio::test]
async fn a_system_error_and_a_verdict_of_one_submission_in_one_batch_end_as_the_verdict() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let live = database.accepted(submission).await;
    let lost = unknown_attempt(submission, 1);
    let batch = [finish(&live, "SystemError"), finish(&lost, "Accepted"), finish(&lost, "SystemError")];
    let applied = database.apply(&batch).await;
    assert!(matches!(applied[0], Applied::Retry(_)), "{applied:?}");
    assert_eq!(applied[1..], [Applied::Verdict(Verdict::Accepted), Applied::Conflicting]);
    assert_eq!(database.row("select state, last_sequence from submissions").await, "judged 2");
    database.assert_settled().await;
}

#[tokio::test]
async fn two_system_errors_of_one_submission_in_one_batch_make_one_intent() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let live = database.accepted(submission).await;
    let lost = unknown_attempt(submission, 1);
    database.apply(&[finish(&live, "SystemError"), finish(&lost, "SystemError")]).await;
    assert_eq!(database.row("select state, last_sequence from submissions").await, "pending 2");
    assert_eq!(database.row("select count(*) from outbox_events where cause = 'system_error'").await, "1");
    let again = database.accepted(submission).await;
    database.apply(&[finish(&again, "Accepted")]).await;
    database.assert_settled().await;
}

#[tokio::test]
async fn a_swept_inbox_row_lets_no_old_result_in() {
    let database = TestDatabase::fresh().await;
    let attempt = database.judged(new_submission("key"), "Accepted").await;
    database.execute("create table kept as table processed_events; delete from processed_events").await;
    assert_eq!(database.apply(&[finish(&attempt, "Accepted")]).await, [Applied::Duplicate]);
    assert_eq!(database.row("select count(*) from processed_events").await, "0");
    database.execute("insert into processed_events table kept").await;
    database.assert_settled().await;
}

/// A finish of accepted cases with something foreign beside them.
fn poisoned(extra: &str) -> Vec<u8> {
    let case = r#"{"kind":"Accepted","time":1,"memory":2}"#;
    format!(r#"{{"result":{{"cases":[{case},{case}],"extra":{extra}}}}}"#).into_bytes()
}

#[tokio::test]
async fn bodies_that_jsonb_refuses_are_kept_whole_and_readable() {
    let database = TestDatabase::fresh().await;
    let mut invalid_text = poisoned(r#""?""#);
    let place = invalid_text.iter().position(|byte| *byte == b'?').unwrap();
    invalid_text[place] = 0xFF;
    let bodies = [
        poisoned(r#""a\u0000b""#),
        poisoned(r#"{"\u0000":"\ud800","x":"\udfff\ud800"}"#),
        poisoned("1e400"),
        poisoned("[-1e-999999,123456789012345678901234567890]"),
        poisoned(&format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000))),
        poisoned(&format!("1{}", "0".repeat(200_000))),
        poisoned(&format!("\"{}\"", "x".repeat(5 << 20))),
        invalid_text,
    ];
    for (n, body) in bodies.iter().enumerate() {
        let submission = database.submit_all(&[new_submission(&n.to_string())]).await[0];
        let attempt = database.accepted(submission).await;
        let applied = database.apply(&[incoming(&attempt, body)]).await;
        assert!(applied[0].has_effect(), "body {n}: {applied:?}");
        let stored = format!(
            "select encode(sha256(body), 'hex') = encode(body_hash, 'hex'), length(body), report is not null,
                    coalesce(jsonb_typeof(report #> '{{result,cases}}'), '-')
             from results where judge_id = '{}'",
            attempt.judge_id.0
        );
        let row = database.row(&stored).await;
        assert!(row.starts_with(&format!("t {} t ", body.len())), "body {n}: {row}");
        if matches!(applied[0], Applied::Verdict(_)) {
            assert!(row.ends_with("array"), "body {n}: {row}");
        }
    }
    assert!(
        database.row("select count(*) from submissions where verdict = 'accepted'").await.parse::<u32>().unwrap() >= 6
    );
}

#[tokio::test]
async fn bodies_that_are_no_results_are_system_errors_with_a_reason() {
    let database = TestDatabase::fresh().await;
    let bodies: [&[u8]; 5] = [b"", b"null", b"\xFF\xFE", b"{\"result\":{\"cases\":[]}}", b"<html></html>"];
    for (n, body) in bodies.into_iter().enumerate() {
        let submission = database.submit_all(&[new_submission(&n.to_string())]).await[0];
        let attempt = database.accepted(submission).await;
        let applied = database.apply(&[incoming(&attempt, body)]).await;
        assert!(matches!(applied[0], Applied::Retry(_)), "{applied:?}");
    }
    let rows = "select count(*) from results where disposition = 'system_error' and reason is not null";
    assert_eq!(database.row(rows).await, "5");
}

#[tokio::test]
async fn a_result_with_fewer_cases_than_asked_is_tried_again() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    database.execute("update judge_requests set case_count = null").await;
    let attempt = database.accepted(submission).await;
    let short = incoming(&attempt, &finish_body(&["Accepted"]));
    assert!(
        matches!(database.apply(&[short]).await[0], Applied::Retry(_)),
        "the cases of a text written by SQL are counted"
    );
    let again = database.accepted(submission).await;
    assert_eq!(database.apply(&[finish(&again, "Accepted")]).await, [Applied::Verdict(Verdict::Accepted)]);
}
