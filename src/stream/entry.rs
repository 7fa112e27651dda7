//! What stands in a stream entry, and how it is read back. A field that is missing or unreadable is named, never guessed.

use redis::streams::StreamId;
use uuid::Uuid;

use crate::protocol::{Generation, JudgeId, SubmissionId};

/// The newest form of an entry that this version understands.
pub const SCHEMA_VERSION: i16 = 1;

/// An entry as Redis handed it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its stream's key.
    pub key: String,
    /// Its id.
    pub id: String,
    /// Its fields.
    pub fields: Vec<(String, Vec<u8>)>,
}

/// Why an entry cannot be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// It is broken: keep it as a dead letter.
    Broken(String),
    /// A newer version wrote it: leave it for a newer process.
    Newer(i16),
}

impl Entry {
    pub(super) fn new(key: String, id: StreamId) -> Entry {
        let bytes = |value: redis::Value| redis::from_redis_value::<Vec<u8>>(value).unwrap_or_default();
        let mut fields: Vec<(String, Vec<u8>)> = id.map.into_iter().map(|(name, value)| (name, bytes(value))).collect();
        fields.sort();
        Entry { key, id: id.id, fields }
    }

    fn bytes(&self, name: &str) -> Result<&[u8], Undecodable> {
        let field = self.fields.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| &value[..]).ok_or_else(|| Undecodable::Broken(format!("field {name} is missing")))
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<T, Undecodable> {
        let text = std::str::from_utf8(self.bytes(name)?).ok();
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| Undecodable::Broken(format!("field {name} is unreadable")))
    }

    /// The version comes first: what a newer process wrote need not make sense to this one.
    fn check_version(&self) -> Result<(), Undecodable> {
        let version: i16 = self.parsed("schema_version")?;
        if version > SCHEMA_VERSION { Err(Undecodable::Newer(version)) } else { Ok(()) }
    }

    /// The fields as JSON, for a dead letter; bytes that are no text are shown as hex.
    pub fn to_json(&self) -> Vec<u8> {
        let value = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => serde_json::json!(text),
            Err(_) => serde_json::json!({ "hex": hex::encode(bytes) }),
        };
        let fields: serde_json::Map<String, serde_json::Value> =
            self.fields.iter().map(|(name, bytes)| (name.clone(), value(bytes))).collect();
        serde_json::Value::Object(fields).to_string().into_bytes()
    }
}

/// An event on its way into a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct EventOut {
    /// `judge:<lane>` or `events`.
    pub destination: String,
    /// The outbox row.
    pub event_id: Uuid,
    /// Which sending of it.
    pub replay: i32,
    /// What it tells of.
    pub aggregate_id: Uuid,
    /// Its place among the aggregate's events.
    pub sequence: i64,
    /// Which work.
    pub generation: Generation,
    /// What happened or is wanted.
    pub event_type: String,
    /// Form of the entry.
    pub schema_version: i16,
    /// Why it was written.
    pub cause: String,
    /// When it happened, milliseconds since 1970.
    pub occurred_ms: i64,
    /// JSON.
    pub payload: String,
}

impl EventOut {
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("schema_version", self.schema_version.to_string()),
            ("event_id", self.event_id.to_string()),
            ("event_type", self.event_type.clone()),
            ("submission_id", self.aggregate_id.to_string()),
            ("generation", self.generation.to_string()),
            ("sequence", self.sequence.to_string()),
            ("cause", self.cause.clone()),
            ("occurred_ms", self.occurred_ms.to_string()),
        ];
        if self.payload != "{}" {
            fields.push(("payload", self.payload.clone()));
        }
        fields
    }
}

/// A judging that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgeRequested {
    /// The outbox row.
    pub event_id: Uuid,
    /// What is to be judged.
    pub submission: SubmissionId,
    /// Which work.
    pub generation: Generation,
    /// When it was wanted, milliseconds since 1970.
    pub occurred_ms: i64,
}

impl JudgeRequested {
    /// Reads an entry of a lane's stream.
    pub fn read(entry: &Entry) -> Result<JudgeRequested, Undecodable> {
        entry.check_version()?;
        Ok(JudgeRequested {
            event_id: entry.parsed("event_id")?,
            submission: SubmissionId(entry.parsed("submission_id")?),
            generation: Generation(entry.parsed("generation")?),
            occurred_ms: entry.parsed("occurred_ms")?,
        })
    }
}

/// A finish that waits for PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpilledFinish {
    /// Of which submission.
    pub submission: SubmissionId,
    /// Of which generation.
    pub generation: Generation,
    /// Which attempt.
    pub judge_id: JudgeId,
    /// When it came, milliseconds since 1970 on the clock of the process that took it.
    pub received_ms: i64,
    /// The body as it came.
    pub body: actix_web::web::Bytes,
}

impl SpilledFinish {
    pub(super) fn fields(&self) -> [(&'static str, Vec<u8>); 6] {
        [
            ("schema_version", SCHEMA_VERSION.to_string().into_bytes()),
            ("submission_id", self.submission.to_string().into_bytes()),
            ("generation", self.generation.to_string().into_bytes()),
            ("judge_id", self.judge_id.to_string().into_bytes()),
            ("received_ms", self.received_ms.to_string().into_bytes()),
            ("body", self.body.to_vec()),
        ]
    }

    /// Reads an entry of the results stream.
    pub fn read(entry: &Entry) -> Result<SpilledFinish, Undecodable> {
        entry.check_version()?;
        Ok(SpilledFinish {
            submission: SubmissionId(entry.parsed("submission_id")?),
            generation: Generation(entry.parsed("generation")?),
            judge_id: entry.parsed("judge_id")?,
            received_ms: entry.parsed("received_ms")?,
            body: actix_web::web::Bytes::copy_from_slice(entry.bytes("body")?),
        })
    }
}
