//! `POST /v1/submissions`: one key is one submission, and everything bad is named.

use diesel_async::RunQueryDsl;
use judge_relay::store::statement::statement;
use serde_json::{Value, json};

use super::{ADMIN, CLIENT, STRANGER, Scene, request, submission, with, without};

async fn rows(scene: &Scene) -> i64 {
    let sql = "select count(*) from submissions s join outbox_events o on o.aggregate_id = s.id
               join judge_requests r on r.submission_id = s.id";
    let mut connection = scene.pool.get().await.expect("a connection");
    statement::<diesel::sql_types::BigInt>(sql).get_result(&mut connection).await.expect("a count")
}

#[actix::test]
async fn an_accepted_submission_is_committed_with_its_intent_and_wakes_the_relay() {
    let scene = Scene::set().await;
    let answer = scene.submit("k1", &submission()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let body = answer.json();
    let url = body["status_url"].as_str().expect("a URL");
    assert_eq!((&body["state"], &body["generation"]), (&json!("pending"), &json!(1)));
    assert_eq!(answer.header("location"), Some(url));
    assert_eq!(answer.header("idempotency-replayed"), None);
    assert_eq!(rows(&scene).await, 1);
    assert_eq!(scene.wakes(), 1);
    assert_eq!(scene.get(url, CLIENT).await.json()["id"], body["id"]);
}

#[actix::test]
async fn the_same_key_and_body_get_the_same_answer_again() {
    let scene = Scene::set().await;
    let first = scene.submit("k1", &submission()).await;
    // The order of outer members and the layout of the request's text are no difference.
    let text = format!(
        "{{\"request\": {}, \"user_id\":\"\\u0075\", \"scope\":null, \"problem_id\":\"p\"}}",
        serde_json::to_string_pretty(&request()).expect("JSON")
    );
    let again = scene.send("POST", "/v1/submissions", CLIENT, &[("Idempotency-Key", "k1")], text).await;
    assert_eq!((again.status, &again.text), (202, &first.text));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(rows(&scene).await, 1);
    assert_eq!(scene.wakes(), 1);
}

#[actix::test]
async fn another_body_under_a_known_key_is_a_conflict_that_names_the_owner() {
    let scene = Scene::set().await;
    let owner = scene.submit("k1", &submission()).await.json()["id"].clone();
    let others = [
        with("/user_id", json!("v")),
        with("/problem_id", json!("q")),
        with("/scope", json!({"course": "c"})),
        with("/lane", json!("rejudge")),
        with("/external_id", json!("x")),
        with("/request/test/policy", json!("fuse")),
    ];
    for other in &others {
        let problem = scene.submit("k1", other).await.problem(409);
        assert_eq!(problem["submission_id"], owner);
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(owner.as_str().expect("an id"))));
    }
    assert_eq!(rows(&scene).await, 1);
}

#[actix::test]
async fn keys_of_different_tenants_have_nothing_to_do_with_each_other() {
    let scene = Scene::set().await;
    let ours = scene.submit("k1", &submission()).await;
    let theirs = scene.post("/v1/submissions", STRANGER, "k1", &with("/user_id", json!("v"))).await;
    assert_eq!((ours.status, theirs.status), (202, 202));
    assert_ne!(ours.json()["id"], theirs.json()["id"]);
}

#[actix::test]
async fn one_key_sent_sixteen_times_at_once_is_one_submission() {
    let scene = Scene::set().await;
    let body = submission();
    let answers = futures_util::future::join_all((0..16).map(|_| scene.submit("k1", &body))).await;
    let replays = answers.iter().filter(|answer| answer.header("idempotency-replayed").is_some()).count();
    assert!(answers.iter().all(|answer| answer.status == 202 && answer.text == answers[0].text), "{answers:?}");
    assert_eq!((replays, rows(&scene).await), (15, 1));
}

