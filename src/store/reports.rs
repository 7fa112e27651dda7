//! What the tables say of a submission, for people and for the API: its whole journey, and lists.
//!
//! Only SELECTs. Nothing here decides what the rows mean.

use chrono::{DateTime, Utc};
use diesel::sql_types::{BigInt, Nullable, Text, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::statement::statement;
use super::{Pool, StoreError, StoreResult};

/// A submission as its row has it. The words are the database's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SubmissionRow {
    /// Its id.
    pub id: Uuid,
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
    /// Where it is.
    pub state: String,
    /// The work in hand.
    pub generation: i32,
    /// What stands.
    pub verdict: Option<String>,
    /// The work that what stands belongs to.
    pub verdict_generation: Option<i32>,
    /// The attempt that it came from.
    pub verdict_judge_id: Option<Uuid>,
    /// Longest time of a case, milliseconds.
    pub time_max_ms: Option<i64>,
    /// Time of all cases together, milliseconds.
    pub time_total_ms: Option<i64>,
    /// Most memory of a case, bytes.
    pub memory_max_bytes: Option<i64>,
    /// Attempts of the current generation that count.
    pub attempts_used: i32,
    /// When it was submitted.
    pub created_at: DateTime<Utc>,
    /// When its state or generation last changed.
    pub updated_at: DateTime<Utc>,
    /// When what stands was applied.
    pub judged_at: Option<DateTime<Utc>>,
}

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct IntentRow {
    /// Of which work.
    pub generation: i32,
    /// `judge:<lane>` or `events`.
    pub destination: String,
    /// What happened or is wanted.
    pub event_type: String,
    /// Why it was written.
    pub cause: String,
    /// When it was written.
    pub occurred_at: DateTime<Utc>,
    /// When it is due.
    pub available_at: DateTime<Utc>,
    /// The host of the process that holds its lease, if that process is known.
    pub claimed_host: Option<String>,
    /// The process that holds its lease.
    pub claimed_by: Option<Uuid>,
    /// When it was last leased.
    pub claimed_at: Option<DateTime<Utc>>,
    /// When the lease ends.
    pub claim_until: Option<DateTime<Utc>>,
    /// When it was marked as published.
    pub published_at: Option<DateTime<Utc>>,
    /// Its stream entry.
    pub stream_id: Option<String>,
    /// When it became pointless.
    pub superseded_at: Option<DateTime<Utc>>,
    /// When it was found to be unpublishable.
    pub quarantined_at: Option<DateTime<Utc>>,
    /// How often it was leased.
    pub attempt_count: i32,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// A row of the attempts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AttemptRow {
    /// Its name.
    pub judge_id: Uuid,
    /// Of which work.
    pub generation: i32,
    /// `live` or `shadow`.
    pub purpose: String,
    /// Where it is.
    pub state: String,
    /// Why it is over.
    pub close_reason: Option<String>,
    /// Does it repeat one whose sender died?
    pub is_rescue: bool,
    /// The host of the process that sent it, if that process is known.
    pub host: Option<String>,
    /// The status of the controller's answer.
    pub http_status: Option<i32>,
    /// The controller's answer when it was not 201.
    pub answer: Option<String>,
    /// When its row was written, before it was sent.
    pub started_at: DateTime<Utc>,
    /// When the answer came, or the first callback.
    pub answered_at: Option<DateTime<Utc>>,
    /// How long the answer took.
    pub answer_ms: Option<i32>,
    /// The newest progress update.
    pub progress: Option<String>,
    /// When it came.
    pub progress_at: Option<DateTime<Utc>>,
    /// When it was over.
    pub finished_at: Option<DateTime<Utc>>,
    /// Until when it may be silent.
    pub deadline_at: DateTime<Utc>,
    /// How often its finish came again, the same.
    pub duplicate_count: i32,
    /// How often another finish came.
    pub conflict_count: i32,
}

