//! The migrations, embedded in the binary and applied under an advisory lock. Nothing here knows what they contain.

use diesel::connection::SimpleConnection;
use diesel_async::AsyncPgConnection;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use super::{StoreError, StoreResult};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations");

/// Held while migrating, so that replicas that start together do it one after the other. The number only has to be ours.
const LOCK: &str = "select pg_advisory_lock(7306652951287013153)";
const UNLOCK: &str = "select pg_advisory_unlock(7306652951287013153)";

/// Applies what is pending and returns the names of what was applied.
pub async fn run(url: &str) -> StoreResult<Vec<String>> {
    let connection = super::pool::single(url).await?;
    // The harness blocks its thread, which actix's single-threaded runtimes cannot bear.
    tokio::task::spawn_blocking(move || run_pending(connection))
        .await
        .map_err(|error| StoreError::Refused(format!("the migration task failed: {error}")))?
}

fn run_pending(connection: AsyncPgConnection) -> StoreResult<Vec<String>> {
    let mut connection: AsyncConnectionWrapper<AsyncPgConnection> = AsyncConnectionWrapper::from(connection);
    connection.batch_execute(LOCK)?;
    let applied = connection
        .run_pending_migrations(MIGRATIONS)
        .map(|versions| versions.iter().map(ToString::to_string).collect())
        .map_err(|error| StoreError::Refused(format!("a migration failed: {error}")))?;
    connection.batch_execute(UNLOCK)?;
    Ok(applied)
}
