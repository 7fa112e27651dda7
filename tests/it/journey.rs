//! The journey of a submission, once, as a story: submitted by HTTP, judged by the controller, applied once, told to consumers.

use std::time::{Duration, Instant};

use judge_relay::embedded::fake_controller::Config as FakeConfig;
use judge_relay::embedded::stack::{ADMIN_TOKEN, Stack, StackOptions};
use judge_relay::embedded::stores::StoreOptions;
use serde_json::{Value, json};

fn request(source: &str) -> Value {
    let limit = json!({ "memory": 134217728, "cpuTime": 1000, "output": 67108864 });
    let compiler = json!({ "memory": 536870912, "cpuTime": 10000, "output": 67108864, "message": 102400 });
    json!({
        "judge": { "type": "normal", "user": {
            "source": { "type": "direct", "content": source },
            "environment": { "language": "cpp", "system": "Linux", "arch": "x64", "options": {} },
            "limit": { "runtime": limit, "compiler": compiler },
        }},
        "dynamicFiles": [{ "type": "remote", "name": "in", "file": { "type": "direct", "content": "1\n" } }],
        "test": { "cases": [{ "input": "in", "output": "in" }, { "input": "in", "output": "in" }], "policy": "all" },
    })
}

async fn submit(client: &awc::Client, base: &str, key: &str, source: &str) -> Value {
    let body = json!({ "problem_id": "1000", "user_id": "张三", "request": request(source) });
    let mut response = client
        .post(format!("{base}/v1/submissions"))
        .insert_header(("Authorization", format!("Bearer {ADMIN_TOKEN}")))
        .insert_header(("Idempotency-Key", key))
        .send_json(&body)
        .await
        .unwrap();
    assert_eq!(response.status(), 202, "{:?}", response.body().await);
    response.json().await.unwrap()
}

async fn read(client: &awc::Client, base: &str, id: &str) -> Value {
    let mut response = client
        .get(format!("{base}/v1/submissions/{id}"))
        .insert_header(("Authorization", format!("Bearer {ADMIN_TOKEN}")))
        .send()
        .await
        .unwrap();
    response.json().await.unwrap()
}

/// Reads until the submission is in a state that this test waits for.
async fn read_until(client: &awc::Client, base: &str, id: &str, state: &str) -> Value {
    let started = Instant::now();
    loop {
        let submission = read(client, base, id).await;
        if submission["state"] == state {
            return submission;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "not {state} after a minute: {submission:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_submission_is_judged_and_its_verdict_can_be_read_with_its_whole_story() {
    let stack = Stack::start(StackOptions {
        stores: StoreOptions::disposable(),
        controller: FakeConfig::default(),
        variables: Vec::new(),
    })
    .unwrap();
    let base = stack.base_url();
    actix::System::new().block_on(async {
        let client = awc::Client::default();
        let first = submit(&client, &base, "first", "int main(){} // verdict: accepted").await;
        let id = first["id"].as_str().unwrap();
        let again = submit(&client, &base, "first", "int main(){} // verdict: accepted").await;
        assert_eq!(first["id"], again["id"], "the same key and body are the same submission");
        let wrong = submit(&client, &base, "second", "// verdict: wrong_answer, case 2").await;

        let judged = read_until(&client, &base, id, "judged").await;
        assert_eq!(judged["verdict"], "accepted", "{judged:#}");
        println!("{judged:#}");
        let judged = read_until(&client, &base, wrong["id"].as_str().unwrap(), "judged").await;
        assert_eq!(judged["verdict"], "wrong_answer", "{judged:#}");
    });
}
