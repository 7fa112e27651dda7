//! `POST /v1/submissions:batch`: each item on its own, in order.

use serde_json::{Value, json};

use super::{CLIENT, Scene, paths_of, submission, with};

fn item(key: &str, mut body: Value) -> Value {
    body["idempotency_key"] = json!(key);
    body
}

async fn batch(scene: &Scene, items: Vec<Value>) -> Vec<Value> {
    let body = json!({"items": items}).to_string();
    let answer = scene.send("POST", "/v1/submissions:batch", CLIENT, &[], body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["items"].as_array().expect("a list").clone()
}

#[actix::test]
async fn every_item_gets_the_answer_that_it_would_have_got_alone() {
    let scene = Scene::set().await;
    let known = scene.submit("known", &submission()).await.json();
    let items = vec![
        item("new", submission()),
        item("known", submission()),
        item("known", with("/user_id", json!("v"))),
        item("bad", with("/user_id", json!(""))),
        with("/request/test/policy", json!("x")),
        json!(7),
        item("contest", with("/scope", json!({"contest": "c"}))),
    ];
    let answers = batch(&scene, items).await;
    let statuses: Vec<Option<u64>> = answers.iter().map(|answer| answer["status"].as_u64()).collect();
    assert_eq!(statuses, [202, 202, 409, 422, 422, 422, 202].map(Some));
    assert_eq!((&answers[0]["replayed"], &answers[1]["replayed"]), (&json!(false), &json!(true)));
    assert_eq!(answers[1]["submission"], known);
    assert_eq!(answers[2]["problem"]["submission_id"], known["id"]);
    assert_eq!(paths_of(&answers[3]["problem"]), ["$.items[3].user_id"]);
    assert_eq!(paths_of(&answers[4]["problem"]), ["$.items[4].idempotency_key", "$.items[4].request.test.policy"]);
    assert_eq!(paths_of(&answers[5]["problem"]), ["$.items[5]"]);
    let url = answers[6]["submission"]["status_url"].as_str().expect("a URL");
    assert_eq!(scene.get(url, CLIENT).await.json()["lane"], "contest");
}

#[actix::test]
async fn a_key_that_is_twice_in_a_batch_belongs_to_its_first_item() {
    let scene = Scene::set().await;
    let other = with("/problem_id", json!("q"));
    let items = vec![item("k", submission()), item("k", submission()), item("k", other.clone()), item("l", other)];
    let answers = batch(&scene, items.clone()).await;
    assert_eq!((&answers[0]["status"], &answers[0]["replayed"]), (&json!(202), &json!(false)));
    assert_eq!((&answers[1]["status"], &answers[1]["replayed"]), (&json!(202), &json!(true)));
    assert_eq!(answers[0]["submission"], answers[1]["submission"]);
    assert_eq!(answers[2]["status"], 409);
    assert_eq!(answers[2]["problem"]["submission_id"], answers[0]["submission"]["id"]);
    assert_eq!(answers[3]["status"], 202);
    assert_eq!(scene.wakes(), 1);
    let again = batch(&scene, items).await;
    for (first, second) in answers.iter().zip(&again) {
        assert_eq!((&first["status"], &first["submission"]), (&second["status"], &second["submission"]));
    }
    assert_eq!(scene.wakes(), 1, "nothing new was committed");
}

#[actix::test]
async fn a_batch_has_one_to_five_hundred_items_and_nothing_else() {
    let scene = Scene::set().await;
    for (body, expected) in [
        (json!({}), vec!["$.items"]),
        (json!({"items": []}), vec!["$.items"]),
        (json!({"items": {}}), vec!["$.items"]),
        (json!({"items": vec![0; 501]}), vec!["$.items"]),
        (json!({"items": [1], "more": 1}), vec!["$.more"]),
        (json!([]), vec!["$"]),
    ] {
        let answer = scene.send("POST", "/v1/submissions:batch", CLIENT, &[], body.to_string()).await;
        assert_eq!(answer.paths(), expected);
    }
    let large = json!({"items": [item("k", with("/user_id", json!("x".repeat(300 * 1024))))]});
    scene.send("POST", "/v1/submissions:batch", CLIENT, &[], large.to_string()).await.problem(413);
}

#[actix::test]
async fn invalid_items_alone_commit_nothing() {
    let scene = Scene::set().await;
    let answers = batch(&scene, vec![json!({}), json!({})]).await;
    assert!(answers.iter().all(|answer| answer["status"] == 422), "{answers:?}");
    assert_eq!(scene.wakes(), 0);
}
