//! The `instances`, `controller_state` and `stream_losses` tables: who runs, what was heard of the controller, what Redis lost.

use diesel::sql_types::{Bool, Integer, Nullable, Text, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use uuid::Uuid;

use super::statement::{command, statement};
use super::{Pool, StoreResult};

/// A heartbeat older than this many seconds is a dead process. They are sent every two seconds.
pub const DEAD_AFTER_SECONDS: i32 = 6;

/// Says that this process lives, and since when it has not been heard of are the others.
pub async fn heartbeat(pool: &Pool, instance: Uuid, hostname: &str) -> StoreResult<()> {
    let sql = "insert into instances (instance_id, hostname, version) values ($1, $2, $3)
               on conflict (instance_id) do update set heartbeat_at = clock_timestamp()";
    command(sql)
        .bind::<SqlUuid, _>(instance)
        .bind::<Text, _>(hostname)
        .bind::<Text, _>(env!("CARGO_PKG_VERSION"))
        .execute(&mut pool.get().await?)
        .await?;
    Ok(())
}

/// The processes whose heartbeat is fresh.
pub async fn alive(pool: &Pool) -> StoreResult<Vec<Uuid>> {
    let sql = "select instance_id from instances where heartbeat_at > clock_timestamp() - $1 * interval '1 second'";
    let alive = statement::<SqlUuid>(sql).bind::<Integer, _>(DEAD_AFTER_SECONDS).load(&mut pool.get().await?).await?;
    Ok(alive)
}

/// Says that this process has ended: others may take its work at once.
pub async fn leave(pool: &Pool, instance: Uuid) -> StoreResult<()> {
    command("delete from instances where instance_id = $1")
        .bind::<SqlUuid, _>(instance)
        .execute(&mut pool.get().await?)
        .await?;
    Ok(())
}

/// Something authentic came from the controller just now. After a minute of silence the callbacks that it holds back come within
/// a minute or so: open deadlines move to at least three minutes from now.
const HEARD: &str = "
    with heard as (
        update controller_state set last_heard_at = clock_timestamp()
        from (select last_heard_at as before from controller_state) old
        where last_heard_at is null or last_heard_at < clock_timestamp() - interval '1 second'
        returning old.before
    )
    update judge_attempts set deadline_at = clock_timestamp() + interval '180 seconds'
    where state in ('sending', 'accepted', 'ambiguous') and deadline_at < clock_timestamp() + interval '180 seconds'
      and exists (select 1 from heard where before is null or before < clock_timestamp() - interval '60 seconds')";

/// Writes down that something authentic came from the controller just now.
pub async fn controller_heard(pool: &Pool) -> StoreResult<()> {
    command(HEARD).execute(&mut pool.get().await?).await?;
    Ok(())
}

/// Moves open deadlines to at least three minutes from now: while nobody listened, the controller could not be heard.
pub async fn grant_grace(pool: &Pool) -> StoreResult<usize> {
    let sql = "update judge_attempts set deadline_at = clock_timestamp() + interval '180 seconds'
               where state in ('sending', 'accepted', 'ambiguous')
                 and deadline_at < clock_timestamp() + interval '180 seconds'";
    Ok(command(sql).execute(&mut pool.get().await?).await?)
}

/// Records that a stream or its group was found missing, before it is created again.
pub async fn record_loss(pool: &Pool, stream: &str, what: &str) -> StoreResult<Uuid> {
    let id = Uuid::now_v7();
    command("insert into stream_losses (id, stream, what) values ($1, $2, $3)")
        .bind::<SqlUuid, _>(id)
        .bind::<Text, _>(stream)
        .bind::<Text, _>(what)
        .execute(&mut pool.get().await?)
        .await?;
    Ok(id)
}

/// Losses whose repair was not finished: id and destination.
pub async fn open_losses(pool: &Pool) -> StoreResult<Vec<(Uuid, String)>> {
    let sql = "select id, stream from stream_losses where recovered_at is null order by found_at";
    Ok(statement::<(SqlUuid, Text)>(sql).load(&mut pool.get().await?).await?)
}

/// The loss is repaired: the stream is there again, and what was in it is looked up entry by entry.
pub async fn close_loss(pool: &Pool, loss: Uuid, due_again: usize) -> StoreResult<()> {
    command("update stream_losses set recovered_at = clock_timestamp(), due_again = $2 where id = $1")
        .bind::<SqlUuid, _>(loss)
        .bind::<Integer, _>(i32::try_from(due_again).unwrap_or(i32::MAX))
        .execute(&mut pool.get().await?)
        .await?;
    Ok(())
}

/// What PostgreSQL is set to, as far as durability depends on it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Committed means written to disk.
    pub fsync: bool,
    /// A commit waits for its disk.
    pub synchronous_commit: String,
    /// Is this server a standby?
    pub is_standby: bool,
}

/// Reads the settings that the promises rest on.
pub async fn settings(pool: &Pool) -> StoreResult<Settings> {
    let sql = "select current_setting('fsync')::bool, current_setting('synchronous_commit'), pg_is_in_recovery()";
    let (fsync, synchronous_commit, is_standby) =
        statement::<(Bool, Text, Bool)>(sql).get_result(&mut pool.get().await?).await?;
    Ok(Settings { fsync, synchronous_commit, is_standby })
}

/// Does the connection keep its session between statements? A transaction pooler does not.
pub async fn session_is_kept(pool: &Pool) -> StoreResult<bool> {
    let mut connection = pool.get().await?;
    let mark = Uuid::new_v4().simple().to_string();
    let set: String = statement::<Text>("select set_config('judge_relay.session', $1, false)")
        .bind::<Text, _>(&mark)
        .get_result(&mut connection)
        .await?;
    let read: Option<String> = statement::<Nullable<Text>>("select current_setting('judge_relay.session', true)")
        .get_result(&mut connection)
        .await?;
    Ok(read.as_deref() == Some(&set))
}
