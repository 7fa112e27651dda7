//! The judge: what it finds for a job, and the result it reports. When and how often it is asked is decided elsewhere.

use std::sync::Arc;

use serde::Serialize;

use super::config::{Measurements, Weights};
use super::directive::{Directive, Ruling};
use super::random::Random;
use super::switches::OddBody;
use crate::protocol::Verdict;

/// What the judge has to know of a job.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) kind: Kind,
    /// How many cases the job has.
    pub(super) cases: usize,
    /// Stop at the first case that is not accepted?
    pub(super) fuse: bool,
    /// Milliseconds.
    pub(super) cpu_limit: u64,
    /// Bytes.
    pub(super) memory_limit: u64,
    pub(super) directive: Directive,
}

/// Which programs take part besides the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Special,
    Interactive,
}

#[derive(Serialize)]
struct Finish<'a> {
    result: Report<'a>,
}

#[derive(Serialize)]
struct Report<'a> {
    cases: Vec<Case<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Extra<'a>>,
}

#[derive(Clone, Serialize)]
struct Case<'a> {
    kind: &'static str,
    time: u64,
    memory: u64,
    #[serde(rename = "extraMessage", skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

#[derive(Serialize)]
struct Extra<'a> {
    user: Compilation<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spj: Option<Compilation<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interactor: Option<Compilation<'a>>,
}

#[derive(Clone, Copy, Serialize)]
struct Compilation<'a> {
    #[serde(rename = "compileMessage", skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(rename = "compileTime")]
    time: u64,
}

const WRONG_MESSAGE: &str = "第 2 行：期望 3，实际 4";
const WARNING: &str = "warning: unused variable 'x' — 未使用的变量";
const COMPILE_ERROR: &str = "main.cpp:3:5: error: expected ';' before 'return' — 缺少分号";
const SYSTEM_ERROR: &str = "judger: cannot prepare the sandbox: 设备上没有空间";
const UNJUDGED: Case<'static> = Case { kind: "Unjudged", time: 0, memory: 0, message: None };

/// A judge with its habits.
pub(super) struct Judge<'a> {
    pub(super) weights: &'a Weights,
    pub(super) measurements: Measurements,
}

