//! Health, readiness, metrics, status, the OpenAPI document, and answers to what nobody serves.

use std::collections::BTreeSet;

use actix::{Actor, Arbiter, Context, Supervised};
use judge_relay::http::{CALLBACK_PATHS, document, endpoints};
use judge_relay::supervision::{ActorHandle, Escalation, PassLoop, Policy, Registry, supervise};
use serde_json::{Value, json};

use super::{ADMIN, CLIENT, Scene};

/// An actor whose boundary is down.
struct Relay(ActorHandle);

impl Actor for Relay {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        PassLoop::spawn(&self.0, ctx, async || Err(anyhow::anyhow!("PostgreSQL is down")));
    }
}

impl Supervised for Relay {}

/// Every method and address of the document.
fn documented() -> BTreeSet<(String, String)> {
    let document = serde_json::to_value(document()).expect("serialises");
    let paths = document["paths"].as_object().expect("paths").clone();
    let operations = |(path, item): (String, Value)| {
        let methods = item.as_object().expect("an item").keys().cloned().collect::<Vec<_>>();
        methods.into_iter().map(move |method| (method.to_uppercase(), path.clone()))
    };
    paths.into_iter().flat_map(operations).collect()
}

#[test]
fn the_document_has_every_address_of_the_service_and_no_other() {
    let served = endpoints().into_iter().map(|endpoint| (endpoint.method.to_string(), endpoint.path.to_owned()));
    let callbacks = CALLBACK_PATHS.map(|path| ("POST".to_owned(), path.to_owned()));
    assert_eq!(documented(), served.chain(callbacks).collect());
}

#[actix::test]
async fn every_documented_address_is_served() {
    let scene = Scene::set().await;
    for (method, path) in documented() {
        let path = path.replace("{id}", "01890000-0000-7000-8000-000000000000").replace("{name}", "nobody");
        if path.starts_with("/heng/") {
            continue;
        }
        let answer = scene.send(&method, &path, "", &[], "").await;
        let kind = serde_json::from_str::<Value>(&answer.text).ok().map(|body| body["type"].clone());
        assert!(
            answer.status != 405 && kind != Some(json!("urn:judge-relay:no-such-route")),
            "{method} {path}: {answer:?}"
        );
        let needs_token = path.starts_with("/v1/");
        assert_eq!(answer.status == 401, needs_token, "{method} {path}: {answer:?}");
    }
}

#[actix::test]
async fn the_document_is_whole() {
    let scene = Scene::set().await;
    let document = scene.get("/openapi.json", "").await.json();
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().expect("a name");
        assert!(document["components"]["schemas"][name].is_object(), "{name} is not defined");
    }
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("an item") {
            let is_described = operation["summary"].as_str().is_some_and(|summary| !summary.is_empty());
            assert!(is_described, "{method} {path}");
            let has_security = operation.get("security").is_some();
            assert_eq!(has_security, path.starts_with("/v1/"), "{method} {path}");
        }
    }
}

#[actix::test]
async fn what_nobody_serves_is_answered_in_the_form_of_every_error() {
    let scene = Scene::set().await;
    for path in ["/", "/v1", "/v1/submission", "/v1/submissions/", "/v1/submissions:other", "/heng/other"] {
        scene.get(path, CLIENT).await.problem(404);
    }
    let answer = scene.send("DELETE", "/v1/submissions", CLIENT, &[], "").await;
    answer.problem(405);
    assert_eq!(answer.header("allow"), Some("POST, GET, HEAD"));
    scene.send("POST", "/healthz", "", &[], "").await.problem(405);
    assert_eq!(scene.send("HEAD", "/healthz", "", &[], "").await.status, 200);
}

#[actix::test]
async fn a_process_is_alive_without_postgresql_and_shows_that_it_has_none() {
    let scene = Scene::without_postgresql().await;
    assert_eq!(scene.get("/healthz", "").await.status, 200);
    assert_eq!(scene.get("/metrics", "").await.text, "judge_relay_up 1\n");
    let status = scene.get("/v1/status", ADMIN).await;
    assert_eq!(status.status, 200);
    assert_eq!((&status.json()["store_answers"], &status.json()["lanes"]), (&json!(false), &Value::Null));
    assert!(!status.text.contains("secret"), "{status:?}");
}

#[actix::test]
async fn readiness_lists_every_actor_with_its_last_pass() {
    let scene = Scene::set().await;
    let answer = scene.get("/readyz", "").await;
    assert_eq!((answer.status, &answer.json()["reasons"]), (503, &json!(["no actor has been started yet"])));
    let registry = Registry::new(|_, _| {});
    let policy = Policy::new("relay", Escalation::EndProcess).checked().expect("a sound policy");
    let _address = supervise(&Arbiter::current(), &registry, policy, Relay);
    registry.until(|registry| registry.ready().is_ok()).await;
    let with_actors = Scene::with_registry(registry).await;
    let answer = with_actors.get("/readyz", "").await;
    let actor = answer.json()["actors"][0].clone();
    assert_eq!((answer.status, &actor["name"], &actor["state"]), (200, &json!("relay"), &json!("running")));
    assert_eq!(actor["last_pass"]["outcome"]["error"], "PostgreSQL is down");
    assert_eq!((&actor["restarts"], &actor["last_failure"]), (&json!(0), &Value::Null));
}

#[actix::test]
async fn the_status_shows_the_lanes_to_those_who_may_see_it() {
    let scene = Scene::set().await;
    let status = scene.get("/v1/status", ADMIN).await.json();
    let names: Vec<&Value> = status["lanes"].as_array().expect("lanes").iter().map(|lane| &lane["name"]).collect();
    assert_eq!(names, ["contest", "default", "rejudge"]);
    assert_eq!((&status["store_answers"], &status["draining"]), (&json!(true), &json!(false)));
    scene.get("/v1/status", CLIENT).await.problem(403);
    super::token_row(&scene.pool, "t-viewer", "judge", "viewer").await.expect("a token");
    assert_eq!(scene.get("/v1/status", "t-viewer").await.status, 200);
}

#[actix::test]
async fn while_draining_every_answer_closes_its_connection() {
    let scene = Scene::set().await;
    let paths = ["/healthz", "/readyz", "/v1/submissions", "/nothing"];
    for path in paths {
        assert_eq!(scene.get(path, CLIENT).await.header("connection"), None, "{path}");
    }
    scene.registry.drain();
    for path in paths {
        assert_eq!(scene.get(path, CLIENT).await.header("connection"), Some("close"), "{path}");
    }
    let readiness = scene.get("/readyz", "").await;
    assert_eq!(readiness.status, 503);
    assert!(readiness.text.contains("draining"), "{readiness:?}");
}
