//! Results as judgers send them, and worse.

use proptest::prelude::*;

use super::super::super::Verdict;
use super::super::json::tests::any_json;
use super::*;

const TRAFFIC: &str = include_str!("../../../../tests/fixtures/heng-traffic.txt");

fn report(text: &str) -> Report {
    parse_finish(text.as_bytes())
}

fn outcome(text: &str, cases_expected: u32) -> Outcome {
    report(text).outcome(cases_expected)
}

fn cases(kinds: &[&str]) -> String {
    let cases: Vec<String> = kinds.iter().map(|kind| format!(r#"{{"kind":"{kind}","time":1,"memory":2}}"#)).collect();
    format!(r#"{{"result":{{"cases":[{}]}}}}"#, cases.join(","))
}

fn is_system_error(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::SystemError(reason) if !reason.is_empty())
}

#[test]
fn every_word_of_the_wire_has_its_meaning() {
    for (kind, verdict) in [
        ("Accepted", Verdict::Accepted),
        ("WrongAnswer", Verdict::WrongAnswer),
        ("PresentationError", Verdict::PresentationError),
        ("TimeLimitExceeded", Verdict::TimeLimitExceeded),
        ("MemoryLimitExceeded", Verdict::MemoryLimitExceeded),
        ("OutpuLimitExceeded", Verdict::OutputLimitExceeded),
        ("OutputLimitExceeded", Verdict::OutputLimitExceeded),
        ("RuntimeError", Verdict::RuntimeError),
        ("CompileError", Verdict::CompileError),
        ("CompileTimeLimitExceeded", Verdict::CompileTimeLimitExceeded),
        ("CompileMemoryLimitExceed", Verdict::CompileMemoryLimitExceeded),
        ("CompileMemoryLimitExceeded", Verdict::CompileMemoryLimitExceeded),
        ("CompileFileLimitExceed", Verdict::CompileFileLimitExceeded),
        ("CompileFileLimitExceeded", Verdict::CompileFileLimitExceeded),
    ] {
        assert_eq!(outcome(&cases(&[kind]), 1), Outcome::Verdict(verdict), "{kind}");
    }
    for kind in [
        "SystemError",
        "SystemTimeLimitExceed",
        "SystemMemoryLimitExceed",
        "SystemOutpuLimitExceeded",
        "SystemRuntimeError",
        "SystemCompileError",
        "Unjudged",
        "SomethingNew",
        "accepted",
        "ACCEPTED",
        "",
    ] {
        assert!(is_system_error(&outcome(&cases(&[kind]), 1)), "{kind}");
    }
}

#[test]
fn the_first_case_that_is_not_accepted_decides() {
    let fused = cases(&["Accepted", "WrongAnswer", "Unjudged", "Unjudged"]);
    assert_eq!(outcome(&fused, 4), Outcome::Verdict(Verdict::WrongAnswer));
    assert_eq!(outcome(&cases(&["WrongAnswer"]), 4), Outcome::Verdict(Verdict::WrongAnswer));
    assert!(is_system_error(&outcome(&cases(&["Accepted", "SystemError", "WrongAnswer"]), 3)));
    assert!(is_system_error(&outcome(&cases(&["Unjudged", "WrongAnswer"]), 2)));
}

#[test]
fn accepted_needs_as_many_cases_as_the_request_has_and_at_least_one() {
    let two = cases(&["Accepted", "Accepted"]);
    assert_eq!(outcome(&two, 2), Outcome::Verdict(Verdict::Accepted));
    assert_eq!(outcome(&two, 0), Outcome::Verdict(Verdict::Accepted));
    assert_eq!(outcome(&two, 3), Outcome::SystemError("the result has only 2 of 3 cases".to_owned()));
    assert!(is_system_error(&outcome(&cases(&[]), 0)));
}

#[test]
fn an_empty_list_with_a_compile_message_is_a_compile_error() {
    let with = |cases: &str, extra: &str| format!(r#"{{"result":{{"cases":{cases},"extra":{extra}}}}}"#);
    let message = r#"{"user":{"compileMessage":"x.c:1: error"}}"#;
    assert_eq!(outcome(&with("[]", message), 3), Outcome::Verdict(Verdict::CompileError));
    let broken = r#"{"user":{"compileMessage":"\ud800"}}"#;
    assert_eq!(outcome(&with("[]", broken), 3), Outcome::Verdict(Verdict::CompileError));
    for (cases, extra) in [
        ("[]", r#"{"user":{"compileMessage":""}}"#),
        ("[]", r#"{"user":{"compileMessage":null}}"#),
        ("[]", r#"{"spj":{"compileMessage":"x"}}"#),
        ("[]", "null"),
        ("null", message),
        ("{}", message),
        (r#"[{"kind":"Unjudged"}]"#, message),
    ] {
        assert!(is_system_error(&outcome(&with(cases, extra), 1)), "{cases} {extra}");
    }
    let warned = with(r#"[{"kind":"Accepted"}]"#, message);
    assert_eq!(outcome(&warned, 1), Outcome::Verdict(Verdict::Accepted), "a warning is no error");
}

#[test]
fn odd_bodies_are_system_errors_and_never_verdicts() {
    for body in [
        "",
        "{}",
        "null",
        "[]",
        "7",
        "{\"result\":null}",
        "{\"result\":{}}",
        "{\"result\":[]}",
        "{\"result\":{\"cases\":null}}",
        "{\"result\":{\"cases\":[]}}",
        "{\"result\":{\"cases\":{\"kind\":\"Accepted\"}}}",
        "{\"result\":{\"cases\":[null]}}",
        "{\"result\":{\"cases\":[{}]}}",
        "{\"result\":{\"cases\":[{\"kind\":null}]}}",
        "{\"result\":{\"cases\":[{\"kind\":7}]}}",
        "{\"result\":{\"cases\":[{\"kind\":\"Acc\\ud800\"}]}}",
        "{\"result\":{\"cases\":[[{\"kind\":\"Accepted\"}]]}}",
        "{\"cases\":[{\"kind\":\"Accepted\"}]}",
        "<html>",
        "{\"result\":",
        "\0",
    ] {
        let report = report(body);
        assert!(is_system_error(&report.outcome(0)) && is_system_error(&report.outcome(1)), "{body}");
        serde_json::from_str::<serde_json::Value>(&report.sanitised).expect("JSON");
        let Outcome::SystemError(reason) = report.outcome(1) else { unreachable!() };
        assert!(!reason.contains('\0'), "{body:?}");
    }
    let deep = format!("{{\"result\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(is_system_error(&outcome(&deep, 1)));
}

#[test]
fn the_reason_of_a_system_error_tells_what_the_judger_said() {
    let body =
        r#"{"result":{"cases":[{"kind":"Accepted"},{"kind":"SystemError","extraMessage":"no disk\u0000\ud800"}]}}"#;
    assert_eq!(outcome(body, 2), Outcome::SystemError("case 2 is SystemError: no disk\u{fffd}\u{fffd}".to_owned()));
    let long = format!(r#"{{"result":{{"cases":[{{"kind":"{0}","extraMessage":"{0}"}}]}}}}"#, "字".repeat(5_000));
    let Outcome::SystemError(reason) = outcome(&long, 1) else { panic!("a verdict") };
    assert!(reason.chars().count() < 400);
}

#[test]
fn times_and_memory_are_read_leniently() {
    let report = report(
        r#"{"result":{"cases":[
            {"kind":"Accepted","time":15.2,"memory":1048576},
            {"kind":"Accepted","time":-3,"memory":1048576.5},
            {"kind":"Accepted","time":null},
            {"kind":"Accepted","time":"7","memory":true},
            {"kind":"Accepted"}]}}"#,
    );
    assert_eq!(report.outcome(5), Outcome::Verdict(Verdict::Accepted));
    assert_eq!((report.time_max_ms, report.time_total_ms), (Some(16), Some(16)));
    assert_eq!(report.memory_max_bytes, Some(1_048_577));
    assert!(!report.sanitised_changed);
    let none = self::report(r#"{"result":{"cases":[{"kind":"Accepted"}]}}"#);
    assert_eq!((none.time_max_ms, none.time_total_ms, none.memory_max_bytes), (None, None, None));
    let huge = self::report(r#"{"result":{"cases":[{"time":1e400,"memory":-1e400},{"time":9e300,"memory":-1}]}}"#);
    assert_eq!((huge.time_max_ms, huge.time_total_ms), (Some(i64::MAX), Some(i64::MAX)));
    assert_eq!(huge.memory_max_bytes, Some(0));
}

#[test]
fn the_recorded_results_are_read() {
    let body = TRAFFIC.lines().find(|line| line.starts_with(r#"{"result":{"cases":[{"kind":"WrongAnswer""#));
    let body = body.expect("recorded");
    let report = report(body);
    assert_eq!(report.outcome(2), Outcome::Verdict(Verdict::WrongAnswer));
    assert_eq!((report.cases_reported, report.time_max_ms, report.time_total_ms), (2, Some(15), Some(30)));
    assert_eq!(report.memory_max_bytes, Some(1_048_576));
    assert_eq!((report.sanitised.as_str(), report.sanitised_changed), (body, false));
}

#[test]
fn what_jsonb_refuses_is_replaced_and_flagged() {
    for (body, sanitised) in [
        (r#"{"a\u0000b":"x\u0000y"}"#, "{\"a\u{fffd}b\":\"x\u{fffd}y\"}".to_owned()),
        (r#"["\ud800","\udc00x\ud83d\ude00"]"#, "[\"\u{fffd}\",\"\u{fffd}x😀\"]".to_owned()),
        ("[1e400,-1e400]", r#"["1e400","-1e400"]"#.to_owned()),
        ("1e-100000", r#""1e-100000""#.to_owned()),
        ("0e99999999999999999999", r#""0e99999999999999999999""#.to_owned()),
    ] {
        let report = report(body);
        assert_eq!((report.sanitised, report.sanitised_changed), (sanitised, true), "{body}");
    }
    let long = "7".repeat(LITERAL_BYTES_MAX + 1);
    assert!(report(&long).sanitised.starts_with("\"7777"));
    let report = parse_finish(b"[\"a\xffb\"]");
    assert_eq!((report.sanitised.as_str(), report.sanitised_changed), ("[\"a\u{fffd}b\"]", true));
}

#[test]
fn what_jsonb_takes_is_kept_digit_for_digit() {
    for body in
        ["[9007199254740993,1.10,-0,1e2,123456789012345678901234567890,1E-300,0.1e+5]", r#"{"a":"\n\u0001 字"}"#]
    {
        let report = report(body);
        assert_eq!((report.sanitised.as_str(), report.sanitised_changed), (body, false));
    }
}

#[test]
fn nesting_is_cut_where_libraries_stop_reading() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(report(&nested(DEPTH_MAX)).sanitised, nested(DEPTH_MAX));
    let deep = report(&nested(300));
    assert!(deep.sanitised_changed && deep.sanitised.contains("nested too deeply"));
    serde_json::from_str::<serde_json::Value>(&deep.sanitised).expect("JSON");
}

#[test]
fn a_message_of_megabytes_is_kept_whole() {
    let message = "x\\u0000".repeat(700_000);
    let body = format!(r#"{{"result":{{"cases":[{{"kind":"WrongAnswer","extraMessage":"{message}"}}]}}}}"#);
    let report = report(&body);
    assert_eq!(report.outcome(1), Outcome::Verdict(Verdict::WrongAnswer));
    assert_eq!(report.sanitised.matches("x\u{fffd}").count(), 700_000);
}

#[test]
fn states_are_read_and_the_unknown_ones_kept_short() {
    for state in [
        UpdateState::Confirmed,
        UpdateState::Pending,
        UpdateState::Preparing,
        UpdateState::Judging,
        UpdateState::Finished,
    ] {
        assert_eq!(parse_update(format!(r#"{{"state":"{state}"}}"#).as_bytes()), state);
    }
    let unknown = |body: &str| match parse_update(body.as_bytes()) {
        UpdateState::Unknown(word) => word,
        known => panic!("{known}"),
    };
    assert_eq!(unknown(r#"{"state":"bogus"}"#), "bogus");
    assert_eq!(unknown(r#"{"state":"Judging"}"#), "Judging");
    assert_eq!(unknown(r#"{"state":"a\u0000\ud800"}"#), "a\u{fffd}\u{fffd}");
    assert_eq!(unknown(&format!(r#"{{"state":"{}"}}"#, "字".repeat(100))), "字".repeat(WORD_CHARACTERS_MAX));
    for body in ["", "{}", "null", "[1]", r#"{"state":null}"#, r#"{"state":7}"#, "<html>"] {
        assert_eq!(unknown(body), "", "{body}");
    }
}

proptest! {
    #[test]
    fn sanitised_text_is_always_json_without_what_jsonb_refuses(text in any_json()) {
        let report = report(&text);
        let value: serde_json::Value = serde_json::from_str(&report.sanitised).expect("JSON");
        prop_assert!(!value.to_string().contains("\\u0000"));
        prop_assert!(!report.sanitised.contains("\\u0000") && !report.sanitised.contains("\\ud"));
    }

    #[test]
    fn no_body_is_too_odd_for_a_report(body in any::<Vec<u8>>()) {
        let report = parse_finish(&body);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&report.sanitised).is_ok());
        parse_update(&body);
    }
}
