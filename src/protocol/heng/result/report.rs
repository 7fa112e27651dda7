//! What a result says: the verdict or the failure of the judge, times and memory, and a copy that can be stored.
//!
//! Reading never fails. A result that cannot be understood is a failure of the judge, which is tried again elsewhere.

use super::super::super::Verdict;
use super::super::json::{self, Value};
use super::kinds::{Kind, kind_of};
use super::sanitised::sanitise;
use super::{WORD_CHARACTERS_MAX, storable};

/// A judger's message is cut to this many characters inside a reason.
const MESSAGE_CHARACTERS_MAX: usize = 300;

/// What the list of cases says by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Every reported case was accepted; whether there are enough of them depends on the request.
    AllAccepted,
    /// The first case that was not accepted decides, or a compile message without any case.
    Failed(Verdict),
    /// The judge failed; the reason is for people.
    SystemError(String),
}

/// What a finish is for its submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something about the user's program.
    Verdict(Verdict),
    /// Something about the judge: never a verdict, the attempt is made again.
    SystemError(String),
}

/// A result as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the cases say.
    pub decision: Decision,
    /// How many cases were reported.
    pub cases_reported: u32,
    /// The longest time of a case, milliseconds; none when no case has a time.
    pub time_max_ms: Option<i64>,
    /// The times of all cases together, milliseconds; none when no case has a time.
    pub time_total_ms: Option<i64>,
    /// The most memory that a case used, bytes; none when no case has it.
    pub memory_max_bytes: Option<i64>,
    /// The whole body as JSON text that PostgreSQL's jsonb takes. `null` when the body is not JSON.
    pub sanitised: String,
    /// Was anything replaced for that, so that only the raw bytes tell everything?
    pub sanitised_changed: bool,
}

impl Report {
    /// What the result is, given how many cases the request has.
    pub fn outcome(&self, cases_expected: u32) -> Outcome {
        match &self.decision {
            Decision::Failed(verdict) => Outcome::Verdict(*verdict),
            Decision::SystemError(reason) => Outcome::SystemError(reason.clone()),
            Decision::AllAccepted if self.cases_reported >= cases_expected.max(1) => {
                Outcome::Verdict(Verdict::Accepted)
            }
            Decision::AllAccepted => {
                let reported = self.cases_reported;
                Outcome::SystemError(format!("the result has only {reported} of {cases_expected} cases"))
            }
        }
    }
}

/// Reads the body of a finish. Never fails.
pub fn parse_finish(body: &[u8]) -> Report {
    let value = match json::parse(body) {
        Ok(value) => value,
        Err(error) => return unreadable(&error),
    };
    let sanitised = sanitise(&value);
    let result = value.get("result");
    let cases = result.and_then(|result| result.get("cases")).and_then(Value::as_array);
    let listed = cases.unwrap_or_default();
    let times = measured(listed, "time");
    Report {
        decision: decide(result, cases),
        cases_reported: u32::try_from(listed.len()).unwrap_or(u32::MAX),
        time_max_ms: times.clone().max(),
        time_total_ms: times.reduce(i64::saturating_add),
        memory_max_bytes: measured(listed, "memory").max(),
        sanitised: sanitised.text,
        sanitised_changed: sanitised.is_changed || std::str::from_utf8(body).is_err(),
    }
}

fn unreadable(error: &json::ParseError) -> Report {
    Report {
        decision: Decision::SystemError(format!("the result is not JSON: {error}")),
        cases_reported: 0,
        time_max_ms: None,
        time_total_ms: None,
        memory_max_bytes: None,
        sanitised: "null".to_owned(),
        sanitised_changed: true,
    }
}

fn decide(result: Option<&Value>, cases: Option<&[Value]>) -> Decision {
    let Some(cases) = cases else {
        return Decision::SystemError("the result has no list of cases".to_owned());
    };
    if cases.is_empty() {
        return if has_compile_message(result) {
            Decision::Failed(Verdict::CompileError)
        } else {
            Decision::SystemError("the result's list of cases is empty".to_owned())
        };
    }
    for (at, case) in cases.iter().enumerate() {
        let word = case.get("kind").and_then(Value::as_str);
        match word.map_or(Kind::System, kind_of) {
            Kind::Accepted => {}
            Kind::User(verdict) => return Decision::Failed(verdict),
            Kind::System => return Decision::SystemError(system_reason(at, case)),
        }
    }
    Decision::AllAccepted
}

fn has_compile_message(result: Option<&Value>) -> bool {
    let user = result.and_then(|result| result.get("extra")).and_then(|extra| extra.get("user"));
    let message = user.and_then(|user| user.get("compileMessage")).and_then(Value::as_text);
    message.is_some_and(|message| !message.is_empty())
}

fn system_reason(at: usize, case: &Value) -> String {
    let kind = match case.get("kind").and_then(Value::as_text) {
        Some(kind) => storable(kind, WORD_CHARACTERS_MAX),
        None => "without a kind".to_owned(),
    };
    let mut reason = format!("case {} is {kind}", at + 1);
    if let Some(message) = case.get("extraMessage").and_then(Value::as_text).filter(|message| !message.is_empty()) {
        reason.push_str(": ");
        reason.push_str(&storable(message, MESSAGE_CHARACTERS_MAX));
    }
    reason
}

/// A member of the cases that have it as a number.
fn measured<'a>(cases: &'a [Value], name: &'a str) -> impl Iterator<Item = i64> + Clone + 'a {
    let numbers = cases.iter().filter_map(move |case| case.get(name)?.as_number());
    numbers.map(|number| whole(number.as_f64()))
}

/// Rounded up, never negative; the conversion itself stops at the largest number.
fn whole(number: f64) -> i64 {
    number.ceil().max(0.0) as i64
}
