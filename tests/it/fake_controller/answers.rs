//! What the fake answers, compared with what the real one was seen to answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use judge_relay::embedded::fake_controller::{Config, FakeController, Refusal};

use super::client::{Client, Request, exchange, job, job_body, now, status, status_of};
use super::sink::Sink;
use super::{TRAFFIC, accepting, start};

/// When part A was recorded.
const RECORDED_AT: f64 = 1_796_031_074.5;

/// Request and answer of one recorded connection of part A.
fn recorded(connection: u32) -> (String, String) {
    let part = TRAFFIC.split("\nB. Callbacks").next().unwrap();
    let (mut request, mut answer) = (String::new(), String::new());
    for piece in part.split("### ").skip(1) {
        let (title, text) = piece.split_once('\n').unwrap();
        if title.contains(&format!("conn={connection} >>")) {
            request.push_str(text);
        } else if title.contains(&format!("conn={connection} <<")) {
            answer.push_str(text);
        }
    }
    (on_the_wire(&request), on_the_wire(&answer))
}

/// The record has LF in heads, a line break behind each body, and spaces written as their number.
fn on_the_wire(record: &str) -> String {
    let (head, body) = record.split_once("\n\n").unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let length = length.unwrap().parse().unwrap();
    let body = if body.starts_with('<') { " ".repeat(length) } else { body[..length].to_owned() };
    format!("{}\r\n\r\n{body}", head.replace('\n', "\r\n"))
}

fn without_date(answer: &str) -> String {
    let lines: Vec<&str> = answer.split("\r\n").filter(|line| !line.starts_with("Date: ")).collect();
    assert_eq!(lines.len() + 1, answer.split("\r\n").count(), "one date: {answer}");
    lines.join("\r\n")
}

fn at_the_recorded_time(config: Config) -> FakeController {
    let controller = start(config);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    controller.set(|switches| switches.auth_skew = RECORDED_AT - now);
    controller
}

#[actix_web::test]
async fn every_recorded_request_gets_the_recorded_answer() {
    let controller = at_the_recorded_time(accepting());
    for connection in 1..=8 {
        let (request, answer) = recorded(connection);
        let given = exchange(controller.address(), request).await;
        assert_eq!(without_date(&given), without_date(&answer), "connection {connection}");
        assert!(given.contains("\r\nDate: Mon, 30 Nov 2026 09:3"), "{given}");
    }
    let ledger = controller.ledger();
    assert_eq!(ledger.counters.created, 1);
    let job = ledger.job(0).unwrap();
    assert_eq!(job.finish_url, "http://127.0.0.1:28090/demo-0/finish");
    assert_eq!(job.body_sha256, "705c4da6dbcd54c5f4b498cfc696e780ac76f57daee9d1247346ef9301231051");
    assert_eq!(job.source.as_deref(), Some("int main(){return 0;}"));
    for refusal in [
        Refusal::UnknownKey,
        Refusal::Signature,
        Refusal::Invalid,
        Refusal::NotJson,
        Refusal::BodyTooLarge,
        Refusal::NoRoute,
        Refusal::UnsupportedBody,
    ] {
        assert_eq!(ledger.counters.refusals.get(&refusal), Some(&1), "{refusal:?}");
    }
}

#[actix_web::test]
async fn the_root_says_hello_without_authentication_in_any_case_of_its_path() {
    let controller = start(accepting());
    let mut client = Client::connect(controller.address()).await;
    for path in ["/c/v1", "/C/v1/"] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: fake\r\n\r\n")).await;
        let answer = client.answer().await;
        assert_eq!(status_of(&answer), 200);
        assert!(answer.ends_with("\r\n\r\nHello World!"), "{answer}");
    }
    client.send("POST /c/v1 HTTP/1.1\r\nHost: fake\r\n\r\n").await;
    let answer = client.answer().await;
    assert!(answer.ends_with(r#"{"statusCode":404,"message":"Cannot POST /c/v1","error":"Not Found"}"#), "{answer}");
}

#[actix_web::test]
async fn an_idle_connection_is_closed_and_a_new_one_is_not() {
    let mut config = accepting();
    config.timing.idle_close = Duration::from_millis(20);
    let controller = start(config);
    let sink = Sink::agreeing();
    let mut client = Client::connect(controller.address()).await;
    let mut fresh = Client::connect(controller.address()).await;
    client.send(job(&sink, "a", "")).await;
    assert_eq!(status_of(&client.answer().await), 201);
    assert_eq!(client.try_answer().await, None);
    fresh.send(job(&sink, "b", "")).await;
    assert_eq!(status_of(&fresh.answer().await), 201);
}

#[actix_web::test]
async fn a_timestamp_outside_the_minute_is_forbidden() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    for (off, expected) in [(-90, 403), (-61, 403), (-50, 201), (0, 201), (60, 201), (90, 403)] {
        let mut request = Request::new(job_body(sink.address(), "a", "", 1, "all"));
        request.timestamp = now() + off;
        assert_eq!(status(controller.address(), request.signed()).await, Some(expected), "{off} s off");
    }
    assert_eq!(controller.ledger().counters.refusals.get(&Refusal::Skew), Some(&3));
}