impl Judge<'_> {
    /// What is found, if the source does not say.
    pub(super) fn rule(&self, task: &Task, random: &mut Random) -> Ruling {
        if let Some(ruling) = task.directive.ruling {
            return ruling;
        }
        let total: u64 = self.weights.verdicts.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut drawn = random.below(total + u64::from(self.weights.system_error));
        for (verdict, weight) in &self.weights.verdicts {
            if drawn < u64::from(*weight) {
                return Ruling::Verdict(*verdict);
            }
            drawn -= u64::from(*weight);
        }
        if self.weights.system_error > 0 { Ruling::SystemError } else { Ruling::Verdict(Verdict::Accepted) }
    }

    /// The body of the finish callback.
    pub(super) fn finish(&self, task: &Task, ruling: Ruling, random: &mut Random) -> Arc<str> {
        let count = task.cases.max(1);
        let report = match ruling {
            Ruling::Unjudged => Report { cases: vec![UNJUDGED; count], extra: None },
            Ruling::SystemError => {
                let case = Case { kind: "SystemError", time: 0, memory: 0, message: Some(SYSTEM_ERROR) };
                Report { cases: vec![case; count], extra: None }
            }
            Ruling::SystemCompileError => self.compile_failure(task, "SystemCompileError", false, random),
            Ruling::Verdict(verdict) if !verdict.is_eligible() => {
                self.compile_failure(task, kind_of(verdict), true, random)
            }
            Ruling::Verdict(verdict) => self.judged(task, verdict, random),
        };
        body_of(&Finish { result: report })
    }

    /// One kind for all cases, and what the compiler said.
    fn compile_failure(&self, task: &Task, kind: &'static str, is_users: bool, random: &mut Random) -> Report<'static> {
        let case = Case { kind, time: 0, memory: 0, message: None };
        let failed = Compilation { message: Some(COMPILE_ERROR), time: self.compile_time(random) };
        let fine = Compilation { message: None, time: self.compile_time(random) };
        let (user, other) = if is_users { (failed, fine) } else { (fine, failed) };
        Report { cases: vec![case; task.cases.max(1)], extra: Some(extra(task.kind, user, other)) }
    }

    fn judged(&self, task: &Task, verdict: Verdict, random: &mut Random) -> Report<'static> {
        let count = task.cases.max(1);
        let special = task.directive.case.filter(|number| *number <= count);
        let mut cases = Vec::with_capacity(count);
        for number in 1..=count {
            let verdict = if special.is_none_or(|special| special == number) { verdict } else { Verdict::Accepted };
            cases.push(self.case(task, verdict, random));
            if verdict != Verdict::Accepted && task.fuse {
                break;
            }
        }
        cases.resize(count, UNJUDGED);
        Report { cases, extra: self.warning(task, verdict, random) }
    }

    fn warning(&self, task: &Task, verdict: Verdict, random: &mut Random) -> Option<Extra<'static>> {
        let is_said = match self.measurements {
            Measurements::Recorded => verdict != Verdict::Accepted,
            Measurements::Drawn => random.happens(0.3),
        };
        is_said.then(|| {
            let user = Compilation { message: Some(WARNING), time: self.compile_time(random) };
            extra(task.kind, user, Compilation { message: None, time: self.compile_time(random) })
        })
    }

    fn case(&self, task: &Task, verdict: Verdict, random: &mut Random) -> Case<'static> {
        let kind = kind_of(verdict);
        if self.measurements == Measurements::Recorded {
            let message = if verdict == Verdict::Accepted { "" } else { WRONG_MESSAGE };
            return Case { kind, time: 15, memory: 1_048_576, message: Some(message) };
        }
        let time = match verdict {
            Verdict::TimeLimitExceeded => task.cpu_limit + 1 + random.below(40),
            _ => 1 + random.below(task.cpu_limit),
        };
        let memory = match verdict {
            Verdict::MemoryLimitExceeded => task.memory_limit + 4096 * random.below(64),
            _ => 1_048_576 + 4096 * random.below(task.memory_limit.saturating_sub(1_048_576) / 4096),
        };
        let message = match verdict {
            Verdict::Accepted => None,
            _ => random.happens(0.5).then_some(WRONG_MESSAGE),
        };
        Case { kind, time, memory, message }
    }

    fn compile_time(&self, random: &mut Random) -> u64 {
        match self.measurements {
            Measurements::Recorded => 321,
            Measurements::Drawn => 80 + random.below(900),
        }
    }
}

/// Something else than `ruling`, for second opinions.
pub(super) fn another(ruling: Ruling) -> Ruling {
    match ruling {
        Ruling::Verdict(Verdict::Accepted) => Ruling::Verdict(Verdict::WrongAnswer),
        _ => Ruling::Verdict(Verdict::Accepted),
    }
}

/// The odd body of a finish; none when this oddity is not about finishes.
pub(super) fn odd_finish(odd: &OddBody, task: &Task) -> Option<Arc<str>> {
    let case = |kind| Case { kind, time: 15, memory: 1_048_576, message: None };
    let list = |cases| body_of(&Finish { result: Report { cases, extra: None } });
    let count = task.cases.max(1);
    Some(match odd {
        OddBody::UnknownState => return None,
        OddBody::Empty => "{}".into(),
        OddBody::NullResult => "{\"result\":null}".into(),
        OddBody::EmptyResult => "{\"result\":{}}".into(),
        OddBody::NoCases => list(Vec::new()),
        OddBody::CaseMissing => list(vec![case("Accepted"); count - 1]),
        OddBody::UnknownKind => list(vec![case("Nonsense"); count]),
        OddBody::Floats => repeated(r#"{"kind":"Accepted","time":1.5,"memory":1048576.25}"#, count),
        OddBody::Negative => repeated(r#"{"kind":"Accepted","time":-1,"memory":-1}"#, count),
        OddBody::Nul => list(vec![Case { message: Some("a\0b"), ..case("WrongAnswer") }; count]),
        OddBody::Huge(size) => huge(*size),
        OddBody::Text(text) => text.as_str().into(),
    })
}

fn repeated(case: &str, count: usize) -> Arc<str> {
    format!("{{\"result\":{{\"cases\":[{}]}}}}", vec![case; count].join(",")).into()
}

fn huge(size: usize) -> Arc<str> {
    let start = r#"{"result":{"cases":[{"kind":"Accepted","time":15,"memory":1048576,"extraMessage":""#;
    let end = r#""}]}}"#;
    let padding = size.saturating_sub(start.len() + end.len());
    [start, &"x".repeat(padding), end].concat().into()
}

fn extra<'a>(kind: Kind, user: Compilation<'a>, other: Compilation<'a>) -> Extra<'a> {
    let spj = (kind == Kind::Special).then_some(other);
    let interactor = (kind == Kind::Interactive).then_some(other);
    Extra { user, spj, interactor }
}

fn body_of(finish: &Finish<'_>) -> Arc<str> {
    // Plain records of text and integers: printing them cannot fail.
    serde_json::to_string(finish).unwrap_or_else(|_| "{}".to_owned()).into()
}

/// The controller's word for a verdict, its misspellings included.
fn kind_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accepted => "Accepted",
        Verdict::WrongAnswer => "WrongAnswer",
        Verdict::PresentationError => "PresentationError",
        Verdict::TimeLimitExceeded => "TimeLimitExceeded",
        Verdict::MemoryLimitExceeded => "MemoryLimitExceeded",
        Verdict::OutputLimitExceeded => "OutpuLimitExceeded",
        Verdict::RuntimeError => "RuntimeError",
        Verdict::CompileError => "CompileError",
        Verdict::CompileTimeLimitExceeded => "CompileTimeLimitExceeded",
        Verdict::CompileMemoryLimitExceeded => "CompileMemoryLimitExceed",
        Verdict::CompileFileLimitExceeded => "CompileFileLimitExceed",
    }
}