/// A row of the results, without its body.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ResultRow {
    /// Of which attempt.
    pub judge_id: Uuid,
    /// Of which work.
    pub generation: i32,
    /// What it did.
    pub disposition: String,
    /// Why it did not become a verdict.
    pub reason: Option<String>,
    /// `callback` or `stream`.
    pub via: String,
    /// When it came.
    pub received_at: DateTime<Utc>,
    /// When it was stored.
    pub applied_at: DateTime<Utc>,
}

/// A dead letter of the submission.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LetterRow {
    /// The actor that gave up.
    pub boundary: String,
    /// Letters of one cause are shown together.
    pub cause_class: String,
    /// What happened.
    pub message: String,
    /// When.
    pub created_at: DateTime<Utc>,
    /// When somebody or something resolved it.
    pub resolved_at: Option<DateTime<Utc>>,
    /// Who.
    pub resolved_by: Option<String>,
    /// How.
    pub resolution: Option<String>,
}

/// Everything that the tables say of one submission at one moment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Journey {
    /// The database's time of that moment.
    pub now: DateTime<Utc>,
    /// Is its lane paused?
    pub lane_paused: bool,
    /// The submission.
    pub submission: SubmissionRow,
    /// Its newest outbox rows, the oldest of them first.
    pub intents: Vec<IntentRow>,
    /// Its newest attempts, the oldest of them first.
    pub attempts: Vec<AttemptRow>,
    /// Its newest results, the oldest of them first.
    pub results: Vec<ResultRow>,
    /// Its newest dead letters, the oldest of them first.
    pub letters: Vec<LetterRow>,
    /// The controller's report behind what stands, in the copy that jsonb holds.
    pub report: Option<serde_json::Value>,
}

/// One statement, so that all parts are of one snapshot: a submission never seems to be nowhere because it moved between two
/// reads. Each list is read through its index and bounded.
const JOURNEY: &str = "
    select json_build_object(
        'now', clock_timestamp(),
        'lane_paused', (select paused from lanes where name = s.lane),
        'submission', row_to_json(s),
        'intents', coalesce((
            select json_agg(o order by o.aggregate_sequence, o.replay) from (
                select e.aggregate_sequence, e.replay, e.generation, e.destination, e.event_type, e.cause, e.occurred_at,
                       e.available_at, i.hostname as claimed_host, e.claimed_by, e.claimed_at, e.claim_until,
                       e.published_at, e.stream_id, e.superseded_at, e.quarantined_at, e.attempt_count, e.last_error
                from outbox_events e left join instances i on i.instance_id = e.claimed_by
                where e.aggregate_id = $1 order by e.aggregate_sequence desc, e.replay desc limit 100
            ) o), '[]'),
        'attempts', coalesce((
            select json_agg(a order by a.started_at) from (
                select t.judge_id, t.generation, t.purpose, t.state, t.close_reason, t.is_rescue, i.hostname as host,
                       t.http_status, t.answer, t.started_at, t.answered_at, t.answer_ms, t.progress, t.progress_at,
                       t.finished_at, t.deadline_at, t.duplicate_count, t.conflict_count
                from judge_attempts t left join instances i on i.instance_id = t.instance_id
                where t.submission_id = $1 order by t.started_at desc limit 100
            ) a), '[]'),
        'results', coalesce((
            select json_agg(r order by r.received_at) from (
                select judge_id, generation, disposition, reason, via, received_at, applied_at
                from results where submission_id = $1 order by received_at desc limit 100
            ) r), '[]'),
        'letters', coalesce((
            select json_agg(d order by d.created_at) from (
                select boundary, cause_class, message, created_at, resolved_at, resolved_by, resolution
                from dead_letters where submission_id = $1 order by created_at desc limit 100
            ) d), '[]'),
        'report', (
            select report from results
            where judge_id = s.verdict_judge_id and submission_id = $1 and disposition = 'applied'
            order by applied_at desc limit 1)
    )::text
    from submissions s where s.id = $1 and s.tenant = $2";

/// The journey of a tenant's submission; none when that tenant has no such submission.
pub async fn journey(pool: &Pool, tenant: &str, id: Uuid) -> StoreResult<Option<Journey>> {
    let rows: Vec<String> =
        statement::<Text>(JOURNEY).bind::<SqlUuid, _>(id).bind::<Text, _>(tenant).load(&mut pool.get().await?).await?;
    rows.into_iter().next().map(|text| decoded(&text)).transpose()
}