#[actix::test]
async fn every_bad_value_is_refused_with_its_path() {
    let scene = Scene::set().await;
    let long = "x".repeat(129);
    let cases: Vec<(Value, &str)> = vec![
        (without("/problem_id"), "$.problem_id"),
        (without("/user_id"), "$.user_id"),
        (without("/request"), "$.request"),
        (with("/problem_id", json!(1)), "$.problem_id"),
        (with("/user_id", json!("")), "$.user_id"),
        (with("/user_id", json!(long)), "$.user_id"),
        (with("/user_id", json!("a\u{0}b")), "$.user_id"),
        (with("/problem_id", json!("a\nb")), "$.problem_id"),
        (with("/external_id", json!("\u{7f}")), "$.external_id"),
        (with("/scope", json!({})), "$.scope"),
        (with("/scope", json!("c1")), "$.scope"),
        (with("/scope", json!({"contest": 1})), "$.scope.contest"),
        (with("/scope", json!({"contest": "c", "team": "t"})), "$.scope.team"),
        (with("/lane", json!("fast")), "$.lane"),
        (with("/lane", json!(3)), "$.lane"),
        (with("/priority", json!(3)), "$.priority"),
        (with("/request", json!([])), "$.request"),
        (
            with("/request/callbackUrls", json!({"update": "http://a.b/", "finish": "http://a.b/"})),
            "$.request.callbackUrls",
        ),
        (with("/request/judge/user/limit/runtime/memory", json!(1)), "$.request.judge.user.limit.runtime.memory"),
        (with("/request/test/cases", json!([{"input": "", "output": "o"}])), "$.request.test.cases[0].input"),
        (without("/request/test"), "$.request.test"),
        (json!([]), "$"),
    ];
    for (body, path) in &cases {
        let paths = scene.submit("k1", body).await.paths();
        assert!(paths.iter().any(|found| found == path), "{path} is not among {paths:?}");
    }
    assert_eq!(super::intake::rows(&scene).await, 0);
}

#[actix::test]
async fn all_problems_are_listed_at_once() {
    let scene = Scene::set().await;
    let body = r#"{"user_id":7,"lane":"fast","lane":"slow","scope":{"contest":""},"more":1,
                   "request":{"judge":{"type":"odd"},"test":{"cases":[],"cases":[],"policy":"x"}}}"#;
    let paths = scene.send("POST", "/v1/submissions", CLIENT, &[], body).await.paths();
    let expected = [
        "$.lane",
        "$.more",
        "header Idempotency-Key",
        "$.problem_id",
        "$.user_id",
        "$.scope.contest",
        "$.lane",
        "$.request.test.cases",
    ];
    assert_eq!(paths, expected);
    let body = with("/request", json!({"judge": {"type": "odd"}, "test": {"cases": [{}], "policy": "x"}, "more": 1}));
    let paths = scene.submit("k1", &body).await.paths();
    for path in [
        "$.request.judge.type",
        "$.request.judge.user",
        "$.request.test.policy",
        "$.request.test.cases[0].input",
        "$.request.more",
    ] {
        assert!(paths.iter().any(|found| found == path), "{path} is not among {paths:?}");
    }
}

