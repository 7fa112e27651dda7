//! Control over HTTP, as a fake in a process of its own is steered.

use serde_json::{Value, json};

use super::client::{exchange, job, status, status_of};
use super::sink::Sink;
use super::{PATIENCE, accepting, start};

async fn ask(address: std::net::SocketAddr, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let request = format!("{method} /_fake/{path} HTTP/1.1\r\nHost: fake\r\nContent-Length: {length}\r\n\r\n{body}");
    let answer = exchange(address, request).await;
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status_of(&answer), serde_json::from_str(body).unwrap())
}

#[actix_web::test]
async fn switches_are_changed_one_by_one_and_unknown_ones_are_refused() {
    let controller = start(accepting());
    let address = controller.address();
    let sink = Sink::agreeing();
    let patch = json!({
        "create.status": {"when": {"next": 1}, "how": {"status": 502}},
        "job.lost": {"when": "always"},
        "cb.workers": 3,
    });
    let (code, now) = ask(address, "PUT", "switches", &patch).await;
    assert_eq!(code, 200);
    assert_eq!(now["cb.workers"], 3);
    assert_eq!(now["judge.updates"], true);
    assert_eq!(status(address, job(&sink, "a", "")).await, Some(502));
    assert_eq!(status(address, job(&sink, "a", "")).await, Some(201));
    controller.wait_until(PATIENCE, |ledger| ledger.counters.updates_delivered == 2).await.unwrap();
    assert!(controller.ledger().job(0).unwrap().lost);
    let (_, now) = ask(address, "GET", "switches", &Value::Null).await;
    assert_eq!(now["create.status"]["when"], json!({"next": 0}));

    for wrong in [json!({"job.found": 1}), json!([]), json!({"job.lost": {"when": "sometimes"}})] {
        let (code, answer) = ask(address, "PUT", "switches", &wrong).await;
        assert_eq!(code, 400, "{answer}");
    }
}

#[actix_web::test]
async fn the_ledger_and_a_restart_are_asked_for_over_http() {
    let controller = start(accepting());
    let address = controller.address();
    let sink = Sink::agreeing();
    assert_eq!(status(address, job(&sink, "a", "")).await, Some(201));
    controller.wait_until(PATIENCE, |ledger| ledger.counters.finishes_delivered == 1).await.unwrap();
    let (code, ledger) = ask(address, "GET", "ledger", &Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(ledger["counters"]["created"], 1);
    assert_eq!(ledger["counters"]["answers"], json!({"201": 1}));
    assert_eq!(ledger["pending"]["callbacks_held"], 0);

    let (code, _) = ask(address, "POST", "restart", &json!({"flush": true})).await;
    assert_eq!(code, 202);
    controller.wait_until(PATIENCE, |ledger| ledger.counters.restarts == 1).await.unwrap();
    controller.come_up().await;
    assert_eq!(status(address, job(&sink, "a", "")).await, Some(500));
    assert_eq!(ask(address, "POST", "keys", &Value::Null).await.0, 200);
    assert_eq!(status(address, job(&sink, "a", "")).await, Some(201));
    assert_eq!(ask(address, "POST", "restart", &json!({"flash": true})).await.0, 400);
    assert_eq!(ask(address, "GET", "nothing", &Value::Null).await.0, 404);
}
