//! `POST /v1/admin/tokens` and `DELETE /v1/admin/tokens/{name}`: bearer tokens, shown once and kept only as a hash.
//!
//! What a role may do is in `auth`.

use std::fmt;

use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, ENVIRONMENT_ADMIN, Permission, Role, caller, hash_of};
use super::body::read_json;
use super::error::{ApiError, InvalidMember, ProblemDetails};
use super::members::Members;
use crate::store::StoreError;
use crate::store::reports::tenant_of_token;
use crate::store::tokens::{self as store, TokenRow};

/// Marks our tokens, so that a leaked one is recognised.
const PREFIX: &str = "jr_";

/// A token to be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// Its name, for people and the audit; no other live token may have it.
    #[schema(min_length = 1, max_length = 128)]
    pub name: String,
    /// Whose submissions it sees and makes.
    #[schema(min_length = 1, max_length = 128)]
    pub tenant: String,
    /// What it may do.
    pub role: Role,
}

/// A token that was made.
#[derive(Clone, Serialize, ToSchema)]
pub struct MadeToken {
    /// Its name.
    pub name: String,
    /// Whose submissions it sees and makes.
    pub tenant: String,
    /// What it may do.
    pub role: Role,
    /// The token itself. It is shown this once and cannot be read again.
    #[schema(example = "jr_…")]
    pub token: String,
}

impl fmt::Debug for MadeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MadeToken").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Makes a token. The answer is the only time that it is shown.
#[utoipa::path(
    post, path = "/v1/admin/tokens", tag = "tokens", security(("bearer" = [])),
    request_body(content = NewToken),
    responses(
        (status = 201, description = "The token, shown once", body = MadeToken),
        (status = 400, description = "The body is not JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 401, description = "No valid token", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 403, description = "Not an administrator of that tenant", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 408, description = "The body came too slowly", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 409, description = "A live token has this name", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 415, description = "Not declared as JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 422, description = "Every problem of the body", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "PostgreSQL does not answer", body = ProblemDetails, content_type = "application/problem+json"),
    )
)]
pub async fn make(api: web::Data<Api>, request: HttpRequest, body: web::Payload) -> Result<HttpResponse, ApiError> {
    let caller = caller(&api, &request, Permission::ManageTokens).await?;
    let body = read_json(&request, body, api.body_limits.single).await?;
    let new = checked(&body).map_err(ApiError::Invalid)?;
    if !may_manage(&caller, &new.tenant) {
        return Err(ApiError::Forbidden("admin of that tenant, or the administrator's token of the environment"));
    }
    let token = random_token();
    let row = TokenRow { name: new.name.clone(), tenant: new.tenant.clone(), role: new.role.as_str().to_owned() };
    match api.within_limit(store::create(&api.pool, &caller.name, &row, &hash_of(&token))).await {
        Ok(()) => {}
        // The only rule that checked values can break.
        Err(StoreError::Refused(_)) => return Err(ApiError::TokenNameTaken),
        Err(error) => return Err(error.into()),
    }
    Ok(HttpResponse::Created().json(MadeToken { name: new.name, tenant: new.tenant, role: new.role, token }))
}

/// Revokes a token. Replicas that used it within the last ten seconds may believe it for that long.
#[utoipa::path(
    delete, path = "/v1/admin/tokens/{name}", tag = "tokens", security(("bearer" = [])),
    params(("name" = String, Path, description = "The token's name")),
    responses(
        (status = 204, description = "Revoked"),
        (status = 401, description = "No valid token", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 403, description = "Not an administrator", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "No live token of that name", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "PostgreSQL does not answer", body = ProblemDetails, content_type = "application/problem+json"),
    )
)]
pub async fn revoke(
    api: web::Data<Api>,
    request: HttpRequest,
    name: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let caller = caller(&api, &request, Permission::ManageTokens).await?;
    let missing = ApiError::NotFound("token");
    // PostgreSQL has no text with U+0000; it would refuse the question itself.
    if name.contains('\0') {
        return Err(missing);
    }
    let tenant = api.store(tenant_of_token(&api.pool, &name)).await?;
    if !tenant.is_some_and(|tenant| may_manage(&caller, &tenant)) {
        return Err(missing);
    }
    let was_revoked = api.store(store::revoke(&api.pool, &caller.name, &name)).await?;
    api.tokens.forget(&name);
    if was_revoked { Ok(HttpResponse::NoContent().finish()) } else { Err(missing) }
}

fn may_manage(caller: &Caller, tenant: &str) -> bool {
    caller.is_environment_admin || caller.tenant == tenant
}

fn checked(raw: &RawValue) -> Result<NewToken, Vec<InvalidMember>> {
    let mut members = Members::of(raw, "$", &["name", "tenant", "role"]).map_err(|problem| vec![problem])?;
    let name = members.required_id("name");
    if name.as_deref() == Some(ENVIRONMENT_ADMIN) {
        members.report("name", "must not be the name of the environment's own token");
    }
    let tenant = members.required_id("tenant");
    let word = members.required_raw("role").and_then(|_| members.text("role"));
    let role = word.as_deref().and_then(Role::of);
    if word.is_some() && role.is_none() {
        members.report("role", format!("must be one of: {}", Role::ALL.map(Role::as_str).join(", ")));
    }
    let problems = members.into_problems();
    match (problems.is_empty(), name, tenant, role) {
        (true, Some(name), Some(tenant), Some(role)) => Ok(NewToken { name, tenant, role }),
        _ => Err(problems),
    }
}

/// 256 random bits: nothing to guess, so one round of SHA-256 is enough to keep it by.
fn random_token() -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_recognisable_and_never_the_same() {
        let (one, other) = (random_token(), random_token());
        assert_ne!(one, other);
        assert_eq!((one.len(), other.len()), (46, 46));
        assert!(
            one.starts_with("jr_")
                && one.bytes().skip(3).all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        );
    }

    #[test]
    fn a_made_token_does_not_show_itself_to_logs() {
        let made =
            MadeToken { name: "n".to_owned(), tenant: "t".to_owned(), role: Role::Client, token: "jr_x".to_owned() };
        assert!(!format!("{made:?}").contains("jr_"));
    }

    #[test]
    fn every_problem_of_a_token_is_listed() {
        let raw: Box<RawValue> = serde_json::from_str(r#"{"name":"","role":"king","more":1}"#).expect("JSON");
        let paths: Vec<String> = checked(&raw).expect_err("refused").into_iter().map(|problem| problem.path).collect();
        assert_eq!(paths, ["$.more", "$.name", "$.tenant", "$.role"]);
    }
}
