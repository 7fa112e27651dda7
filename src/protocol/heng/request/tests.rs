//! Requests: the rules and messages of the controller, and what intake keeps.

use proptest::prelude::*;

use super::super::json::tests::any_json;
use super::super::json::{Value, canonical, parse, stringify};
use super::*;

const TRAFFIC: &str = include_str!("../../../../tests/fixtures/heng-traffic.txt");

/// A request that passes, with both kinds of files.
const REQUEST: &str = concat!(
    r#"{"data":{"type":"url","url":"http://files.example.com/1.zip","hashsum":null},"#,
    r#""dynamicFiles":[{"type":"remote","name":"in0","file":{"type":"direct","content":"0\n"}},"#,
    r#"{"type":"builtin","name":"usr:code"}],"judge":{"type":"normal","#,
    r#""user":{"source":{"type":"direct","content":""},"#,
    r#""environment":{"language":"cpp","system":"Linux","arch":"x64","options":{"o2":true}},"#,
    r#""limit":{"runtime":{"memory":134217728,"cpuTime":1000,"output":67108864},"#,
    r#""compiler":{"memory":536870912,"cpuTime":10000,"output":67108864,"message":102400}}}},"#,
    r#""test":{"cases":[{"input":"in0","output":"out0"},{"input":"in1","output":"out1"}],"policy":"fuse"}}"#
);

fn value(text: &str) -> Value {
    parse(text.as_bytes()).expect("JSON")
}

fn messages(text: &str, expected: Expected) -> Vec<String> {
    validate(&value(text), expected).iter().map(Problem::controller_message).collect()
}

/// The request with one part replaced.
fn with(from: &str, to: &str) -> String {
    assert!(REQUEST.contains(from), "{from}");
    REQUEST.replacen(from, to, 1)
}

fn intake_problems(text: &str) -> Vec<(String, String)> {
    let problems = JudgeRequest::parse(text.as_bytes()).expect_err("refused");
    problems.into_iter().map(|problem| (problem.path, problem.rule)).collect()
}

