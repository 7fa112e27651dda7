//! The `outbox_events` table: intents that must leave PostgreSQL, and who may publish them until when.
//!
//! A row's life: inserted beside the change that it tells of → leased (`claim`) → published (`mark_published`), or back
//! (`release`), superseded, or quarantined. Nothing here talks to Redis.

use diesel::sql_types::{Array, BigInt, Bool, Integer, Jsonb, SmallInt, Text, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use std::time::Duration;
use uuid::Uuid;

use super::statement::{command, statement};
use super::{Pool, StoreResult};
use crate::protocol::{Fence, Generation};

/// The destination of events for the judge's own consumers.
pub const EVENTS: &str = "events";

/// A row that this process may publish until its lease ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Leased {
    /// The row.
    pub event_id: Uuid,
    /// Names the lease in every write-back.
    pub fence: Fence,
    /// What it tells of.
    pub aggregate_id: Uuid,
    /// Its place among the aggregate's events.
    pub aggregate_sequence: i64,
    /// Which work of the aggregate.
    pub generation: Generation,
    /// `judge:<lane>` or `events`.
    pub destination: String,
    /// What happened or is wanted.
    pub event_type: String,
    /// Version of the payload's form.
    pub schema_version: i16,
    /// Why it was written.
    pub cause: String,
    /// Ids and verdicts.
    pub payload: serde_json::Value,
    /// When it happened, milliseconds since 1970.
    pub occurred_ms: i64,
}

type LeasedTypes = (SqlUuid, BigInt, SqlUuid, BigInt, Integer, Text, Text, SmallInt, Text, Jsonb, BigInt);
type LeasedRow = (Uuid, i64, Uuid, i64, i32, String, String, i16, String, serde_json::Value, i64);

impl From<LeasedRow> for Leased {
    fn from(row: LeasedRow) -> Self {
        let (
            event_id,
            fence,
            aggregate_id,
            aggregate_sequence,
            generation,
            destination,
            event_type,
            schema_version,
            cause,
            payload,
            occurred_ms,
        ) = row;
        Leased {
            event_id,
            fence: Fence(fence),
            aggregate_id,
            aggregate_sequence,
            generation: Generation(generation),
            destination,
            event_type,
            schema_version,
            cause,
            payload,
            occurred_ms,
        }
    }
}

/// Leases due rows for the lanes, in fair order, and moves each lane's clock to the newest tag that left.
///
/// `id = any(array(...))` keeps the plan stable: the row count of a LIMIT is unknown to a cached plan, which would scan the
/// whole table. A lease or due time further off than any that this software sets counts as due: after a failover the clock may
/// have jumped.
const CLAIM_LANES: &str = "
    with claimed as (
        update outbox_events o
        set claimed_by = $1, claimed_at = clock_timestamp(), claim_until = clock_timestamp() + $2 * interval '1 ms',
            claim_fence = claim_fence + 1, attempt_count = attempt_count + 1
        where o.event_id = any(array(
            select due.event_id
            from unnest($3::text[], $4::int[]) as lane (destination, room)
            cross join lateral (
                select e.event_id from outbox_events e
                where e.destination = lane.destination
                  and e.published_at is null and e.superseded_at is null and e.quarantined_at is null
                  and (e.available_at <= clock_timestamp() or e.available_at > clock_timestamp() + interval '1 day')
                  and (e.claim_until is null or e.claim_until <= clock_timestamp()
                       or e.claim_until > clock_timestamp() + interval '1 hour')
                order by e.fair_tag, e.event_id
                limit lane.room
                for update skip locked
            ) due
        ))
        returning o.event_id, o.claim_fence, o.aggregate_id, o.aggregate_sequence, o.generation, o.destination,
                  o.event_type, o.schema_version, o.cause, o.payload, o.fair_tag,
                  (extract(epoch from o.occurred_at) * 1000)::bigint as occurred_ms
    ), clock as (
        update lane_clocks c set virtual_tag = newest.tag
        from (select substr(destination, 7) as lane, max(fair_tag) as tag from claimed group by 1) newest
        where c.lane = newest.lane and c.virtual_tag < newest.tag
    )
    select event_id, claim_fence, aggregate_id, aggregate_sequence, generation, destination, event_type, schema_version,
           cause, payload, occurred_ms
    from claimed order by fair_tag, event_id";

/// Leases up to `room` due rows of each destination `judge:<lane>`.
pub async fn claim_lanes(
    pool: &Pool,
    owner: Uuid,
    lease: Duration,
    rooms: &[(String, i32)],
) -> StoreResult<Vec<Leased>> {
    let (destinations, limits): (Vec<&str>, Vec<i32>) = rooms.iter().map(|(name, room)| (&**name, *room)).unzip();
    let rows: Vec<LeasedRow> = statement::<LeasedTypes>(CLAIM_LANES)
        .bind::<SqlUuid, _>(owner)
        .bind::<Integer, _>(milliseconds(lease))
        .bind::<Array<Text>, _>(destinations)
        .bind::<Array<Integer>, _>(limits)
        .load(&mut pool.get().await?)
        .await?;
    Ok(rows.into_iter().map(Leased::from).collect())
}

