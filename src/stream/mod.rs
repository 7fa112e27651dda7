//! The only code that speaks Redis: work streams with consumer groups, and nothing that is not also in PostgreSQL.
//!
//! Work streams hold only entries that nobody has acked: ack and deletion are one script, and there is no MAXLEN. Streams are
//! created in one place only (`create`), after their absence was recorded; everything else fails on a missing stream.

mod entry;
mod error;
mod scripts;

use std::collections::HashMap;
use std::time::Duration;

use bb8_redis::RedisConnectionManager;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamClaimReply, StreamPendingCountReply, StreamReadOptions, StreamReadReply};
use redis::{AsyncCommands, RedisError};
use uuid::Uuid;

pub use entry::{Entry, EventOut, JudgeRequested, SpilledFinish, Undecodable};
pub use error::{StreamError, StreamResult};

use self::error::classify;
use crate::store::outbox::EVENTS;

/// The consumer group of all our streams.
pub const GROUP: &str = "judge-relay";

/// How one entry of a batch fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It is in the stream under this id.
    Now(String),
    /// It was there already: an earlier try got through and its mark did not.
    Before(String),
    /// The stream is missing.
    StreamMissing,
    /// Redis refused this entry; its deduplication key is gone again.
    Refused(String),
}

/// An entry that somebody read and has not acked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its id.
    pub id: String,
    /// Who read it last.
    pub consumer: String,
    /// How long ago.
    pub idle: Duration,
    /// How often it was handed out.
    pub deliveries: usize,
}

/// A stream's size, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Entries in the stream.
    pub length: u64,
    /// Entries read and not acked.
    pub pending: u64,
    /// When the oldest entry was appended, milliseconds since 1970 on Redis's clock.
    pub oldest_ms: Option<u64>,
}

/// Access to the streams, with a limit on every wait.
#[derive(Clone)]
pub struct Streams {
    pool: bb8::Pool<RedisConnectionManager>,
    prefix: String,
}

/// How the connections are made.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Before every key. Its braces keep all keys in one slot of a cluster.
    pub prefix: String,
    /// Most connections.
    pub size: u32,
    /// Longest wait for a connection.
    pub connect_limit: Duration,
    /// Longest wait for an answer.
    pub response_limit: Duration,
}

/// Sets the limit of answers, which bb8-redis leaves at half a second.
#[derive(Debug)]
struct ResponseLimit(Duration);

impl bb8::CustomizeConnection<MultiplexedConnection, RedisError> for ResponseLimit {
    fn on_acquire<'a>(
        &'a self,
        connection: &'a mut MultiplexedConnection,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<(), RedisError>> + Send + 'a>> {
        connection.set_response_timeout(self.0);
        Box::pin(std::future::ready(Ok(())))
    }
}

type Connection<'a> = bb8::PooledConnection<'a, RedisConnectionManager>;

impl Streams {
    /// Connects when first asked: Redis may be down now. Errors: the URL cannot be read.
    pub fn new(url: &str, options: &StreamOptions) -> anyhow::Result<Streams> {
        let manager = RedisConnectionManager::new(url)
            .map_err(|_| anyhow::anyhow!("REDIS_URL is not a Redis connection URL (redis://host:6379/0)"))?;
        let pool = bb8::Pool::builder()
            .max_size(options.size)
            .connection_timeout(options.connect_limit)
            .connection_customizer(Box::new(ResponseLimit(options.response_limit)))
            .build_unchecked(manager);
        Ok(Streams { pool, prefix: options.prefix.clone() })
    }

