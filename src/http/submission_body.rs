//! What a caller sends to make submissions, checked completely: every problem is found in one go.
//!
//! It stores nothing, and what a judge request must look like is the protocol's business.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use uuid::Uuid;

use super::error::InvalidMember;
use super::members::Members;
use crate::protocol::SubmissionId;
use crate::protocol::heng::json::PROBLEMS_MAX;
use crate::protocol::heng::request::JudgeRequest;
use crate::store::submissions::NewSubmission;

/// Most items of a batch.
pub const BATCH_ITEMS_MAX: usize = 500;

/// So many problems of one item of a batch are listed one by one.
const ITEM_PROBLEMS_MAX: usize = 50;

/// The longest idempotency key, in characters.
const KEY_CHARACTERS_MAX: usize = 255;

const SINGLE_MEMBERS: &[&str] = &["problem_id", "user_id", "scope", "lane", "external_id", "request"];
const ITEM_MEMBERS: &[&str] = &["idempotency_key", "problem_id", "user_id", "scope", "lane", "external_id", "request"];

/// The form of a submission's body, for the documentation; it is read member by member, to find all problems.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmissionBody {
    /// The judge's id of the problem.
    #[schema(min_length = 1, max_length = 128)]
    pub problem_id: String,
    /// The judge's id of the user. One user's many submissions never delay another user's.
    #[schema(min_length = 1, max_length = 128)]
    pub user_id: String,
    /// In which contest or course it counts.
    pub scope: Option<Scope>,
    /// The lane to wait in; `contest` for submissions of a contest, else `default`.
    pub lane: Option<String>,
    /// The judge's own id of the submission; it comes back in every event.
    #[schema(min_length = 1, max_length = 128)]
    pub external_id: Option<String>,
    /// A judge request as heng-controller takes it, without `callbackUrls`.
    #[schema(value_type = Object)]
    pub request: Box<RawValue>,
}

/// Where a submission counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scope {
    /// The judge's id of the contest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contest: Option<String>,
    /// The judge's id of the course.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub course: Option<String>,
}

/// The form of a batch's body, for the documentation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchBody {
    /// 1 to 500 submissions, each answered on its own.
    #[schema(min_items = 1, max_items = 500)]
    pub items: Vec<BatchItemBody>,
}

/// The form of one item of a batch, for the documentation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchItemBody {
    /// What the header Idempotency-Key is for a single submission.
    #[schema(min_length = 1, max_length = 255)]
    pub idempotency_key: String,
    /// The submission.
    #[serde(flatten)]
    pub submission: SubmissionBody,
}

/// A submission that may be stored, or everything that is wrong with it.
pub(super) type Checked = Result<NewSubmission, Vec<InvalidMember>>;

/// Checks the body of a single submission, whose key came in a header.
pub(super) fn single(raw: &RawValue, key: Result<String, InvalidMember>, lanes: &[String]) -> Checked {
    match Members::of(raw, "$", SINGLE_MEMBERS) {
        Ok(mut members) => {
            let key = key.map_err(|problem| members.report_all(vec![problem])).ok();
            submission(members, key, lanes).map_err(|problems| bounded(problems, PROBLEMS_MAX, "$"))
        }
        Err(problem) => Err(key.err().into_iter().chain([problem]).collect()),
    }
}

/// Checks the body of a batch: each item on its own. The error is of the batch as a whole.
pub(super) fn batch(raw: &RawValue, lanes: &[String]) -> Result<Vec<Checked>, Vec<InvalidMember>> {
    let mut members = Members::of(raw, "$", &["items"]).map_err(|problem| vec![problem])?;
    let mut items: Vec<&RawValue> = Vec::new();
    if let Some(raw) = members.required_raw("items") {
        match serde_json::from_str::<Vec<&RawValue>>(raw.get()) {
            Ok(list) if (1..=BATCH_ITEMS_MAX).contains(&list.len()) => items = list,
            Ok(list) => {
                members.report("items", format!("must have 1 to {BATCH_ITEMS_MAX} items (it has {})", list.len()))
            }
            Err(_) => members.report("items", "must be a list"),
        }
    }
    let problems = members.into_problems();
    if !problems.is_empty() {
        return Err(problems);
    }
    let checked = |(at, raw): (usize, &&RawValue)| {
        let path = format!("$.items[{at}]");
        item(raw, &path, lanes).map_err(|problems| bounded(problems, ITEM_PROBLEMS_MAX, &path))
    };
    Ok(items.iter().enumerate().map(checked).collect())
}

