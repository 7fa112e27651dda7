//! The `results` table and the one transaction in which a verdict takes effect.
//!
//! A batch of finishes is one transaction: lock the submissions, decide (`protocol::submission`), write the inbox rows, then all
//! effects together. Nothing here parses a callback or answers it.

mod counters;
mod effects;

use std::collections::{HashMap, HashSet};

use diesel::sql_types::{Array, Binary, Integer, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::time::Duration;
use uuid::Uuid;

use super::statement::{command, statement};
use super::{Pool, StoreError, StoreResult};
use crate::protocol::heng::request::RequestFacts;
use crate::protocol::heng::result::{Outcome, Report};
use crate::protocol::retry::Backoff;
use crate::protocol::submission::{Applied, AttemptState, Budget, Finish, Standing, finish as decide};
use crate::protocol::{Generation, JudgeId, SubmissionId, Verdict};

/// The consumer name of the service's own inbox rows.
pub const CONSUMER: &str = "judge-relay";

/// How a finish reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The controller waits for the answer.
    Callback,
    /// It was answered while PostgreSQL was silent and waited in Redis.
    Stream,
}

impl Via {
    const fn as_str(self) -> &'static str {
        match self {
            Via::Callback => "callback",
            Via::Stream => "stream",
        }
    }
}

/// An authentic finish callback, read but not yet applied.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Which attempt.
    pub judge_id: JudgeId,
    /// Of which submission.
    pub submission: SubmissionId,
    /// Of which generation.
    pub generation: Generation,
    /// What its body says.
    pub report: Report,
    /// The body as it came.
    pub body: actix_web::web::Bytes,
    /// SHA-256 of the body.
    pub body_hash: [u8; 32],
    /// How long ago it came.
    pub age: Duration,
    /// How it came.
    pub via: Via,
}

/// Rules of the decision.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How many tries a generation has.
    pub budget: Budget,
    /// Wait before the attempt after a system error.
    pub retry: Backoff,
}

/// What the row lock shows of a submission, as far as its verdict needs it.
struct Row {
    tenant: String,
    external_id: Option<String>,
    user_id: String,
    problem_id: String,
    contest_id: Option<String>,
    course_id: Option<String>,
    standing: Standing,
    counted: Option<Verdict>,
    last_sequence: i64,
    case_count: u32,
}

struct AttemptRow {
    state: AttemptState,
    finish_hash: Option<Vec<u8>>,
}

/// A finish and what it does.
struct Decided<'a> {
    incoming: &'a Incoming,
    applied: Applied,
    attempt_is_known: bool,
}

/// Applies finishes in one transaction and says of each what it did, in order.
///
/// Errors: `Refused` when the rows of at least one of them break a rule; apply them one by one to find it.
pub async fn apply(pool: &Pool, incoming: &[Incoming], rules: &Rules, random: f64) -> StoreResult<Vec<Applied>> {
    let mut connection = pool.get().await?;
    connection.transaction(async |connection| apply_locked(connection, incoming, rules, random).await).await
}

async fn apply_locked(
    connection: &mut AsyncPgConnection,
    incoming: &[Incoming],
    rules: &Rules,
    random: f64,
) -> StoreResult<Vec<Applied>> {
    let (mut rows, mut attempts) = lock_and_read(connection, incoming).await?;
    let before: HashMap<Uuid, Option<Verdict>> = rows.iter().map(|(id, row)| (*id, row.counted)).collect();
    let mut decided: Vec<Decided<'_>> =
        incoming.iter().map(|one| decide_one(one, &mut rows, &mut attempts, rules.budget)).collect();
    enter_inbox(connection, &mut decided).await?;
    effects::write(connection, &decided, &mut rows, rules, random).await?;
    counters::fold(connection, &decided, &rows, &before).await?;
    Ok(decided.into_iter().map(|one| one.applied).collect())
}

const LOCK: &str = "select id from submissions where id = any($1) order by id for update";