/// Leases due events. An event waits while an earlier one of its aggregate is neither published nor superseded: leased rows
/// count as unpublished, so one submission's events enter the stream in their order whoever publishes them.
const CLAIM_EVENTS: &str = "
    with claimed as (
        update outbox_events o
        set claimed_by = $1, claimed_at = clock_timestamp(), claim_until = clock_timestamp() + $2 * interval '1 ms',
            claim_fence = claim_fence + 1, attempt_count = attempt_count + 1
        where o.event_id = any(array(
            select e.event_id from outbox_events e
            where e.destination = 'events'
              and e.published_at is null and e.superseded_at is null and e.quarantined_at is null
              and (e.available_at <= clock_timestamp() or e.available_at > clock_timestamp() + interval '1 day')
              and (e.claim_until is null or e.claim_until <= clock_timestamp()
                   or e.claim_until > clock_timestamp() + interval '1 hour')
              and not exists (
                  select 1 from outbox_events earlier
                  where earlier.aggregate_id = e.aggregate_id and earlier.aggregate_sequence < e.aggregate_sequence
                    and earlier.destination = 'events'
                    and earlier.published_at is null and earlier.superseded_at is null)
            order by e.fair_tag, e.event_id
            limit $3
            for update skip locked
        ))
        returning o.event_id, o.claim_fence, o.aggregate_id, o.aggregate_sequence, o.generation, o.destination,
                  o.event_type, o.schema_version, o.cause, o.payload,
                  (extract(epoch from o.occurred_at) * 1000)::bigint as occurred_ms
    )
    select event_id, claim_fence, aggregate_id, aggregate_sequence, generation, destination, event_type, schema_version,
           cause, payload, occurred_ms
    from claimed order by event_id";

/// Leases up to `limit` due events for the judge's consumers.
pub async fn claim_events(pool: &Pool, owner: Uuid, lease: Duration, limit: i32) -> StoreResult<Vec<Leased>> {
    let rows: Vec<LeasedRow> = statement::<LeasedTypes>(CLAIM_EVENTS)
        .bind::<SqlUuid, _>(owner)
        .bind::<Integer, _>(milliseconds(lease))
        .bind::<Integer, _>(limit)
        .load(&mut pool.get().await?)
        .await?;
    Ok(rows.into_iter().map(Leased::from).collect())
}

/// A row that entered its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The row.
    pub event_id: Uuid,
    /// The lease under which it was published.
    pub fence: Fence,
    /// The id of its stream entry.
    pub stream_id: String,
}

const MARK_PUBLISHED: &str = "
    update outbox_events o
    set published_at = clock_timestamp(), stream_id = p.stream_id, claimed_by = null, claim_until = null, last_error = null
    from unnest($1::uuid[], $2::bigint[], $3::text[]) as p (event_id, fence, stream_id)
    where o.event_id = p.event_id and o.claim_fence = p.fence and o.published_at is null and o.superseded_at is null";

/// Marks rows as published and returns how many it marked: a row whose fence has moved on belongs to somebody else.
pub async fn mark_published(pool: &Pool, published: &[Published]) -> StoreResult<usize> {
    let marked = command(MARK_PUBLISHED)
        .bind::<Array<SqlUuid>, _>(published.iter().map(|row| row.event_id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(published.iter().map(|row| row.fence.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(published.iter().map(|row| &*row.stream_id).collect::<Vec<_>>())
        .execute(&mut pool.get().await?)
        .await?;
    Ok(marked)
}

/// A row that did not enter its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpublished {
    /// The row.
    pub event_id: Uuid,
    /// The lease under which it was tried.
    pub fence: Fence,
    /// What went wrong.
    pub error: String,
    /// It can never be published as it is.
    pub is_poison: bool,
}

const RELEASE: &str = "
    update outbox_events o
    set claimed_by = null, claim_until = null, last_error = r.error,
        available_at = case when r.poison then o.available_at else clock_timestamp() + $5 * interval '1 ms' end,
        quarantined_at = case when r.poison then clock_timestamp() end
    from unnest($1::uuid[], $2::bigint[], $3::text[], $4::bool[]) as r (event_id, fence, error, poison)
    where o.event_id = r.event_id and o.claim_fence = r.fence and o.published_at is null";

/// Gives leases up: rows are due again after `delay`, or quarantined when they are poison.
pub async fn release(pool: &Pool, rows: &[Unpublished], delay: Duration) -> StoreResult<usize> {
    let released = command(RELEASE)
        .bind::<Array<SqlUuid>, _>(rows.iter().map(|row| row.event_id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(rows.iter().map(|row| row.fence.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rows.iter().map(|row| &*row.error).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(rows.iter().map(|row| row.is_poison).collect::<Vec<_>>())
        .bind::<Integer, _>(milliseconds(delay))
        .execute(&mut pool.get().await?)
        .await?;
    Ok(released)
}

/// Gives up every lease of one process: its rows are due at once.
pub async fn release_all(pool: &Pool, owner: Uuid) -> StoreResult<usize> {
    let sql = "update outbox_events set claimed_by = null, claim_until = null
               where claimed_by = $1 and published_at is null and superseded_at is null and quarantined_at is null";
    Ok(command(sql).bind::<SqlUuid, _>(owner).execute(&mut pool.get().await?).await?)
}

/// Milliseconds as SQL's integer; longer than 24 days saturates.
pub(super) fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
