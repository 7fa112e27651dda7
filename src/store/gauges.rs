//! What the metrics show of the tables, read in one go. Counts are bounded: a gauge must not cost a scan of millions of rows.

use diesel::sql_types::{BigInt, Double, Nullable, Text};
use diesel_async::RunQueryDsl;

use super::statement::statement;
use super::{Pool, StoreResult};

/// No count goes further.
pub const COUNT_MAX: i64 = 100_000;

/// Unpublished rows of one destination.
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// `judge:<lane>` or `events`.
    pub destination: String,
    /// How many, at most `COUNT_MAX`.
    pub rows: i64,
    /// Age of the oldest, seconds.
    pub oldest_seconds: f64,
}

/// The backlog of each destination. Walks the index of due rows, which holds nothing else.
pub async fn backlog(pool: &Pool) -> StoreResult<Vec<Backlog>> {
    let sql = "
        select d.destination, coalesce(b.rows, 0), coalesce(b.oldest, 0)
        from (select 'judge:' || name as destination from lanes union all select 'events') d
        cross join lateral (
            select count(*) as rows,
                   extract(epoch from clock_timestamp() - min(due.occurred_at))::float8 as oldest
            from (select o.occurred_at from outbox_events o
                  where o.destination = d.destination
                    and o.published_at is null and o.superseded_at is null and o.quarantined_at is null
                  limit 100000) due
        ) b";
    let rows: Vec<(String, i64, f64)> = statement::<(Text, BigInt, Double)>(sql).load(&mut pool.get().await?).await?;
    Ok(rows
        .into_iter()
        .map(|(destination, rows, oldest_seconds)| Backlog { destination, rows, oldest_seconds })
        .collect())
}

/// Live attempts by state, open dead letters by cause, quarantined rows, dead rows of the hot tables: kind, label, value.
pub async fn counts(pool: &Pool) -> StoreResult<Vec<(String, String, i64)>> {
    let sql = "
        select 'attempts', state, count(*) from judge_attempts
        where state in ('sending', 'accepted', 'ambiguous') group by state
        union all
        select 'dead_letters', cause_class, count(*) from dead_letters where resolved_at is null group by cause_class
        union all
        select 'quarantined', '', count(*) from outbox_events where quarantined_at is not null
        union all
        select 'dead_rows', relname, n_dead_tup from pg_stat_user_tables
        where relname in ('submissions', 'outbox_events', 'judge_attempts', 'lane_clocks')";
    Ok(statement::<(Text, Text, BigInt)>(sql).load(&mut pool.get().await?).await?)
}

/// Seconds since the controller was heard; none: never.
pub async fn controller_silent_seconds(pool: &Pool) -> StoreResult<Option<f64>> {
    let sql = "select extract(epoch from clock_timestamp() - last_heard_at)::float8 from controller_state";
    Ok(statement::<Nullable<Double>>(sql).get_result(&mut pool.get().await?).await?)
}