/// The first `max` problems and how many more there are: an answer must not grow with the nonsense in its request.
fn bounded(mut problems: Vec<InvalidMember>, max: usize, path: &str) -> Vec<InvalidMember> {
    if problems.len() > max {
        let more = problems.len() - max;
        problems.truncate(max);
        problems.push(InvalidMember::new(path, format!("has {more} more problems")));
    }
    problems
}

fn item(raw: &RawValue, path: &str, lanes: &[String]) -> Checked {
    let mut members = Members::of(raw, path, ITEM_MEMBERS).map_err(|problem| vec![problem])?;
    let key = members.required_raw("idempotency_key").and_then(|_| members.text("idempotency_key"));
    let rule = key.as_deref().and_then(key_problem);
    if let Some(rule) = rule {
        members.report("idempotency_key", rule);
    }
    submission(members, key, lanes)
}

/// The rule that an idempotency key breaks.
pub(super) fn key_problem(key: &str) -> Option<&'static str> {
    let is_sound = (1..=KEY_CHARACTERS_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    (!is_sound).then_some("must be 1 to 255 visible ASCII characters")
}

/// `key` is none when it was reported already.
fn submission(mut members: Members<'_>, key: Option<String>, lanes: &[String]) -> Checked {
    let problem_id = members.required_id("problem_id");
    let user_id = members.required_id("user_id");
    let external_id = members.id("external_id");
    let scope = scope(&mut members);
    let contest_id = scope.as_ref().and_then(|scope| scope.contest.clone());
    let course_id = scope.and_then(|scope| scope.course);
    let lane = lane(&mut members, contest_id.is_some(), lanes);
    let request = request(&mut members);
    let problems = members.into_problems();
    match (problems.is_empty(), key, problem_id, user_id, request) {
        (true, Some(idempotency_key), Some(problem_id), Some(user_id), Some(request)) => {
            let saturated = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
            let mut new = NewSubmission {
                id: SubmissionId(Uuid::now_v7()),
                idempotency_key,
                body_hash: [0; 32],
                external_id,
                user_id,
                problem_id,
                contest_id,
                course_id,
                lane,
                request: request.text,
                case_count: saturated(request.facts.cases),
                cpu_time_ms: saturated(request.facts.cpu_time_ms),
                compile_time_ms: saturated(request.facts.compile_time_ms),
            };
            new.body_hash = body_hash(&new);
            Ok(new)
        }
        _ => Err(problems),
    }
}

fn scope(members: &mut Members<'_>) -> Option<Scope> {
    let raw = members.raw("scope")?;
    match Members::of(raw, &members.path_of("scope"), &["contest", "course"]) {
        Err(problem) => {
            members.report_all(vec![problem]);
            None
        }
        Ok(mut inner) => {
            if inner.raw("contest").is_none() && inner.raw("course").is_none() {
                members.report("scope", "must name a contest, a course, or both; leave it out for neither");
            }
            let scope = Scope { contest: inner.id("contest"), course: inner.id("course") };
            members.report_all(inner.into_problems());
            Some(scope)
        }
    }
}

fn lane(members: &mut Members<'_>, is_of_contest: bool, lanes: &[String]) -> String {
    let default = if is_of_contest { "contest" } else { "default" };
    let lane = match members.raw("lane") {
        None => default.to_owned(),
        Some(_) => members.text("lane").unwrap_or_else(|| default.to_owned()),
    };
    if !lanes.contains(&lane) {
        members.report("lane", unknown_lane(lanes));
    }
    lane
}

/// The rule that a lane's name breaks which is none.
pub(super) fn unknown_lane(lanes: &[String]) -> String {
    format!("must be one of the lanes: {}", lanes.join(", "))
}

