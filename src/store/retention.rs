//! Rows that nobody needs any more, removed in small batches. What a verdict rests on is never removed here.

use diesel::sql_types::Integer;
use diesel_async::RunQueryDsl;

use super::statement::command;
use super::{Pool, StoreResult};

/// One kind of rows and how the oldest of them are deleted, `$1` at a time.
const KINDS: [(&str, &str); 3] = [
    (
        "instances",
        "delete from instances where instance_id in (
             select instance_id from instances where heartbeat_at < clock_timestamp() - interval '1 day' limit $1)",
    ),
    // Older than any redelivery; the submission's own row keeps an old result out even then.
    (
        "processed_events",
        "delete from processed_events where (consumer_name, event_id) in (
             select consumer_name, event_id from processed_events
             where processed_at < clock_timestamp() - interval '90 days' limit $1)",
    ),
    (
        "stream_losses",
        "delete from stream_losses where id in (
             select id from stream_losses where found_at < clock_timestamp() - interval '90 days' limit $1)",
    ),
];

/// Deletes up to `limit` expired rows of each kind and returns how many of all.
pub async fn sweep(pool: &Pool, limit: i32) -> StoreResult<usize> {
    let mut connection = pool.get().await?;
    let mut swept = 0;
    for (_, sql) in KINDS {
        swept += command(sql).bind::<Integer, _>(limit).execute(&mut connection).await?;
    }
    Ok(swept)
}
