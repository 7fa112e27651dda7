//! The HTTP API on a real server with a real PostgreSQL, seen from outside.
//! Not the callback door and not the actors.

mod batches;
mod intake;
mod journeys;
mod lists;
mod operation;
mod tokens;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, web};
use judge_relay::http::{Api, ApiOptions, BodyLimits, configure, hash_of};
use judge_relay::store::pool::PoolOptions;
use judge_relay::store::tokens::{TokenRow, create};
use judge_relay::store::{Pool, StoreResult};
use judge_relay::supervision::Registry;
use serde_json::{Value, json};

use crate::harness::SCHEMA;
use crate::harness::stores::TestStores;

/// The environment's administrator token.
pub const ADMIN: &str = "environment-secret-token";
/// A client of the tenant `judge`.
pub const CLIENT: &str = "client-secret-token";
/// A client of the tenant `other`.
pub const STRANGER: &str = "stranger-secret-token";

/// In every source that is submitted here: it must never come back.
pub const SOURCE: &str = "int main() { return 42; }";

/// Long enough for a loaded machine; nothing is measured with it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with its stores. It stops when this is dropped.
pub struct Scene {
    pub pool: Pool,
    pub registry: Registry,
    wakes: Arc<AtomicUsize>,
    address: SocketAddr,
    server: ServerHandle,
    _stores: Option<TestStores>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        // The command is sent at once; the future would only wait for its end.
        drop(self.server.stop(false));
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// The body, which must be an error of this status in the form of RFC 9457.
    pub fn problem(&self, status: u16) -> Value {
        let body = self.json();
        assert_eq!((self.status, &body["status"]), (status, &json!(status)), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert!(body["type"].as_str().is_some_and(|kind| kind.starts_with("urn:judge-relay:")), "{self:?}");
        for member in ["title", "detail"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        }
        body
    }

    /// The paths of all problems, in order.
    pub fn paths(&self) -> Vec<String> {
        paths_of(&self.problem(422))
    }
}

pub fn paths_of(problem: &Value) -> Vec<String> {
    let problems = problem["problems"].as_array().unwrap_or_else(|| panic!("no problems in {problem}"));
    problems.iter().map(|problem| problem["path"].as_str().expect("a path").to_owned()).collect()
}

fn pool(url: &str) -> Pool {
    let (connect_limit, statement_limit) = (PATIENCE, PATIENCE);
    Pool::new(url, &PoolOptions { application_name: "test", size: 4, connect_limit, statement_limit }).expect("a pool")
}

impl Scene {
    /// A server over a fresh database with one client each of two tenants.
    pub async fn set() -> Scene {
        Scene::with_registry(Registry::new(|_, _| {})).await
    }

    /// The same, with actors.
    pub async fn with_registry(registry: Registry) -> Scene {
        let stores = SCHEMA.fresh();
        let pool = pool(&stores.database_url);
        for (token, tenant) in [(CLIENT, "judge"), (STRANGER, "other")] {
            token_row(&pool, token, tenant, "client").await.expect("a token");
        }
        Scene::over(pool, PATIENCE, Some(stores), registry)
    }

    /// A server whose PostgreSQL cannot be reached.
    pub async fn without_postgresql() -> Scene {
        // Port 1 is never served.
        let url = "postgres://secret-user:secret-password@127.0.0.1:1/secret-name";
        Scene::over(pool(url), Duration::from_millis(50), None, Registry::new(|_, _| {}))
    }

