//! `GET /v1/submissions`: pages without gaps or repeats, and conditions.

use serde_json::{Value, json};

use super::{ADMIN, CLIENT, STRANGER, Scene, submission};

/// Makes submissions `first..last`, in batches; every third is of user `u3`, every fifth of contest `c5`.
async fn make(scene: &Scene, range: std::ops::Range<usize>) {
    let item = |at: usize| {
        let mut body = submission();
        body["idempotency_key"] = json!(format!("k{at}"));
        body["external_id"] = json!(format!("x{at}"));
        body["problem_id"] = json!(format!("p{}", at % 2));
        if at.is_multiple_of(3) {
            body["user_id"] = json!("u3");
        }
        if at.is_multiple_of(5) {
            body["scope"] = json!({"contest": "c5"});
        }
        body
    };
    let body = json!({"items": range.map(item).collect::<Vec<_>>()});
    let answer = scene.send("POST", "/v1/submissions:batch", CLIENT, &[], body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

async fn page(scene: &Scene, url: &str) -> (Vec<Value>, Option<String>) {
    let answer = scene.get(url, CLIENT).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    assert_eq!(body["next"].is_null(), body["next_url"].is_null());
    (body["items"].as_array().expect("a list").clone(), body["next_url"].as_str().map(str::to_owned))
}

/// Follows `next_url` to the end.
async fn all(scene: &Scene, url: &str) -> Vec<String> {
    let (mut found, mut next) = (Vec::new(), Some(url.to_owned()));
    while let Some(url) = next {
        let (items, following) = page(scene, &url).await;
        assert!(!items.is_empty(), "an empty page behind a cursor: {url}");
        found.extend(items.iter().map(|item| item["external_id"].as_str().expect("an id").to_owned()));
        next = following;
    }
    found
}

fn expected(range: std::ops::Range<usize>, condition: impl Fn(usize) -> bool) -> Vec<String> {
    range.rev().filter(|at| condition(*at)).map(|at| format!("x{at}")).collect()
}

#[actix::test]
async fn pages_have_neither_gaps_nor_repeats_while_submissions_come_in() {
    let scene = Scene::set().await;
    make(&scene, 0..120).await;
    let (first, next) = page(&scene, "/v1/submissions").await;
    assert_eq!(first.len(), 50, "the default");
    make(&scene, 120..130).await;
    let mut found: Vec<String> =
        first.iter().map(|item| item["external_id"].as_str().expect("an id").to_owned()).collect();
    found.extend(all(&scene, &next.expect("more")).await);
    assert_eq!(found, expected(0..120, |_| true));
    assert_eq!(all(&scene, "/v1/submissions?limit=65").await, expected(0..130, |_| true), "two full pages");
}

#[actix::test]
async fn all_conditions_hold_and_stay_on_the_following_pages() {
    let scene = Scene::set().await;
    make(&scene, 0..60).await;
    assert_eq!(all(&scene, "/v1/submissions?user_id=u3&limit=7").await, expected(0..60, |at| at % 3 == 0));
    assert_eq!(all(&scene, "/v1/submissions?problem_id=p1&limit=7").await, expected(0..60, |at| at % 2 == 1));
    assert_eq!(all(&scene, "/v1/submissions?contest_id=c5&limit=7").await, expected(0..60, |at| at % 5 == 0));
    assert_eq!(all(&scene, "/v1/submissions?external_id=x7").await, ["x7"]);
    let both = "/v1/submissions?user_id=u3&contest_id=c5&problem_id=p0&state=pending&limit=1";
    assert_eq!(all(&scene, both).await, expected(0..60, |at| at % 30 == 0));
    for none in ["user_id=nobody", "state=judged", "verdict=accepted", "external_id=x7&user_id=u3"] {
        assert_eq!(page(&scene, &format!("/v1/submissions?{none}")).await, (vec![], None), "{none}");
    }
}

#[actix::test]
async fn every_bad_parameter_is_named() {
    let scene = Scene::set().await;
    let answer = scene.get("/v1/submissions?limit=201&state=lost&verdict=good&after=x&user=u", CLIENT).await;
    let expected = ["query user", "query state", "query verdict", "query after", "query limit"];
    assert_eq!(answer.paths(), expected);
}

#[actix::test]
async fn a_tenant_sees_its_own_submissions_only() {
    let scene = Scene::set().await;
    make(&scene, 0..3).await;
    let (items, _) = page(&scene, "/v1/submissions").await;
    let url = format!("/v1/submissions/{}", items[0]["id"].as_str().expect("an id"));
    for (role, token) in [("viewer", "t-viewer"), ("operator", "t-operator"), ("admin", "t-admin")] {
        super::token_row(&scene.pool, token, "other", role).await.expect("a token");
    }
    for token in [STRANGER, "t-viewer", "t-operator", "t-admin"] {
        let answer = scene.get("/v1/submissions", token).await;
        assert_eq!(answer.json(), json!({"items": [], "next": null, "next_url": null}), "{token}");
        scene.get(&url, token).await.problem(404);
        scene.get(&format!("{url}?tenant=judge"), token).await.problem(403);
        scene.get("/v1/submissions?tenant=judge", token).await.problem(403);
    }
    assert_eq!(scene.get(&url, ADMIN).await.status, 200, "its own tenant");
    scene.get(&format!("{url}?tenant=other"), ADMIN).await.problem(404);
    let theirs = scene.get("/v1/submissions?tenant=judge&limit=2", ADMIN).await.json();
    assert!(theirs["next_url"].as_str().is_some_and(|url| url.contains("tenant=judge")), "{theirs}");
}

#[actix::test]
async fn what_is_no_submission_of_the_tenant_is_not_found() {
    let scene = Scene::set().await;
    for id in ["01890000-0000-7000-8000-000000000000", "nonsense", "%00", "%ff", "'%20or%20true"] {
        scene.get(&format!("/v1/submissions/{id}"), CLIENT).await.problem(404);
    }
}