/// Which submissions of a tenant are listed. All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Whose they are.
    pub user_id: Option<String>,
    /// For which problem.
    pub problem_id: Option<String>,
    /// In which contest.
    pub contest_id: Option<String>,
    /// With which id of the caller's.
    pub external_id: Option<String>,
    /// In which state.
    pub state: Option<String>,
    /// With which standing verdict.
    pub verdict: Option<String>,
    /// Only those older than this one.
    pub before: Option<Uuid>,
}

/// The list, newest first, through the index that the condition `$driver` names: a statement that leaves the choice of its
/// index to which binds are null would be planned once and badly.
macro_rules! list_sql {
    ($driver:literal) => {
        concat!(
            "select row_to_json(s)::text from (
                select id, external_id, user_id, problem_id, contest_id, course_id, lane, state, generation, verdict,
                       verdict_generation, verdict_judge_id, time_max_ms, time_total_ms, memory_max_bytes, attempts_used,
                       created_at, updated_at, judged_at
                from submissions
                where tenant = $1 and id < $2 and ",
            $driver,
            "     and ($3::text is null or external_id = $3) and ($4::text is null or user_id = $4)
                  and ($5::text is null or problem_id = $5) and ($6::text is null or contest_id = $6)
                  and ($7::text is null or state = $7) and ($8::text is null or verdict = $8)
                order by id desc limit $9
             ) s"
        )
    };
}

const LIST_BY_EXTERNAL_ID: &str = list_sql!("external_id = $3");
const LIST_BY_USER: &str = list_sql!("user_id = $4");
const LIST_BY_PROBLEM: &str = list_sql!("problem_id = $5");
const LIST_BY_CONTEST: &str = list_sql!("contest_id = $6");
const LIST_ALL: &str = list_sql!("true");

/// Up to `limit` of a tenant's submissions, newest first.
pub async fn list(pool: &Pool, tenant: &str, filter: &Filter, limit: i64) -> StoreResult<Vec<SubmissionRow>> {
    let sql = if filter.external_id.is_some() {
        LIST_BY_EXTERNAL_ID
    } else if filter.user_id.is_some() {
        LIST_BY_USER
    } else if filter.problem_id.is_some() {
        LIST_BY_PROBLEM
    } else if filter.contest_id.is_some() {
        LIST_BY_CONTEST
    } else {
        LIST_ALL
    };
    let rows: Vec<String> = statement::<Text>(sql)
        .bind::<Text, _>(tenant)
        .bind::<SqlUuid, _>(filter.before.unwrap_or(Uuid::max()))
        .bind::<Nullable<Text>, _>(filter.external_id.as_deref())
        .bind::<Nullable<Text>, _>(filter.user_id.as_deref())
        .bind::<Nullable<Text>, _>(filter.problem_id.as_deref())
        .bind::<Nullable<Text>, _>(filter.contest_id.as_deref())
        .bind::<Nullable<Text>, _>(filter.state.as_deref())
        .bind::<Nullable<Text>, _>(filter.verdict.as_deref())
        .bind::<BigInt, _>(limit)
        .load(&mut pool.get().await?)
        .await?;
    rows.iter().map(|text| decoded(text)).collect()
}

/// The tenant of the live token with that name.
pub async fn tenant_of_token(pool: &Pool, name: &str) -> StoreResult<Option<String>> {
    let sql = "select tenant from api_tokens where name = $1 and revoked_at is null";
    let rows: Vec<String> = statement::<Text>(sql).bind::<Text, _>(name).load(&mut pool.get().await?).await?;
    Ok(rows.into_iter().next())
}

/// Rows travel as JSON, so that their columns are named on both sides.
fn decoded<Row: DeserializeOwned>(text: &str) -> StoreResult<Row> {
    serde_json::from_str(text).map_err(|error| StoreError::Refused(format!("a row has an unknown form: {error}")))
}
