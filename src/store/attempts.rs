//! The `judge_attempts` table: one row for each time a generation was sent to the controller.
//!
//! A row's life: `begin` (sending) → `record` (accepted, ambiguous, or closed) → finished or closed in `results`. Nothing here
//! talks to the controller or to Redis.

use std::collections::{HashMap, HashSet};

use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::time::Duration;
use uuid::Uuid;

use super::dead_letters::{self, Park};
use super::outbox::milliseconds;
use super::statement::{command, statement};
use super::{Pool, StoreError, StoreResult};
use crate::protocol::deadline::{DeadlinePolicy, Deadlines};
use crate::protocol::heng::request::RequestFacts;
use crate::protocol::submission::{AttemptState, Begin, Budget, LiveAttempt, NoNeed, Standing, State, begin as decide};
use crate::protocol::{Generation, JudgeId, SubmissionId};

/// A stream entry that asks for a judging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The outbox row behind the entry.
    pub event_id: Uuid,
    /// What is to be judged.
    pub submission: SubmissionId,
    /// Which work.
    pub generation: Generation,
    /// The entry's id in its stream.
    pub stream_id: String,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// The attempt row is committed: POST this text.
    Send(ToSend),
    /// Nothing to send: ack the entry.
    NoNeed(NoNeed),
    /// It can't be sent; the submission is parked with a dead letter. Ack the entry.
    Parked(String),
}

/// An attempt that must be sent now.
#[derive(Clone, Debug, PartialEq)]
pub struct ToSend {
    /// Its name in the callback URLs.
    pub judge_id: JudgeId,
    /// What is judged.
    pub submission: SubmissionId,
    /// Which work.
    pub generation: Generation,
    /// The canonical request text, without callback URLs.
    pub body: String,
    /// A crash is repeated; it is not counted against the budget.
    pub is_rescue: bool,
}

/// Who begins attempts, and under which rules.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// This process.
    pub instance: Uuid,
    /// How many tries a generation has.
    pub budget: Budget,
    /// How long an attempt may be silent.
    pub deadlines: DeadlinePolicy,
}

const LOCK: &str = "select id from submissions where id = any($1) order by id for update";

const READ: &str = "
    select s.id, s.state, s.generation, s.last_generation, s.attempts_used, s.rescues_used,
           r.body, r.case_count, r.cpu_time_ms, r.compile_time_ms, a.judge_id, a.state, a.stream_id
    from submissions s
    left join judge_requests r on r.submission_id = s.id and r.generation = s.generation
    left join judge_attempts a on a.submission_id = s.id and a.purpose = 'live'
                              and a.state in ('sending', 'accepted', 'ambiguous')
    where s.id = any($1)";

type ReadTypes = (
    SqlUuid,
    Text,
    Integer,
    Integer,
    Integer,
    Integer,
    Nullable<Text>,
    Nullable<Integer>,
    Nullable<Integer>,
    Nullable<Integer>,
    Nullable<SqlUuid>,
    Nullable<Text>,
    Nullable<Text>,
);
type ReadRow = (
    Uuid,
    String,
    i32,
    i32,
    i32,
    i32,
    Option<String>,
    Option<i32>,
    Option<i32>,
    Option<i32>,
    Option<Uuid>,
    Option<String>,
    Option<String>,
);

/// A submission as the row lock shows it, with its request and live attempt.
struct Locked {
    standing: Standing,
    body: Option<String>,
    /// Cases, CPU limit and compiler's CPU limit in milliseconds, if they were read at intake.
    facts: Option<(u32, u32, u32)>,
    live: Option<(JudgeId, AttemptState, Option<String>)>,
}

fn locked(row: ReadRow) -> StoreResult<(Uuid, Locked)> {
    let (id, state, generation, last, attempts, rescues, body, cases, cpu, compile, judge_id, live_state, stream_id) =
        row;
    let unknown = |_| StoreError::Refused(format!("submission {id} has a state this version does not know"));
    let standing = Standing {
        state: state.parse::<State>().map_err(unknown)?,
        generation: Generation(generation),
        last_generation: Generation(last),
        attempts_used: attempts.unsigned_abs(),
        rescues_used: rescues.unsigned_abs(),
    };
    let facts = match (cases, cpu, compile) {
        (Some(cases), Some(cpu), Some(compile)) => {
            Some((cases.unsigned_abs(), cpu.unsigned_abs(), compile.unsigned_abs()))
        }
        _ => None,
    };
    let live = match (judge_id, live_state) {
        (Some(judge_id), Some(state)) => Some((JudgeId(judge_id), state.parse().map_err(unknown)?, stream_id)),
        _ => None,
    };
    Ok((id, Locked { standing, body, facts, live }))
}