#[actix_web::test]
async fn a_refused_request_has_still_used_up_its_nonce() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    let mut request = Request::new(job_body(sink.address(), "a", "", 1, "all"));
    request.secret_key = "not the secret";
    assert_eq!(status(controller.address(), request.signed()).await, Some(403));
    request.secret_key = Config::SECRET_KEY;
    assert_eq!(status(controller.address(), request.signed()).await, Some(403));
    let refusals = controller.ledger().counters.refusals;
    assert_eq!((refusals[&Refusal::Signature], refusals[&Refusal::Replay]), (1, 1));
    request.nonce.push('0');
    assert_eq!(status(controller.address(), request.signed()).await, Some(201));
}

#[actix_web::test]
async fn a_judgers_key_is_forbidden_and_an_unknown_key_is_a_server_error() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    let mut request = Request::new(job_body(sink.address(), "a", "", 1, "all"));
    (request.access_key, request.secret_key) = (Config::JUDGER_ACCESS_KEY, Config::JUDGER_SECRET_KEY);
    assert_eq!(status(controller.address(), request.signed()).await, Some(403));
    assert_eq!(controller.ledger().counters.refusals.get(&Refusal::Role), Some(&1));
    request.access_key = "AK-DEMO-USER-0001";
    assert_eq!(status(controller.address(), request.signed()).await, Some(500));
}

#[actix_web::test]
async fn the_path_is_signed_as_sent_and_routed_in_any_case() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    let mut request = Request::new(job_body(sink.address(), "a", "", 1, "all"));
    request.path = "/C/V1/JUDGES/".to_owned();
    assert_eq!(status(controller.address(), request.signed()).await, Some(201));
}

#[actix_web::test]
async fn a_body_is_signed_as_javascript_prints_it_and_not_as_it_was_sent() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    let request = Request::new(job_body(sink.address(), "a", "", 1, "all"));
    let signed = String::from_utf8(request.signed()).unwrap();
    let spaced = request.body.replacen("{\"judge\"", "{ \"judge\"", 1).replace("\"cpuTime\":1000,", "\"cpuTime\":1e3,");
    let length = format!("Content-Length: {}", spaced.len());
    let sent =
        signed.replace(&request.body, &spaced).replace(&format!("Content-Length: {}", request.body.len()), &length);
    assert_ne!(sent, signed);
    assert_eq!(status(controller.address(), sent).await, Some(201));
}

#[actix_web::test]
async fn a_chunked_body_is_read_and_a_compressed_one_is_not() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    let request = Request::new(job_body(sink.address(), "a", "", 1, "all"));
    let signed = String::from_utf8(request.signed()).unwrap();
    let (head, body) = signed.split_once("\r\n\r\n").unwrap();
    let length = format!("Content-Length: {}", body.len());
    let head = head.replace(&length, "Transfer-Encoding: chunked");
    let (first, second) = body.split_at(100);
    let chunks = format!("{:x};x=y\r\n{first}\r\n{:X}\r\n{second}\r\n0\r\nTrailer: x\r\n\r\n", 100, second.len());
    let mut client = Client::connect(controller.address()).await;
    client.send(format!("{head}\r\n\r\n{chunks}")).await;
    assert_eq!(status_of(&client.answer().await), 201);
    client.send("POST /c/v1/judges HTTP/1.1\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}").await;
    let answer = client.answer().await;
    let body = r#"{"statusCode":415,"message":"unsupported content encoding \"br\""}"#;
    assert!(answer.starts_with("HTTP/1.1 415 ") && answer.ends_with(body), "{answer}");
}

#[actix_web::test]
async fn exactly_the_limit_passes_and_one_byte_more_does_not() {
    let controller = start(accepting());
    let sink = Sink::agreeing();
    let bare = job_body(sink.address(), "a", "", 1, "all").len();
    for (size, expected) in [(102_400, 201), (102_401, 413)] {
        let request = Request::new(job_body(sink.address(), "a", &"x".repeat(size - bare), 1, "all"));
        assert_eq!(request.body.len(), size);
        assert_eq!(status(controller.address(), request.signed()).await, Some(expected), "{size}");
    }
}

#[actix_web::test]
async fn what_is_no_http_ends_the_connection_and_what_is_no_json_names_the_place() {
    let controller = start(accepting());
    let mut client = Client::connect(controller.address()).await;
    client.send("hello\r\n\r\n").await;
    assert_eq!(client.try_answer().await.as_deref(), Some("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"));
    assert_eq!(client.try_answer().await, None);
    let head = "POST /c/v1/judges HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n";
    for (body, message) in [
        ("{\"a\":x}", "Unexpected token x in JSON at position 5"),
        (" \"abcd\"", "Unexpected token \\\" in JSON at position 1"),
    ] {
        let answer = exchange(controller.address(), format!("{head}{body}")).await;
        assert!(answer.contains(&format!("\"message\":\"{message}\"")), "{answer}");
    }
}
