//! Streams on real Redis: appended once, read, acked and deleted, taken over from the dead, and lost without a guess.
//! Not what is done with an entry.

mod entries;
mod pending;

use std::time::Duration;

use judge_relay::protocol::{Generation, SubmissionId};
use judge_relay::stream::{
    Appended, Depth, Entry, EventOut, GROUP, JudgeRequested, Pending, StreamError, StreamOptions, Streams,
};
use redis::aio::MultiplexedConnection;
use uuid::Uuid;

use crate::harness::SCHEMA;
use crate::harness::stores::TestStores;

const LANE: &str = "judge:default";
const MINUTE: Duration = Duration::from_secs(60);
const ONE: &str = "00000000-0000-0000-0000-000000000001";
const OTHER: &str = "00000000-0000-0000-0000-000000000002";

/// Streams under a prefix of this test's own, and a connection to look behind them.
struct Test {
    streams: Streams,
    connection: MultiplexedConnection,
    key: String,
    _stores: TestStores,
}

impl Test {
    async fn empty() -> Test {
        let stores = SCHEMA.fresh();
        let options = StreamOptions {
            prefix: stores.redis_prefix.clone(),
            size: 4,
            connect_limit: Duration::from_secs(10),
            response_limit: Duration::from_secs(10),
        };
        let streams = Streams::new(&stores.redis_url, &options).unwrap();
        let client = redis::Client::open(&*stores.redis_url).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Test { key: streams.key(LANE), streams, connection, _stores: stores }
    }

    async fn with_lane() -> Test {
        let test = Test::empty().await;
        test.streams.create(LANE).await.unwrap();
        test
    }

    async fn run<T: redis::FromRedisValue>(&mut self, command: &[&str]) -> T {
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut self.connection).await.unwrap()
    }

    async fn append(&self, events: &[EventOut]) -> Vec<Appended> {
        self.streams.append(events, MINUTE).await.unwrap()
    }

    async fn read(&self, consumer: &str) -> Vec<Entry> {
        self.streams.read_new(consumer, &[(LANE.to_owned(), 100)]).await.unwrap()
    }

    async fn pending(&self) -> Vec<Pending> {
        self.streams.pending(LANE, "-", 100).await.unwrap()
    }

    /// Appends so many and has them read by a consumer.
    async fn held_by(&self, consumer: &str, count: u128) -> Vec<Entry> {
        self.append(&(0..count).map(event).collect::<Vec<_>>()).await;
        let entries = self.read(consumer).await;
        assert_eq!(entries.len() as u128, count);
        entries
    }
}

fn event(number: u128) -> EventOut {
    EventOut {
        destination: LANE.to_owned(),
        event_id: Uuid::from_u128(number),
        replay: 0,
        aggregate_id: Uuid::from_u128(1_000 + number),
        sequence: 1,
        generation: Generation(3),
        event_type: "JudgeRequested".to_owned(),
        schema_version: 1,
        cause: "submit".to_owned(),
        occurred_ms: 1_700_000_000_123,
        payload: "{}".to_owned(),
    }
}

fn is_now(appended: &Appended) -> bool {
    matches!(appended, Appended::Now(_))
}

#[tokio::test]
async fn what_is_appended_is_read_back() {
    let test = Test::with_lane().await;
    assert!(is_now(&test.append(&[event(7)]).await[0]));
    let entries = test.read(ONE).await;
    let wanted = JudgeRequested {
        event_id: Uuid::from_u128(7),
        submission: SubmissionId(Uuid::from_u128(1_007)),
        generation: Generation(3),
        occurred_ms: 1_700_000_000_123,
    };
    assert_eq!(JudgeRequested::read(&entries[0]), Ok(wanted));
    assert_eq!(test.read(ONE).await, [], "handed out once");
}