#[test]
fn the_recorded_refusal_is_given_word_for_word() {
    let body = TRAFFIC.lines().find(|line| line.ends_with(r#""taskId":"1"}"#)).expect("recorded request");
    let answer = TRAFFIC.lines().find(|line| line.contains("taskId should not exist")).expect("recorded answer");
    let answer: serde_json::Value = serde_json::from_str(answer).expect("JSON");
    let recorded: Vec<String> = serde_json::from_value(answer["message"].clone()).expect("messages");
    assert_eq!(messages(body, Expected::Present), recorded);
}

#[test]
fn the_recorded_request_passes() {
    let body = TRAFFIC.lines().find(|line| line.starts_with(r#"{"dynamicFiles""#)).expect("recorded request");
    assert_eq!(messages(body, Expected::Present), Vec::<String>::new());
    assert_eq!(messages(body, Expected::Absent), ["property callbackUrls should not exist"]);
}

#[test]
fn messages_are_those_of_the_controller() {
    let missing = "callbackUrls should not be empty";
    for (text, expected) in [
        ("{}".to_owned(), vec!["judge should not be empty", "test should not be empty", missing]),
        ("[]".to_owned(), vec!["an unknown value was passed to the validate function"]),
        (
            with("1000,", "\"1000\","),
            vec![
                "judge.user.limit.runtime.cpuTime must not be greater than 60000",
                "judge.user.limit.runtime.cpuTime must not be less than 200",
                "judge.user.limit.runtime.cpuTime must be an integer number",
                missing,
            ],
        ),
        (
            with("134217728", "2147483648.5"),
            vec![
                "judge.user.limit.runtime.memory must not be greater than 2147483648",
                "judge.user.limit.runtime.memory must be an integer number",
                missing,
            ],
        ),
        (with("134217728", "4194303"), vec!["judge.user.limit.runtime.memory must not be less than 4194304", missing]),
        (with("1000,", "1000.0,"), vec![missing]),
        (with(r#""arch""#, r#""foo":1,"arch""#), vec!["judge.user.environment.property foo should not exist", missing]),
        (
            with(r#""arch""#, r#""a.b\"]":1,"arch""#),
            vec!["judge.user.environment.property a.b\"] should not exist", missing],
        ),
        (
            with("x64", "X64"),
            vec![
                "judge.user.environment.arch must be one of the following values: x64, arm, risc-v, powerpc, mips",
                missing,
            ],
        ),
        (with(r#""input":"in0""#, r#""input":"""#), vec!["test.cases.0.input should not be empty", missing]),
        (
            with(r#"{"input":"in0","output":"out0"}"#, "7"),
            vec!["test.cases.0.each value in nested property cases must be either object or array", missing],
        ),
        (
            with(r#"{"type":"direct","content":""}"#, "null"),
            vec![
                "judge.user.source.nested property source must be either object or array",
                "judge.user.source should not be empty",
                missing,
            ],
        ),
        (
            r#"{"judge":null,"test":5,"dynamicFiles":""}"#.to_owned(),
            vec![
                "dynamicFiles.each value in nested property dynamicFiles must be either object or array",
                "judge.nested property judge must be either object or array",
                "test.nested property test must be either object or array",
                missing,
            ],
        ),
        (with("normal", "special"), vec!["judge.spj should not be empty", missing]),
        (with(r#""type":"normal""#, r#""type":"normal","spj":{"any":1}"#), vec![missing]),
        (
            with("http://files.example.com/1.zip", "http://files/1.zip"),
            vec!["data.url must be an URL address", missing],
        ),
        (with(r#""hashsum":null"#, r#""hashsum":1"#), vec!["data.hashsum must be a string", missing]),
    ] {
        assert_eq!(messages(&text, Expected::Present), expected, "{text}");
    }
}

#[test]
fn addresses_pass_as_they_pass_the_controller() {
    for url in [
        "http://127.0.0.1/x",
        "http://127.0.0.1:65535",
        "http://[::1]:8080/x",
        "http://[fe80::1%eth0]/x",
        "HTTP://judge.local/x",
        "http://svc.ns.svc.cluster.local:8080/a?b#c",
        "http://host.docker.internal",
        "http://user:password@judge.local/x",
        "http://judge.local/中文",
        "http://xn--fiq228c.xn--fiqs8s/",
        "http://h.example.com:/x",
        "example.com/x",
        "ftp://example.com/x",
    ] {
        assert!(is_accepted_url(url), "{url}");
    }
    for url in [
        "",
        "http://localhost/x",
        "http://judge-svc:8080/x",
        "http://a_b.example.com/x",
        "http://a.b1/x",
        "http://a.b/x",
        "http://a.123/x",
        "http://judge.local:0/x",
        "http://judge.local:65536/x",
        "http://judge.local:8x/x",
        "http://judge.local/a b",
        "http://judge.local/<",
        "//judge.local/x",
        "http://@judge.local/x",
        "http://:@judge.local/x",
        "http://a:b:c@judge.local/x",
        "http://256.1.1.1/x",
        "http://-a.example.com",
        "http://a..com",
        "http://[::g]/x",
        "::1",
        "mailto:a@example.com",
        "gopher://example.com",
        "http:///x",
    ] {
        assert!(!is_accepted_url(url), "{url}");
    }
    let long = |length: usize| format!("http://a.example.com/{}", "x".repeat(length - 21));
    assert!(is_accepted_url(&long(2_082)));
    assert!(!is_accepted_url(&long(2_083)));
}

#[test]
fn a_callback_base_that_would_fail_is_named_with_its_fix() {
    for base in [
        "http://10.1.2.3:8090",
        "https://relay.judge.svc.cluster.local/base",
        "http://[::1]:8080",
        "http://u:p@a.example.com",
    ] {
        assert_eq!(callback_host_problem(base), None, "{base}");
    }
    for (base, word) in [
        ("http://localhost:8080", "single label"),
        ("http://judge-relay", "single label"),
        ("http://judge_relay.example.com", "underscore"),
        ("http://a.example.123", "last"),
        ("http://a.example.com:0", "port"),
        ("http://a.example.com:99999", "port"),
        ("a.example.com", "http://"),
        ("ftp://a.example.com", "http://"),
        ("http://a.example.com?x=1", "query"),
        ("http://a.example.com/中", "percent-encode"),
        ("http://a.example.com/a b", "spaces"),
        ("http://a.example.com/\u{1}", "control"),
        ("http://", "no host"),
        ("http://[::x]/", "no host"),
    ] {
        let problem = callback_host_problem(base).unwrap_or_default();
        assert!(problem.contains(word), "{base}: {problem}");
    }
    let long = format!("http://a.example.com/{}", "x".repeat(CALLBACK_BASE_BYTES_MAX));
    assert!(callback_host_problem(&long).is_some());
}

#[test]
fn intake_keeps_the_canonical_text_and_the_facts() {
    let spaced = REQUEST.replace(',', " ,\n").replace("cpp", "c\\u0070p");
    let request = JudgeRequest::parse(spaced.as_bytes()).expect("accepted");
    assert_eq!(request.text, REQUEST);
    let facts = RequestFacts { cases: 2, cpu_time_ms: 1_000, compile_time_ms: 10_000, judge_type: JudgeType::Normal };
    assert_eq!(request.facts, facts);
    assert_eq!(RequestFacts::read(REQUEST), Ok(facts));
}

#[test]
fn intake_lists_every_problem() {
    let text = with("1000,", "100,").replace("x64", "z80").replace(r#""policy":"fuse""#, r#""policy":"fuse","q":1"#);
    let paths: Vec<String> = intake_problems(&text).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["$.judge.user.environment.arch", "$.judge.user.limit.runtime.cpuTime", "$.test.q"]);
    let found = intake_problems(&with(r#""test""#, r#""callbackUrls":{},"test""#));
    assert_eq!(found, [("$.callbackUrls".to_owned(), "must be left out: judge-relay adds it".to_owned())]);
    assert_eq!(intake_problems(&with("1000,", "1e3,"))[0].0, "$.judge.user.limit.runtime.cpuTime");
    assert!(intake_problems("{")[0].1.contains("must be JSON"));
    assert_eq!(intake_problems("[]"), [("$".to_owned(), "must be an object".to_owned())]);
}

#[test]
fn intake_refuses_what_would_break_the_judger() {
    let cases = r#"[{"input":"in0","output":"out0"},{"input":"in1","output":"out1"}]"#;
    let bare_case = r#"{"input":"in0","output":"out0"}"#;
    for (text, path) in [
        (with(cases, bare_case), "$.test.cases"),
        (with(cases, &format!("[[{bare_case}]]")), "$.test.cases[0]"),
        (
            with(
                r#"[{"type":"remote","name":"in0","file":{"type":"direct","content":"0\n"}},{"type":"builtin","name":"usr:code"}]"#,
                r#"{"type":"builtin","name":"usr:code"}"#,
            ),
            "$.dynamicFiles",
        ),
        (
            with(r#"{"type":"direct","content":"0\n"}"#, r#"[{"type":"direct","content":"0\n"}]"#),
            "$.dynamicFiles[0].file",
        ),
        (with(r#"{"type":"direct","content":""}"#, r#"[{"type":"direct","content":""}]"#), "$.judge.user.source"),
    ] {
        assert_eq!(messages(&text, Expected::Absent), Vec::<String>::new(), "the controller accepts {text}");
        let paths: Vec<String> = intake_problems(&text).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, [path]);
    }
    assert!(intake_problems(r#"{"judge":[],"test":[]}"#).iter().any(|(path, _)| path == "$.judge"));
    assert!(JudgeRequest::parse(with(cases, "[]").as_bytes()).is_ok_and(|request| request.facts.cases == 0));
}

#[test]
fn intake_leaves_room_for_the_callback_urls() {
    let padded = |size: usize| {
        let empty = r#""source":{"type":"direct","content":""}"#;
        let filled = format!(r#""source":{{"type":"direct","content":"{}"}}"#, "x".repeat(size - REQUEST.len()));
        with(empty, &filled)
    };
    assert!(JudgeRequest::parse(padded(REQUEST_BYTES_MAX).as_bytes()).is_ok());
    let (path, rule) = intake_problems(&padded(REQUEST_BYTES_MAX + 1)).remove(0);
    assert_eq!(path, "$");
    assert!(rule.contains("101376") && rule.contains("url"), "{rule}");
}

#[test]
fn stored_texts_are_read_with_the_path_of_their_first_problem() {
    let path = |text: &str| RequestFacts::read(text).expect_err("refused").path;
    assert_eq!(path(&with("1000,", "\"a\",")), "$.judge.user.limit.runtime.cpuTime");
    assert_eq!(path(&with(r#""policy":"fuse""#, r#""policy":"any""#)), "$.test.policy");
    assert_eq!(path("nonsense"), "$");
    let spaced = with(r#""test":"#, r#""test": "#);
    assert!(RequestFacts::read(&spaced).expect_err("refused").rule.contains("compact"));
}

#[test]
fn callback_urls_come_last() {
    assert_eq!(with_callback_urls("{}", "u", "f"), r#"{"callbackUrls":{"update":"u","finish":"f"}}"#);
    let text = with_callback_urls(REQUEST, "http://127.0.0.1/u", "http://127.0.0.1/f");
    assert_eq!(messages(&text, Expected::Present), Vec::<String>::new());
    assert_eq!(stringify(&value(&text)), text);
}

proptest! {
    #[test]
    fn adding_callback_urls_keeps_a_text_canonical(text in any_json(), update in any::<String>(), finish in any::<String>()) {
        if let Ok((_, text)) = canonical(format!("{{\"a\":{text}}}").as_bytes()) {
            let sent = with_callback_urls(&text, &update, &finish);
            prop_assert_eq!(stringify(&value(&sent)), sent.clone());
            prop_assert_eq!(value(&sent).get("callbackUrls").and_then(|urls| urls.get("finish")?.as_str().map(str::to_owned)), Some(finish));
        }
    }

    #[test]
    fn validation_takes_any_value(text in any_json()) {
        for problem in validate(&value(&text), Expected::Present) {
            prop_assert!(!problem.controller_message().is_empty());
        }
    }
}