#[cfg(test)]
mod tests {
    use super::super::directive;
    use super::*;

    fn finish(source: &str, kind: Kind, cases: usize, fuse: bool) -> serde_json::Value {
        let weights = Weights::only(Verdict::Accepted);
        let judge = Judge { weights: &weights, measurements: Measurements::Drawn };
        let directive = directive::parse(source);
        let task = Task { kind, cases, fuse, cpu_limit: 1000, memory_limit: 64 << 20, directive };
        let mut random = Random::new(7);
        let ruling = judge.rule(&task, &mut random);
        serde_json::from_str(&judge.finish(&task, ruling, &mut random)).unwrap()
    }

    fn kinds(finish: &serde_json::Value) -> Vec<&str> {
        let cases = finish["result"]["cases"].as_array().unwrap();
        cases.iter().map(|case| case["kind"].as_str().unwrap()).collect()
    }

    #[test]
    fn under_fuse_the_cases_after_the_first_failure_are_not_judged() {
        let fused = finish("// verdict: wa, case 2", Kind::Normal, 4, true);
        assert_eq!(kinds(&fused), ["Accepted", "WrongAnswer", "Unjudged", "Unjudged"]);
        assert_eq!(fused["result"]["cases"][3], serde_json::json!({"kind": "Unjudged", "time": 0, "memory": 0}));
        let all = finish("// verdict: wa, case 2", Kind::Normal, 4, false);
        assert_eq!(kinds(&all), ["Accepted", "WrongAnswer", "Accepted", "Accepted"]);
    }

    #[test]
    fn a_compile_failure_repeats_one_kind_and_says_what_the_compiler_said() {
        let failed = finish("// verdict: compile_error", Kind::Normal, 3, false);
        assert_eq!(kinds(&failed), ["CompileError"; 3]);
        assert!(failed["result"]["extra"]["user"]["compileMessage"].as_str().unwrap().contains("error"));
    }

    #[test]
    fn the_checkers_compilation_is_reported_beside_the_users() {
        let failed = finish("// verdict: system_compile_error", Kind::Special, 1, false);
        let extra = &failed["result"]["extra"];
        assert!(extra["spj"]["compileMessage"].is_string() && extra["user"]["compileMessage"].is_null());
        assert!(extra["interactor"].is_null());
        let failed = finish("// verdict: ce", Kind::Interactive, 1, false);
        assert!(failed["result"]["extra"]["interactor"]["compileTime"].is_u64());
    }

    #[test]
    fn a_failure_of_the_judge_has_its_text_in_every_case_and_no_extra() {
        let failed = finish("// verdict: system_error", Kind::Normal, 2, true);
        assert_eq!(kinds(&failed), ["SystemError", "SystemError"]);
        assert!(failed["result"]["extra"].is_null());
    }

    #[test]
    fn a_job_without_cases_gets_one() {
        assert_eq!(kinds(&finish("", Kind::Normal, 0, false)), ["Accepted"]);
    }

    #[test]
    fn a_huge_body_has_exactly_the_wanted_size() {
        assert_eq!(huge(1000).len(), 1000);
    }
}
