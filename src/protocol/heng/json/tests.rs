//! The JSON reader and printer against JavaScript, by example and by property.

use proptest::prelude::*;

use super::*;

fn reprinted(text: &str) -> String {
    stringify(&parse(text.as_bytes()).expect("JSON"))
}

fn rules(text: &str) -> Vec<(String, String)> {
    let problems = canonical(text.as_bytes()).expect_err("not canonical");
    problems.into_iter().map(|problem| (problem.path, problem.rule)).collect()
}

#[test]
fn numbers_are_printed_as_javascript_prints_doubles() {
    for (written, printed) in [
        ("1.0", "1"),
        ("1e3", "1000"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("9007199254740993", "9007199254740992"),
        ("1e21", "1e+21"),
        ("123456789012345678901234567890", "1.2345678901234568e+29"),
        ("1e-7", "1e-7"),
        ("0.000001", "0.000001"),
        ("1e400", "null"),
        ("-1e400", "null"),
        ("5e-324", "5e-324"),
        ("1E+2", "100"),
        ("999999999999999", "999999999999999"),
        ("-12", "-12"),
    ] {
        assert_eq!(reprinted(written), printed, "{written}");
    }
}

#[test]
fn members_come_in_javascripts_order() {
    assert_eq!(reprinted(r#"{"b":1,"10":1,"2":1,"a":{"1":0,"0":0}}"#), r#"{"2":1,"10":1,"b":1,"a":{"0":0,"1":0}}"#);
    assert_eq!(
        reprinted(r#"{"x":1,"4294967295":1,"4294967294":1,"01":1,"-1":1,"1.5":1}"#),
        r#"{"4294967294":1,"x":1,"4294967295":1,"01":1,"-1":1,"1.5":1}"#
    );
    assert_eq!(reprinted(r#"{"a":1,"b":2,"a":3,"b":{"c":1,"c":2}}"#), r#"{"a":3,"b":{"c":2}}"#);
}

#[test]
fn repeated_keys_are_found_among_many() {
    let members: Vec<String> = (0..5_000).map(|at| format!("\"k{}\":{at}", at % 4_000)).collect();
    let value = parse(format!("{{{}}}", members.join(",")).as_bytes()).expect("JSON");
    let object = value.as_object().expect("object");
    assert_eq!(object.len(), 4_000);
    assert_eq!(object.get("k7").and_then(Value::as_number).map(Number::literal), Some("4007"));
    assert_eq!(object.iter().next().and_then(|(key, _)| key.as_str()), Some("k0"));
}

#[test]
fn escapes_are_normalised() {
    assert_eq!(
        reprinted(r#""\u4e2d\/\u001F\u000a\u0041\ud83d\ude00\uD800\b\f\n\r\t\"\\\u0000""#),
        "\"中/\\u001f\\nA😀\\ud800\\b\\f\\n\\r\\t\\\"\\\\\\u0000\""
    );
    assert_eq!(reprinted("\"\u{7f}\u{2028}\u{feff}\""), "\"\u{7f}\u{2028}\u{feff}\"");
    assert_eq!(reprinted(r#""\udc00\ud800x\ud83d\ude00\ud83d""#), r#""\udc00\ud800x😀\ud83d""#);
}

#[test]
fn bytes_are_decoded_as_a_server_decodes_them() {
    assert_eq!(stringify(&parse(b"\xef\xbb\xbf[1]").expect("JSON")), "[1]");
    assert_eq!(stringify(&parse(b"\"a\xff\xe4\xb8b\"").expect("JSON")), "\"a\u{fffd}\u{fffd}b\"");
    assert!(parse(b"\xef\xbb\xbf\xef\xbb\xbf[1]").is_err(), "only one byte order mark is dropped");
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    let at = |text: &str| parse(text.as_bytes()).expect_err("not JSON").offset;
    assert_eq!(parse(b"{\"a\":").expect_err("cut").reason, "Unexpected end of JSON input");
    for (text, offset) in [
        ("", 0),
        ("  ", 2),
        ("01", 1),
        ("-", 1),
        ("1.", 2),
        ("1e", 2),
        (".5", 0),
        ("+1", 0),
        ("[1,]", 3),
        ("[1 2]", 3),
        ("{\"a\" 1}", 5),
        ("{a:1}", 1),
        ("{\"a\":1,}", 7),
        ("tru", 3),
        ("nul1", 3),
        ("\"a", 2),
        ("\"\\x\"", 2),
        ("\"\\u12g4\"", 5),
        ("\"a\nb\"", 2),
        ("1 1", 2),
        ("\u{a0}1", 0),
        ("NaN", 0),
    ] {
        assert_eq!(at(text), offset, "{text}");
    }
}

#[test]
fn nesting_is_bounded_without_a_stack_overflow() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(reprinted(&nested(DEPTH_MAX)), nested(DEPTH_MAX));
    assert!(parse(nested(DEPTH_MAX + 1).as_bytes()).is_err());
    assert!(parse("{\"a\":".repeat(1_000_000).as_bytes()).is_err());
}

#[test]
fn every_violation_is_listed_with_its_path() {
    let found =
        rules(r#"{"a":{"t":1.0,"u":1e3,"v":-0},"b":[1,9007199254740992,{"7":0}],"c":"\ud800","a b":1,"a b":2}"#);
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["$.a.t", "$.a.u", "$.a.v", "$.b[1]", "$.b[2][\"7\"]", "$.c", "$[\"a b\"]"]);
    assert!(found[0].1.contains("whole number"));
    assert!(found[3].1.contains("9007199254740991"));
    assert!(found[4].1.contains("array index"));
    assert!(found[5].1.contains("surrogate"));
    assert!(found[6].1.contains("only once"));
}

#[test]
fn invalid_utf8_is_a_violation_but_a_written_replacement_character_is_none() {
    let problems = canonical(b"{\"ok\":\"\xef\xbf\xbd\",\"x\":[\"a\xff\",\"b\"],\"k\xff\":1}").expect_err("not UTF-8");
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["$.x[0]", "$[\"k\u{fffd}\"]"]);
    assert!(canonical("{\"ok\":\"\u{fffd}\"}".as_bytes()).is_ok());
}

#[test]
fn whitespace_and_escapes_are_no_violations() {
    let (_, text) = canonical(b" { \"a\" : [ 1 , \"\\u0041\\/\" ] , \"n\":-9007199254740991 }\n").expect("canonical");
    assert_eq!(text, r#"{"a":[1,"A/"],"n":-9007199254740991}"#);
}

#[test]
fn a_flood_of_violations_gives_a_bounded_answer() {
    let body = format!("[{}1.5]", "1.5,".repeat(10_000));
    let problems = canonical(body.as_bytes()).expect_err("fractions");
    assert_eq!(problems.len(), PROBLEMS_MAX + 1);
    assert_eq!(problems[PROBLEMS_MAX].rule, format!("has {} more violations of these rules", 10_001 - PROBLEMS_MAX));
}

/// Any JSON text, the odd ones included.
pub(crate) fn any_json() -> impl Strategy<Value = String> {
    let string = prop_oneof![
        any::<String>().prop_map(|text| {
            let mut quoted = String::new();
            print_text(&text, &mut quoted);
            quoted
        }),
        prop::collection::vec(0xd7f0_u16..0xe010, 0..4)
            .prop_map(|units| units.iter().map(|unit| format!("\\u{unit:04X}")).collect::<String>())
            .prop_map(|text| format!("\"{text}\"")),
        (0_u32..30).prop_map(|key| format!("\"{key}\"")),
    ];
    let number = prop_oneof![
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(|number| format!("{number:e}")),
        any::<i64>().prop_map(|number| number.to_string()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,6})?",
    ];
    let leaf = prop_oneof![Just("null".to_owned()), Just("true".to_owned()), number, string.clone()];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[ {} ]", items.join(" , "))),
            prop::collection::vec((string.clone(), inner), 0..6).prop_map(|members| {
                let members: Vec<String> = members.iter().map(|(key, value)| format!("{key} : {value}")).collect();
                format!("{{{}}}", members.join(",\n"))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn printing_what_was_parsed_is_stable(text in any_json()) {
        let once = reprinted(&text);
        prop_assert_eq!(reprinted(&once), once);
    }

    #[test]
    fn canonical_text_is_its_own_canonical_text(text in any_json()) {
        if let Ok((value, text)) = canonical(text.as_bytes()) {
            let (again, same) = canonical(text.as_bytes()).expect("canonical");
            prop_assert_eq!(&same, &text);
            prop_assert_eq!(again, value);
        }
    }

    #[test]
    fn no_input_is_too_odd_to_parse_or_refuse(bytes in any::<Vec<u8>>()) {
        if let Ok(value) = parse(&bytes) {
            stringify(&value);
        }
    }
}
