//! `POST` and `DELETE /v1/admin/tokens`: made once, shown once, gone when deleted.

use diesel_async::RunQueryDsl;
use judge_relay::store::statement::statement;
use serde_json::{Value, json};

use super::{ADMIN, CLIENT, Scene, submission};

async fn make(scene: &Scene, by: &str, body: &Value) -> super::Answer {
    scene.send("POST", "/v1/admin/tokens", by, &[], body.to_string()).await
}

async fn delete(scene: &Scene, by: &str, name: &str) -> super::Answer {
    scene.send("DELETE", &format!("/v1/admin/tokens/{name}"), by, &[], "").await
}

#[actix::test]
async fn a_made_token_works_until_it_is_deleted() {
    let scene = Scene::set().await;
    let made = make(&scene, ADMIN, &json!({"name": "ci", "tenant": "judge", "role": "client"})).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let token = made.json()["token"].as_str().expect("a token").to_owned();
    assert!(token.starts_with("jr_") && token.len() == 46, "{token}");
    assert_eq!(scene.post("/v1/submissions", &token, "k1", &submission()).await.status, 202);
    assert_eq!(delete(&scene, ADMIN, "ci").await.status, 204);
    scene.get("/v1/submissions", &token).await.problem(401);
    delete(&scene, ADMIN, "ci").await.problem(404);
    let again = make(&scene, ADMIN, &json!({"name": "ci", "tenant": "judge", "role": "client"})).await;
    assert_eq!(again.status, 201, "the name is free again");
}

#[actix::test]
async fn only_the_hash_of_a_token_is_stored_and_every_action_is_on_record() {
    let scene = Scene::set().await;
    let made = make(&scene, ADMIN, &json!({"name": "ci", "tenant": "judge", "role": "viewer"})).await;
    let token = made.json()["token"].as_str().expect("a token").to_owned();
    delete(&scene, ADMIN, "ci").await;
    let sql = "select (select string_agg(t::text, ' ') from api_tokens t) || (select string_agg(a::text, ' ' order by at) from operator_actions a)";
    let mut connection = scene.pool.get().await.expect("a connection");
    let stored: String = statement::<diesel::sql_types::Text>(sql).get_result(&mut connection).await.expect("text");
    assert!(!stored.contains(&token[3..]), "{stored}");
    for action in ["environment-admin,token.create,ci,done", "environment-admin,token.revoke,ci,done"] {
        assert!(stored.contains(action), "{stored}");
    }
}

#[actix::test]
async fn a_name_is_taken_only_while_its_token_lives() {
    let scene = Scene::set().await;
    let body = json!({"name": "ci", "tenant": "judge", "role": "client"});
    assert_eq!(make(&scene, ADMIN, &body).await.status, 201);
    make(&scene, ADMIN, &body).await.problem(409);
}

#[actix::test]
async fn administrators_manage_their_own_tenant_and_nobody_else_manages_any() {
    let scene = Scene::set().await;
    super::token_row(&scene.pool, "t-admin", "other", "admin").await.expect("a token");
    super::token_row(&scene.pool, "t-operator", "other", "operator").await.expect("a token");
    let body = |tenant: &str| json!({"name": format!("new {tenant}"), "tenant": tenant, "role": "client"});
    assert_eq!(make(&scene, "t-admin", &body("other")).await.status, 201);
    make(&scene, "t-admin", &body("judge")).await.problem(403);
    for token in ["t-operator", CLIENT] {
        make(&scene, token, &body("other")).await.problem(403);
        delete(&scene, token, "new%20other").await.problem(403);
    }
    delete(&scene, "t-admin", "client%20of%20judge").await.problem(404);
    assert_eq!(scene.get("/v1/submissions", CLIENT).await.status, 200, "it still lives");
    assert_eq!(delete(&scene, "t-admin", "new%20other").await.status, 204);
}

#[actix::test]
async fn every_problem_of_a_new_token_is_listed() {
    let scene = Scene::set().await;
    let answer = make(&scene, ADMIN, &json!({"name": "environment-admin", "role": "root", "secret": 1})).await;
    assert_eq!(answer.paths(), ["$.secret", "$.name", "$.tenant", "$.role"]);
    delete(&scene, ADMIN, "%00").await.problem(404);
}

#[actix::test]
async fn a_token_is_only_taken_as_one_bearer_header() {
    let scene = Scene::set().await;
    for header in [CLIENT.to_owned(), format!("Basic {CLIENT}"), "Bearer".to_owned(), "Bearer ".to_owned()] {
        scene.send("GET", "/v1/submissions", "", &[("Authorization", &header)], "").await.problem(401);
    }
    let lower = format!("bearer {CLIENT}");
    assert_eq!(scene.send("GET", "/v1/submissions", "", &[("Authorization", &lower)], "").await.status, 200);
}