    async fn connection(&self) -> StreamResult<Connection<'_>> {
        self.pool.get().await.map_err(|error| StreamError::Unavailable(format!("no connection: {error}")))
    }

    /// The key of a destination's stream: `judge:<lane>` or `events`.
    pub fn key(&self, destination: &str) -> String {
        format!("{}:{destination}", self.prefix)
    }

    /// The key of the stream where finishes wait while PostgreSQL is silent.
    pub fn results_key(&self) -> String {
        self.key("results")
    }

    /// What of a stream is missing: the stream, its group, or nothing. `events` needs no group of ours.
    pub async fn missing(&self, destination: &str) -> StreamResult<Option<&'static str>> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        let exists: bool = connection.exists(&key).await.map_err(|error| classify(error, &key))?;
        if !exists {
            return Ok(Some("stream"));
        }
        if destination == EVENTS {
            return Ok(None);
        }
        let groups: redis::streams::StreamInfoGroupsReply =
            connection.xinfo_groups(&key).await.map_err(|error| classify(error, &key))?;
        Ok(if groups.groups.iter().any(|group| group.name == GROUP) { None } else { Some("group") })
    }

    /// Creates a stream and its group, which then reads from the very beginning. Only recovery calls this.
    pub async fn create(&self, destination: &str) -> StreamResult<()> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        let created: Result<(), RedisError> = connection.xgroup_create_mkstream(&key, GROUP, "0").await;
        match created {
            Err(error) if error.code() != Some("BUSYGROUP") => return Err(classify(error, &key)),
            _ => {}
        }
        if destination == EVENTS {
            // Its readers are others; only a group makes an empty stream.
            let destroyed: Result<bool, RedisError> = connection.xgroup_destroy(&key, GROUP).await;
            destroyed.map_err(|error| classify(error, &key))?;
        }
        Ok(())
    }

    /// How many entries each destination's stream holds.
    pub async fn lengths(&self, destinations: &[String]) -> StreamResult<Vec<usize>> {
        let mut connection = self.connection().await?;
        let mut pipeline = redis::pipe();
        for destination in destinations {
            pipeline.xlen(self.key(destination));
        }
        pipeline.query_async(&mut *connection).await.map_err(|error| classify(error, "of the lanes"))
    }

    /// Appends a batch by one script call and says of each how it fared, in order.
    pub async fn append(&self, entries: &[EventOut], dedup_ttl: Duration) -> StreamResult<Vec<Appended>> {
        let mut connection = self.connection().await?;
        let mut invocation = scripts::APPEND.prepare_invoke();
        invocation.arg(dedup_ttl.as_secs().max(1));
        for entry in entries {
            invocation.key(self.key(&entry.destination));
            invocation.key(format!("{}:dedup:{}:{}", self.prefix, entry.event_id, entry.replay));
            let fields = entry.fields();
            invocation.arg(fields.len() * 2);
            for (name, value) in &fields {
                invocation.arg(*name).arg(value);
            }
        }
        let outcomes: Vec<(String, String)> =
            invocation.invoke_async(&mut *connection).await.map_err(|error| classify(error, "of the batch"))?;
        Ok(outcomes.into_iter().map(appended).collect())
    }

    /// Reads up to `count` new entries of each lane's stream for this consumer, in the order given.
    pub async fn read_new(&self, consumer: &str, destinations: &[(String, usize)]) -> StreamResult<Vec<Entry>> {
        let mut connection = self.connection().await?;
        let mut pipeline = redis::pipe();
        for (destination, count) in destinations {
            let options = StreamReadOptions::default().group(GROUP, consumer).count(*count);
            pipeline.xread_options(&[self.key(destination)], &[">"], &options);
        }
        let replies: Vec<Option<StreamReadReply>> =
            pipeline.query_async(&mut *connection).await.map_err(|error| classify(error, "of the lanes"))?;
        Ok(replies.into_iter().flatten().flat_map(entries_of).collect())
    }

    /// Entries that this consumer has read before and not acked, from after `after` on.
    pub async fn read_own(
        &self,
        consumer: &str,
        destination: &str,
        after: &str,
        count: usize,
    ) -> StreamResult<Vec<Entry>> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        let options = StreamReadOptions::default().group(GROUP, consumer).count(count);
        let reply: Option<StreamReadReply> =
            connection.xread_options(&[&key], &[after], &options).await.map_err(|error| classify(error, &key))?;
        Ok(reply.into_iter().flat_map(entries_of).collect())
    }

    /// Acks and deletes entries of one stream in one step.
    pub async fn ack(&self, key: &str, ids: &[String]) -> StreamResult<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut connection = self.connection().await?;
        let mut invocation = scripts::ACK.prepare_invoke();
        invocation.key(key).arg(GROUP).arg(ids);
        invocation.invoke_async(&mut *connection).await.map_err(|error| classify(error, key))
    }

    /// Acks and deletes entries of several streams.
    pub async fn ack_entries<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> StreamResult<()> {
        let mut by_key: HashMap<&str, Vec<String>> = HashMap::new();
        for entry in entries {
            by_key.entry(&entry.key).or_default().push(entry.id.clone());
        }
        for (key, ids) in by_key {
            self.ack(key, &ids).await?;
        }
        Ok(())
    }

    /// The next `count` pending entries of a stream after the id `after` ("-" from the start).
    pub async fn pending(&self, destination: &str, after: &str, count: usize) -> StreamResult<Vec<Pending>> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        let start = if after == "-" { "-".to_owned() } else { format!("({after}") };
        let reply: StreamPendingCountReply =
            connection.xpending_count(&key, GROUP, start, "+", count).await.map_err(|error| classify(error, &key))?;
        let pending = |row: redis::streams::StreamPendingId| Pending {
            id: row.id,
            consumer: row.consumer,
            idle: Duration::from_millis(u64::try_from(row.last_delivered_ms).unwrap_or(u64::MAX)),
            deliveries: row.times_delivered,
        };
        Ok(reply.ids.into_iter().map(pending).collect())
    }

    /// Takes one pending entry over, if its owner is still the one that was seen and it has idled this long since. `None`: somebody
    /// else was first, or the entry is gone (Redis then drops it from the pending list).
    pub async fn take_over(&self, destination: &str, seen: &Pending, consumer: &str) -> StreamResult<Option<Entry>> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        let reply: Option<StreamClaimReply> = scripts::TAKE_OVER
            .key(&key)
            .arg(GROUP)
            .arg(&seen.id)
            .arg(&seen.consumer)
            .arg(consumer)
            .arg(u64::try_from(seen.idle.as_millis()).unwrap_or(u64::MAX))
            .invoke_async(&mut *connection)
            .await
            .map_err(|error| classify(error, &key))?;
        let mut ids = reply.map(|reply| reply.ids).unwrap_or_default();
        Ok(ids.pop().map(|id| Entry::new(key, id)))
    }

    /// Reads one entry without claiming it, for a look at what is over its budget.
    pub async fn look(&self, destination: &str, id: &str) -> StreamResult<Option<Entry>> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        let reply: redis::streams::StreamRangeReply =
            connection.xrange(&key, id, id).await.map_err(|error| classify(error, &key))?;
        Ok(reply.ids.into_iter().next().map(|id| Entry::new(key, id)))
    }

    /// Which of these entries are in the stream, in order.
    pub async fn present(&self, destination: &str, ids: &[String]) -> StreamResult<Vec<bool>> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        let mut pipeline = redis::pipe();
        for id in ids {
            pipeline.xrange(&key, id, id);
        }
        let replies: Vec<redis::streams::StreamRangeReply> =
            pipeline.query_async(&mut *connection).await.map_err(|error| classify(error, &key))?;
        Ok(replies.iter().map(|reply| !reply.ids.is_empty()).collect())
    }

    /// Makes everything that this consumer holds claimable at once, for a process that is about to end.
    pub async fn give_up(&self, destination: &str, consumer: &str) -> StreamResult<()> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        scripts::GIVE_UP
            .key(&key)
            .arg(GROUP)
            .arg(consumer)
            .invoke_async(&mut *connection)
            .await
            .map_err(|error| classify(error, &key))
    }

    /// Deletes consumers that are idle *and* empty and not among the living; the check and the deletion are one step.
    pub async fn delete_consumers(&self, destination: &str, idle: Duration, living: &[Uuid]) -> StreamResult<usize> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        let mut invocation = scripts::DELETE_CONSUMERS.prepare_invoke();
        invocation.key(&key).arg(GROUP).arg(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
        for instance in living {
            invocation.arg(instance.to_string());
        }
        invocation.invoke_async(&mut *connection).await.map_err(|error| classify(error, &key))
    }

    /// Keeps a finish until PostgreSQL answers again. Errors: `Full`, `Missing`.
    pub async fn spill(&self, finish: &SpilledFinish, length_max: usize) -> StreamResult<()> {
        let key = self.results_key();
        let mut connection = self.connection().await?;
        let mut invocation = scripts::SPILL.prepare_invoke();
        invocation.key(&key).arg(length_max);
        for (name, value) in finish.fields() {
            invocation.arg(name).arg(value);
        }
        let outcome: String = invocation.invoke_async(&mut *connection).await.map_err(|error| classify(error, &key))?;
        match outcome.as_str() {
            "full" => Err(StreamError::Full(key)),
            "missing" => Err(StreamError::Missing(key)),
            _ => Ok(()),
        }
    }

    /// The size of a stream, for metrics.
    pub async fn depth(&self, destination: &str) -> StreamResult<Depth> {
        let key = self.key(destination);
        let mut connection = self.connection().await?;
        let length: u64 = connection.xlen(&key).await.map_err(|error| classify(error, &key))?;
        let first: redis::streams::StreamRangeReply =
            connection.xrange_count(&key, "-", "+", 1).await.map_err(|error| classify(error, &key))?;
        let oldest_ms = first.ids.first().and_then(|id| id.id.split('-').next()?.parse().ok());
        let pending = if destination == EVENTS {
            0
        } else {
            let reply: redis::streams::StreamPendingReply =
                connection.xpending(&key, GROUP).await.map_err(|error| classify(error, &key))?;
            reply.count() as u64
        };
        Ok(Depth { length, pending, oldest_ms })
    }

    /// Drops the oldest entries of the `events` stream: those appended longer ago than `age`.
    pub async fn trim_events(&self, age: Duration) -> StreamResult<()> {
        let key = self.key(EVENTS);
        let mut connection = self.connection().await?;
        scripts::TRIM
            .key(&key)
            .arg(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
            .invoke_async(&mut *connection)
            .await
            .map_err(|error| classify(error, &key))
    }

    /// The server's settings that the promises rest on: `maxmemory-policy` and its version.
    pub async fn settings(&self) -> StreamResult<(Option<String>, Option<String>)> {
        let mut connection = self.connection().await?;
        // Managed servers may forbid CONFIG; then nothing is known of the policy.
        let policy: Result<HashMap<String, String>, RedisError> =
            redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").query_async(&mut *connection).await;
        let policy = policy.ok().and_then(|mut values| values.remove("maxmemory-policy"));
        let server: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut *connection)
            .await
            .map_err(|error| classify(error, "of the server"))?;
        let version = server.lines().find_map(|line| line.strip_prefix("redis_version:").map(str::to_owned));
        Ok((policy, version))
    }
}

fn entries_of(reply: StreamReadReply) -> impl Iterator<Item = Entry> {
    reply.keys.into_iter().flat_map(|stream| stream.ids.into_iter().map(move |id| Entry::new(stream.key.clone(), id)))
}

fn appended((word, detail): (String, String)) -> Appended {
    match word.as_str() {
        "now" => Appended::Now(detail),
        "before" => Appended::Before(detail),
        "missing" => Appended::StreamMissing,
        _ => Appended::Refused(detail),
    }
}