/// A decided attempt, before its row is written.
struct Planned {
    position: usize,
    request: Request,
    to_send: ToSend,
    deadlines: Deadlines,
}

/// Begins an attempt for every request that needs one, in one transaction under the submissions' row locks.
///
/// The attempt rows are committed before anything is sent: a crash after this leaves `sending`, never a judging that nobody
/// knows of.
pub async fn begin(pool: &Pool, requests: &[Request], rules: &Rules) -> StoreResult<Vec<Begun>> {
    let mut connection = pool.get().await?;
    connection.transaction(async |connection| begin_locked(connection, requests, rules).await).await
}

async fn begin_locked(
    connection: &mut AsyncPgConnection,
    requests: &[Request],
    rules: &Rules,
) -> StoreResult<Vec<Begun>> {
    let mut found = lock_and_read(connection, requests).await?;
    let mut begun: Vec<Option<Begun>> = vec![None; requests.len()];
    let mut planned: Vec<Planned> = Vec::new();
    let mut parked: Vec<Park> = Vec::new();
    let mut rescued: Vec<Uuid> = Vec::new();
    let mut taken: HashSet<SubmissionId> = HashSet::new();
    for (position, request) in requests.iter().enumerate() {
        let submission = found.get_mut(&request.submission.0);
        let live =
            submission.as_ref().and_then(|row| row.live.as_ref()).map(|(judge_id, state, stream_id)| LiveAttempt {
                judge_id: *judge_id,
                state: *state,
                begun_by_this_entry: stream_id.as_deref() == Some(&request.stream_id),
            });
        let standing = submission.as_ref().map(|row| &row.standing);
        // A second entry of the same submission in one batch: the first one's attempt is as good as live.
        let decision = if taken.contains(&request.submission) {
            Begin::Ack(NoNeed::LiveElsewhere)
        } else {
            decide(standing, live.as_ref(), request.generation, rules.budget)
        };
        let is_rescue = matches!(decision, Begin::Rescue(_));
        match decision {
            Begin::Ack(no_need) => begun[position] = Some(Begun::NoNeed(no_need)),
            Begin::Park(judge_id) => {
                let message = format!("every process that sent it died; the last attempt was {judge_id}");
                taken.insert(request.submission);
                parked.push(park(request, "rescue_budget_spent", &message));
                begun[position] = Some(Begun::Parked(message));
            }
            Begin::Attempt | Begin::Rescue(_) => {
                taken.insert(request.submission);
                match plan(position, request, submission, is_rescue, &rules.deadlines) {
                    Ok(plan) => {
                        if let Begin::Rescue(judge_id) = decision {
                            rescued.push(judge_id.0);
                        }
                        planned.push(plan);
                    }
                    Err(message) => {
                        parked.push(park(request, "unreadable_request", &message));
                        begun[position] = Some(Begun::Parked(message));
                    }
                }
            }
        }
    }
    if !rescued.is_empty() {
        close_rescued(connection, &rescued).await?;
    }
    if !planned.is_empty() {
        insert(connection, &planned, rules.instance).await?;
    }
    if !parked.is_empty() {
        dead_letters::park(connection, &parked).await?;
    }
    for plan in planned {
        begun[plan.position] = Some(Begun::Send(plan.to_send));
    }
    Ok(begun.into_iter().flatten().collect())
}

/// Locks first, reads with a newer snapshot: a row joined to a locked one would still be the old version of itself.
async fn lock_and_read(connection: &mut AsyncPgConnection, requests: &[Request]) -> StoreResult<HashMap<Uuid, Locked>> {
    let ids: Vec<Uuid> = requests.iter().map(|request| request.submission.0).collect();
    let shared = &*connection;
    // The lock is sent first whatever the runtime does: `join!` would otherwise begin each poll with another one.
    let (lock, rows) = tokio::join!(
        biased;
        command(LOCK).bind::<Array<SqlUuid>, _>(&ids).execute(&mut &*shared),
        statement::<ReadTypes>(READ).bind::<Array<SqlUuid>, _>(&ids).load::<ReadRow>(&mut &*shared),
    );
    lock?;
    rows?.into_iter().map(locked).collect()
}

