//! What the API answers when it does not do what was asked: one enum, each kind with its status and its reason.
//!
//! Causes from inside (SQL, addresses, panics) are logged where the error is made and are never sent.

use std::fmt;

use actix_web::error::{PayloadError, ResponseError};
use actix_web::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpResponse, HttpResponseBuilder};
use serde::Serialize;
use utoipa::ToSchema;

use crate::protocol::SubmissionId;
use crate::protocol::heng::json;
use crate::store::StoreError;

/// The content type of every error (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Seconds after which a caller may try again when PostgreSQL does not answer.
const RETRY_AFTER_SECONDS: u32 = 2;

/// Why a request was not carried out.
#[derive(Debug)]
pub enum ApiError {
    /// 400: the body is not JSON, or ended early, so nothing in it can be named.
    BadBody(String),
    /// 401: no bearer token, or one that nobody was given. An unknown token and a revoked one look the same.
    Unauthenticated,
    /// 403: the token is good, its role does not allow this. The text says which roles do.
    Forbidden(&'static str),
    /// 404: no such address.
    NoSuchRoute,
    /// 404: nothing of that name that the caller may see. Another tenant's looks exactly like none.
    NotFound(&'static str),
    /// 405: the address exists and takes other methods.
    MethodNotAllowed(Vec<Method>),
    /// 408: the body did not arrive in time; the connection is not held for ever.
    BodyTooSlow,
    /// 409: the idempotency key belongs to another request of the same tenant.
    KeyTaken(SubmissionId),
    /// 409: a live token has this name already.
    TokenNameTaken,
    /// 413: the body is larger than the limit, in bytes.
    BodyTooLarge(usize),
    /// 415: the body is not declared as JSON.
    NotJson,
    /// 422: the request was read and breaks rules; every problem that was found is listed.
    Invalid(Vec<InvalidMember>),
    /// 503: PostgreSQL did not answer in time. Nothing is known to have happened, so the same request may be sent again.
    StoreUnavailable,
    /// 500: the rows broke a rule of the schema, which this service should have seen before.
    Internal,
}

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct InvalidMember {
    /// Where: a JSON path into the body, `header Name`, or `query name`.
    #[schema(example = "$.request.judge.user.limit.runtime.memory")]
    pub path: String,
    /// The rule that the value breaks, said of the value.
    #[schema(example = "must not be less than 4194304")]
    pub rule: String,
}

impl InvalidMember {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { path: path.into(), rule: rule.into() }
    }

    /// A problem that was found in a document which stands at `prefix` of the body.
    pub(super) fn below(prefix: &str, problem: json::Problem) -> Self {
        let inner = problem.path.strip_prefix('$').unwrap_or(&problem.path);
        Self { path: format!("{prefix}{inner}"), rule: problem.rule }
    }
}

/// The body of every error (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProblemDetails {
    /// Names the kind of error; stable, for programs.
    #[serde(rename = "type")]
    #[schema(example = "urn:judge-relay:invalid-request")]
    pub kind: String,
    /// The kind of error in words, the same for every occurrence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time and what to do.
    pub detail: String,
    /// Everything that is wrong with the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<InvalidMember>,
    /// The submission that owns the idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<String>,
    /// Seconds after which the same request may be sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
}

