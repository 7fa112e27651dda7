//! Progress of the oracle: what is well passes it, and each kind of violation is found.
//! Not a test of the service: the violations are written into the tables by hand.

use judge_relay::protocol::submission::Applied;
use judge_relay::store::attempts::SendOutcome;

use crate::harness::database::TestDatabase;
use crate::harness::seed::{finish, new_submission};
use crate::harness::settled::{settled, violations};

/// One judged, rejudged and judged again in a contest, one parked, one with a compile error.
async fn all_is_well() -> TestDatabase {
    let database = TestDatabase::fresh().await;
    let mut twice = new_submission("twice");
    (twice.contest_id, twice.course_id) = (Some("contest".to_owned()), Some("course".to_owned()));
    let attempt = database.judged(twice, "WrongAnswer").await;
    database.rejudge(attempt.submission).await;
    let again = database.accepted(attempt.submission).await;
    database.apply(&[finish(&again, "Accepted"), finish(&attempt, "Accepted"), finish(&again, "Accepted")]).await;

    let mut refused = new_submission("refused");
    refused.user_id = "other".to_owned();
    let refused = database.submit_all(&[refused]).await[0];
    let entry = database.entry(refused).await;
    let attempt = database.begin(&[entry]).await.remove(0);
    database.record(&attempt, SendOutcome::Refused("no".to_owned()), Some(400)).await;

    database.judged(new_submission("compiled"), "CompileError").await;
    database.publish_the_rest().await;
    database
}

#[tokio::test]
async fn what_is_well_passes() {
    let database = all_is_well().await;
    let redis = Some((&*database.stores.redis_url, &*database.stores.redis_prefix));
    assert_eq!(settled(&database.stores.database_url, redis).await, Vec::<String>::new());
}

/// What is broken, by which statement, and what the oracle must say of it.
const BROKEN: &[(&str, &str)] = &[
    ("update submissions set state = 'pending' where idempotency_key = 'refused'", "is still pending"),
    ("delete from judge_requests where generation = 2", "has no request of its generation 2"),
    (
        "update outbox_events set event_type = 'Other' where event_type = 'JudgeRequested' and generation = 2",
        "has no intent of its generation 2",
    ),
    (
        "update dead_letters set resolved_at = now(), resolved_by = 'x', resolution = 'x'",
        "is parked without an open dead letter",
    ),
    (
        "insert into dead_letters (id, boundary, cause_class, message, submission_id)
         select gen_random_uuid(), 'x', 'x', 'x', id from submissions where idempotency_key = 'compiled'",
        "is judged and has an open dead letter",
    ),
    ("update results set generation = 2, disposition = 'applied' where disposition = 'stale'", "was judged 2 times"),
    (
        "delete from outbox_events where event_type = 'SubmissionJudged' and generation = 2",
        "has 0 verdict events for 1",
    ),
    ("delete from results where disposition = 'applied' and generation = 2", "has 1 verdict events for 0"),
    ("insert into processed_events values ('judge-relay', gen_random_uuid())", "3 effects have 4 inbox rows"),
    (
        "update results set disposition = 'system_error'; update results set judge_id = gen_random_uuid();
         update results set judge_id = (select judge_id from results limit 1)",
        "effects of one kind",
    ),
    (
        "update results set generation = 3 where generation = 2 and disposition = 'applied'",
        "stands at generation 2, the newest applied one is 3",
    ),
    (
        "update submissions set verdict_judge_id = gen_random_uuid() where idempotency_key = 'twice'",
        "which was not applied",
    ),
    (
        "update submissions set verdict = 'wrong_answer', counted_verdict = 'wrong_answer' where idempotency_key = 'twice'",
        "stands as wrong_answer, consumers were told accepted",
    ),
    (
        "update outbox_events set event_type = 'SubmissionCancelled' where event_type = 'SubmissionParked'",
        "is SubmissionCancelled although it is parked",
    ),
    (
        "update outbox_events set published_at = null, stream_id = null where event_type = 'SubmissionParked'",
        "has not left",
    ),
    (
        "update judge_attempts set state = 'ambiguous', close_reason = null, finished_at = null where close_reason = 'refused'",
        "is still ambiguous",
    ),
    (
        "update judge_attempts set generation = 2, state = 'finished' where generation = 1 and submission_id =
         (select id from submissions where idempotency_key = 'twice')",
        "has 2 finished attempts",
    ),
    (
        "update outbox_events set aggregate_sequence = 9 where event_type = 'SubmissionParked'",
        "has 2 events numbered 1 to 9, and says 2",
    ),
    (
        "update outbox_events set aggregate_id = gen_random_uuid() where event_type = 'SubmissionParked'",
        "which is not there",
    ),
    (
        "update outbox_events set stream_id = '0-1' where event_type = 'SubmissionJudged' and generation = 2",
        "entered its stream before",
    ),
    ("update problem_stats set submits = submits + 1", "problem problem counts (3 1) for (2 1)"),
    ("delete from problem_stats", "problem problem counts (0 0) for (2 1)"),
    ("update user_stats set accepts = accepts + 1", "user user counts (2 2) for (2 1)"),
    ("insert into user_stats values ('other tenant', 'user', 1, 0)", "user user counts (1 0) for (0 0)"),
    (
        "update scope_user_stats set submits = 0 where scope_kind = 'contest'",
        "counts (0 1) for (1 1) in contest contest",
    ),
    ("delete from scope_user_stats where scope_kind = 'course'", "counts (0 0) for (1 1) in course course"),
    (
        "update first_accepts set accepted_count = 2 where scope_kind = 'all'",
        "problem problem has 1 accepted submissions of user user in all , not 2",
    ),
    ("delete from first_accepts where scope_kind = 'contest'", "of user user in contest contest, not 0"),
];

