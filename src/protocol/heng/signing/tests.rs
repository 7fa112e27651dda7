//! Signatures against recorded ones.

use proptest::prelude::*;
use serde_json::Value as Fixture;

use super::super::json::tests::any_json;
use super::super::json::{self, canonical};
use super::*;

const VECTORS: &str = include_str!("../../../../tests/fixtures/heng-vectors.json");
const TRAFFIC: &str = include_str!("../../../../tests/fixtures/heng-traffic.txt");

/// How many vectors the fixture holds, so that none can get lost unnoticed.
const CLIENT_VECTORS: usize = 42;
const SERVER_VECTORS: usize = 31;

fn vectors(family: &str) -> Vec<Fixture> {
    let fixture: Fixture = serde_json::from_str(VECTORS).expect("fixture");
    let vectors = fixture["vectors"].as_array().expect("vectors");
    vectors.iter().filter(|vector| vector["family"] == family).cloned().collect()
}

fn text<'a>(value: &'a Fixture, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// What the client library signs for a parameter's JavaScript value.
fn signed_parameter(value: &Fixture) -> String {
    match value {
        Fixture::String(text) => text.clone(),
        Fixture::Number(number) => number.to_string(),
        Fixture::Array(items) => items.last().and_then(Fixture::as_str).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

struct ClientCase {
    url: String,
    parameters: Vec<(String, String)>,
    body: Option<String>,
}

fn client_case(input: &Fixture) -> ClientCase {
    // The library appends the base address, and only for addresses that do not begin with "http".
    let url = format!("{}{}", text(input, "url"), text(input, "base_url"));
    let pairs = input["params"].as_array().cloned().unwrap_or_default();
    let parameters =
        pairs.iter().map(|pair| (pair[0].as_str().expect("key").to_owned(), signed_parameter(&pair[1]))).collect();
    let body = input["data_js"].as_str().map(|data| {
        data.strip_prefix("string:").or_else(|| data.strip_prefix("json:")).expect("marked data").to_owned()
    });
    ClientCase { url, parameters, body }
}

fn check_server(vector: &Fixture, client_canonical: &str) {
    let Some(wire) = vector["wire"].as_object() else {
        return;
    };
    let headers = vector["headers"].as_object().expect("headers");
    let mut headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str().expect("text"))).collect();
    headers.retain(|(name, _)| *name != CONTENT_TYPE);
    headers.push((CONTENT_TYPE, wire["content_type"].as_str().expect("content type")));
    let method = text(&vector["input"], "method").to_uppercase();
    let target = wire["target"].as_str().expect("target");
    let body = wire["body"].as_str().expect("body").as_bytes();
    let received = received_canonical(&method, target, &headers, body);
    let is_equal = received.as_ref().is_ok_and(|received| received.canonical == client_canonical);
    assert_eq!(Some(is_equal), vector["server_accepts"].as_bool(), "{}: {received:?}", vector["id"]);
    if let Some(expected) = vector["server_canonical"].as_str() {
        assert_eq!(received.expect("body").canonical, expected, "{}", vector["id"]);
    }
}

#[test]
fn every_client_vector_is_signed_as_recorded() {
    let vectors = vectors("client");
    assert_eq!(vectors.len(), CLIENT_VECTORS);
    for vector in vectors {
        let input = &vector["input"];
        let case = client_case(input);
        let parameters: Vec<(&str, &str)> =
            case.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let unsigned = Unsigned {
            method: text(input, "method"),
            url: &case.url,
            parameters: &parameters,
            body: case.body.as_deref(),
            nonce: text(input, "nonce"),
            timestamp: text(input, "timestamp"),
        };
        let credentials = Credentials::new(text(input, "access_key"), text(input, "secret_key"));
        let canonical = unsigned.canonical(credentials.access_key());
        assert_eq!(canonical, text(&vector, "canonical"), "{}", vector["id"]);
        let signed = unsigned.sign(&credentials);
        assert_eq!(signed.signature, text(&vector, "signature"), "{}", vector["id"]);
        let recorded = vector["headers"].as_object().expect("headers");
        assert_eq!(recorded.len(), signed.pairs().len(), "{}", vector["id"]);
        for (name, value) in signed.pairs() {
            assert_eq!(recorded[name], value, "{} {name}", vector["id"]);
        }
        check_server(&vector, &canonical);
    }
}

#[test]
fn every_server_vector_is_computed_as_recorded() {
    let vectors = vectors("server");
    assert_eq!(vectors.len(), SERVER_VECTORS);
    for vector in vectors {
        let input = &vector["input"];
        let headers = input["headers"].as_object().expect("headers");
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str().expect("text"))).collect();
        let received =
            received_canonical(text(input, "method"), text(input, "target"), &headers, text(input, "body").as_bytes());
        if let Some(error) = vector["error"].as_str() {
            let refusal = received.expect_err("refused");
            assert_eq!(format!("{} {refusal}", refusal.status()), error, "{}", vector["id"]);
            continue;
        }
        let received = received.expect("accepted");
        assert_eq!(json::stringify(&received.body), text(&vector, "hashed_body"), "{}", vector["id"]);
        assert_eq!(received.canonical, text(&vector, "canonical"), "{}", vector["id"]);
        let credentials = Credentials::new("unused", text(input, "secret_key"));
        assert_eq!(credentials.signature(&received.canonical), text(&vector, "signature"), "{}", vector["id"]);
    }
}

