//! Which texts survive `JSON.stringify(JSON.parse(text))` in every language, and what is wrong with the others.
//!
//! Not about what the members mean: only about how they are written.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use super::parser::{Observer, Step, parse_observed};
use super::{Number, Text, Value, print_text, stringify};

/// One thing that is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where: a JSON path such as `$.judge.user.limit.runtime.memory`.
    pub path: String,
    /// The rule that the value breaks, said of the value.
    pub rule: String,
}

impl Problem {
    pub(crate) fn new(path: impl Into<String>, rule: impl Into<String>) -> Problem {
        Problem { path: path.into(), rule: rule.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.rule)
    }
}

/// So many violations are listed one by one; a body of nothing but violations must not blow up its answer.
pub const PROBLEMS_MAX: usize = 500;

/// Longer keys are cut in paths, for the same reason.
const KEY_LENGTH_MAX: usize = 64;

const NOT_PLAIN: &str = "must be a whole number written with digits only, without fraction, exponent or minus zero (1000, not 1e3 or 1000.0)";
const TOO_LARGE: &str =
    "must lie within ±9007199254740991, because JavaScript would change it; send it as a text instead";
const REPEATED: &str = "must appear only once in its object; remove the other members of this name";
const INDEX_KEY: &str =
    "must not be named like an array index, because JavaScript would move it to the front; rename it";
const LONE_SURROGATE: &str = "must not hold half of a surrogate pair; send the whole character or leave it out";
const NOT_UTF8: &str = "must be valid UTF-8; encode the text as UTF-8 before sending it";

/// The value and its canonical text (what JavaScript prints), or everything that keeps the text from being canonical.
///
/// Whitespace and the way characters are escaped are no violations: they vanish in the canonical text.
pub fn canonical(bytes: &[u8]) -> Result<(Value, String), Vec<Problem>> {
    let text = String::from_utf8_lossy(bytes);
    let mut violations = Violations {
        path: "$".to_owned(),
        ends: Vec::new(),
        replaced: replaced_places(bytes),
        found: Vec::new(),
        more: 0,
    };
    match parse_observed(&text, &mut violations) {
        Err(error) => Err(vec![Problem::new("$", format!("must be JSON: {error}"))]),
        Ok(value) if violations.found.is_empty() => {
            let text = stringify(&value);
            Ok((value, text))
        }
        Ok(_) => Err(violations.into_problems()),
    }
}

/// Where in the decoded text the replacement characters stand that the sender did not write.
fn replaced_places(bytes: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        at += chunk.valid().len();
        if !chunk.invalid().is_empty() {
            places.push(at);
            at += char::REPLACEMENT_CHARACTER.len_utf8();
        }
    }
    places
}

struct Violations {
    path: String,
    /// How long the path was before each step.
    ends: Vec<usize>,
    replaced: Vec<usize>,
    found: Vec<Problem>,
    more: usize,
}

impl Violations {
    fn add(&mut self, rule: &str) {
        if self.found.len() < PROBLEMS_MAX {
            self.found.push(Problem::new(self.path.clone(), rule));
        } else {
            self.more += 1;
        }
    }

    fn into_problems(mut self) -> Vec<Problem> {
        if self.more > 0 {
            self.found.push(Problem::new("$", format!("has {} more violations of these rules", self.more)));
        }
        self.found
    }
}

impl Observer for Violations {
    fn enter(&mut self, step: Step<'_>) {
        self.ends.push(self.path.len());
        match step {
            Step::Item(index) => self.path.push_str(&format!("[{index}]")),
            Step::Member(key) => push_member(&mut self.path, &shortened(key)),
        }
    }

    fn leave(&mut self) {
        if let Some(end) = self.ends.pop() {
            self.path.truncate(end);
        }
    }

    fn number(&mut self, number: &Number) {
        let digits = number.literal().strip_prefix('-').unwrap_or(number.literal());
        if number.literal() == "-0" || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            self.add(NOT_PLAIN);
        } else if !digits.parse::<u64>().is_ok_and(|magnitude| magnitude < 1 << 53) {
            self.add(TOO_LARGE);
        }
    }

    fn string(&mut self, span: Range<usize>, text: &Text) {
        if text.as_str().is_none() {
            self.add(LONE_SURROGATE);
        }
        let first_after = self.replaced.partition_point(|place| *place < span.start);
        if self.replaced.get(first_after).is_some_and(|place| span.contains(place)) {
            self.add(NOT_UTF8);
        }
    }

    fn repeated_key(&mut self) {
        self.add(REPEATED);
    }

    fn index_key(&mut self) {
        self.add(INDEX_KEY);
    }
}

fn shortened(key: &Text) -> String {
    let key = key.to_lossy();
    match key.char_indices().nth(KEY_LENGTH_MAX) {
        None => key.into_owned(),
        Some((end, _)) => format!("{}…", &key[..end]),
    }
}

/// Appends a member's step to a JSON path: `.name`, or `["any text"]` where the name is no plain word.
pub(crate) fn push_member(path: &mut String, key: &str) {
    let is_word = !key.is_empty()
        && !key.starts_with(|first: char| first.is_ascii_digit())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_word {
        path.push('.');
        path.push_str(key);
    } else {
        path.push('[');
        print_text(key, path);
        path.push(']');
    }
}