#[tokio::test]
async fn each_kind_of_violation_is_found() {
    let database = all_is_well().await;
    // Rules that the schema enforces by itself are lifted: the oracle must not rely on them.
    database
        .execute(
            "alter table submissions drop constraint submissions_judged_means_verdict;
             alter table outbox_events drop constraint outbox_events_sequence",
        )
        .await;
    for (statement, expected) in BROKEN {
        database.execute(&format!("begin; {statement}")).await;
        let found = violations(&database.client).await;
        database.execute("rollback").await;
        assert!(found.iter().any(|violation| violation.contains(expected)), "{statement}\n{expected}\n{found:#?}");
    }
    assert_eq!(violations(&database.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn entries_that_nobody_acked_are_found() {
    let database = all_is_well().await;
    let (url, prefix) = (&*database.stores.redis_url, &*database.stores.redis_prefix);
    let key = format!("{prefix}:judge:default");
    let mut connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let mut run = redis::pipe();
    run.cmd("XADD").arg(&key).arg("1-1").arg("field").arg("value").ignore();
    run.cmd("XGROUP").arg("CREATE").arg(&key).arg("group").arg("0").ignore();
    run.cmd("XREADGROUP").arg(&["GROUP", "group", "one", "STREAMS", &key, ">"]).ignore();
    run.cmd("XADD").arg(format!("{prefix}:events")).arg("1-1").arg("field").arg("value").ignore();
    run.exec_async(&mut connection).await.unwrap();

    let found = settled(&database.stores.database_url, Some((url, prefix))).await;
    assert_eq!(
        found,
        [format!("stream {key} still holds 1 entries"), format!("group group of stream {key} still waits for 1 acks")]
    );
}

#[tokio::test]
async fn an_unsettled_submission_is_found_at_every_stage() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    let has = async |what: &str| {
        let found = violations(&database.client).await;
        assert!(found.iter().any(|violation| violation.contains(what)), "{what}: {found:#?}");
    };
    has("is still pending").await;
    has("has not left").await;
    let attempt = database.accepted(submission).await;
    has("is still judging").await;
    has("is still accepted").await;
    assert!(matches!(database.apply(&[finish(&attempt, "Accepted")]).await[0], Applied::Verdict(_)));
    has("has not left").await;
    database.publish_the_rest().await;
    assert_eq!(violations(&database.client).await, Vec::<String>::new());
}