/// The recorded request with this first line, its header lines and its body.
fn recorded_request(first_line: &str, marker: &str) -> (Vec<String>, String) {
    let blocks = TRAFFIC.split("\n### ").filter(|block| block.contains(marker));
    let block = blocks.into_iter().find(|block| block.lines().nth(1) == Some(first_line)).expect("recorded");
    let mut lines = block.lines().skip(2);
    let headers = lines.by_ref().take_while(|line| !line.is_empty()).map(str::to_owned).collect();
    (headers, lines.next().expect("body").to_owned())
}

fn check_recorded(first_line: &str, secret_key: &str) {
    let (headers, body) = recorded_request(first_line, "User-Agent: axios");
    let value = |name: &str| {
        let line = headers.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.expect("header").to_owned()
    };
    let credentials = Credentials::new(value(ACCESS_KEY), secret_key);
    let (_, canonical_body) = canonical(body.as_bytes()).expect("canonical");
    assert_eq!(canonical_body, body, "the body is reproduced byte for byte");
    let target = first_line.split(' ').nth(1).expect("target");
    let url = format!("http://{}{target}", value("Host"));
    let timestamp = value(TIMESTAMP).parse().expect("seconds");
    let signed = sign(&credentials, "post", &url, &canonical_body, &value(NONCE), timestamp);
    let sent: Vec<String> = signed.pairs().map(|(name, value)| format!("{name}: {value}")).into();
    let is_signed_header = |line: &&String| line.starts_with("Content-Type:") || line.starts_with("x-heng-");
    let recorded: Vec<String> =
        headers.iter().filter(is_signed_header).map(|line| line.replace("Content-Type", CONTENT_TYPE)).collect();
    assert_eq!(sent, recorded);
    assert_eq!(value("Content-Length"), canonical_body.len().to_string());
}

#[test]
fn the_recorded_requests_are_reproduced_byte_for_byte() {
    check_recorded("POST /c/v1/judges HTTP/1.1", "sk-demo-user-0001-made-up");
    check_recorded("POST /c/v1/judger/token HTTP/1.1", "sk-demo-judger-0001-made-up");
}

#[test]
fn secrets_are_not_in_debug_output() {
    let credentials = Credentials::new("ak-1", "very-secret-key");
    let signed = sign(&credentials, "POST", "/judges", "{}", "1", 1_700_000_000);
    let shown = format!("{credentials:?} {signed:?}");
    assert!(shown.contains("ak-1"));
    assert!(!shown.contains("very-secret") && !shown.contains(&signed.signature));
}

#[test]
fn bodies_are_refused_as_the_controller_refuses_them() {
    let refused = |content_type: &str, body: &[u8]| {
        let refusal = received_canonical("POST", "/x", &[("Content-Type", content_type)], body).expect_err("refused");
        (refusal.status(), refusal.to_string())
    };
    let too_large = vec![b' '; BODY_BYTES_MAX + 1];
    assert_eq!(refused(CONTENT_TYPE_JSON, &too_large), (413, "request entity too large".to_owned()));
    assert_eq!(refused("application/json;charset=gbk", b"{\"a\":1}"), (415, "unsupported charset \"GBK\"".to_owned()));
    assert_eq!(refused("application/json", b"1").0, 400);
    let largest = format!("{{\"a\":\"{}\"}}", "x".repeat(BODY_BYTES_MAX - 8));
    assert!(received_canonical("POST", "/x", &[("content-type", CONTENT_TYPE_JSON)], largest.as_bytes()).is_ok());
}

#[test]
fn absolute_targets_count_with_their_path_only() {
    let canonical = |target: &str| received_canonical("POST", target, &[], b"").expect("accepted").canonical;
    assert_eq!(canonical("http://h:1/c/v1/judges?b=1"), canonical("/c/v1/judges?b=1"));
    assert_ne!(canonical("/c/v1/judges"), canonical("/c/v1/judges/"));
}

#[test]
fn odd_queries_are_parsed_as_the_controllers_server_does() {
    let line = |query: &str| {
        let canonical = received_canonical("GET", &format!("/x?{query}"), &[], b"").expect("accepted").canonical;
        canonical.lines().nth(2).expect("query line").to_owned()
    };
    for (query, expected) in [
        ("a[b]=c", "a="),
        ("a[0]=x&a[1]=y", "a=y"),
        ("a[]=1&a=2", "a=2"),
        ("a=1&a[]=2", "a=2"),
        ("a=1&a[b]=2", "a="),
        ("a[20]=x", "a=x"),
        ("[]=1", "0=1"),
        ("[a]=1", "a=1"),
        ("a;b=1", "a%3Bb=1"),
        ("a=b=c", "a=b%3Dc"),
        ("a[=1", "a%5B=1"),
        ("a%5Bb%5D=1", "a="),
        ("a[][b]=1", "a="),
        ("%ff=1", "%25ff=1"),
    ] {
        assert_eq!(line(query), expected, "{query}");
    }
    let many: Vec<String> = (0..1_001).map(|at| format!("k{at:04}=1")).collect();
    assert!(line(&many.join("&")).ends_with("k0999=1"));
}

proptest! {
    #[test]
    fn canonical_bodies_are_hashed_as_they_are_sent(text in any_json()) {
        if let Ok((value, text)) = canonical(format!("[{text}]").as_bytes()) {
            let headers = [(CONTENT_TYPE, CONTENT_TYPE_JSON), (ACCESS_KEY, "ak"), (NONCE, "12"), (TIMESTAMP, "1700000000")];
            let received = received_canonical("POST", "/judges", &headers, text.as_bytes()).expect("accepted");
            let unsigned = Unsigned {
                method: "POST", url: "/judges", parameters: &[], body: Some(&text), nonce: "12", timestamp: "1700000000",
            };
            prop_assert_eq!(received.canonical, unsigned.canonical("ak"));
            prop_assert_eq!(received.body, value);
        }
    }
}
