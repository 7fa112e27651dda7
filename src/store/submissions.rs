//! The `submissions` table and its `judge_requests`: how a submission enters and how it is read.
//!
//! What a verdict changes is in `results`, what an attempt changes in `attempts`.

use diesel::sql_types::{Array, Binary, Integer, Nullable, Text, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use uuid::Uuid;

use super::statement::statement;
use super::{Pool, StoreResult};
use crate::protocol::SubmissionId;

/// A validated submission, ready to be stored.
#[derive(Clone, Debug)]
pub struct NewSubmission {
    /// Its id, should it be new.
    pub id: SubmissionId,
    /// The caller's key.
    pub idempotency_key: String,
    /// SHA-256 of everything that makes it this request and no other.
    pub body_hash: [u8; 32],
    /// The caller's own id.
    pub external_id: Option<String>,
    /// Whose it is.
    pub user_id: String,
    /// For which problem.
    pub problem_id: String,
    /// In which contest.
    pub contest_id: Option<String>,
    /// In which course.
    pub course_id: Option<String>,
    /// Where it waits.
    pub lane: String,
    /// The canonical text to be sent.
    pub request: String,
    /// Cases of the request.
    pub case_count: i32,
    /// CPU limit of the user's program, milliseconds.
    pub cpu_time_ms: i32,
    /// CPU limit of its compiler, milliseconds.
    pub compile_time_ms: i32,
}

/// What became of one submission of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It and its outbox event were committed together.
    New,
    /// The key is known with the same body: this is the submission of then.
    Known(SubmissionId),
    /// The key is known with another body.
    KeyTaken(SubmissionId),
    /// No such lane.
    NoLane,
}

/// Submission, request and outbox event of every new item, in one statement and so in one transaction.
///
/// The fair tag is the greater of the lane's clock and the user's last tag, plus the item's place among the user's items. Items
/// go in by the order of their keys, so that two batches with keys in common cannot deadlock.
const SUBMIT: &str = "
    with item as (
        select *, row_number() over (partition by lane, user_id order by position) as nth
        from unnest($2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
                    $10::text[], $11::text[], $12::int[], $13::int[], $14::int[], $15::uuid[])
            with ordinality as item (id, key, body_hash, external_id, user_id, problem_id, contest_id, course_id,
                                     lane, request, case_count, cpu_time_ms, compile_time_ms, event_id, position)
    ), tagged as (
        select item.*, greatest(clock.virtual_tag, coalesce(last.fair_tag, 0)) + item.nth as fair_tag
        from item
        join lane_clocks clock on clock.lane = item.lane
        left join lateral (
            select s.fair_tag from submissions s
            where s.tenant = $1 and s.user_id = item.user_id and s.lane = item.lane
            order by s.id desc limit 1
        ) last on true
    ), added as (
        insert into submissions (id, tenant, idempotency_key, body_hash, external_id, user_id, problem_id, contest_id,
                                 course_id, lane, fair_tag)
        select id, $1, key, body_hash, external_id, user_id, problem_id, contest_id, course_id, lane, fair_tag
        from tagged order by key
        on conflict (tenant, idempotency_key) do nothing
        returning id
    ), requests as (
        insert into judge_requests (submission_id, generation, body, case_count, cpu_time_ms, compile_time_ms)
        select tagged.id, 1, request, case_count, cpu_time_ms, compile_time_ms from tagged join added using (id)
    ), events as (
        insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type,
                                   cause, fair_tag)
        select event_id, tagged.id, 1, 1, 'judge:' || lane, 'JudgeRequested', 'submit', fair_tag
        from tagged join added using (id)
    )
    select id from added";

const KNOWN: &str = "select idempotency_key, id, body_hash from submissions
                     where tenant = $1 and idempotency_key = any($2)";

/// Stores the new ones among `items` and says of each what became of it, in order.
pub async fn submit(pool: &Pool, tenant: &str, items: &[NewSubmission]) -> StoreResult<Vec<Submitted>> {
    let mut connection = pool.get().await?;
    let column = |pick: fn(&NewSubmission) -> &str| items.iter().map(pick).collect::<Vec<_>>();
    let optional = |pick: fn(&NewSubmission) -> Option<&str>| items.iter().map(pick).collect::<Vec<_>>();
    let numbers = |pick: fn(&NewSubmission) -> i32| items.iter().map(pick).collect::<Vec<_>>();
    let event_ids: Vec<Uuid> = items.iter().map(|_| Uuid::now_v7()).collect();
    let added: Vec<Uuid> = statement::<SqlUuid>(SUBMIT)
        .bind::<Text, _>(tenant)
        .bind::<Array<SqlUuid>, _>(items.iter().map(|item| item.id.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(column(|item| &item.idempotency_key))
        .bind::<Array<Binary>, _>(items.iter().map(|item| &item.body_hash[..]).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(optional(|item| item.external_id.as_deref()))
        .bind::<Array<Text>, _>(column(|item| &item.user_id))
        .bind::<Array<Text>, _>(column(|item| &item.problem_id))
        .bind::<Array<Nullable<Text>>, _>(optional(|item| item.contest_id.as_deref()))
        .bind::<Array<Nullable<Text>>, _>(optional(|item| item.course_id.as_deref()))
        .bind::<Array<Text>, _>(column(|item| &item.lane))
        .bind::<Array<Text>, _>(column(|item| &item.request))
        .bind::<Array<Integer>, _>(numbers(|item| item.case_count))
        .bind::<Array<Integer>, _>(numbers(|item| item.cpu_time_ms))
        .bind::<Array<Integer>, _>(numbers(|item| item.compile_time_ms))
        .bind::<Array<SqlUuid>, _>(event_ids)
        .load(&mut connection)
        .await?;
    let added: std::collections::HashSet<Uuid> = added.into_iter().collect();
    if added.len() == items.len() {
        return Ok(vec![Submitted::New; items.len()]);
    }
    let rest: Vec<&str> =
        items.iter().filter(|item| !added.contains(&item.id.0)).map(|i| &*i.idempotency_key).collect();
    let known: Vec<(String, Uuid, Vec<u8>)> = statement::<(Text, SqlUuid, Binary)>(KNOWN)
        .bind::<Text, _>(tenant)
        .bind::<Array<Text>, _>(rest)
        .load(&mut connection)
        .await?;
    let known: std::collections::HashMap<String, (Uuid, Vec<u8>)> =
        known.into_iter().map(|(key, id, hash)| (key, (id, hash))).collect();
    let became = |item: &NewSubmission| {
        if added.contains(&item.id.0) {
            return Submitted::New;
        }
        match known.get(&item.idempotency_key) {
            Some((id, hash)) if *hash == item.body_hash => Submitted::Known(SubmissionId(*id)),
            Some((id, _)) => Submitted::KeyTaken(SubmissionId(*id)),
            None => Submitted::NoLane,
        }
    };
    Ok(items.iter().map(became).collect())
}
