//! Requests as we take, keep and send them: canonical text without callback URLs, and what we have to know of it.
//!
//! No compilation of a request from parts: whoever submits writes the controller's own format.

use super::super::json::{Problem, Value, canonical, print_text};
use super::super::signing::BODY_BYTES_MAX;
use super::rules::{Expected, validate};

/// Kept free for the callback URLs that are added when a request is sent.
pub const CALLBACK_URLS_BYTES_MAX: usize = 1_024;

/// The largest canonical text of a request, without its callback URLs.
pub const REQUEST_BYTES_MAX: usize = BODY_BYTES_MAX - CALLBACK_URLS_BYTES_MAX;

/// The member that is ours to add.
const CALLBACK_URLS: &str = "callbackUrls";

/// A request that the controller will accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgeRequest {
    /// The canonical text, without callback URLs: what is stored.
    pub text: String,
    /// What the scheduling needs to know.
    pub facts: RequestFacts,
}

impl JudgeRequest {
    /// Checks and canonicalises a request; lists everything that is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<JudgeRequest, Vec<Problem>> {
        let (value, text) = canonical(bytes)?;
        let mut problems: Vec<Problem> = validate(&value, Expected::Absent).into_iter().map(in_our_words).collect();
        problems.extend(broken_for_the_judger(&value));
        if text.len() > REQUEST_BYTES_MAX {
            problems.push(too_large(text.len()));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        match RequestFacts::of(&value) {
            Ok(facts) => Ok(JudgeRequest { text, facts }),
            Err(problem) => Err(vec![problem]),
        }
    }
}

fn in_our_words(problem: Problem) -> Problem {
    let is_callback_urls = problem.path == format!("$.{CALLBACK_URLS}");
    let rule = if is_callback_urls { "must be left out: judge-relay adds it".to_owned() } else { problem.rule };
    Problem { path: problem.path, rule }
}

fn too_large(size: usize) -> Problem {
    let rule = format!(
        "must have at most {REQUEST_BYTES_MAX} bytes as compact JSON (it has {size}); give large sources and data as \
         files of type \"url\""
    );
    Problem::new("$", rule)
}

const A_LIST: &str = "must be a list: the controller accepts anything else here, and the judger fails on it";
const AN_OBJECT: &str = "must be an object: the controller accepts anything else here, and the judger fails on it";

/// What the controller lets pass although the judger cannot work with it.
fn broken_for_the_judger(body: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    for path in [&["test", "cases"][..], &["dynamicFiles"][..]] {
        match at(body, path) {
            Some(Value::Object(_)) => problems.push(Problem::new(dotted(path), A_LIST)),
            Some(Value::Array(items)) => {
                let lists = items.iter().enumerate().filter(|(_, item)| item.as_array().is_some());
                problems.extend(lists.map(|(index, _)| Problem::new(format!("{}[{index}]", dotted(path)), AN_OBJECT)));
            }
            _ => {}
        }
    }
    if let Some(Value::Array(files)) = body.get("dynamicFiles") {
        let lists = files.iter().enumerate().filter(|(_, file)| file.get("file").is_some_and(is_list));
        let problem = |index: usize| Problem::new(format!("$.dynamicFiles[{index}].file"), AN_OBJECT);
        problems.extend(lists.map(|(index, _)| problem(index)));
    }
    let executables = ["user", "spj", "interactor"].map(|name| ["judge", name]);
    let parts: [&[&str]; 6] =
        [&[], &["source"], &["environment"], &["limit"], &["limit", "runtime"], &["limit", "compiler"]];
    let in_executables = executables.iter().flat_map(|start| parts.map(|part| [&start[..], part].concat()));
    let objects = [vec!["data"], vec!["judge"], vec!["test"]].into_iter().chain(in_executables);
    let lists = objects.filter(|path| at(body, path).is_some_and(is_list));
    problems.extend(lists.map(|path| Problem::new(dotted(&path), AN_OBJECT)));
    problems
}

fn is_list(value: &Value) -> bool {
    value.as_array().is_some()
}

fn at<'a>(body: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(body, |value, name| value.get(name))
}

fn dotted(path: &[&str]) -> String {
    format!("$.{}", path.join("."))
}

/// How a judging decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgeType {
    /// The output is compared.
    Normal,
    /// A special judge program reads the output.
    Special,
    /// The program talks with an interactor.
    Interactive,
}

/// What has to be known of a request to schedule it and to judge its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// How many cases the list has; may be 0.
    pub cases: u32,
    /// CPU limit of the user's program for one case, milliseconds.
    pub cpu_time_ms: u32,
    /// CPU limit of the user's compiler, milliseconds.
    pub compile_time_ms: u32,
    /// How the judging decides.
    pub judge_type: JudgeType,
}

impl RequestFacts {
    /// Reads a stored text that did not have to pass our intake, and reports the first problem with its path.
    ///
    /// Such a text must be canonical already, because it is signed as it stands. To take a text that is not, parse it
    /// with [`JudgeRequest::parse`] and send what that returns.
    pub fn read(text: &str) -> Result<RequestFacts, Problem> {
        let first = |problems: Vec<Problem>| {
            problems.into_iter().next().unwrap_or_else(|| Problem::new("$", "must be a judge request"))
        };
        let request = JudgeRequest::parse(text.as_bytes()).map_err(first)?;
        if request.text != text {
            let rule = "must be stored as compact JSON exactly as JavaScript prints it: no spaces, plain escapes";
            return Err(Problem::new("$", rule));
        }
        Ok(request.facts)
    }

    fn of(body: &Value) -> Result<RequestFacts, Problem> {
        let missing = |path: &[&str]| Problem::new(dotted(path), "must be given");
        let judge_type = match at(body, &["judge", "type"]).and_then(Value::as_str) {
            Some("normal") => JudgeType::Normal,
            Some("special") => JudgeType::Special,
            Some("interactive") => JudgeType::Interactive,
            _ => return Err(missing(&["judge", "type"])),
        };
        let cases = at(body, &["test", "cases"]).and_then(Value::as_array).map(|cases| u32::try_from(cases.len()));
        let Some(Ok(cases)) = cases else {
            return Err(missing(&["test", "cases"]));
        };
        let milliseconds = |path: &[&str]| {
            let number = at(body, path).and_then(Value::as_number);
            number.and_then(|number| number.literal().parse::<u32>().ok()).ok_or_else(|| missing(path))
        };
        Ok(RequestFacts {
            cases,
            cpu_time_ms: milliseconds(&["judge", "user", "limit", "runtime", "cpuTime"])?,
            compile_time_ms: milliseconds(&["judge", "user", "limit", "compiler", "cpuTime"])?,
            judge_type,
        })
    }
}

/// The text to send: the canonical text with the callback URLs as its last member, canonical again.
///
/// `text` must be the canonical text of an object without that member.
pub fn with_callback_urls(text: &str, update: &str, finish: &str) -> String {
    let open = text.strip_suffix('}').unwrap_or(text);
    let mut out = String::with_capacity(text.len() + CALLBACK_URLS_BYTES_MAX);
    out.push_str(open);
    if open != "{" {
        out.push(',');
    }
    out.push_str("\"callbackUrls\":{\"update\":");
    print_text(update, &mut out);
    out.push_str(",\"finish\":");
    print_text(finish, &mut out);
    out.push_str("}}");
    out
}