fn plan(
    position: usize,
    request: &Request,
    submission: Option<&mut Locked>,
    is_rescue: bool,
    policy: &DeadlinePolicy,
) -> Result<Planned, String> {
    let missing = || "the request's text is missing".to_owned();
    let row = submission.ok_or_else(missing)?;
    let body = row.body.take().ok_or_else(missing)?;
    let (cases, cpu_time_ms, compile_time_ms) = match row.facts.take() {
        Some(facts) => facts,
        // A row written by SQL: nobody has looked into it yet.
        None => RequestFacts::read(&body)
            .map(|facts| (facts.cases, facts.cpu_time_ms, facts.compile_time_ms))
            .map_err(|problem| format!("{}: {}", problem.path, problem.rule))?,
    };
    let to_send = ToSend {
        judge_id: JudgeId(Uuid::new_v4()),
        submission: request.submission,
        generation: request.generation,
        body,
        is_rescue,
    };
    Ok(Planned {
        position,
        request: request.clone(),
        to_send,
        deadlines: policy.deadlines(cases, cpu_time_ms, compile_time_ms),
    })
}

fn park(request: &Request, cause_class: &'static str, message: &str) -> Park {
    Park {
        submission: request.submission,
        generation: request.generation,
        boundary: "JudgeDispatcher",
        cause_class: cause_class.to_owned(),
        message: message.to_owned(),
        event_id: Some(request.event_id),
    }
}

async fn close_rescued(connection: &mut AsyncPgConnection, judge_ids: &[Uuid]) -> StoreResult<()> {
    let sql =
        "update judge_attempts set state = 'closed', close_reason = 'sender_died', finished_at = clock_timestamp()
               where judge_id = any($1) and state = 'sending'";
    command(sql).bind::<Array<SqlUuid>, _>(judge_ids).execute(connection).await?;
    Ok(())
}

const INSERT: &str = "
    with attempt as (
        select * from unnest($1::uuid[], $2::uuid[], $3::int[], $4::uuid[], $5::text[], $6::bool[], $7::bigint[], $8::int[])
            as attempt (judge_id, submission_id, generation, event_id, stream_id, is_rescue, deadline_ms, running_ms)
    ), inserted as (
        insert into judge_attempts (judge_id, submission_id, generation, event_id, stream_id, is_rescue, instance_id,
                                    deadline_at, running_limit_ms)
        select judge_id, submission_id, generation, event_id, stream_id, is_rescue, $9,
               clock_timestamp() + deadline_ms * interval '1 ms', running_ms
        from attempt
    )
    update submissions s
    set state = 'judging', updated_at = clock_timestamp(),
        attempts_used = attempts_used + case when attempt.is_rescue then 0 else 1 end,
        rescues_used = rescues_used + case when attempt.is_rescue then 1 else 0 end
    from attempt where s.id = attempt.submission_id";