    fn over(pool: Pool, store_limit: Duration, stores: Option<TestStores>, registry: Registry) -> Scene {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counted = wakes.clone();
        let api = web::Data::new(Api::new(ApiOptions {
            pool: pool.clone(),
            registry: registry.clone(),
            admin_token_hash: Some(hash_of(ADMIN)),
            admin_tenant: "judge".to_owned(),
            wake: Arc::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
            }),
            metrics: Arc::new(|| "judge_relay_up 1\n".to_owned()),
            body_limits: BodyLimits { single: 200 * 1024, batch: 300 * 1024 },
            store_limit,
        }));
        let (address, server) = serve(api);
        Scene { pool, registry, wakes, address, server, _stores: stores }
    }

    /// How often the relay was woken.
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub async fn get(&self, path: &str, token: &str) -> Answer {
        self.send("GET", path, token, &[], "").await
    }

    pub async fn post(&self, path: &str, token: &str, key: &str, body: &Value) -> Answer {
        self.send("POST", path, token, &[("Idempotency-Key", key)], &body.to_string()).await
    }

    pub async fn submit(&self, key: &str, body: &Value) -> Answer {
        self.post("/v1/submissions", CLIENT, key, body).await
    }

    /// Sends a request; a body is declared as JSON unless `headers` say something else.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        token: &str,
        headers: &[(&str, &str)],
        body: impl Into<String>,
    ) -> Answer {
        let client = awc::Client::builder().timeout(PATIENCE).finish();
        let mut request = client.request(method.parse().expect("a method"), self.url(path));
        if !token.is_empty() {
            request = request.insert_header(("Authorization", format!("Bearer {token}")));
        }
        let body: String = body.into();
        if !body.is_empty() {
            request = request.insert_header(("Content-Type", "application/json"));
        }
        for header in headers {
            request = request.insert_header(*header);
        }
        let mut response = request.send_body(body).await.expect("an answer");
        let text = |value: &awc::http::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let status = response.status().as_u16();
        let body = response.body().limit(16 << 20).await.expect("a body");
        Answer { status, headers, text: String::from_utf8(body.to_vec()).expect("UTF-8") }
    }
}

pub async fn token_row(pool: &Pool, token: &str, tenant: &str, role: &str) -> StoreResult<()> {
    let row = TokenRow { name: format!("{role} of {tenant}"), tenant: tenant.to_owned(), role: role.to_owned() };
    create(pool, "the test", &row, &hash_of(token)).await
}

/// Serves on a thread of its own until it is stopped.
fn serve(api: web::Data<Api>) -> (SocketAddr, ServerHandle) {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        actix_web::rt::System::new().block_on(async move {
            let app = move || App::new().configure(|config| configure(config, api.clone()));
            let server = HttpServer::new(app).workers(1).disable_signals().bind(("127.0.0.1", 0)).expect("a port");
            let address = server.addrs()[0];
            let server = server.run();
            sender.send((address, server.handle())).expect("the test waits");
            server.await.expect("it serves");
        });
    });
    receiver.recv().expect("the server starts")
}

/// A judge request with one case.
pub fn request() -> Value {
    json!({
        "judge": {
            "type": "normal",
            "user": {
                "source": {"type": "direct", "content": SOURCE},
                "environment": {"language": "cpp", "system": "Linux", "arch": "x64"},
                "limit": {
                    "runtime": {"memory": 134_217_728, "cpuTime": 1_000, "output": 67_108_864},
                    "compiler": {"memory": 536_870_912, "cpuTime": 10_000, "output": 67_108_864, "message": 102_400},
                },
            },
        },
        "test": {"cases": [{"input": "in", "output": "out"}], "policy": "all"},
    })
}

/// A submission of user `u` for problem `p`.
pub fn submission() -> Value {
    json!({"problem_id": "p", "user_id": "u", "request": request()})
}

/// The submission with another value at a JSON pointer; null removes nothing, it is a value.
pub fn with(pointer: &str, value: Value) -> Value {
    let mut body = submission();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    body.pointer_mut(parent).expect("the parent").as_object_mut().expect("an object").insert(name.to_owned(), value);
    body
}

/// The submission without the member at a JSON pointer.
pub fn without(pointer: &str) -> Value {
    let mut body = submission();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    body.pointer_mut(parent)
        .expect("the parent")
        .as_object_mut()
        .expect("an object")
        .remove(name)
        .expect("it was there");
    body
}
