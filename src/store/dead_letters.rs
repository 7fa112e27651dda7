//! The `dead_letters` table: what a person must look at, and the parking of a submission together with its letter.

use diesel::sql_types::{Array, Binary, Integer, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use super::statement::command;
use super::{Pool, StoreResult};
use crate::protocol::{Generation, SubmissionId};

/// A submission that cannot go on by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Park {
    /// Which submission.
    pub submission: SubmissionId,
    /// Which work of it.
    pub generation: Generation,
    /// The actor that gave up.
    pub boundary: &'static str,
    /// Letters of one cause are shown together.
    pub cause_class: String,
    /// What happened, for people.
    pub message: String,
    /// The intent that led here.
    pub event_id: Option<Uuid>,
}

/// Parks open submissions of the named generation, closes their live attempts, writes a dead letter each, and tells the judge's
/// consumers; a submission that has moved on is left alone. What stood before stays readable and counted.
const PARK: &str = "
    with park as (
        select * from unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::uuid[], $8::uuid[])
            as park (id, generation, boundary, cause_class, message, intent_id, letter_id, event_id)
    ), parked as (
        update submissions s
        set state = 'parked', updated_at = clock_timestamp(), last_sequence = s.last_sequence + 1
        from park where s.id = park.id and s.generation = park.generation and s.state in ('pending', 'judging')
        returning s.id, s.generation, s.last_sequence, s.tenant, s.external_id, s.verdict, s.verdict_generation,
                  park.boundary, park.cause_class, park.message, park.intent_id, park.letter_id, park.event_id
    ), closed as (
        update judge_attempts a
        set state = 'closed', close_reason = 'parked', finished_at = clock_timestamp()
        from parked where a.submission_id = parked.id and a.state in ('sending', 'accepted', 'ambiguous')
    ), letters as (
        insert into dead_letters (id, boundary, cause_class, message, submission_id, generation, event_id)
        select letter_id, boundary, cause_class, message, id, generation, intent_id from parked
    )
    insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type, cause, payload)
    select event_id, id, last_sequence, generation, 'events', 'SubmissionParked', 'parked',
           jsonb_build_object('tenant', tenant, 'submission_id', id, 'external_id', external_id, 'generation', generation,
                              'sequence', last_sequence, 'standing_verdict', verdict,
                              'standing_verdict_generation', verdict_generation,
                              'cause', cause_class, 'message', message)
    from parked";

/// Parks submissions inside the caller's transaction.
pub async fn park(connection: &mut AsyncPgConnection, parks: &[Park]) -> StoreResult<()> {
    let fresh = || parks.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>();
    command(PARK)
        .bind::<Array<SqlUuid>, _>(parks.iter().map(|park| park.submission.0).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(parks.iter().map(|park| park.generation.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(parks.iter().map(|park| park.boundary).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(parks.iter().map(|park| &*park.cause_class).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(parks.iter().map(|park| &*park.message).collect::<Vec<_>>())
        .bind::<Array<Nullable<SqlUuid>>, _>(parks.iter().map(|park| park.event_id).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(fresh())
        .bind::<Array<SqlUuid>, _>(fresh())
        .execute(connection)
        .await?;
    Ok(())
}

/// A stream entry that nobody can handle, kept whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadEntry {
    /// The actor that gave up.
    pub boundary: &'static str,
    /// Letters of one cause are shown together.
    pub cause_class: &'static str,
    /// What happened, for people.
    pub message: String,
    /// The stream.
    pub stream: String,
    /// The entry's id in it.
    pub stream_id: String,
    /// Its fields as they were, as JSON; none when ids are all that it held, which the letter has anyway.
    pub payload: Option<Vec<u8>>,
    /// The submission it speaks of, if that can be read; it is parked in the same transaction.
    pub submission: Option<(SubmissionId, Generation)>,
}

const KEEP: &str = "
    insert into dead_letters (id, boundary, cause_class, message, stream, stream_id, payload, submission_id, generation)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    on conflict (stream, stream_id) where stream is not null do nothing";

/// Keeps an entry as a dead letter and parks the submission it speaks of; the entry may be acked afterwards. The same entry
/// twice is one letter.
pub async fn keep(pool: &Pool, entry: &DeadEntry) -> StoreResult<()> {
    let mut connection = pool.get().await?;
    connection
        .transaction(async |connection| {
            if let Some((submission, generation)) = entry.submission {
                let park_row = Park {
                    submission,
                    generation,
                    boundary: entry.boundary,
                    cause_class: entry.cause_class.to_owned(),
                    message: entry.message.clone(),
                    event_id: None,
                };
                park(connection, &[park_row]).await?;
            }
            let Some(payload) = &entry.payload else { return Ok(()) };
            command(KEEP)
                .bind::<SqlUuid, _>(Uuid::now_v7())
                .bind::<Text, _>(entry.boundary)
                .bind::<Text, _>(entry.cause_class)
                .bind::<Text, _>(&entry.message)
                .bind::<Text, _>(&entry.stream)
                .bind::<Text, _>(&entry.stream_id)
                .bind::<Binary, _>(payload)
                .bind::<Nullable<SqlUuid>, _>(entry.submission.map(|(submission, _)| submission.0))
                .bind::<Nullable<Integer>, _>(entry.submission.map(|(_, generation)| generation.0))
                .execute(connection)
                .await?;
            Ok(())
        })
        .await
}
