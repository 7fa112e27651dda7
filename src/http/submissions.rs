//! `POST /v1/submissions` and `POST /v1/submissions:batch`: committed, or not made; the same key is the same submission.
//!
//! What the body must look like is in `submission_body`; the one transaction is the store's.

use std::collections::HashMap;

use actix_web::http::header::LOCATION;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::{Permission, caller};
use super::body::read_json;
use super::error::{ApiError, InvalidMember, ProblemDetails};
use super::submission_body::{self, BatchBody, Checked, SubmissionBody, key_problem};
use super::{Api, reads};
use crate::protocol::submission::State;
use crate::protocol::{Generation, SubmissionId};
use crate::store::submissions::{NewSubmission, Submitted, submit as store_submit};
use crate::telemetry::METRICS;

/// The header that names a request.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// Is there when the answer is that of an earlier request.
const REPLAYED: &str = "Idempotency-Replayed";

/// The answer to a submission that is committed: the same every time that its key is sent with the same body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedSubmission {
    /// Its id; ids sort by time.
    #[schema(value_type = uuid::Uuid)]
    pub id: SubmissionId,
    /// The judging that was begun with it.
    #[schema(value_type = i32)]
    pub generation: Generation,
    /// Its state when it was accepted. Where it is now is at `status_url`.
    #[schema(example = "pending")]
    pub state: String,
    /// Where to read it.
    pub status_url: String,
}

impl AcceptedSubmission {
    fn of(id: SubmissionId) -> Self {
        let status_url = reads::url_of(id);
        Self { id, generation: Generation(1), state: State::Pending.as_str().to_owned(), status_url }
    }
}

/// The answer to a batch.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BatchAnswer {
    /// One answer for each item, in the order of the items.
    pub items: Vec<BatchItemAnswer>,
}

/// The answer to one item of a batch: the status and body that a single submission would have got.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BatchItemAnswer {
    /// 202, 409 or 422.
    #[schema(example = 202)]
    pub status: u16,
    /// With 202: the submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission: Option<AcceptedSubmission>,
    /// With 202: is it the answer of an earlier request?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<bool>,
    /// With 409 and 422: what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemDetails>,
}

/// What became of one submission.
#[derive(Clone, Debug)]
enum Outcome {
    Committed { id: SubmissionId, is_replay: bool },
    KeyTaken(SubmissionId),
    Invalid(Vec<InvalidMember>),
}

/// Makes a submission. It is committed, with its intent to be judged, before this answers 202.
#[utoipa::path(
    post, path = "/v1/submissions", tag = "submissions", security(("bearer" = [])),
    params(
        ("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters; the same key with the same body is the same submission"),
        ("tenant" = Option<String>, Query, description = "Another tenant; only for the environment's administrator token"),
    ),
    request_body(content = SubmissionBody),
    responses(
        (status = 202, description = "Committed, now or by an earlier request with this key", body = AcceptedSubmission, headers(
            ("Location" = String, description = "Where to read it"),
            ("Idempotency-Replayed" = bool, description = "Present when an earlier request made it"),
        )),
        (status = 400, description = "The body is not JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 401, description = "No valid token", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 403, description = "The role may not submit", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 408, description = "The body came too slowly", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 409, description = "The key belongs to another body", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 415, description = "Not declared as JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 422, description = "Every problem of the body", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "PostgreSQL does not answer; send it again", body = ProblemDetails, content_type = "application/problem+json"),
    )
)]
pub async fn submit(api: web::Data<Api>, request: HttpRequest, body: web::Payload) -> Result<HttpResponse, ApiError> {
    let caller = caller(&api, &request, Permission::Submit).await?;
    let body = read_json(&request, body, api.body_limits.single).await?;
    let lanes = api.lane_names().await?;
    let checked = submission_body::single(&body, key_of(&request), &lanes);
    let mut outcomes = counted(store(&api, &caller.tenant, vec![checked]).await)?;
    match outcomes.pop() {
        Some(Outcome::Committed { id, is_replay }) => Ok(accepted(id, is_replay)),
        Some(Outcome::KeyTaken(owner)) => Err(ApiError::KeyTaken(owner)),
        Some(Outcome::Invalid(problems)) => Err(ApiError::Invalid(problems)),
        None => Err(ApiError::Internal),
    }
}

/// Makes up to 500 submissions. Each item is answered on its own; one that is invalid does not keep the others back.
#[utoipa::path(
    post, path = "/v1/submissions:batch", tag = "submissions", security(("bearer" = [])),
    params(("tenant" = Option<String>, Query, description = "Another tenant; only for the environment's administrator token")),
    request_body(content = BatchBody),
    responses(
        (status = 200, description = "One answer per item, in order", body = BatchAnswer),
        (status = 400, description = "The body is not JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 401, description = "No valid token", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 403, description = "The role may not submit", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 408, description = "The body came too slowly", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 415, description = "Not declared as JSON", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 422, description = "The batch as a whole breaks rules", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "PostgreSQL does not answer; send it again", body = ProblemDetails, content_type = "application/problem+json"),
    )
)]
pub async fn submit_batch(
    api: web::Data<Api>,
    request: HttpRequest,
    body: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let caller = caller(&api, &request, Permission::Submit).await?;
    let body = read_json(&request, body, api.body_limits.batch).await?;
    let lanes = api.lane_names().await?;
    let checked = submission_body::batch(&body, &lanes).map_err(ApiError::Invalid)?;
    let outcomes = counted(store(&api, &caller.tenant, checked).await)?;
    let items = outcomes.into_iter().map(item_answer).collect();
    Ok(HttpResponse::Ok().json(BatchAnswer { items }))
}

