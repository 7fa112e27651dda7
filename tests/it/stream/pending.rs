//! Entries that somebody holds: taken over from the dead by one alone, given up, and never lost with a consumer.

use std::time::Duration;

use judge_relay::stream::{Entry, GROUP, JudgeRequested, Pending, Undecodable};
use uuid::Uuid;

use super::{LANE, MINUTE, ONE, OTHER, Test, event};

#[tokio::test]
async fn an_entry_that_was_deleted_while_pending_stalls_nobody() {
    let mut test = Test::with_lane().await;
    let entries = test.held_by(ONE, 2).await;
    let key = test.key.clone();
    test.run::<u8>(&["XDEL", &key, &entries[0].id]).await;
    let own = test.streams.read_own(ONE, LANE, "0", 10).await.unwrap();
    assert!(own.iter().any(|entry| entry.id == entries[1].id && !entry.fields.is_empty()), "{own:?}");
    for gone in own.iter().filter(|entry| entry.id == entries[0].id) {
        assert!(matches!(JudgeRequested::read(gone), Err(Undecodable::Broken(_))));
    }
    let pending = test.pending().await;
    assert_eq!(test.streams.take_over(LANE, &pending[0], OTHER).await.unwrap(), None, "it is gone");
    assert_eq!(test.streams.look(LANE, &entries[0].id).await.unwrap(), None);
    assert_eq!(test.pending().await.len(), 1, "and dropped from the pending list");
    assert_eq!(test.streams.look(LANE, &entries[1].id).await.unwrap(), Some(entries[1].clone()));
}

#[tokio::test]
async fn an_entry_is_taken_over_by_one_of_two_who_saw_it() {
    let test = Test::with_lane().await;
    let entries = test.held_by("dead", 1).await;
    let seen = test.pending().await.remove(0);
    assert_eq!((&*seen.consumer, seen.deliveries), ("dead", 1));
    let (one, other) =
        tokio::join!(test.streams.take_over(LANE, &seen, ONE), test.streams.take_over(LANE, &seen, OTHER));
    let taken: Vec<Entry> = [one.unwrap(), other.unwrap()].into_iter().flatten().collect();
    assert_eq!(taken, entries, "exactly one of them has it");
    let pending = test.pending().await.remove(0);
    assert!(pending.deliveries == 2 && pending.consumer != "dead", "{pending:?}");
}

#[tokio::test]
async fn an_entry_that_was_handed_out_since_it_was_seen_is_not_taken_over() {
    let mut test = Test::with_lane().await;
    let entries = test.held_by(ONE, 1).await;
    let key = test.key.clone();
    test.run::<redis::Value>(&["XCLAIM", &key, GROUP, ONE, "0", &entries[0].id, "IDLE", "90000"]).await;
    let seen = test.pending().await.remove(0);
    assert!(seen.idle >= Duration::from_secs(90), "{seen:?}");
    // Its owner reads it again: same owner, but no longer idle.
    test.streams.read_own(ONE, LANE, "0", 1).await.unwrap();
    assert_eq!(test.streams.take_over(LANE, &seen, OTHER).await.unwrap(), None);
    test.streams.ack_entries(entries.iter()).await.unwrap();
    assert_eq!(test.streams.take_over(LANE, &seen, OTHER).await.unwrap(), None, "acked");
}

#[tokio::test]
async fn pending_entries_are_paged() {
    let test = Test::with_lane().await;
    let entries = test.held_by(ONE, 5).await;
    let first = test.streams.pending(LANE, "-", 2).await.unwrap();
    let rest = test.streams.pending(LANE, &first[1].id, 9).await.unwrap();
    let ids: Vec<&String> = first.iter().chain(&rest).map(|row| &row.id).collect();
    assert_eq!(ids, entries.iter().map(|entry| &entry.id).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_process_that_ends_makes_its_entries_claimable_at_once_without_counting_a_delivery() {
    let test = Test::with_lane().await;
    test.held_by(ONE, 2).await;
    test.append(&[event(100)]).await;
    test.read(OTHER).await;
    test.streams.give_up(LANE, ONE).await.unwrap();
    let pending = test.pending().await;
    let given_up: Vec<&Pending> = pending.iter().filter(|row| row.consumer == ONE).collect();
    assert_eq!(given_up.len(), 2);
    assert!(given_up.iter().all(|row| row.idle > Duration::from_secs(86_000) && row.deliveries == 0), "{pending:?}");
    let others = pending.iter().find(|row| row.consumer == OTHER).unwrap();
    assert!(others.idle < MINUTE * 10 && others.deliveries == 1, "{pending:?}");
    assert!(test.streams.take_over(LANE, given_up[0], OTHER).await.unwrap().is_some());
    test.streams.give_up("judge:missing", ONE).await.unwrap();
}

#[tokio::test]
async fn only_consumers_that_are_idle_and_empty_and_dead_are_deleted() {
    let mut test = Test::with_lane().await;
    test.held_by("holds one", 1).await;
    for consumer in ["empty", ONE] {
        test.append(&[event(u128::from(consumer == ONE) + 50)]).await;
        test.streams.ack_entries(test.read(consumer).await.iter()).await.unwrap();
    }
    let living = [ONE.parse::<Uuid>().unwrap()];
    assert_eq!(test.streams.delete_consumers(LANE, MINUTE, &living).await.unwrap(), 0, "nobody has idled so long");
    assert_eq!(test.streams.delete_consumers(LANE, Duration::ZERO, &living).await.unwrap(), 1);
    let key = test.key.clone();
    let left: redis::streams::StreamInfoConsumersReply = test.run(&["XINFO", "CONSUMERS", &key, GROUP]).await;
    let mut names: Vec<&str> = left.consumers.iter().map(|consumer| &*consumer.name).collect();
    names.sort_unstable();
    assert_eq!(names, [ONE, "holds one"]);
    assert_eq!(test.pending().await.len(), 1, "nothing pending was lost");
    assert_eq!(test.streams.delete_consumers("judge:missing", Duration::ZERO, &[]).await.unwrap(), 0);
}
