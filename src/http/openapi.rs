//! The OpenAPI document, generated from the handlers and their types.
//!
//! The callback door is mounted elsewhere, so its two addresses are described here by hand.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::error::ProblemDetails;
use super::{listing, ops, reads, submissions, tokens};

/// The addresses that the controller calls back, as they stand in the document.
pub const CALLBACK_PATHS: [&str; 2] =
    ["/heng/update/{submission_id}/{judge_id}", "/heng/finish/{submission_id}/{judge_id}"];

/// The document.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "judge-relay",
        description = "Delivers the submissions of an online judge to heng-controller and applies each verdict exactly once. \
                       Errors are application/problem+json (RFC 9457)."
    ),
    paths(
        submissions::submit,
        submissions::submit_batch,
        reads::read,
        listing::list,
        tokens::make,
        tokens::revoke,
        ops::healthz,
        ops::readyz,
        ops::metrics,
        ops::status,
        ops::openapi_json,
        heng_update,
        heng_finish,
    ),
    components(schemas(ProblemDetails)),
    modifiers(&Bearer),
    tags(
        (name = "submissions", description = "Making and reading submissions"),
        (name = "tokens", description = "Who may do what"),
        (name = "operation", description = "For probes, metrics and people on call"),
        (name = "callbacks", description = "Called by heng-controller only; authenticated by the tag in the address"),
    )
)]
struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token made at /v1/admin/tokens, or the administrator's token of the environment"))
            .build();
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// Progress of an attempt; a hint.
#[utoipa::path(
    post, path = "/heng/update/{submission_id}/{judge_id}", tag = "callbacks",
    params(
        ("submission_id" = uuid::Uuid, Path, description = "The submission"),
        ("judge_id" = String, Path, description = "The attempt, 32 lower-case hex digits"),
        ("g" = i32, Query, description = "The generation"),
        ("k" = String, Query, description = "The id of the key that signed the address"),
        ("t" = String, Query, description = "The tag that proves that the address is ours"),
    ),
    request_body(content = Object, description = "{\"state\": …}"),
    responses(
        (status = 200, description = "Taken"),
        (status = 404, description = "The tag does not fit the address"),
        (status = 503, description = "Cannot be taken now; it is sent again"),
    )
)]
#[expect(dead_code, reason = "it carries the description of an address that is handled elsewhere")]
fn heng_update() {}

/// The result of an attempt. 2xx means that it was applied, or kept to be applied.
#[utoipa::path(
    post, path = "/heng/finish/{submission_id}/{judge_id}", tag = "callbacks",
    params(
        ("submission_id" = uuid::Uuid, Path, description = "The submission"),
        ("judge_id" = String, Path, description = "The attempt, 32 lower-case hex digits"),
        ("g" = i32, Query, description = "The generation"),
        ("k" = String, Query, description = "The id of the key that signed the address"),
        ("t" = String, Query, description = "The tag that proves that the address is ours"),
    ),
    request_body(content = Object, description = "{\"result\": …}"),
    responses(
        (status = 200, description = "Applied, or kept until PostgreSQL answers"),
        (status = 404, description = "The tag does not fit the address"),
        (status = 503, description = "Cannot be taken now; it is sent again"),
    )
)]
#[expect(dead_code, reason = "it carries the description of an address that is handled elsewhere")]
fn heng_finish() {}