#[tokio::test]
async fn an_event_is_appended_once_and_again_only_on_purpose() {
    let test = Test::with_lane().await;
    let first = test.append(&[event(1), event(1), event(2)]).await;
    let Appended::Now(id) = &first[0] else { panic!("{first:?}") };
    assert_eq!(first[1], Appended::Before(id.clone()), "even within one batch");
    assert!(is_now(&first[2]));
    assert_eq!(test.append(&[event(1)]).await, [Appended::Before(id.clone())]);
    assert!(is_now(&test.append(&[EventOut { replay: 1, ..event(1) }]).await[0]));
    assert_eq!(test.streams.lengths(&[LANE.to_owned()]).await.unwrap(), [3]);
}

#[tokio::test]
async fn a_missing_stream_is_said_and_not_created() {
    let mut test = Test::empty().await;
    assert_eq!(test.append(&[event(1), event(2)]).await, [Appended::StreamMissing, Appended::StreamMissing]);
    assert_eq!(test.streams.missing(LANE).await.unwrap(), Some("stream"));
    let read = test.streams.read_new(ONE, &[(LANE.to_owned(), 1)]).await;
    assert!(matches!(read, Err(StreamError::Missing(_))), "{read:?}");
    let read = test.streams.read_own(ONE, LANE, "0", 1).await;
    assert!(matches!(read, Err(StreamError::Missing(_))), "{read:?}");
    let pending = test.streams.pending(LANE, "-", 1).await;
    assert!(matches!(pending, Err(StreamError::Missing(_))), "{pending:?}");
    let key = test.key.clone();
    assert_eq!(test.run::<u8>(&["EXISTS", &key]).await, 0);

    test.streams.create(LANE).await.unwrap();
    assert_eq!(test.streams.missing(LANE).await.unwrap(), None);
    assert!(is_now(&test.append(&[event(1)]).await[0]), "the failed try left no deduplication key");
    test.streams.create(LANE).await.unwrap();
    assert_eq!(test.read(ONE).await.len(), 1, "creating again takes nothing away");
}

#[tokio::test]
async fn a_missing_group_is_said_and_a_new_one_reads_from_the_beginning() {
    let mut test = Test::with_lane().await;
    test.held_by(ONE, 2).await;
    let key = test.key.clone();
    test.run::<u8>(&["XGROUP", "DESTROY", &key, GROUP]).await;
    assert_eq!(test.streams.missing(LANE).await.unwrap(), Some("group"));
    let read = test.streams.read_new(ONE, &[(LANE.to_owned(), 1)]).await;
    assert!(matches!(read, Err(StreamError::Missing(_))), "{read:?}");
    test.streams.create(LANE).await.unwrap();
    assert_eq!(test.read(OTHER).await.len(), 2);
}

#[tokio::test]
async fn events_need_no_group_of_ours() {
    let test = Test::empty().await;
    assert_eq!(test.streams.missing("events").await.unwrap(), Some("stream"));
    test.streams.create("events").await.unwrap();
    assert_eq!(test.streams.missing("events").await.unwrap(), None);
}

#[tokio::test]
async fn one_refused_among_good_ones_leaves_no_trace() {
    let mut test = Test::with_lane().await;
    let key = test.streams.key("judge:broken");
    test.run::<String>(&["SET", &key, "no stream"]).await;
    let broken = EventOut { destination: "judge:broken".to_owned(), ..event(2) };
    let appended = test.append(&[event(1), broken.clone(), event(3)]).await;
    assert!(is_now(&appended[0]) && is_now(&appended[2]), "{appended:?}");
    let Appended::Refused(why) = &appended[1] else { panic!("{appended:?}") };
    assert!(why.contains("WRONGTYPE"), "{why}");
    test.run::<u8>(&["DEL", &key]).await;
    test.streams.create("judge:broken").await.unwrap();
    assert!(is_now(&test.append(&[broken]).await[0]), "no deduplication key swallows the next try");
}

