//! What stands in entries: finishes that wait, and entries that cannot be read.

use judge_relay::protocol::{Generation, JudgeId, SubmissionId};
use judge_relay::stream::{JudgeRequested, SpilledFinish, StreamError, Undecodable};
use uuid::Uuid;

use super::{ONE, Test};

fn finish(body: &[u8]) -> SpilledFinish {
    SpilledFinish {
        submission: SubmissionId(Uuid::from_u128(5)),
        generation: Generation(2),
        judge_id: JudgeId(Uuid::from_u128(6)),
        received_ms: 1_700_000_000_123,
        body: actix_web::web::Bytes::copy_from_slice(body),
    }
}

#[tokio::test]
async fn a_finish_waits_in_the_results_stream_while_it_is_there_and_has_room() {
    let test = Test::empty().await;
    let body = b"\0\xFF{\"not\": utf8";
    let missing = test.streams.spill(&finish(body), 2).await;
    assert!(matches!(missing, Err(StreamError::Missing(_))), "{missing:?}");
    test.streams.create("results").await.unwrap();
    test.streams.spill(&finish(body), 2).await.unwrap();
    test.streams.spill(&finish(b""), 2).await.unwrap();
    let full = test.streams.spill(&finish(body), 2).await;
    assert!(matches!(full, Err(StreamError::Full(_))), "{full:?}");

    let entries = test.streams.read_new(ONE, &[("results".to_owned(), 9)]).await.unwrap();
    let read: Vec<_> = entries.iter().map(SpilledFinish::read).collect();
    assert_eq!(read, [Ok(finish(body)), Ok(finish(b""))]);
}

type Fields = Vec<(&'static str, Vec<u8>)>;

/// The fields of a readable entry, changed.
fn fields(change: impl FnOnce(&mut Fields)) -> Fields {
    let id = Uuid::from_u128(1).to_string();
    let mut fields: Fields = [
        ("schema_version", "1"),
        ("event_id", &*id),
        ("submission_id", &*id),
        ("generation", "1"),
        ("occurred_ms", "5"),
    ]
    .map(|(name, value)| (name, value.as_bytes().to_vec()))
    .to_vec();
    change(&mut fields);
    fields
}

#[tokio::test]
async fn broken_entries_are_named_one_by_one_among_good_ones() {
    let mut test = Test::with_lane().await;
    let set = |name: &'static str, value: &'static [u8]| {
        fields(|fields| {
            fields.retain(|(field, _)| *field != name);
            fields.push((name, value.to_vec()));
        })
    };
    let broken = |text: &str| Err(Undecodable::Broken(text.to_owned()));
    let cases: Vec<(Fields, Result<(), Undecodable>)> = vec![
        (fields(|_| {}), Ok(())),
        (set("extra", b"\xFF"), Ok(())),
        (
            fields(|fields| fields.retain(|(name, _)| *name != "submission_id")),
            broken("field submission_id is missing"),
        ),
        (set("submission_id", b"\xFF\xFE"), broken("field submission_id is unreadable")),
        (set("generation", b"99999999999"), broken("field generation is unreadable")),
        (set("occurred_ms", b""), broken("field occurred_ms is unreadable")),
        (set("schema_version", b"one"), broken("field schema_version is unreadable")),
        (vec![("schema_version", b"2".to_vec())], Err(Undecodable::Newer(2))),
        (vec![("nothing", b"known".to_vec())], broken("field schema_version is missing")),
        (fields(|_| {}), Ok(())),
    ];
    for (fields, _) in &cases {
        let mut add = redis::cmd("XADD");
        add.arg(&test.key).arg("*");
        for (name, value) in fields {
            add.arg(*name).arg(value);
        }
        add.exec_async(&mut test.connection).await.unwrap();
    }
    let entries = test.read(ONE).await;
    assert_eq!(entries.len(), cases.len());
    for (entry, (_, expected)) in entries.iter().zip(&cases) {
        assert_eq!(&JudgeRequested::read(entry).map(drop), expected, "{entry:?}");
    }
    let shown: serde_json::Value = serde_json::from_slice(&entries[3].to_json()).unwrap();
    assert_eq!(shown["submission_id"]["hex"], "fffe");
    assert_eq!(shown["generation"], "1");
}