/// Counts each answer by its kind.
fn counted(outcomes: Result<Vec<Outcome>, ApiError>) -> Result<Vec<Outcome>, ApiError> {
    let count = |answer: &str| METRICS.submissions_total.with_label_values(&[answer]).inc();
    match &outcomes {
        Ok(outcomes) => outcomes.iter().for_each(|outcome| {
            count(match outcome {
                Outcome::Committed { is_replay: false, .. } => "accepted",
                Outcome::Committed { is_replay: true, .. } => "replayed",
                Outcome::KeyTaken(_) => "key_taken",
                Outcome::Invalid(_) => "invalid",
            });
        }),
        Err(_) => count("failed"),
    }
    outcomes
}

fn accepted(id: SubmissionId, is_replay: bool) -> HttpResponse {
    let mut response = HttpResponse::Accepted();
    response.insert_header((LOCATION, reads::url_of(id)));
    if is_replay {
        response.insert_header((REPLAYED, "true"));
    }
    response.json(AcceptedSubmission::of(id))
}

fn item_answer(outcome: Outcome) -> BatchItemAnswer {
    let error = match outcome {
        Outcome::Committed { id, is_replay } => {
            let submission = Some(AcceptedSubmission::of(id));
            return BatchItemAnswer { status: 202, submission, replayed: Some(is_replay), problem: None };
        }
        Outcome::KeyTaken(owner) => ApiError::KeyTaken(owner),
        Outcome::Invalid(problems) => ApiError::Invalid(problems),
    };
    let problem = Some(error.problem_details());
    BatchItemAnswer { status: error.status().as_u16(), submission: None, replayed: None, problem }
}

/// The key in the header, which must be there exactly once.
fn key_of(request: &HttpRequest) -> Result<String, InvalidMember> {
    let problem = |rule: &str| InvalidMember::new(format!("header {IDEMPOTENCY_KEY}"), rule);
    let mut values = request.headers().get_all(IDEMPOTENCY_KEY);
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(problem("must be given exactly once"));
    };
    let key = String::from_utf8_lossy(value.as_bytes()).into_owned();
    match key_problem(&key) {
        Some(rule) => Err(problem(rule)),
        None => Ok(key),
    }
}

/// Stores what may be stored and says of each what became of it, in order.
///
/// Of several items with one key only the first goes to the store; the others are compared with it.
async fn store(api: &Api, tenant: &str, checked: Vec<Checked>) -> Result<Vec<Outcome>, ApiError> {
    let mut place_of_key: HashMap<String, usize> = HashMap::new();
    let mut distinct: Vec<NewSubmission> = Vec::new();
    let mut planned: Vec<Result<Planned, Vec<InvalidMember>>> = Vec::with_capacity(checked.len());
    for item in checked {
        planned.push(item.map(|new| match place_of_key.get(&new.idempotency_key) {
            Some(&place) => {
                Planned { place, is_first: false, has_same_body: distinct[place].body_hash == new.body_hash }
            }
            None => {
                let place = distinct.len();
                place_of_key.insert(new.idempotency_key.clone(), place);
                distinct.push(new);
                Planned { place, is_first: true, has_same_body: true }
            }
        }));
    }
    if distinct.is_empty() {
        return Ok(planned.into_iter().filter_map(Result::err).map(Outcome::Invalid).collect());
    }
    let became = api.store(store_submit(&api.pool, tenant, &distinct)).await?;
    if became.contains(&Submitted::New) {
        (api.wake)();
    }
    let outcome = |item: Result<Planned, Vec<InvalidMember>>| match item {
        Err(problems) => Outcome::Invalid(problems),
        Ok(plan) => outcome_of(&plan, &distinct[plan.place], &became[plan.place]),
    };
    Ok(planned.into_iter().map(outcome).collect())
}

/// How an item relates to what goes to the store.
struct Planned {
    place: usize,
    is_first: bool,
    has_same_body: bool,
}

fn outcome_of(plan: &Planned, stored: &NewSubmission, became: &Submitted) -> Outcome {
    let owner = match became {
        Submitted::New => stored.id,
        Submitted::Known(owner) | Submitted::KeyTaken(owner) => *owner,
        // The lane was deleted between the check and the insert.
        Submitted::NoLane => {
            let rule = format!("must be one of the lanes; {:?} was deleted just now", stored.lane);
            return Outcome::Invalid(vec![InvalidMember::new("$.lane", rule)]);
        }
    };
    match became {
        Submitted::New if plan.has_same_body => Outcome::Committed { id: owner, is_replay: !plan.is_first },
        Submitted::Known(_) if plan.has_same_body => Outcome::Committed { id: owner, is_replay: true },
        _ => Outcome::KeyTaken(owner),
    }
}