fn request(members: &mut Members<'_>) -> Option<JudgeRequest> {
    // A request that is null is for the protocol to refuse, but one that is missing is not there to be read.
    let raw = members.required_raw("request")?;
    match JudgeRequest::parse(raw.get().as_bytes()) {
        Ok(request) => Some(request),
        Err(problems) => {
            let prefix = members.path_of("request");
            members.report_all(problems.into_iter().map(|problem| InvalidMember::below(&prefix, problem)).collect());
            None
        }
    }
}

/// SHA-256 over everything that makes a submission this one and no other. Each field is preceded by its length, so that no
/// two different submissions have one rendering.
fn body_hash(new: &NewSubmission) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"judge-relay submission 1");
    let fields: [Option<&str>; 7] = [
        Some(&new.problem_id),
        Some(&new.user_id),
        new.contest_id.as_deref(),
        new.course_id.as_deref(),
        Some(&new.lane),
        new.external_id.as_deref(),
        Some(&new.request),
    ];
    for field in fields {
        match field {
            None => hash.update([0]),
            Some(text) => {
                hash.update([1]);
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text.as_bytes());
            }
        }
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> NewSubmission {
        NewSubmission {
            id: SubmissionId(Uuid::nil()),
            idempotency_key: "k".to_owned(),
            body_hash: [0; 32],
            external_id: None,
            user_id: "u".to_owned(),
            problem_id: "p".to_owned(),
            contest_id: None,
            course_id: None,
            lane: "default".to_owned(),
            request: "{}".to_owned(),
            case_count: 1,
            cpu_time_ms: 1,
            compile_time_ms: 1,
        }
    }

    #[test]
    fn every_field_of_a_submission_is_in_its_hash() {
        let some = || Some("x".to_owned());
        let others = [
            NewSubmission { external_id: some(), ..base() },
            NewSubmission { user_id: "x".to_owned(), ..base() },
            NewSubmission { problem_id: "x".to_owned(), ..base() },
            NewSubmission { contest_id: some(), ..base() },
            NewSubmission { course_id: some(), ..base() },
            NewSubmission { lane: "x".to_owned(), ..base() },
            NewSubmission { request: "x".to_owned(), ..base() },
            NewSubmission { problem_id: "pu".to_owned(), user_id: String::new(), ..base() },
            base(),
        ];
        let hashes: std::collections::HashSet<[u8; 32]> = others.iter().map(body_hash).collect();
        assert_eq!(hashes.len(), others.len());
    }

    #[test]
    fn the_hash_does_not_depend_on_the_key_or_the_id() {
        let other = NewSubmission { id: SubmissionId(Uuid::max()), idempotency_key: "other".to_owned(), ..base() };
        assert_eq!(body_hash(&base()), body_hash(&other));
    }

    #[test]
    fn the_problems_of_a_request_are_bounded_and_the_rest_is_counted() {
        let cases = vec!["{}"; 5_000].join(",");
        let request = format!("{{\"request\":{{\"test\":{{\"cases\":[{cases}]}}}}}}");
        let raw: Box<RawValue> = serde_json::from_str(&format!("{{\"items\":[{request},{request}]}}")).expect("JSON");
        for (at, item) in batch(&raw, &[]).expect("two items").into_iter().enumerate() {
            let problems = item.expect_err("refused");
            assert_eq!(problems.len(), ITEM_PROBLEMS_MAX + 1);
            assert_eq!(problems[ITEM_PROBLEMS_MAX].path, format!("$.items[{at}]"));
        }
        let raw: Box<RawValue> = serde_json::from_str(&request).expect("JSON");
        let problems = single(&raw, Ok("k".to_owned()), &[]).expect_err("refused");
        assert_eq!(problems.len(), PROBLEMS_MAX + 1);
    }

    #[test]
    fn keys_are_visible_ascii() {
        for bad in ["", " ", "a b", "é", "a\n", &"k".repeat(256)] {
            assert!(key_problem(bad).is_some(), "{bad:?}");
        }
        assert_eq!(key_problem(&"~".repeat(255)), None);
    }
}
