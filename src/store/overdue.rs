//! Attempts whose deadline has passed: ended under the submission's row lock, their work due again or parked.

use diesel::sql_types::{Array, Bool, Integer, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use super::dead_letters::{self, Park};
use super::outbox::milliseconds;
use super::statement::{command, statement};
use super::{Pool, StoreResult};
use crate::protocol::retry::Backoff;
use crate::protocol::submission::Budget;
use crate::protocol::{Generation, SubmissionId};

/// Rules of the decision.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How many tries a generation has.
    pub budget: Budget,
    /// Wait before the next attempt.
    pub retry: Backoff,
}

/// What a pass ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Submissions that are due again.
    pub due_again: usize,
    /// Submissions whose budget is spent.
    pub parked: usize,
}

/// A silence is evidence only while the controller is heard: when nothing authentic came for a minute, all of them are silent
/// because the controller is, and one submission at a time goes out to see whether it still is.
const IS_HEARD: &str = "
    select coalesce(last_heard_at > clock_timestamp() - interval '60 seconds', false) from controller_state";

/// Overdue attempts, oldest first; while the controller is silent ($2 is false) none as long as any attempt of the last minute is
/// out: that one is the probe. Each under its submission's lock; a submission that somebody else has locked is busy.
const OVERDUE: &str = "
    select s.id, s.generation, s.attempts_used, a.judge_id, a.deadline_at
    from judge_attempts a join submissions s on s.id = a.submission_id
    where a.state in ('sending', 'accepted', 'ambiguous') and a.purpose = 'live'
      and a.deadline_at < clock_timestamp() and s.state in ('pending', 'judging') and s.generation = a.generation
      and (a.state <> 'sending' or a.deadline_at < clock_timestamp() - interval '60 seconds')
      and ($2 or not exists (
          select 1 from judge_attempts probe
          where probe.state in ('sending', 'accepted', 'ambiguous')
            and probe.started_at > clock_timestamp() - interval '60 seconds'))
    order by a.deadline_at limit $1
    for update of s skip locked";

type OverdueRow = (Uuid, i32, i32, Uuid, chrono::DateTime<chrono::Utc>);

/// Ends up to `limit` overdue attempts: due again within the budget, parked beyond it.
pub async fn end(pool: &Pool, rules: &Rules, limit: i32, random: f64) -> StoreResult<Ended> {
    let mut connection = pool.get().await?;
    connection
        .transaction(async |connection| {
            let is_heard: bool = statement::<Bool>(IS_HEARD).get_result(connection).await?;
            let limit = if is_heard { limit } else { 1 };
            type Types = (SqlUuid, Integer, Integer, SqlUuid, Timestamptz);
            let rows: Vec<OverdueRow> = statement::<Types>(OVERDUE)
                .bind::<Integer, _>(limit)
                .bind::<Bool, _>(is_heard)
                .load(connection)
                .await?;
            if rows.is_empty() {
                return Ok(Ended::default());
            }
            if !is_heard {
                // A probe costs no budget, and nothing else expires meanwhile.
                return Ok(Ended { due_again: due_again(connection, &rows, rules, random, false).await?, parked: 0 });
            }
            let is_spent = |row: &OverdueRow| row.2.unsigned_abs() >= rules.budget.attempts_max;
            let (spent, left): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_spent);
            let parks: Vec<Park> = spent.iter().map(park).collect();
            if !parks.is_empty() {
                dead_letters::park(connection, &parks).await?;
            }
            let due_again = due_again(connection, &left, rules, random, true).await?;
            Ok(Ended { due_again, parked: parks.len() })
        })
        .await
}

fn park(row: &OverdueRow) -> Park {
    Park {
        submission: SubmissionId(row.0),
        generation: Generation(row.1),
        boundary: "Reconciler",
        cause_class: "attempt_budget_spent".to_owned(),
        message: format!(
            "no result of its last attempt {} came by {}",
            row.3.simple(),
            row.4.format("%Y-%m-%d %H:%M:%S UTC")
        ),
        event_id: None,
    }
}

const DUE_AGAIN: &str = "
    with overdue as (
        select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[]) as overdue (id, judge_id, event_id, delay_ms)
    ), closed as (
        update judge_attempts a set state = 'closed', close_reason = $5, finished_at = clock_timestamp()
        from overdue where a.judge_id = overdue.judge_id and a.state in ('sending', 'accepted', 'ambiguous')
        returning a.submission_id
    ), pending as (
        update submissions s
        set state = 'pending', updated_at = clock_timestamp(), last_sequence = s.last_sequence + 1,
            attempts_used = greatest(s.attempts_used - $6, 0)
        from overdue join closed on closed.submission_id = overdue.id
        where s.id = overdue.id and s.state in ('pending', 'judging')
        returning s.id, s.generation, s.lane, s.fair_tag, s.last_sequence, overdue.event_id, overdue.delay_ms
    )
    insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type, cause,
                               fair_tag, available_at)
    select event_id, id, last_sequence, generation, 'judge:' || lane, 'JudgeRequested', 'deadline', fair_tag,
           clock_timestamp() + delay_ms * interval '1 ms'
    from pending";

/// An attempt that is given up is closed, not forgotten: its verdict still counts when it comes after all.
async fn due_again(
    connection: &mut AsyncPgConnection,
    rows: &[OverdueRow],
    rules: &Rules,
    random: f64,
    is_counted: bool,
) -> StoreResult<usize> {
    if rows.is_empty() {
        return Ok(0);
    }
    let delay = |row: &OverdueRow| milliseconds(rules.retry.delay(row.2.unsigned_abs(), random));
    let due = command(DUE_AGAIN)
        .bind::<Array<SqlUuid>, _>(rows.iter().map(|row| row.0).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(rows.iter().map(|row| row.3).collect::<Vec<_>>())
        .bind::<Array<SqlUuid>, _>(rows.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(rows.iter().map(delay).collect::<Vec<_>>())
        .bind::<Text, _>(if is_counted { "deadline" } else { "probe" })
        .bind::<Integer, _>(if is_counted { 0 } else { 1 })
        .execute(connection)
        .await?;
    Ok(due)
}
