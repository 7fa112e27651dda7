//! What a judge request is: the controller's rules for it, and our stricter ones at intake.
//!
//! Nothing here sends or stores; and what the judger makes of a request that passes is not judged.

mod intake;
mod rules;
#[cfg(test)]
mod tests;
mod urls;

pub use intake::{
    CALLBACK_URLS_BYTES_MAX, JudgeRequest, JudgeType, REQUEST_BYTES_MAX, RequestFacts, with_callback_urls,
};
pub use rules::{Expected, validate};
pub use urls::{CALLBACK_BASE_BYTES_MAX, callback_host_problem, is_accepted_url};

use super::json::Problem;

/// The rule of a member that the controller does not know.
const UNKNOWN_MEMBER: &str = "should not exist";
/// The rule of a value that should have had members.
const NOT_NESTED: &str = "must be either object or array";
/// The rule of a body that is no object at all.
const UNKNOWN_VALUE: &str = "must be an object";

/// Members that the controller declares as lists, which its message mentions.
const LISTS: [&str; 2] = ["cases", "dynamicFiles"];

impl Problem {
    /// The controller's own message for a problem that [`validate`] found.
    pub fn controller_message(&self) -> String {
        if self.rule == UNKNOWN_VALUE {
            return "an unknown value was passed to the validate function".to_owned();
        }
        let mut steps = steps_of(&self.path);
        let message = match self.rule.as_str() {
            UNKNOWN_MEMBER => format!("property {} {UNKNOWN_MEMBER}", steps.pop().unwrap_or_default()),
            NOT_NESTED => {
                // An item of a list is called by its list's name.
                let is_name = |step: &&String| !step.bytes().all(|byte| byte.is_ascii_digit());
                let name = steps.iter().rfind(is_name).map_or("", String::as_str);
                let each = if LISTS.contains(&name) { "each value in " } else { "" };
                format!("{each}nested property {name} {NOT_NESTED}")
            }
            rule => format!("{} {rule}", steps.pop().unwrap_or_default()),
        };
        steps.push(message);
        steps.join(".")
    }
}

/// The names and indices in a JSON path that [`push_member`](super::json::push_member) built.
fn steps_of(path: &str) -> Vec<String> {
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = if let Some(word) = rest.strip_prefix('.') {
            word.split_at(word.find(['.', '[']).unwrap_or(word.len()))
        } else if rest.starts_with("[\"") {
            rest.split_at(quoted_step_end(rest))
        } else {
            rest.split_at(rest.find(']').map_or(rest.len(), |end| end + 1))
        };
        let bare = step.strip_prefix('[').and_then(|step| step.strip_suffix(']')).unwrap_or(step);
        steps.push(serde_json::from_str(bare).unwrap_or_else(|_| bare.to_owned()));
        rest = after;
    }
    steps
}

/// Where the step `["…"]` at the start of a path ends: after the bracket behind its closing quote.
fn quoted_step_end(path: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in path.bytes().enumerate().skip(2) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return (at + 2).min(path.len()),
            _ => {}
        }
    }
    path.len()
}