impl ApiError {
    /// The HTTP status of this kind.
    pub const fn status(&self) -> StatusCode {
        match self {
            ApiError::BadBody(_) => StatusCode::BAD_REQUEST,
            ApiError::Unauthenticated => StatusCode::UNAUTHORIZED,
            ApiError::Forbidden(_) => StatusCode::FORBIDDEN,
            ApiError::NoSuchRoute | ApiError::NotFound(_) => StatusCode::NOT_FOUND,
            ApiError::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            ApiError::KeyTaken(_) | ApiError::TokenNameTaken => StatusCode::CONFLICT,
            ApiError::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ApiError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ApiError::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The stable name of the kind, and the kind in words.
    const fn kind(&self) -> (&'static str, &'static str) {
        match self {
            ApiError::BadBody(_) => ("bad-body", "The body is not JSON"),
            ApiError::Unauthenticated => ("unauthenticated", "A valid bearer token is needed"),
            ApiError::Forbidden(_) => ("forbidden", "The token's role does not allow this"),
            ApiError::NoSuchRoute => ("no-such-route", "There is nothing at this address"),
            ApiError::NotFound(_) => ("not-found", "It does not exist"),
            ApiError::MethodNotAllowed(_) => ("method-not-allowed", "The address does not take this method"),
            ApiError::BodyTooSlow => ("body-too-slow", "The body did not arrive in time"),
            ApiError::KeyTaken(_) => ("idempotency-key-taken", "The idempotency key belongs to another request"),
            ApiError::TokenNameTaken => ("token-name-taken", "A token of this name exists"),
            ApiError::BodyTooLarge(_) => ("body-too-large", "The body is too large"),
            ApiError::NotJson => ("not-json", "The body must be declared as JSON"),
            ApiError::Invalid(_) => ("invalid-request", "The request breaks rules"),
            ApiError::StoreUnavailable => ("store-unavailable", "PostgreSQL does not answer"),
            ApiError::Internal => ("internal", "The service failed"),
        }
    }

    fn detail(&self) -> String {
        match self {
            ApiError::BadBody(what) => format!("{what}. Send one JSON document in UTF-8."),
            ApiError::Unauthenticated => {
                "Send the header Authorization: Bearer <token> with a token that an administrator made.".to_owned()
            }
            ApiError::Forbidden(roles) => format!("Use a token with one of these roles: {roles}."),
            ApiError::NoSuchRoute => "The addresses of this service are listed at /openapi.json.".to_owned(),
            ApiError::NotFound(what) => format!("There is no such {what} in the tenant of this token."),
            ApiError::MethodNotAllowed(methods) => format!("It takes {}.", listed(methods)),
            ApiError::BodyTooSlow => "Send the request again over a faster connection, or in smaller parts.".to_owned(),
            ApiError::KeyTaken(id) => format!(
                "Submission {id} was made with this key and another body. If that is the same submission, read it; \
                 otherwise send this one with a fresh key."
            ),
            ApiError::TokenNameTaken => "Choose another name, or delete the token of this name first.".to_owned(),
            ApiError::BodyTooLarge(limit) => format!(
                "The limit is {limit} bytes. Give large sources and data as files of type \"url\", or send fewer items \
                 at once."
            ),
            ApiError::NotJson => "Send the header Content-Type: application/json.".to_owned(),
            ApiError::Invalid(problems) => match problems.len() {
                1 => "Correct the one problem listed and send the request again.".to_owned(),
                count => format!("Correct the {count} problems listed and send the request again."),
            },
            ApiError::StoreUnavailable => format!(
                "Nothing is known to have happened. Send the same request again in {RETRY_AFTER_SECONDS} seconds; a \
                 submission with the same idempotency key is never made twice."
            ),
            ApiError::Internal => "Nothing was changed. The cause is in the service's log.".to_owned(),
        }
    }

    /// The body that is sent.
    pub fn problem_details(&self) -> ProblemDetails {
        let (name, title) = self.kind();
        let (mut problems, mut submission_id, mut retry_after) = (Vec::new(), None, None);
        match self {
            ApiError::Invalid(found) => problems.clone_from(found),
            ApiError::KeyTaken(id) => submission_id = Some(id.to_string()),
            ApiError::StoreUnavailable => retry_after = Some(RETRY_AFTER_SECONDS),
            _ => {}
        }
        ProblemDetails {
            kind: format!("urn:judge-relay:{name}"),
            title: title.to_owned(),
            status: self.status().as_u16(),
            detail: self.detail(),
            problems,
            submission_id,
            retry_after,
        }
    }

    fn insert_headers(&self, response: &mut HttpResponseBuilder) {
        match self {
            ApiError::Unauthenticated => {
                response.insert_header((WWW_AUTHENTICATE, "Bearer"));
            }
            ApiError::MethodNotAllowed(methods) => {
                response.insert_header((ALLOW, listed(methods)));
            }
            ApiError::StoreUnavailable => {
                response.insert_header((RETRY_AFTER, RETRY_AFTER_SECONDS));
            }
            _ => {}
        }
    }
}

fn listed(methods: &[Method]) -> String {
    methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status().as_u16(), self.kind().1)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.status()
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status());
        self.insert_headers(&mut response);
        response.insert_header((CONTENT_TYPE, PROBLEM_JSON));
        // A list of strings and numbers always serialises; should it not, the status still tells the kind.
        response.body(serde_json::to_vec(&self.problem_details()).unwrap_or_default())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(cause) => {
                log::warn!("a request was answered 503: {cause}");
                ApiError::StoreUnavailable
            }
            StoreError::Refused(cause) => {
                log::error!("a request was answered 500: {cause}");
                ApiError::Internal
            }
        }
    }
}

impl From<PayloadError> for ApiError {
    fn from(error: PayloadError) -> Self {
        ApiError::BadBody(format!("The body could not be read to its end: {error}"))
    }
}
