//! What a decided finish writes besides the counters: submission, attempt, result, outbox events, dead letters.

use std::collections::HashMap;

use diesel::sql_types::{Array, BigInt, Binary, Bool, Integer, Jsonb, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use super::{Decided, Row, Rules};
use crate::protocol::submission::{Applied, State};
use crate::store::StoreResult;
use crate::store::dead_letters::{self, Park};
use crate::store::outbox::milliseconds;
use crate::store::statement::command;

/// Writes everything; the statements that depend on nothing of each other travel together.
pub(super) async fn write(
    connection: &mut AsyncPgConnection,
    decided: &[Decided<'_>],
    rows: &mut HashMap<Uuid, Row>,
    rules: &Rules,
    random: f64,
) -> StoreResult<()> {
    write_attempts(connection, decided).await?;
    write_results(connection, decided).await?;
    write_verdicts(connection, decided, rows).await?;
    write_retries(connection, decided, rows, rules, random).await?;
    write_parks(connection, decided, rows).await
}

/// Ends attempts, counts repetitions, and creates the row of an attempt that only its URL knows (a failover lost it).
const ATTEMPTS: &str = "
    insert into judge_attempts (judge_id, submission_id, generation, state, close_reason, deadline_at, finished_at, finish_hash,
                                duplicate_count, conflict_count)
    select judge_id, submission_id, generation, state, reason, clock_timestamp(), clock_timestamp(), hash, same, other
    from unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::bytea[], $7::int[], $8::int[])
        as finish (judge_id, submission_id, generation, state, reason, hash, same, other)
    on conflict (judge_id) do update
    set state = case when judge_attempts.state = 'finished' or excluded.finish_hash is null then judge_attempts.state
                     else excluded.state end,
        close_reason = case when judge_attempts.state = 'finished' or excluded.finish_hash is null
                            then judge_attempts.close_reason else excluded.close_reason end,
        finished_at = case when excluded.finish_hash is null then judge_attempts.finished_at else excluded.finished_at end,
        finish_hash = coalesce(excluded.finish_hash, judge_attempts.finish_hash),
        duplicate_count = judge_attempts.duplicate_count + excluded.duplicate_count,
        conflict_count = judge_attempts.conflict_count + excluded.conflict_count";

async fn write_attempts(connection: &mut AsyncPgConnection, decided: &[Decided<'_>]) -> StoreResult<()> {
    // One row per attempt: the effect if there is one, and the repetitions counted.
    let mut folded: Vec<(&Decided<'_>, i32, i32)> = Vec::with_capacity(decided.len());
    let mut place: HashMap<Uuid, usize> = HashMap::new();
    for one in decided.iter().filter(|one| one.attempt_is_known || one.applied.has_effect()) {
        let same = i32::from(one.applied == Applied::Duplicate);
        let other = i32::from(one.applied == Applied::Conflicting);
        match place.get(&one.incoming.judge_id.0) {
            Some(&index) => {
                let row = &mut folded[index];
                *row = (if one.applied.has_effect() { one } else { row.0 }, row.1 + same, row.2 + other);
            }
            None => {
                place.insert(one.incoming.judge_id.0, folded.len());
                folded.push((one, same, other));
            }
        }
    }
    if folded.is_empty() {
        return Ok(());
    }
    let state = |row: &(&Decided<'_>, i32, i32)| match row.0.applied {
        Applied::Verdict(_) => ("finished", None),
        Applied::Retry(_) | Applied::Park(_) => ("closed", Some("system_error")),
        // Only reached for attempts whose row exists: nothing but the counts is taken from this.
        _ => ("closed", Some("late")),
    };
    let hash = |row: &(&Decided<'_>, i32, i32)| row.0.applied.has_effect().then(|| row.0.incoming.body_hash.to_vec());
    command(ATTEMPTS)
        .bind::<Array<SqlUuid>, _>(folded.iter().map(|row| row.0.incoming.judge_id.0).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(folded.iter().map(|row| row.0.incoming.submission.0).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(folded.iter().map(|row| row.0.incoming.generation.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(folded.iter().map(|row| state(row).0).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(folded.iter().map(|row| state(row).1).collect::<Vec<_>>())
        .bind::<Array<Nullable<Binary>>, _>(folded.iter().map(hash).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(folded.iter().map(|row| row.1).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(folded.iter().map(|row| row.2).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

const RESULTS: &str = "
    insert into results (id, judge_id, submission_id, generation, disposition, reason, body, body_hash, report,
                         report_sanitised, via, received_at)
    select id, judge_id, submission_id, generation, disposition, reason, body, hash, report::jsonb, sanitised, via,
           clock_timestamp() - age_ms * interval '1 ms'
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::text[], $7::bytea[], $8::bytea[], $9::text[],
                $10::bool[], $11::text[], $12::int[])
        as result (id, judge_id, submission_id, generation, disposition, reason, body, hash, report, sanitised, via, age_ms)";

/// Identical repetitions are only counted on their attempt; everything else is kept whole.
async fn write_results(connection: &mut AsyncPgConnection, decided: &[Decided<'_>]) -> StoreResult<()> {
    let kept: Vec<&Decided<'_>> = decided.iter().filter(|one| one.applied != Applied::Duplicate).collect();
    if kept.is_empty() {
        return Ok(());
    }
    let reason = |one: &&Decided<'_>| match &one.applied {
        Applied::Retry(reason) | Applied::Park(reason) => Some(reason.clone()),
        _ => None,
    };
    command(RESULTS)
        .bind::<Array<SqlUuid>, _>(kept.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(kept.iter().map(|one| one.incoming.judge_id.0).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(kept.iter().map(|one| one.incoming.submission.0).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(kept.iter().map(|one| one.incoming.generation.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(kept.iter().map(|one| one.applied.disposition()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(kept.iter().map(reason).collect::<Vec<_>>())
        .bind::<Array<Binary>, _>(kept.iter().map(|one| &one.incoming.body[..]).collect::<Vec<_>>())
        .bind::<Array<Binary>, _>(kept.iter().map(|one| &one.incoming.body_hash[..]).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(kept.iter().map(|one| &*one.incoming.report.sanitised).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(kept.iter().map(|one| one.incoming.report.sanitised_changed).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(kept.iter().map(|one| one.incoming.via.as_str()).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(kept.iter().map(|one| milliseconds(one.incoming.age)).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// The verdict stands, its event waits in the outbox, an intent that is still unpublished is superseded, a live attempt that was
/// overtaken is closed, and an open dead letter of the submission is resolved.
const VERDICTS: &str = "
    with verdict as (
        select * from unnest($1::uuid[], $2::int[], $3::text[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[], $8::uuid[],
                             $9::jsonb[])
            as verdict (id, generation, verdict, judge_id, time_max_ms, time_total_ms, memory_max_bytes, event_id, payload)
    ), judged as (
        update submissions s
        set state = 'judged', verdict = v.verdict, verdict_generation = v.generation, verdict_judge_id = v.judge_id,
            counted_verdict = v.verdict, time_max_ms = v.time_max_ms, time_total_ms = v.time_total_ms,
            memory_max_bytes = v.memory_max_bytes, judged_at = clock_timestamp(), updated_at = clock_timestamp(),
            last_sequence = s.last_sequence + 1
        from verdict v where s.id = v.id
    ), superseded as (
        update outbox_events o set superseded_at = clock_timestamp(), claimed_by = null, claim_until = null
        from verdict v
        where o.aggregate_id = v.id and o.destination <> 'events' and o.published_at is null and o.superseded_at is null
    ), overtaken as (
        update judge_attempts a set state = 'closed', close_reason = 'overtaken', finished_at = clock_timestamp()
        from verdict v
        where a.submission_id = v.id and a.judge_id <> v.judge_id and a.purpose = 'live'
          and a.state in ('sending', 'accepted', 'ambiguous')
    ), resolved as (
        update dead_letters d set resolved_at = clock_timestamp(), resolved_by = 'judge-relay', resolution = 'a late verdict came'
        from verdict v where d.submission_id = v.id and d.resolved_at is null
    )
    insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type, cause, payload)
    select event_id, id, (payload ->> 'sequence')::bigint, generation, 'events', 'SubmissionJudged', 'verdict', payload
    from verdict";

async fn write_verdicts(
    connection: &mut AsyncPgConnection,
    decided: &[Decided<'_>],
    rows: &mut HashMap<Uuid, Row>,
) -> StoreResult<()> {
    let mut payloads = Vec::new();
    let mut judged: Vec<&Decided<'_>> = Vec::new();
    for one in decided {
        let (Applied::Verdict(verdict), Some(row)) = (&one.applied, rows.get_mut(&one.incoming.submission.0)) else {
            continue;
        };
        row.last_sequence += 1;
        let report = &one.incoming.report;
        payloads.push(serde_json::json!({
            "tenant": row.tenant,
            "submission_id": one.incoming.submission,
            "external_id": row.external_id,
            "user_id": row.user_id,
            "problem_id": row.problem_id,
            "contest_id": row.contest_id,
            "course_id": row.course_id,
            "generation": one.incoming.generation,
            "sequence": row.last_sequence,
            "verdict": verdict.as_str(),
            "time_max_ms": report.time_max_ms,
            "time_total_ms": report.time_total_ms,
            "memory_max_bytes": report.memory_max_bytes,
        }));
        judged.push(one);
    }
    if judged.is_empty() {
        return Ok(());
    }
    let word = |one: &&Decided<'_>| match one.applied {
        Applied::Verdict(verdict) => verdict.as_str(),
        _ => "",
    };
    command(VERDICTS)
        .bind::<Array<SqlUuid>, _>(judged.iter().map(|one| one.incoming.submission.0).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(judged.iter().map(|one| one.incoming.generation.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(judged.iter().map(word).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(judged.iter().map(|one| one.incoming.judge_id.0).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(judged.iter().map(|o| o.incoming.report.time_max_ms).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(judged.iter().map(|o| o.incoming.report.time_total_ms).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(
            judged.iter().map(|o| o.incoming.report.memory_max_bytes).collect::<Vec<_>>(),
        )
        .bind::<Array<SqlUuid>, _>(judged.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
        .bind::<Array<Jsonb>, _>(payloads)
        .execute(connection)
        .await?;
    Ok(())
}

/// After a system error: pending again, with a new intent that becomes due after the back-off.
const RETRIES: &str = "
    with retry as (
        select * from unnest($1::uuid[], $2::uuid[], $3::int[]) as retry (id, event_id, delay_ms)
    ), pending as (
        update submissions s
        set state = 'pending', updated_at = clock_timestamp(), last_sequence = s.last_sequence + 1
        from retry where s.id = retry.id
        returning s.id, s.generation, s.lane, s.fair_tag, s.last_sequence, retry.event_id, retry.delay_ms
    )
    insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type, cause,
                               fair_tag, available_at)
    select event_id, id, last_sequence, generation, 'judge:' || lane, 'JudgeRequested', 'system_error', fair_tag,
           clock_timestamp() + delay_ms * interval '1 ms'
    from pending";

async fn write_retries(
    connection: &mut AsyncPgConnection,
    decided: &[Decided<'_>],
    rows: &mut HashMap<Uuid, Row>,
    rules: &Rules,
    random: f64,
) -> StoreResult<()> {
    let mut delays: Vec<(Uuid, i32)> = Vec::new();
    for one in decided.iter().filter(|one| matches!(one.applied, Applied::Retry(_))) {
        let Some(row) = rows.get_mut(&one.incoming.submission.0) else { continue };
        // A later finish of the same batch may have judged it: then nothing is to be tried again.
        if row.standing.state != State::Pending || delays.iter().any(|(id, _)| *id == one.incoming.submission.0) {
            continue;
        }
        row.last_sequence += 1;
        let delay = rules.retry.delay(row.standing.attempts_used, random);
        delays.push((one.incoming.submission.0, milliseconds(delay)));
    }
    if delays.is_empty() {
        return Ok(());
    }
    command(RETRIES)
        .bind::<Array<SqlUuid>, _>(delays.iter().map(|row| row.0).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(delays.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(delays.iter().map(|row| row.1).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

async fn write_parks(
    connection: &mut AsyncPgConnection,
    decided: &[Decided<'_>],
    rows: &mut HashMap<Uuid, Row>,
) -> StoreResult<()> {
    let park = |one: &Decided<'_>| match &one.applied {
        Applied::Park(reason) => Some(Park {
            submission: one.incoming.submission,
            generation: one.incoming.generation,
            boundary: "ResultApplier",
            cause_class: "attempt_budget_spent".to_owned(),
            message: format!("the last of its attempts ended in a system error: {reason}"),
            event_id: None,
        }),
        _ => None,
    };
    let parks: Vec<Park> = decided.iter().filter_map(park).collect();
    for park in &parks {
        if let Some(row) = rows.get_mut(&park.submission.0) {
            row.last_sequence += 1;
        }
    }
    if parks.is_empty() { Ok(()) } else { dead_letters::park(connection, &parks).await }
}