const READ_SUBMISSIONS: &str = "
    select s.id, s.tenant, s.external_id, s.user_id, s.problem_id, s.contest_id, s.course_id,
           s.state, s.generation, s.last_generation, s.attempts_used, s.rescues_used, s.counted_verdict, s.last_sequence,
           r.case_count, case when r.case_count is null then r.body end
    from submissions s
    left join judge_requests r on r.submission_id = s.id and r.generation = s.generation
    where s.id = any($1)";

type SubmissionTypes = (
    (SqlUuid, Text, Nullable<Text>, Text, Text, Nullable<Text>, Nullable<Text>),
    (Text, Integer, Integer, Integer, Integer, Nullable<Text>, diesel::sql_types::BigInt),
    (Nullable<Integer>, Nullable<Text>),
);
type SubmissionRow = (
    (Uuid, String, Option<String>, String, String, Option<String>, Option<String>),
    (String, i32, i32, i32, i32, Option<String>, i64),
    (Option<i32>, Option<String>),
);

const READ_ATTEMPTS: &str = "select judge_id, state, finish_hash from judge_attempts where judge_id = any($1)";

type Read = (HashMap<Uuid, Row>, HashMap<Uuid, AttemptRow>);

/// Locks first, reads with a newer snapshot; all three statements travel together.
async fn lock_and_read(connection: &mut AsyncPgConnection, incoming: &[Incoming]) -> StoreResult<Read> {
    let ids: Vec<Uuid> = incoming.iter().map(|one| one.submission.0).collect();
    let judge_ids: Vec<Uuid> = incoming.iter().map(|one| one.judge_id.0).collect();
    let shared = &*connection;
    type AttemptTypes = (SqlUuid, Text, Nullable<Binary>);
    // The lock is sent first whatever the runtime does: `join!` would otherwise begin each poll with another one.
    let (lock, rows, attempts) = tokio::join!(
        biased;
        command(LOCK).bind::<Array<SqlUuid>, _>(&ids).execute(&mut &*shared),
        statement::<SubmissionTypes>(READ_SUBMISSIONS)
            .bind::<Array<SqlUuid>, _>(&ids)
            .load::<SubmissionRow>(&mut &*shared),
        statement::<AttemptTypes>(READ_ATTEMPTS)
            .bind::<Array<SqlUuid>, _>(&judge_ids)
            .load::<(Uuid, String, Option<Vec<u8>>)>(&mut &*shared),
    );
    lock?;
    let rows = rows?.into_iter().map(submission_row).collect::<StoreResult<_>>()?;
    let attempts = attempts?.into_iter().map(attempt_row).collect::<StoreResult<_>>()?;
    Ok((rows, attempts))
}

fn submission_row(row: SubmissionRow) -> StoreResult<(Uuid, Row)> {
    let (
        (id, tenant, external_id, user_id, problem_id, contest_id, course_id),
        (state, generation, last_generation, attempts_used, rescues_used, counted, last_sequence),
        (case_count, body),
    ) = row;
    let unknown = || StoreError::Refused(format!("submission {id} has a word this version does not know"));
    let standing = Standing {
        state: state.parse().map_err(|_| unknown())?,
        generation: Generation(generation),
        last_generation: Generation(last_generation),
        attempts_used: attempts_used.unsigned_abs(),
        rescues_used: rescues_used.unsigned_abs(),
    };
    let counted = counted.map(|word| word.parse().map_err(|_| unknown())).transpose()?;
    // A row written by SQL has no facts; an unreadable one can never be accepted.
    let from_body = || body.and_then(|body| RequestFacts::read(&body).ok()).map_or(u32::MAX, |facts| facts.cases);
    let case_count = case_count.map_or_else(from_body, i32::unsigned_abs);
    let row = Row {
        tenant,
        external_id,
        user_id,
        problem_id,
        contest_id,
        course_id,

        standing,
        counted,
        last_sequence,
        case_count,
    };
    Ok((id, row))
}

