//! `GET /v1/submissions`: lists, newest first, page by page, without gaps or repeats while submissions come in.
//!
//! A page ends where the next begins: at an id. Nothing counts rows or skips them.

use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use url::form_urlencoded;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Api;
use super::auth::{Permission, caller};
use super::error::{ApiError, InvalidMember, ProblemDetails};
use super::query::{Query, problem, single_id};
use super::reads::SubmissionSummary;
use crate::protocol::Verdict;
use crate::protocol::submission::State;
use crate::store::reports::{self, Filter};

const PARAMETERS: &[&str] =
    &["user_id", "problem_id", "contest_id", "external_id", "state", "verdict", "limit", "after", "tenant"];

const LIMIT_DEFAULT: i64 = 50;
const LIMIT_MAX: i64 = 200;

/// A page of submissions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubmissionList {
    /// The submissions, newest first.
    pub items: Vec<SubmissionSummary>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
    /// The address of the next page; null on the last one.
    pub next_url: Option<String>,
}

/// What a page is made of.
#[derive(Debug, Default)]
struct Page {
    filter: Filter,
    limit: i64,
}

/// Lists submissions of the tenant, newest first. All conditions that are given must hold.
#[utoipa::path(
    get, path = "/v1/submissions", tag = "submissions", security(("bearer" = [])),
    params(
        ("user_id" = Option<String>, Query, description = "Of this user"),
        ("problem_id" = Option<String>, Query, description = "For this problem"),
        ("contest_id" = Option<String>, Query, description = "In this contest"),
        ("external_id" = Option<String>, Query, description = "With this id of the judge's own"),
        ("state" = Option<String>, Query, description = "pending, judging, judged, parked or cancelled"),
        ("verdict" = Option<String>, Query, description = "With this standing verdict"),
        ("limit" = Option<i64>, Query, description = "Items of a page, 1 to 200; 50 if it is not given"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("tenant" = Option<String>, Query, description = "Another tenant; only for the environment's administrator token"),
    ),
    responses(
        (status = 200, description = "A page", body = SubmissionList),
        (status = 401, description = "No valid token", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 403, description = "Another tenant was named", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 422, description = "Every bad parameter", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "PostgreSQL does not answer", body = ProblemDetails, content_type = "application/problem+json"),
    )
)]
pub async fn list(api: web::Data<Api>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let caller = caller(&api, &request, Permission::Read).await?;
    let page = Page::of(&Query::parse(request.query_string())).map_err(ApiError::Invalid)?;
    // One more than asked for tells whether there is a next page.
    let mut rows = api.store(reports::list(&api.pool, &caller.tenant, &page.filter, page.limit + 1)).await?;
    let length = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let has_next = rows.len() > length;
    rows.truncate(length);
    let next = rows.last().filter(|_| has_next).map(|row| cursor_of(row.id));
    let next_url = next.as_deref().map(|cursor| address_after(request.query_string(), cursor));
    let items = rows.into_iter().map(SubmissionSummary::from).collect();
    Ok(HttpResponse::Ok().json(SubmissionList { items, next, next_url }))
}

impl Page {
    fn of(query: &Query) -> Result<Page, Vec<InvalidMember>> {
        let mut problems = query.strangers(PARAMETERS);
        let mut kept = |found: Result<Option<String>, InvalidMember>| {
            found.unwrap_or_else(|problem| {
                problems.push(problem);
                None
            })
        };
        let filter = Filter {
            user_id: kept(single_id(query, "user_id")),
            problem_id: kept(single_id(query, "problem_id")),
            contest_id: kept(single_id(query, "contest_id")),
            external_id: kept(single_id(query, "external_id")),
            state: kept(word(query, "state", &State::ALL.map(State::as_str))),
            verdict: kept(word(query, "verdict", &Verdict::ALL.map(Verdict::as_str))),
            before: None,
        };
        let before = cursor(query).map_err(|problem| problems.push(problem)).ok().flatten();
        let limit = limit(query).map_err(|problem| problems.push(problem)).unwrap_or(LIMIT_DEFAULT);
        if problems.is_empty() { Ok(Page { filter: Filter { before, ..filter }, limit }) } else { Err(problems) }
    }
}

fn word(query: &Query, name: &str, words: &[&str]) -> Result<Option<String>, InvalidMember> {
    match query.single(name)? {
        Some(value) if !words.contains(&value) => Err(problem(name, format!("must be one of: {}", words.join(", ")))),
        value => Ok(value.map(str::to_owned)),
    }
}

fn limit(query: &Query) -> Result<i64, InvalidMember> {
    let Some(text) = query.single("limit")? else { return Ok(LIMIT_DEFAULT) };
    let number = text.parse().ok().filter(|number| (1..=LIMIT_MAX).contains(number));
    number.ok_or_else(|| problem("limit", format!("must be a whole number between 1 and {LIMIT_MAX}")))
}

/// Opaque, so that nobody builds on what is in it.
fn cursor_of(id: Uuid) -> String {
    URL_SAFE_NO_PAD.encode(id.as_bytes())
}

fn cursor(query: &Query) -> Result<Option<Uuid>, InvalidMember> {
    let Some(text) = query.single("after")? else { return Ok(None) };
    let id = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| Uuid::from_slice(&bytes).ok());
    id.map(Some).ok_or_else(|| problem("after", "must be the value of `next` of an earlier page"))
}

/// The same list from behind a cursor on.
fn address_after(query: &str, cursor: &str) -> String {
    let kept = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name != "after");
    let query =
        form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).append_pair("after", cursor).finish();
    format!("/v1/submissions?{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(query: &str) -> Vec<String> {
        Page::of(&Query::parse(query)).expect_err("refused").into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn every_bad_parameter_is_named_at_once() {
        let query = "user_id=&state=nowhere&verdict=fine&limit=0&after=%21&unknown=1&problem_id=a&problem_id=b";
        let expected = ["unknown", "user_id", "problem_id", "state", "verdict", "after", "limit"];
        assert_eq!(named(query), expected.map(|name| format!("query {name}")));
        for limit in ["0", "201", "-1", "x", "1.5", ""] {
            assert_eq!(named(&format!("limit={limit}")), ["query limit"]);
        }
    }

    #[test]
    fn the_next_page_keeps_the_conditions() {
        let id = Uuid::from_u128(9);
        let address = address_after("user_id=a+b&after=old&limit=2", &cursor_of(id));
        let page = Page::of(&Query::parse(address.split_once('?').expect("a query").1)).expect("sound");
        assert_eq!((page.filter.user_id.as_deref(), page.filter.before, page.limit), (Some("a b"), Some(id), 2));
    }

    #[test]
    fn nothing_is_required() {
        let page = Page::of(&Query::parse("")).expect("sound");
        assert_eq!((page.filter, page.limit), (Filter::default(), LIMIT_DEFAULT));
    }
}
