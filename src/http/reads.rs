//! `GET /v1/submissions/{id}`: the submission, what stands, where it is and what happened to it.
//!
//! Sources and request texts are never part of an answer.

use actix_web::{HttpRequest, HttpResponse, web};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Api;
use super::auth::{Permission, caller};
use super::error::{ApiError, ProblemDetails};
use super::submission_body::Scope;
use super::timeline::{TimelineEvent, timeline};
use super::whereabouts::{Whereabouts, whereabouts};
use crate::protocol::SubmissionId;
use crate::store::reports::{self, Journey, SubmissionRow};

/// Where a submission is read.
pub(super) fn url_of(id: SubmissionId) -> String {
    format!("/v1/submissions/{id}")
}

/// A submission as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmissionSummary {
    /// Its id.
    pub id: Uuid,
    /// The judge's own id of it.
    pub external_id: Option<String>,
    /// Whose it is.
    pub user_id: String,
    /// For which problem.
    pub problem_id: String,
    /// In which contest or course it counts.
    pub scope: Scope,
    /// Where it waits.
    pub lane: String,
    /// pending, judging, judged, parked or cancelled.
    #[schema(example = "judged")]
    pub state: String,
    /// The work in hand; a rejudge raises it.
    pub generation: i32,
    /// What stands; may be of an older generation while a rejudge is under way.
    #[schema(example = "accepted")]
    pub verdict: Option<String>,
    /// The generation of what stands.
    pub verdict_generation: Option<i32>,
    /// Longest time of a case, milliseconds.
    pub time_max_ms: Option<i64>,
    /// Time of all cases together, milliseconds.
    pub time_total_ms: Option<i64>,
    /// Most memory of a case, bytes.
    pub memory_max_bytes: Option<i64>,
    /// When it was submitted.
    pub created_at: DateTime<Utc>,
    /// When its state or generation last changed.
    pub updated_at: DateTime<Utc>,
    /// When what stands was applied.
    pub judged_at: Option<DateTime<Utc>>,
}

impl From<SubmissionRow> for SubmissionSummary {
    fn from(row: SubmissionRow) -> Self {
        SubmissionSummary {
            id: row.id,
            external_id: row.external_id,
            user_id: row.user_id,
            problem_id: row.problem_id,
            scope: Scope { contest: row.contest_id, course: row.course_id },
            lane: row.lane,
            state: row.state,
            generation: row.generation,
            verdict: row.verdict,
            verdict_generation: row.verdict_generation,
            time_max_ms: row.time_max_ms,
            time_total_ms: row.time_total_ms,
            memory_max_bytes: row.memory_max_bytes,
            created_at: row.created_at,
            updated_at: row.updated_at,
            judged_at: row.judged_at,
        }
    }
}

/// A case as the judger reported it; what it left out, or wrote as something else, is null.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedCase {
    /// The judger's own word.
    #[schema(example = "WrongAnswer")]
    pub kind: Option<String>,
    /// Milliseconds.
    #[schema(value_type = Option<f64>)]
    pub time: Option<serde_json::Number>,
    /// Bytes.
    #[schema(value_type = Option<f64>)]
    pub memory: Option<serde_json::Number>,
    /// The judger's message.
    pub extra_message: Option<String>,
}

/// The answer to a read.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SubmissionAnswer {
    /// The submission.
    #[serde(flatten)]
    pub summary: SubmissionSummary,
    /// Attempts of the current generation that count against its budget.
    pub attempts_used: i32,
    /// The cases behind what stands.
    pub cases: Vec<ReportedCase>,
    /// What the compiler said of the user's program, behind what stands.
    pub compile_message: Option<String>,
    /// Where it is now, who holds it, what happens next and when.
    #[serde(rename = "where")]
    pub place: Whereabouts,
    /// What happened to it, the oldest first.
    pub timeline: Vec<TimelineEvent>,
}

impl SubmissionAnswer {
    fn of(journey: Journey) -> Self {
        let (place, timeline) = (whereabouts(&journey), timeline(&journey));
        let result = journey.report.as_ref().and_then(|report| report.get("result"));
        let compile_message = result.and_then(|result| result.pointer("/extra/user/compileMessage")?.as_str());
        SubmissionAnswer {
            cases: result.map(reported_cases).unwrap_or_default(),
            compile_message: compile_message.map(str::to_owned),
            attempts_used: journey.submission.attempts_used,
            summary: journey.submission.into(),
            place,
            timeline,
        }
    }
}

fn reported_cases(result: &serde_json::Value) -> Vec<ReportedCase> {
    let text = |case: &serde_json::Value, name: &str| Some(case.get(name)?.as_str()?.to_owned());
    let number = |case: &serde_json::Value, name: &str| case.get(name)?.as_number().cloned();
    let reported = |case| ReportedCase {
        kind: text(case, "kind"),
        time: number(case, "time"),
        memory: number(case, "memory"),
        extra_message: text(case, "extraMessage"),
    };
    result
        .get("cases")
        .and_then(serde_json::Value::as_array)
        .map(|cases| cases.iter().map(reported).collect())
        .unwrap_or_default()
}

/// Reads a submission: what stands, where it is now, who holds it, what happens next and when, and what happened so far.
#[utoipa::path(
    get, path = "/v1/submissions/{id}", tag = "submissions", security(("bearer" = [])),
    params(
        ("id" = Uuid, Path, description = "The submission's id"),
        ("tenant" = Option<String>, Query, description = "Another tenant; only for the environment's administrator token"),
    ),
    responses(
        (status = 200, description = "The submission", body = SubmissionAnswer),
        (status = 401, description = "No valid token", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 403, description = "Another tenant was named", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 404, description = "The tenant has no such submission", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "PostgreSQL does not answer", body = ProblemDetails, content_type = "application/problem+json"),
    )
)]
pub async fn read(api: web::Data<Api>, request: HttpRequest, id: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let caller = caller(&api, &request, Permission::Read).await?;
    let missing = || ApiError::NotFound("submission");
    let id = Uuid::parse_str(&id).map_err(|_| missing())?;
    let journey = api.store(reports::journey(&api.pool, &caller.tenant, id)).await?.ok_or_else(missing)?;
    Ok(HttpResponse::Ok().json(SubmissionAnswer::of(journey)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_shown_as_reported_and_nonsense_as_null() {
        let result = serde_json::json!({"cases": [
            {"kind": "Accepted", "time": 1.5, "memory": 9007199254740993_u64, "extraMessage": "fine", "more": 1},
            {"kind": 1, "time": "2", "memory": null},
            "nonsense",
        ]});
        let shown = serde_json::to_value(reported_cases(&result)).expect("serialises");
        let nothing = serde_json::json!({"kind": null, "time": null, "memory": null, "extraMessage": null});
        let first = serde_json::json!(
            {"kind": "Accepted", "time": 1.5, "memory": 9007199254740993_u64, "extraMessage": "fine"});
        assert_eq!(shown, serde_json::json!([first, nothing, nothing]));
        assert!(reported_cases(&serde_json::json!({"cases": null})).is_empty());
    }
}
