//! Recovery after a proven loss of a stream: what was in it is due again, and nothing else.

use std::time::Duration;

use judge_relay::store::instances::{alive, close_loss, heartbeat, leave, open_losses, record_loss};
use judge_relay::store::lost::{due_again, settle_until, suspects};
use judge_relay::store::outbox::claim_lanes;
use uuid::Uuid;

use crate::harness::database::TestDatabase;
use crate::harness::seed::new_submission;

const LANE: &str = "judge:default";

/// Recovers as if nothing were in the destination's stream any more.
async fn recovered(database: &TestDatabase, destination: Option<&str>) -> usize {
    let loss = record_loss(&database.pool, LANE, "stream").await.unwrap();
    assert_eq!(open_losses(&database.pool).await.unwrap(), [(loss, LANE.to_owned())]);
    let found = suspects(&database.pool, destination.unwrap_or("results"), Duration::ZERO, None, 100).await.unwrap();
    let waiting: Vec<_> = found.iter().filter(|suspect| suspect.is_waiting).collect();
    let due = due_again(&database.pool, &waiting).await.unwrap();
    assert_eq!(due_again(&database.pool, &waiting).await.unwrap(), 0, "what another process found, too, is moved once");
    close_loss(&database.pool, loss, due).await.unwrap();
    let row =
        format!("select stream, what, recovered_at is not null, due_again from stream_losses where id = '{loss}'");
    assert_eq!(database.row(&row).await, format!("{LANE} stream t {due}"));
    due
}

#[tokio::test]
async fn what_is_settled_or_too_young_is_not_looked_at_and_the_mark_never_goes_back() {
    let database = TestDatabase::fresh().await;
    database.entry(database.submit(1).await[0]).await;
    let look = async |age| suspects(&database.pool, LANE, age, None, 100).await.unwrap();
    assert!(look(Duration::from_secs(3600)).await.is_empty());
    let found = look(Duration::ZERO).await;
    assert_eq!(found.len(), 1);
    settle_until(&database.pool, LANE, found[0].published_at + chrono::Duration::seconds(1)).await.unwrap();
    settle_until(&database.pool, LANE, found[0].published_at).await.unwrap();
    assert!(look(Duration::ZERO).await.is_empty());
}

#[tokio::test]
async fn what_was_published_and_not_begun_is_due_again_as_a_new_intent() {
    let database = TestDatabase::fresh().await;
    let lost = database.submit(1).await[0];
    database.entry(lost).await;
    assert_eq!(recovered(&database, Some(LANE)).await, 1);
    let intents = "select aggregate_sequence, generation, destination, cause, published_at is null
                   from outbox_events order by aggregate_sequence";
    assert_eq!(database.rows(intents).await, ["1 1 judge:default submit f", "2 1 judge:default loss t"]);
    assert_eq!(database.row("select last_sequence, state from submissions").await, "2 pending");

    assert_eq!(recovered(&database, Some(LANE)).await, 0, "an intent of it waits already");
    let room = [(LANE.to_owned(), 5)];
    assert_eq!(claim_lanes(&database.pool, Uuid::nil(), Duration::from_secs(9), &room).await.unwrap().len(), 1);
    assert_eq!(recovered(&database, Some(LANE)).await, 0, "and still does while it is leased");
    let attempt = database.accepted(lost).await;
    assert_eq!(attempt.generation.0, 1);
}

#[tokio::test]
async fn what_is_at_the_controller_or_over_or_elsewhere_is_left_alone() {
    let database = TestDatabase::fresh().await;
    let submissions = database.submit(3).await;
    database.accepted(submissions[0]).await;
    database.judged(new_submission("judged"), "Accepted").await;
    database.entry(submissions[1]).await;
    database.execute(&format!("update submissions set state = 'cancelled' where id = '{}'", submissions[1])).await;
    assert_eq!(recovered(&database, Some(LANE)).await, 0, "one judging, one judged, one cancelled, one unpublished");

    database.entry(submissions[2]).await;
    assert_eq!(recovered(&database, Some("judge:contest")).await, 0, "another stream was lost");
    assert_eq!(recovered(&database, None).await, 0, "a stream without intents was lost");
    assert_eq!(recovered(&database, Some(LANE)).await, 1);
}

#[tokio::test]
async fn only_the_newest_generation_is_due_again_and_only_once() {
    let database = TestDatabase::fresh().await;
    let attempt = database.judged(new_submission("1"), "Accepted").await;
    database.rejudge(attempt.submission).await;
    database.entry(attempt.submission).await;
    assert_eq!(recovered(&database, Some(LANE)).await, 0, "its newest intent was in another stream");
    assert_eq!(recovered(&database, Some("judge:rejudge")).await, 1);

    let twice = database.submit(1).await[0];
    database.entry(twice).await;
    assert_eq!(recovered(&database, Some(LANE)).await, 1);
    database.entry(twice).await;
    assert_eq!(recovered(&database, Some(LANE)).await, 1, "two lost entries make one new intent");
}

#[tokio::test]
async fn a_process_is_alive_until_it_leaves_or_falls_silent() {
    let database = TestDatabase::fresh().await;
    let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    heartbeat(&database.pool, one, "host").await.unwrap();
    heartbeat(&database.pool, other, "host").await.unwrap();
    let mut both = alive(&database.pool).await.unwrap();
    both.sort();
    assert_eq!(both, [one, other]);
    let silent = "update instances set heartbeat_at = heartbeat_at - interval '7 seconds' where instance_id = ";
    database.execute(&format!("{silent}'{one}'")).await;
    assert_eq!(alive(&database.pool).await.unwrap(), [other]);
    heartbeat(&database.pool, one, "host").await.unwrap();
    leave(&database.pool, other).await.unwrap();
    assert_eq!(alive(&database.pool).await.unwrap(), [one]);
}