#[actix::test]
async fn what_a_parser_would_hide_in_a_request_is_seen() {
    let scene = Scene::set().await;
    let text = submission().to_string();
    for (good, bad, path) in [
        (r#""policy":"all""#, r#""policy":"all","policy":"fuse""#, "$.request.test.policy"),
        (r#""cpuTime":1000,"#, r#""cpuTime":1000.0,"#, "$.request.judge.user.limit.runtime.cpuTime"),
        (r#""language":"cpp""#, r#""language":"\ud800""#, "$.request.judge.user.environment.language"),
        (r#""arch":"x64""#, r#""arch":"x64","options":{"1":2}"#, r#"$.request.judge.user.environment.options["1"]"#),
    ] {
        let changed = text.replacen(good, bad, 1);
        assert_ne!(changed, text, "{good}");
        let paths = scene.send("POST", "/v1/submissions", CLIENT, &[("Idempotency-Key", "k1")], changed).await.paths();
        assert_eq!(paths, [path]);
    }
}

#[actix::test]
async fn the_idempotency_key_is_required_and_visible_ascii() {
    let scene = Scene::set().await;
    let body = submission().to_string();
    let long = "k".repeat(256);
    for headers in
        [vec![], vec![("Idempotency-Key", "")], vec![("Idempotency-Key", "a b")], vec![("Idempotency-Key", &*long)]]
    {
        let paths = scene.send("POST", "/v1/submissions", CLIENT, &headers, body.clone()).await.paths();
        assert_eq!(paths, ["header Idempotency-Key"]);
    }
    assert_eq!(scene.submit(&"k".repeat(255), &submission()).await.status, 202);
}

#[actix::test]
async fn submissions_of_a_contest_wait_in_its_lane_unless_they_name_another() {
    let scene = Scene::set().await;
    for (at, (scope, lane, expected)) in [
        (json!(null), json!(null), "default"),
        (json!({"course": "c"}), json!(null), "default"),
        (json!({"contest": "c"}), json!(null), "contest"),
        (json!({"contest": "c", "course": "d"}), json!("rejudge"), "rejudge"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = with("/scope", scope);
        body["lane"] = lane;
        let answer = scene.submit(&format!("k{at}"), &body).await;
        let url = answer.header("location").expect("a location").to_owned();
        assert_eq!(scene.get(&url, CLIENT).await.json()["lane"], expected);
    }
}

#[actix::test]
async fn what_is_not_one_json_document_is_refused_before_its_members_are_looked_at() {
    let scene = Scene::set().await;
    let key = ("Idempotency-Key", "k1");
    for broken in ["{", "{\"a\":1,}", "nonsense", "{} {}", "\u{feff}{}"] {
        scene.send("POST", "/v1/submissions", CLIENT, &[key], broken).await.problem(400);
    }
    scene.send("POST", "/v1/submissions", CLIENT, &[key, ("Content-Type", "application/json")], "").await.problem(400);
    let text = submission().to_string();
    for other in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "nonsense"] {
        scene.send("POST", "/v1/submissions", CLIENT, &[key, ("Content-Type", other)], text.clone()).await.problem(415);
    }
    let compressed = [key, ("Content-Encoding", "gzip")];
    scene.send("POST", "/v1/submissions", CLIENT, &compressed, text.clone()).await.problem(415);
    let with_charset = [key, ("Content-Type", "application/json; charset=utf-8")];
    assert_eq!(scene.send("POST", "/v1/submissions", CLIENT, &with_charset, text).await.status, 202);
}

#[actix::test]
async fn the_size_of_a_body_and_of_a_request_are_limited() {
    let scene = Scene::set().await;
    let source = |bytes: usize| with("/request/judge/user/source/content", json!("x".repeat(bytes)));
    scene.submit("k1", &source(200 * 1024)).await.problem(413);
    // Smaller than the limit of the body, larger than what the controller takes.
    let answer = scene.submit("k1", &source(102_400)).await;
    assert_eq!(answer.paths(), ["$.request"]);
    assert_eq!(scene.submit("k1", &source(90_000)).await.status, 202);
}

#[actix::test]
async fn only_tokens_that_may_submit_do() {
    let scene = Scene::set().await;
    let body = submission();
    for token in ["", "unknown"] {
        let answer = scene.post("/v1/submissions", token, "k1", &body).await;
        answer.problem(401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    super::token_row(&scene.pool, "viewer-secret", "judge", "viewer").await.expect("a token");
    scene.post("/v1/submissions", "viewer-secret", "k1", &body).await.problem(403);
    scene.post("/v1/submissions?tenant=other", CLIENT, "k1", &body).await.problem(403);
    let answer = scene.post("/v1/submissions?tenant=other", ADMIN, "k1", &body).await;
    let url = answer.header("location").expect("a location").to_owned();
    assert_eq!(scene.get(&url, STRANGER).await.status, 200);
    assert_eq!(scene.get(&url, CLIENT).await.status, 404);
}

#[actix::test]
async fn without_postgresql_a_caller_is_told_to_come_again_and_nothing_else() {
    let scene = Scene::without_postgresql().await;
    let body = submission();
    for answer in [
        scene.submit("k1", &body).await,
        scene.post("/v1/submissions", ADMIN, "k1", &body).await,
        scene.post("/v1/submissions:batch", ADMIN, "", &json!({"items": [body]})).await,
        scene.get("/v1/submissions", ADMIN).await,
        scene.get("/v1/submissions/01890000-0000-7000-8000-000000000000", CLIENT).await,
    ] {
        let problem = answer.problem(503);
        assert_eq!(answer.header("retry-after"), Some("2"));
        assert_eq!(problem["retry_after"], 2);
        assert!(!answer.text.contains("secret") && !answer.text.contains("127.0.0.1"), "{answer:?}");
    }
    assert_eq!(scene.wakes(), 0);
}
