//! The `api_tokens` and `operator_actions` tables. A token itself is never stored, only its SHA-256.

use diesel::sql_types::{Binary, Jsonb, Text, Uuid as SqlUuid};
use diesel_async::{AsyncConnection, RunQueryDsl};
use uuid::Uuid;

use super::statement::{command, statement};
use super::{Pool, StoreError, StoreResult};

/// Who a token speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its name, for people and the audit.
    pub name: String,
    /// Whose submissions it may see and make.
    pub tenant: String,
    /// client, viewer, operator or admin.
    pub role: String,
}

/// The token with this hash, unless it was revoked.
pub async fn find(pool: &Pool, token_hash: &[u8; 32]) -> StoreResult<Option<TokenRow>> {
    let sql = "select name, tenant, role from api_tokens where token_hash = $1 and revoked_at is null";
    let rows: Vec<(String, String, String)> =
        statement::<(Text, Text, Text)>(sql).bind::<Binary, _>(&token_hash[..]).load(&mut pool.get().await?).await?;
    Ok(rows.into_iter().next().map(|(name, tenant, role)| TokenRow { name, tenant, role }))
}

/// Stores a new token and the record of who made it. Errors: `Refused` when the name is taken.
pub async fn create(pool: &Pool, made_by: &str, row: &TokenRow, token_hash: &[u8; 32]) -> StoreResult<()> {
    let mut connection = pool.get().await?;
    connection
        .transaction(async |connection| {
            command("insert into api_tokens (token_hash, name, tenant, role) values ($1, $2, $3, $4)")
                .bind::<Binary, _>(&token_hash[..])
                .bind::<Text, _>(&row.name)
                .bind::<Text, _>(&row.tenant)
                .bind::<Text, _>(&row.role)
                .execute(connection)
                .await?;
            let details = serde_json::json!({ "tenant": row.tenant, "role": row.role });
            record(connection, made_by, "token.create", &row.name, &details).await
        })
        .await
}

/// Revokes the live token of that name; false when there is none.
pub async fn revoke(pool: &Pool, revoked_by: &str, name: &str) -> StoreResult<bool> {
    let mut connection = pool.get().await?;
    connection
        .transaction(async |connection| {
            let sql = "update api_tokens set revoked_at = clock_timestamp() where name = $1 and revoked_at is null";
            let revoked = command(sql).bind::<Text, _>(name).execute(connection).await? > 0;
            if revoked {
                record(connection, revoked_by, "token.revoke", name, &serde_json::json!({})).await?;
            }
            Ok::<_, StoreError>(revoked)
        })
        .await
}

async fn record(
    connection: &mut diesel_async::AsyncPgConnection,
    actor: &str,
    action: &str,
    target: &str,
    details: &serde_json::Value,
) -> StoreResult<()> {
    let sql = "insert into operator_actions (id, actor, action, target, outcome, details) values ($1, $2, $3, $4, 'done', $5)";
    command(sql)
        .bind::<SqlUuid, _>(Uuid::now_v7())
        .bind::<Text, _>(actor)
        .bind::<Text, _>(action)
        .bind::<Text, _>(target)
        .bind::<Jsonb, _>(details)
        .execute(connection)
        .await?;
    Ok(())
}
