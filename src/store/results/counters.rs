//! How a batch of verdicts moves the counters: deltas against what each submission is counted as, folded per row.
//!
//! "Solved" is not looked up among other submissions, whose snapshot may be old: `first_accepts.accepted_count` is moved under its
//! row lock, and its crossing of zero moves the solvers' counters.

use std::collections::HashMap;

use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use super::{Decided, Row};
use crate::protocol::Verdict;
use crate::protocol::submission::{Applied, deltas};
use crate::store::StoreResult;
use crate::store::statement::command;

/// Rows are locked in one fixed order: first accepts, users, problems, scopes, each by key, after the submissions.
///
/// The inserted count of a missing first-accepts row cannot be negative, so the CHECK holds for the proposed row, too; an
/// existing row moves by the delta itself.
const FOLD: &str = "
    with delta as (
        select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::int[], $8::bigint[])
            as delta (tenant, user_id, problem_id, contest_id, course_id, submits, accepts, eligible)
    ), scoped as (
        select tenant, 'all' as scope_kind, '' as scope_id, user_id, problem_id, submits, accepts, eligible from delta
        union all
        select tenant, 'contest', contest_id, user_id, problem_id, submits, accepts, eligible
        from delta where contest_id is not null
        union all
        select tenant, 'course', course_id, user_id, problem_id, submits, accepts, eligible
        from delta where course_id is not null
    ), accept_delta as (
        select tenant, scope_kind, scope_id, user_id, problem_id, sum(accepts)::int as accepts
        from scoped group by 1, 2, 3, 4, 5 having bool_or(accepts <> 0)
    ), accepted as (
        insert into first_accepts as f (tenant, scope_kind, scope_id, user_id, problem_id, accepted_count)
        select tenant, scope_kind, scope_id, user_id, problem_id, greatest(accepts, 0) from accept_delta
        order by 1, 2, 3, 4, 5
        on conflict (tenant, scope_kind, scope_id, user_id, problem_id) do update
        set accepted_count = f.accepted_count + (
            select d.accepts from accept_delta d
            where (d.tenant, d.scope_kind, d.scope_id, d.user_id, d.problem_id)
                = (excluded.tenant, excluded.scope_kind, excluded.scope_id, excluded.user_id, excluded.problem_id))
        returning f.tenant, f.scope_kind, f.scope_id, f.user_id, f.problem_id, f.accepted_count
    ), solved as (
        select tenant, scope_kind, scope_id, user_id,
               sum((accepted_count > 0)::int - (accepted_count - d.accepts > 0)::int) as accepts
        from accepted join accept_delta d using (tenant, scope_kind, scope_id, user_id, problem_id)
        group by 1, 2, 3, 4
    ), users as (
        insert into user_stats as u (tenant, user_id, submits, accepts)
        select d.tenant, d.user_id, sum(d.submits), coalesce(max(s.accepts), 0)
        from delta d
        left join solved s on s.tenant = d.tenant and s.scope_kind = 'all' and s.user_id = d.user_id
        group by 1, 2 having sum(d.submits) <> 0 or coalesce(max(s.accepts), 0) <> 0 order by 1, 2
        on conflict (tenant, user_id) do update
        set submits = u.submits + excluded.submits, accepts = u.accepts + excluded.accepts
    ), problems as (
        insert into problem_stats as p (tenant, problem_id, submits, accepts)
        select tenant, problem_id, sum(submits), sum(accepts) from delta
        group by 1, 2 having sum(submits) <> 0 or sum(accepts) <> 0 order by 1, 2
        on conflict (tenant, problem_id) do update
        set submits = p.submits + excluded.submits, accepts = p.accepts + excluded.accepts
    )
    insert into scope_user_stats as c (tenant, scope_kind, scope_id, user_id, submits, accepts)
    select d.tenant, d.scope_kind, d.scope_id, d.user_id, sum(d.eligible), coalesce(max(s.accepts), 0)
    from scoped d left join solved s using (tenant, scope_kind, scope_id, user_id)
    where d.scope_kind <> 'all'
    group by 1, 2, 3, 4 having sum(d.eligible) <> 0 or coalesce(max(s.accepts), 0) <> 0 order by 1, 2, 3, 4
    on conflict (tenant, scope_kind, scope_id, user_id) do update
    set submits = c.submits + excluded.submits, accepts = c.accepts + excluded.accepts";

/// Moves the counters by what the applied verdicts change.
pub(super) async fn fold(
    connection: &mut AsyncPgConnection,
    decided: &[Decided<'_>],
    rows: &HashMap<Uuid, Row>,
    before: &HashMap<Uuid, Option<Verdict>>,
) -> StoreResult<()> {
    let moved = |one: &Decided<'_>| {
        let Applied::Verdict(verdict) = one.applied else { return None };
        let row = rows.get(&one.incoming.submission.0)?;
        let counted = before.get(&one.incoming.submission.0).copied().flatten();
        Some((row, deltas(counted, verdict)))
    };
    let moved: Vec<_> = decided.iter().filter_map(moved).collect();
    if moved.is_empty() {
        return Ok(());
    }
    command(FOLD)
        .bind::<Array<Text>, _>(moved.iter().map(|(row, _)| &*row.tenant).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(moved.iter().map(|(row, _)| &*row.user_id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(moved.iter().map(|(row, _)| &*row.problem_id).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(moved.iter().map(|(row, _)| row.contest_id.as_deref()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(moved.iter().map(|(row, _)| row.course_id.as_deref()).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(moved.iter().map(|(_, delta)| delta.submits).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(moved.iter().map(|(_, delta)| delta.accepts).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(moved.iter().map(|(_, delta)| delta.eligible).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}