async fn insert(connection: &mut AsyncPgConnection, planned: &[Planned], instance: Uuid) -> StoreResult<()> {
    let ids = |pick: fn(&Planned) -> Uuid| planned.iter().map(pick).collect::<Vec<_>>();
    let total = |plan: &Planned| i64::from(milliseconds(plan.deadlines.total));
    command(INSERT)
        .bind::<Array<SqlUuid>, _>(ids(|plan| plan.to_send.judge_id.0))
        .bind::<Array<SqlUuid>, _>(ids(|plan| plan.to_send.submission.0))
        .bind::<Array<Integer>, _>(planned.iter().map(|plan| plan.to_send.generation.0).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(ids(|plan| plan.request.event_id))
        .bind::<Array<Text>, _>(planned.iter().map(|plan| &*plan.request.stream_id).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(planned.iter().map(|plan| plan.to_send.is_rescue).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(planned.iter().map(total).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(planned.iter().map(|p| milliseconds(p.deadlines.running)).collect::<Vec<_>>())
        .bind::<SqlUuid, _>(instance)
        .execute(connection)
        .await?;
    Ok(())
}

/// How a POST ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// 201: the controller has it.
    Accepted,
    /// Sent, and nobody knows: the attempt stays valid and waits for its callback.
    Ambiguous(String),
    /// The controller's door was shut: nothing was begun there, the row is blameless and due again after the delay.
    Door(String, Duration),
    /// The controller refused this very request; the same again would be refused again.
    Refused(String),
}

/// A POST that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Which attempt.
    pub judge_id: JudgeId,
    /// Of which submission.
    pub submission: SubmissionId,
    /// Of which generation.
    pub generation: Generation,
    /// How it ended.
    pub outcome: SendOutcome,
    /// The HTTP status, if one came.
    pub http_status: Option<u16>,
    /// How long it took.
    pub took: Duration,
}

/// Records how POSTs ended. An attempt that a callback has moved on already is left as it is.
pub async fn record(pool: &Pool, sent: &[Sent]) -> StoreResult<()> {
    let mut connection = pool.get().await?;
    let answered: Vec<&Sent> =
        sent.iter().filter(|s| matches!(s.outcome, SendOutcome::Accepted | SendOutcome::Ambiguous(_))).collect();
    if answered.len() == sent.len() {
        return record_answered(&mut connection, &answered).await;
    }
    connection
        .transaction(async |connection| {
            lock_submissions(connection, sent).await?;
            if !answered.is_empty() {
                record_answered(connection, &answered).await?;
            }
            record_door(connection, sent).await?;
            record_refused(connection, sent).await
        })
        .await
}

async fn lock_submissions(connection: &mut AsyncPgConnection, sent: &[Sent]) -> StoreResult<()> {
    let ids: Vec<Uuid> = sent.iter().map(|sent| sent.submission.0).collect();
    command(LOCK).bind::<Array<SqlUuid>, _>(ids).execute(connection).await?;
    Ok(())
}

const RECORD_ANSWERED: &str = "
    update judge_attempts a
    set state = s.state, answered_at = clock_timestamp(), http_status = s.status, answer = s.answer, answer_ms = s.took_ms
    from unnest($1::uuid[], $2::text[], $3::int[], $4::text[], $5::int[]) as s (judge_id, state, status, answer, took_ms)
    where a.judge_id = s.judge_id and a.state = 'sending'";

async fn record_answered(connection: &mut AsyncPgConnection, sent: &[&Sent]) -> StoreResult<()> {
    let state = |sent: &&Sent| match sent.outcome {
        SendOutcome::Accepted => AttemptState::Accepted.as_str(),
        _ => AttemptState::Ambiguous.as_str(),
    };
    let answer = |sent: &&Sent| match &sent.outcome {
        SendOutcome::Ambiguous(reason) => Some(reason.clone()),
        _ => None,
    };
    command(RECORD_ANSWERED)
        .bind::<Array<SqlUuid>, _>(sent.iter().map(|sent| sent.judge_id.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(sent.iter().map(state).collect::<Vec<_>>())
        .bind::<Array<Nullable<Integer>>, _>(sent.iter().map(|s| s.http_status.map(i32::from)).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(sent.iter().map(answer).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(sent.iter().map(|sent| milliseconds(sent.took)).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// Closes the attempts, takes them off the budget, and writes a new intent for each submission that still waits for one.
///
/// A rescue stands in for the attempt that it repeats, so its place in the budget is given back, too. `pending` is met here when
/// another attempt, whose row was lost, ended in a system error: the intent of then may have been acked, because this one was live.
const RECORD_DOOR: &str = "
    with door as (
        select * from unnest($1::uuid[], $2::text[], $3::int[], $4::uuid[], $5::int[])
            as door (judge_id, reason, status, event_id, delay_ms)
    ), closed as (
        update judge_attempts a
        set state = 'closed', close_reason = 'door', answered_at = clock_timestamp(), finished_at = clock_timestamp(),
            http_status = door.status, answer = door.reason
        from door where a.judge_id = door.judge_id and a.state = 'sending'
        returning a.submission_id, a.generation, door.event_id, door.delay_ms
    ), pending as (
        update submissions s
        set state = 'pending', updated_at = clock_timestamp(), last_sequence = s.last_sequence + 1,
            attempts_used = s.attempts_used - 1
        from closed
        where s.id = closed.submission_id and s.generation = closed.generation and s.state in ('pending', 'judging')
        returning s.id, s.generation, s.last_sequence, s.lane, s.fair_tag, closed.event_id, closed.delay_ms
    )
    insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type, cause,
                               fair_tag, available_at)
    select event_id, id, last_sequence, generation, 'judge:' || lane, 'JudgeRequested', 'door', fair_tag,
           clock_timestamp() + delay_ms * interval '1 ms'
    from pending";

async fn record_door(connection: &mut AsyncPgConnection, sent: &[Sent]) -> StoreResult<()> {
    let door = |sent: &Sent| match &sent.outcome {
        SendOutcome::Door(reason, delay) => {
            Some((sent.judge_id.0, reason.clone(), sent.http_status.map(i32::from), milliseconds(*delay)))
        }
        _ => None,
    };
    let rows: Vec<_> = sent.iter().filter_map(door).collect();
    if rows.is_empty() {
        return Ok(());
    }
    command(RECORD_DOOR)
        .bind::<Array<SqlUuid>, _>(rows.iter().map(|row| row.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rows.iter().map(|row| &*row.1).collect::<Vec<_>>())
        .bind::<Array<Nullable<Integer>>, _>(rows.iter().map(|row| row.2).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(rows.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(rows.iter().map(|row| row.3).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

async fn record_refused(connection: &mut AsyncPgConnection, sent: &[Sent]) -> StoreResult<()> {
    let refused = |sent: &Sent| match &sent.outcome {
        SendOutcome::Refused(message) => Some((
            sent.judge_id.0,
            Park {
                submission: sent.submission,
                generation: sent.generation,
                boundary: "JudgeDispatcher",
                cause_class: format!("refused_{}", sent.http_status.unwrap_or_default()),
                message: message.clone(),
                event_id: None,
            },
            sent.http_status.map(i32::from),
        )),
        _ => None,
    };
    let rows: Vec<_> = sent.iter().filter_map(refused).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let sql = "update judge_attempts a
               set state = 'closed', close_reason = 'refused', answered_at = clock_timestamp(),
                   finished_at = clock_timestamp(), http_status = r.status, answer = r.message
               from unnest($1::uuid[], $2::int[], $3::text[]) as r (judge_id, status, message)
               where a.judge_id = r.judge_id and a.state = 'sending'";
    command(sql)
        .bind::<Array<SqlUuid>, _>(rows.iter().map(|row| row.0).collect::<Vec<_>>())
        .bind::<Array<Nullable<Integer>>, _>(rows.iter().map(|row| row.2).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rows.iter().map(|row| &*row.1.message).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    let parks: Vec<Park> = rows.into_iter().map(|row| row.1).collect();
    dead_letters::park(connection, &parks).await
}

/// A progress update of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which attempt.
    pub judge_id: JudgeId,
    /// The state that the judger reported.
    pub state: String,
    /// Has judging begun? Then the shorter running deadline starts.
    pub is_running: bool,
}

/// Stores progress of live attempts. An update proves that the controller has the attempt: sending and ambiguous ones become
/// accepted. Progress of anything else is dropped, it is a hint.
const PROGRESS: &str = "
    update judge_attempts a
    set progress = p.state, progress_at = clock_timestamp(),
        state = 'accepted', answered_at = coalesce(a.answered_at, clock_timestamp()),
        deadline_at = case when p.running and a.running_limit_ms is not null
                           then clock_timestamp() + a.running_limit_ms * interval '1 ms' else a.deadline_at end
    from unnest($1::uuid[], $2::text[], $3::bool[]) as p (judge_id, state, running)
    where a.judge_id = p.judge_id and a.state in ('sending', 'accepted', 'ambiguous')";

/// Stores the newest progress of each attempt; at most one per attempt.
pub async fn progress(pool: &Pool, progress: &[Progress]) -> StoreResult<usize> {
    let stored = command(PROGRESS)
        .bind::<Array<SqlUuid>, _>(progress.iter().map(|row| row.judge_id.0).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(progress.iter().map(|row| &*row.state).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(progress.iter().map(|row| row.is_running).collect::<Vec<_>>())
        .execute(&mut pool.get().await?)
        .await?;
    Ok(stored)
}

/// Does this entry's generation still need an attempt that nobody else is making?
pub async fn is_needed(
    pool: &Pool,
    submission: SubmissionId,
    generation: Generation,
    stream_id: &str,
) -> StoreResult<bool> {
    let sql = "select exists (
                   select 1 from submissions s
                   where s.id = $1 and s.generation = $2 and s.state in ('pending', 'judging')
                     and not exists (
                         select 1 from judge_attempts a
                         where a.submission_id = s.id and a.purpose = 'live'
                           and (a.state in ('accepted', 'ambiguous')
                                or a.state = 'sending' and a.stream_id is distinct from $3)))";
    let needed = statement::<Bool>(sql)
        .bind::<SqlUuid, _>(submission.0)
        .bind::<Integer, _>(generation.0)
        .bind::<Text, _>(stream_id)
        .get_result(&mut pool.get().await?)
        .await?;
    Ok(needed)
}
