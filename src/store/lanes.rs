//! The `lanes` table: rows that every replica obeys within a second. Who reads them decides; nothing is cached here.

use diesel::sql_types::{Array, Bool, Integer, Nullable, Text};
use diesel_async::RunQueryDsl;

use super::statement::{command, statement};
use super::{Pool, StoreResult};

/// A lane as an operator set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its name; its stream is `judge:<name>`.
    pub name: String,
    /// Share of the permits while several lanes wait.
    pub weight: i32,
    /// At most this many at the controller.
    pub in_flight_cap: Option<i32>,
    /// This many of the global cap are kept for it.
    pub reserve: i32,
    /// Nothing is claimed or dispatched.
    pub paused: bool,
}

/// All lanes in reading order.
pub async fn list(pool: &Pool) -> StoreResult<Vec<Lane>> {
    type Row = (Text, Integer, Nullable<Integer>, Integer, Bool);
    let rows: Vec<(String, i32, Option<i32>, i32, bool)> =
        statement::<Row>("select name, weight, in_flight_cap, reserve, paused from lanes order by position")
            .load(&mut pool.get().await?)
            .await?;
    let lane = |(name, weight, in_flight_cap, reserve, paused)| Lane { name, weight, in_flight_cap, reserve, paused };
    Ok(rows.into_iter().map(lane).collect())
}

/// Live attempts of a lane's submissions whose deadline has not passed: what is at the controller.
pub async fn in_flight(pool: &Pool) -> StoreResult<Vec<(String, i64)>> {
    let sql = "select s.lane, count(*) from judge_attempts a join submissions s on s.id = a.submission_id
               where a.state in ('sending', 'accepted', 'ambiguous') and a.deadline_at > clock_timestamp()
               group by s.lane";
    let rows = statement::<(Text, diesel::sql_types::BigInt)>(sql).load(&mut pool.get().await?).await?;
    Ok(rows)
}

/// Pauses or resumes lanes; returns how many rows changed.
pub async fn set_paused(pool: &Pool, names: &[String], paused: bool) -> StoreResult<usize> {
    let sql = "update lanes set paused = $2, updated_at = clock_timestamp() where name = any($1) and paused <> $2";
    let changed =
        command(sql).bind::<Array<Text>, _>(names).bind::<Bool, _>(paused).execute(&mut pool.get().await?).await?;
    Ok(changed)
}
