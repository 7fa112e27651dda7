//! How a submission enters: once per key, and with its intent or not at all.

use judge_relay::protocol::SubmissionId;
use judge_relay::store::StoreError;
use judge_relay::store::submissions::{NewSubmission, Submitted, submit};
use uuid::Uuid;

use crate::harness::database::TestDatabase;
use crate::harness::seed::{TENANT, new_submission};

const ROWS: &str = "select (select count(*) from submissions), (select count(*) from judge_requests),
                           (select count(*) from outbox_events)";

#[tokio::test]
async fn a_submission_has_its_request_and_its_intent() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit(1).await[0];
    assert_eq!(database.row(ROWS).await, "1 1 1");
    let intent =
        "select aggregate_id, aggregate_sequence, generation, destination, event_type, cause from outbox_events";
    assert_eq!(database.row(intent).await, format!("{submission} 1 1 judge:default JudgeRequested submit"));
    let row = "select state, generation, last_generation, last_sequence, attempts_used, verdict from submissions";
    assert_eq!(database.row(row).await, "pending 1 1 1 0 ∅");
}

#[tokio::test]
async fn the_same_key_answers_as_the_first_time_and_another_body_is_refused() {
    let database = TestDatabase::fresh().await;
    let first = database.submit_all(&[new_submission("key")]).await[0];
    let other_body = NewSubmission { body_hash: [9; 32], ..new_submission("key") };
    let items = [new_submission("key"), other_body, new_submission("new")];
    let submitted = submit(&database.pool, TENANT, &items).await.unwrap();
    assert_eq!(submitted, [Submitted::Known(first), Submitted::KeyTaken(first), Submitted::New]);
    assert_eq!(database.row(ROWS).await, "2 2 2");

    let elsewhere = submit(&database.pool, "other tenant", &[new_submission("key")]).await.unwrap();
    assert_eq!(elsewhere, [Submitted::New], "keys are a tenant's own");
}

#[tokio::test]
async fn the_same_key_twice_in_one_batch_is_one_submission() {
    let database = TestDatabase::fresh().await;
    let items =
        [new_submission("key"), new_submission("key"), NewSubmission { body_hash: [9; 32], ..new_submission("key") }];
    let submitted = submit(&database.pool, TENANT, &items).await.unwrap();
    assert_eq!(database.row(ROWS).await, "1 1 1");
    let stored = SubmissionId(database.row("select id from submissions").await.parse::<Uuid>().unwrap());
    let place = items.iter().position(|item| item.id == stored).unwrap();
    for (at, (item, became)) in items.iter().zip(&submitted).enumerate() {
        let expected = match at {
            _ if at == place => Submitted::New,
            _ if item.body_hash == items[place].body_hash => Submitted::Known(stored),
            _ => Submitted::KeyTaken(stored),
        };
        assert_eq!(*became, expected, "item {at} of {submitted:?}");
    }
}

#[tokio::test]
async fn the_same_batch_from_many_sides_at_once_is_stored_once() {
    let database = TestDatabase::fresh().await;
    let batch = |is_backwards: bool| {
        let mut items: Vec<_> = (0..20).map(|n| new_submission(&n.to_string())).collect();
        if is_backwards {
            items.reverse();
        }
        items
    };
    let batches: Vec<Vec<NewSubmission>> = (0..6).map(|n| batch(n % 2 == 0)).collect();
    let answers =
        futures_util::future::join_all(batches.iter().map(|batch| submit(&database.pool, TENANT, batch))).await;
    let answers: Vec<Submitted> = answers.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|one| **one == Submitted::New).count(), 20);
    assert_eq!(answers.iter().filter(|one| matches!(one, Submitted::Known(_))).count(), 100);
    assert_eq!(database.row(ROWS).await, "20 20 20");
}

#[tokio::test]
async fn an_unknown_lane_is_said_and_does_not_hurt_the_others() {
    let database = TestDatabase::fresh().await;
    let lost = NewSubmission { lane: "nowhere".to_owned(), ..new_submission("lost") };
    let submitted = submit(&database.pool, TENANT, &[lost, new_submission("good")]).await.unwrap();
    assert_eq!(submitted, [Submitted::NoLane, Submitted::New]);
    assert_eq!(database.row(ROWS).await, "1 1 1");
}

#[tokio::test]
async fn what_is_rolled_back_has_neither_row_nor_intent() {
    let database = TestDatabase::fresh().await;
    for broken in
        ["outbox_events add constraint broken check (false)", "judge_requests add constraint broken check (false)"]
    {
        database.execute(&format!("alter table {broken}")).await;
        let refused = submit(&database.pool, TENANT, &[new_submission("key"), new_submission("other")]).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        assert_eq!(database.row(ROWS).await, "0 0 0");
        let table = broken.split(' ').next().unwrap();
        database.execute(&format!("alter table {table} drop constraint broken")).await;
    }
    database.submit_all(&[new_submission("key")]).await;
    assert_eq!(database.row(ROWS).await, "1 1 1", "the key is still free");
}
