//! Judgings that were published and have begun no attempt: which of them to look up in their stream, and how one that is not there
//! becomes due again. Nothing here asks Redis.

use chrono::{DateTime, Utc};
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use std::time::Duration;
use uuid::Uuid;

use super::outbox::milliseconds;
use super::statement::{command, statement};
use super::{Pool, StoreResult};

/// A published judging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Its outbox row.
    pub event_id: Uuid,
    /// Its stream entry.
    pub stream_id: String,
    /// When it was marked as published.
    pub published_at: DateTime<Utc>,
    /// Its submission still waits for it: nothing else holds it.
    pub is_waiting: bool,
    /// The submission's newest event when this was read; whoever writes another one has moved it on.
    pub last_sequence: i64,
}

/// From the mark or the given time on, oldest first.
const SUSPECTS: &str = "
    select o.event_id, o.stream_id, o.published_at,
           s.state = 'pending' and s.generation = o.generation
           and not exists (
               select 1 from outbox_events later
               where later.aggregate_id = o.aggregate_id and later.aggregate_sequence > o.aggregate_sequence
                 and later.destination <> 'events' and later.superseded_at is null)
           and not exists (
               select 1 from judge_attempts a
               where a.submission_id = s.id and a.purpose = 'live' and a.state in ('sending', 'accepted', 'ambiguous')),
           s.last_sequence
    from outbox_events o join submissions s on s.id = o.aggregate_id
    where o.destination = $1 and o.published_at is not null and o.destination <> 'events'
      and o.published_at >= coalesce($4, (select settled_until from stream_marks where destination = $1), '-infinity')
      and o.published_at < clock_timestamp() - $3 * interval '1 ms'
    order by o.published_at limit $2";

/// The next judgings of a destination whose fate is not settled: published `age` ago or earlier, and at `from` or later if given.
pub async fn suspects(
    pool: &Pool,
    destination: &str,
    age: Duration,
    from: Option<DateTime<Utc>>,
    limit: i32,
) -> StoreResult<Vec<Suspect>> {
    type Types = (SqlUuid, Text, Timestamptz, Bool, BigInt);
    let rows: Vec<(Uuid, String, DateTime<Utc>, bool, i64)> = statement::<Types>(SUSPECTS)
        .bind::<Text, _>(destination)
        .bind::<Integer, _>(limit)
        .bind::<Integer, _>(milliseconds(age))
        .bind::<Nullable<Timestamptz>, _>(from)
        .load(&mut pool.get().await?)
        .await?;
    let suspect = |(event_id, stream_id, published_at, is_waiting, last_sequence)| Suspect {
        event_id,
        stream_id,
        published_at,
        is_waiting,
        last_sequence,
    };
    Ok(rows.into_iter().map(suspect).collect())
}

/// Everything published to the destination before this needs no look any more. The mark only moves forward.
pub async fn settle_until(pool: &Pool, destination: &str, until: DateTime<Utc>) -> StoreResult<()> {
    let sql = "insert into stream_marks (destination, settled_until) values ($1, $2)
               on conflict (destination) do update set settled_until = excluded.settled_until
               where stream_marks.settled_until < excluded.settled_until";
    command(sql).bind::<Text, _>(destination).bind::<Timestamptz, _>(until).execute(&mut pool.get().await?).await?;
    Ok(())
}

/// A new intent for each submission that still waits for one of these rows. Whoever began an attempt meanwhile has left `pending`.
const DUE_AGAIN: &str = "
    with lost as (
        select o.aggregate_id, o.generation, suspect.last_sequence
        from unnest($1::uuid[], $2::bigint[]) as suspect (event_id, last_sequence)
        join outbox_events o using (event_id)
    ), pending as (
        update submissions s set last_sequence = s.last_sequence + 1, updated_at = clock_timestamp()
        from lost
        where s.id = lost.aggregate_id and s.generation = lost.generation and s.state = 'pending'
          and s.last_sequence = lost.last_sequence
          and not exists (
              select 1 from judge_attempts a
              where a.submission_id = s.id and a.purpose = 'live' and a.state in ('sending', 'accepted', 'ambiguous'))
        returning s.id, s.generation, s.lane, s.fair_tag, s.last_sequence
    )
    insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type, cause, fair_tag)
    select gen_random_uuid(), id, last_sequence, generation, 'judge:' || lane, 'JudgeRequested', 'loss', fair_tag
    from pending";

/// Makes the work of lost entries due again; returns how many submissions it was.
pub async fn due_again(pool: &Pool, lost: &[&Suspect]) -> StoreResult<usize> {
    let due = command(DUE_AGAIN)
        .bind::<Array<SqlUuid>, _>(lost.iter().map(|suspect| suspect.event_id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(lost.iter().map(|suspect| suspect.last_sequence).collect::<Vec<_>>())
        .execute(&mut pool.get().await?)
        .await?;
    Ok(due)
}