fn attempt_row((judge_id, state, finish_hash): (Uuid, String, Option<Vec<u8>>)) -> StoreResult<(Uuid, AttemptRow)> {
    let state = state
        .parse()
        .map_err(|_| StoreError::Refused(format!("attempt {judge_id} has a state this version does not know")))?;
    Ok((judge_id, AttemptRow { state, finish_hash }))
}

/// Decides one finish and moves the in-memory rows on, so that the next one of the same batch sees what this one did.
fn decide_one<'a>(
    incoming: &'a Incoming,
    rows: &mut HashMap<Uuid, Row>,
    attempts: &mut HashMap<Uuid, AttemptRow>,
    budget: Budget,
) -> Decided<'a> {
    let row = rows.get_mut(&incoming.submission.0);
    let attempt = attempts.get(&incoming.judge_id.0);
    let finish = Finish {
        generation: incoming.generation,
        outcome: incoming.report.outcome(row.as_ref().map_or(u32::MAX, |row| row.case_count)),
        attempt: attempt.map(|attempt| attempt.state),
        same_body_as_before: attempt
            .is_some_and(|attempt| attempt.finish_hash.as_deref() == Some(&incoming.body_hash[..])),
    };
    let applied = decide(row.as_ref().map(|row| &row.standing), &finish, budget);
    let attempt_is_known = attempt.is_some();
    if let (Some(row), true) = (row, applied.has_effect()) {
        move_on(row, &applied);
        let state = match applied {
            Applied::Verdict(_) => AttemptState::Finished,
            _ => AttemptState::Closed,
        };
        let finish_hash = Some(incoming.body_hash.to_vec());
        attempts.insert(incoming.judge_id.0, AttemptRow { state, finish_hash });
    }
    Decided { incoming, applied, attempt_is_known }
}

fn move_on(row: &mut Row, applied: &Applied) {
    use crate::protocol::submission::State;
    match applied {
        Applied::Verdict(verdict) => {
            row.standing.state = State::Judged;
            row.counted = Some(*verdict);
        }
        Applied::Retry(_) => row.standing.state = State::Pending,
        Applied::Park(_) => row.standing.state = State::Parked,
        _ => {}
    }
}

/// The inbox id of an effect. A system error and a later usable verdict of the same attempt are two effects, so their kind is
/// part of the id.
fn inbox_id(judge_id: JudgeId, applied: &Applied) -> Uuid {
    let kind: &[u8] = match applied {
        Applied::Verdict(_) => b"finish/verdict",
        _ => b"finish/system_error",
    };
    Uuid::new_v5(&judge_id.0, kind)
}

/// Writes the inbox rows of everything that has an effect. A row that is there already means that the effect has happened,
/// whatever the submission's row says: then it must not happen again.
async fn enter_inbox(connection: &mut AsyncPgConnection, decided: &mut [Decided<'_>]) -> StoreResult<()> {
    let effective = |one: &&mut Decided<'_>| one.applied.has_effect();
    let ids: Vec<Uuid> =
        decided.iter_mut().filter(effective).map(|one| inbox_id(one.incoming.judge_id, &one.applied)).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let sql = "insert into processed_events (consumer_name, event_id) select $1, id from unnest($2::uuid[]) as id
               on conflict do nothing returning event_id";
    let entered: Vec<Uuid> =
        statement::<SqlUuid>(sql).bind::<Text, _>(CONSUMER).bind::<Array<SqlUuid>, _>(&ids).load(connection).await?;
    let entered: HashSet<Uuid> = entered.into_iter().collect();
    for one in decided.iter_mut().filter(effective) {
        if !entered.contains(&inbox_id(one.incoming.judge_id, &one.applied)) {
            one.applied = Applied::Duplicate;
        }
    }
    Ok(())
}

/// The outcome as a word for metrics, without applying anything.
pub fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Verdict(verdict) => verdict.as_str(),
        Outcome::SystemError(_) => "system_error",
    }
}