#[tokio::test]
async fn acked_entries_are_gone_from_the_stream_and_the_pending_list() {
    let test = Test::with_lane().await;
    let entries = test.held_by(ONE, 3).await;
    let before = test.streams.depth(LANE).await.unwrap();
    let oldest = entries[0].id.split('-').next().unwrap().parse().unwrap();
    assert_eq!(before, Depth { length: 3, pending: 3, oldest_ms: Some(oldest) });
    test.streams.ack_entries(entries[..2].iter()).await.unwrap();
    assert_eq!(test.pending().await.iter().map(|row| &row.id).collect::<Vec<_>>(), [&entries[2].id]);
    let after = test.streams.depth(LANE).await.unwrap();
    assert_eq!((after.length, after.pending), (1, 1));
    test.streams.ack(&test.key, &[]).await.unwrap();
    test.streams.ack_entries(entries.iter()).await.unwrap();
    assert_eq!(test.streams.depth(LANE).await.unwrap(), Depth::default());
}

#[tokio::test]
async fn lanes_are_read_in_the_order_given_and_no_further_than_asked() {
    let test = Test::with_lane().await;
    test.streams.create("judge:contest").await.unwrap();
    test.append(&(0..5).map(event).collect::<Vec<_>>()).await;
    test.append(&[EventOut { destination: "judge:contest".to_owned(), ..event(9) }]).await;
    let lanes = [("judge:contest".to_owned(), 3), (LANE.to_owned(), 2)];
    let entries = test.streams.read_new(ONE, &lanes).await.unwrap();
    let contest = test.streams.key("judge:contest");
    assert_eq!(entries.iter().map(|entry| &entry.key).collect::<Vec<_>>(), [&contest, &test.key, &test.key]);
}

#[tokio::test]
async fn what_was_handed_out_before_a_failed_read_is_found_in_the_own_list() {
    let test = Test::with_lane().await;
    test.append(&[event(1), event(2), event(3)]).await;
    let lanes = [(LANE.to_owned(), 5), ("judge:missing".to_owned(), 5)];
    assert!(matches!(test.streams.read_new(ONE, &lanes).await, Err(StreamError::Missing(_))));
    let own = test.streams.read_own(ONE, LANE, "0", 2).await.unwrap();
    assert_eq!(own.len(), 2);
    let rest = test.streams.read_own(ONE, LANE, &own[1].id, 2).await.unwrap();
    assert_eq!(rest.len(), 1);
    assert_eq!(test.streams.read_own(OTHER, LANE, "0", 2).await.unwrap(), []);
}

#[tokio::test]
async fn old_events_are_trimmed_by_age_and_young_ones_kept() {
    let mut test = Test::empty().await;
    let key = test.streams.key("events");
    for n in 1..=500 {
        test.run::<String>(&["XADD", &key, &format!("{n}-1"), "field", "value"]).await;
    }
    test.append(&[EventOut { destination: "events".to_owned(), ..event(1) }]).await;
    test.streams.trim_events(MINUTE).await.unwrap();
    let left = test.streams.depth("events").await.unwrap();
    // Redis trims whole nodes of 100 entries.
    assert!((1..=101).contains(&left.length), "{left:?}");
    test.streams.trim_events(MINUTE * 1_000_000).await.unwrap();
    assert_eq!(test.streams.depth("events").await.unwrap().length, left.length);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_never_missing() {
    let options = StreamOptions {
        prefix: "{none}".to_owned(),
        size: 1,
        connect_limit: Duration::from_millis(200),
        response_limit: Duration::from_millis(200),
    };
    let streams = Streams::new("redis://127.0.0.1:1/0", &options).unwrap();
    assert!(matches!(streams.append(&[event(1)], MINUTE).await, Err(StreamError::Unavailable(_))));
    assert!(matches!(streams.missing(LANE).await, Err(StreamError::Unavailable(_))));
    let error = Streams::new("http://user:secret@host", &options).err().unwrap().to_string();
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test]
async fn the_settings_that_the_promises_rest_on_are_read() {
    let test = Test::empty().await;
    let (policy, version) = test.streams.settings().await.unwrap();
    assert_eq!(policy.as_deref(), Some("noeviction"));
    assert!(version.unwrap().split('.').next().unwrap().parse::<u32>().unwrap() >= 6);
}
