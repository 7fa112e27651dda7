//! `GET /v1/submissions/{id}` at every place of a submission's way, which the store's own functions lead it along.

use std::time::Duration;

use diesel_async::RunQueryDsl;
use judge_relay::protocol::deadline::DeadlinePolicy;
use judge_relay::protocol::heng::result::parse_finish;
use judge_relay::protocol::retry::Backoff;
use judge_relay::protocol::submission::Budget;
use judge_relay::protocol::{Generation, JudgeId, SubmissionId};
use judge_relay::store::attempts::{self, Begun, Progress, Request, SendOutcome, Sent};
use judge_relay::store::outbox::{self, Leased, Published};
use judge_relay::store::results::{self, Incoming, Via};
use judge_relay::store::statement::command;
use judge_relay::store::{dead_letters, instances};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{ADMIN, CLIENT, SOURCE, STRANGER, Scene, submission, with};

const BUDGET: Budget = Budget { attempts_max: 2, rescues_max: 2 };
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

/// A submission on its way, and the process that moves it.
struct Walk {
    scene: Scene,
    id: SubmissionId,
    instance: Uuid,
}

impl Walk {
    async fn begin() -> Walk {
        let scene = Scene::set().await;
        let instance = Uuid::new_v4();
        instances::heartbeat(&scene.pool, instance, "pod-7").await.expect("a heartbeat");
        let body = scene.submit("k1", &with("/external_id", json!("x1"))).await.json();
        let id = SubmissionId(body["id"].as_str().expect("an id").parse().expect("a UUID"));
        Walk { scene, id, instance }
    }

    async fn read(&self) -> Value {
        let answer = self.scene.get(&format!("/v1/submissions/{}", self.id), CLIENT).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// The stage, after the holder and the next step were found to say what they must.
    async fn place(&self, holder: &str, next: &str) -> String {
        let place = self.read().await["where"].clone();
        let text = |name: &str| place[name].as_str().expect("a text").to_owned();
        assert!(text("holder").contains(holder), "{place}");
        assert!(text("next").contains(next), "{place}");
        text("stage")
    }

    async fn claim(&self) -> Leased {
        let rooms = [("judge:default".to_owned(), 10)];
        let mut leased = outbox::claim_lanes(&self.scene.pool, self.instance, LEASE, &rooms).await.expect("leases");
        leased.pop().expect("a due row")
    }

    async fn publish(&self, leased: &Leased, stream_id: &str) {
        let published = Published { event_id: leased.event_id, fence: leased.fence, stream_id: stream_id.to_owned() };
        assert_eq!(outbox::mark_published(&self.scene.pool, &[published]).await.expect("marked"), 1);
    }

    async fn begin_attempt(&self, leased: &Leased, stream_id: &str) -> JudgeId {
        let request = Request {
            event_id: leased.event_id,
            submission: self.id,
            generation: leased.generation,
            stream_id: stream_id.to_owned(),
        };
        let deadlines =
            DeadlinePolicy { factor: 2.0, queue_allowance: SECOND, floor: 60 * SECOND, ceiling: 600 * SECOND };
        let rules = attempts::Rules { instance: self.instance, budget: BUDGET, deadlines };
        match attempts::begin(&self.scene.pool, &[request], &rules).await.expect("begun").pop() {
            Some(Begun::Send(to_send)) => to_send.judge_id,
            other => panic!("{other:?}"),
        }
    }

    async fn record(&self, judge_id: JudgeId, outcome: SendOutcome, http_status: Option<u16>) {
        let (submission, generation, took) = (self.id, Generation(1), Duration::from_millis(12));
        let sent = Sent { judge_id, submission, generation, outcome, http_status, took };
        attempts::record(&self.scene.pool, &[sent]).await.expect("recorded");
    }

    async fn finish(&self, judge_id: JudgeId, body: &Value) {
        let text = body.to_string();
        let incoming = Incoming {
            judge_id,
            submission: self.id,
            generation: Generation(1),
            report: parse_finish(text.as_bytes()),
            body_hash: judge_relay::http::hash_of(&text),
            body: text.into(),
            age: Duration::ZERO,
            via: Via::Callback,
        };
        let rules = results::Rules { budget: BUDGET, retry: Backoff { base: 60 * SECOND, max: 60 * SECOND } };
        results::apply(&self.scene.pool, &[incoming], &rules, 0.5).await.expect("applied");
    }

    async fn run(&self, sql: &'static str) {
        let mut connection = self.scene.pool.get().await.expect("a connection");
        command(sql).execute(&mut connection).await.expect("executed");
    }

    /// From the outbox to the controller.
    async fn dispatched(&self) -> JudgeId {
        let leased = self.claim().await;
        self.publish(&leased, "17-0").await;
        let judge_id = self.begin_attempt(&leased, "17-0").await;
        self.record(judge_id, SendOutcome::Accepted, Some(201)).await;
        judge_id
    }

    async fn events(&self) -> Vec<String> {
        let body = self.read().await;
        let timeline = body["timeline"].as_array().expect("a list");
        timeline.iter().map(|event| event["event"].as_str().expect("a word").to_owned()).collect()
    }
}

#[actix::test]
async fn every_step_to_a_verdict_shows_where_the_submission_is() {
    let walk = Walk::begin().await;
    assert_eq!(walk.place("the outbox in PostgreSQL", "lane default").await, "waiting_in_outbox");
    walk.run("update lanes set paused = true where name = 'default'").await;
    assert_eq!(walk.place("the outbox", "paused").await, "waiting_in_outbox");
    walk.run("update lanes set paused = false where name = 'default'").await;
    let leased = walk.claim().await;
    assert_eq!(walk.place("pod-7", "published").await, "being_published");
    walk.publish(&leased, "17-0").await;
    assert_eq!(walk.place("entry 17-0 of the Redis stream judge:default", "dispatcher").await, "in_stream");
    let judge_id = walk.begin_attempt(&leased, "17-0").await;
    assert_eq!(walk.place(&format!("attempt {judge_id}"), "The controller answers").await, "being_sent");
    walk.record(judge_id, SendOutcome::Ambiguous("connection reset".to_owned()), None).await;
    assert_eq!(walk.place("connection reset", "sent again").await, "answer_ambiguous");
    let progress = Progress { judge_id, state: "judging".to_owned(), is_running: true };
    attempts::progress(&walk.scene.pool, &[progress]).await.expect("stored");
    assert_eq!(walk.place("last heard: judging", "calls back").await, "at_controller");
    assert!(walk.read().await["where"]["next_at"].is_string());
    let case = json!({"kind": "WrongAnswer", "time": 7, "memory": 4096, "extraMessage": "line 1"});
    let extra = json!({"user": {"compileMessage": "a warning"}});
    walk.finish(judge_id, &json!({"result": {"cases": [case], "extra": extra}})).await;
    assert_eq!(walk.place("wrong_answer stands", "event").await, "judged");
    let body = walk.read().await;
    assert_eq!((&body["verdict"], &body["verdict_generation"]), (&json!("wrong_answer"), &json!(1)));
    assert_eq!((&body["cases"], &body["compile_message"]), (&json!([case]), &json!("a warning")));
    assert_eq!((&body["time_max_ms"], &body["memory_max_bytes"]), (&json!(7), &json!(4096)));
    assert_eq!((&body["external_id"], &body["scope"]), (&json!("x1"), &json!({})));
    let expected = ["submitted", "claimed", "published", "dispatched", "answered", "progress", "callback", "applied"];
    assert_eq!(walk.events().await, expected);
    let told = outbox::claim_events(&walk.scene.pool, walk.instance, LEASE, 1).await.expect("leases");
    walk.publish(&told[0], "18-0").await;
    assert_eq!(walk.place("PostgreSQL", "Only a rejudge").await, "judged");
    assert_eq!(walk.events().await.last().map(String::as_str), Some("event_published"));
}

#[actix::test]
async fn a_failure_of_the_judge_shows_the_retry_and_then_the_parking() {
    let walk = Walk::begin().await;
    let failed =
        json!({"result": {"cases": [{"kind": "SystemError", "time": 0, "memory": 0, "extraMessage": "disk full"}]}});
    let judge_id = walk.dispatched().await;
    assert_eq!(walk.place("the controller", "calls back").await, "at_controller");
    walk.finish(judge_id, &failed).await;
    walk.run(
        "update outbox_events set available_at = clock_timestamp() + interval '1 minute' where published_at is null",
    )
    .await;
    assert_eq!(walk.place("the judge failed on the attempt before it", "back-off").await, "waiting_for_retry");
    walk.run("update outbox_events set available_at = clock_timestamp() where published_at is null").await;
    assert_eq!(walk.place("the judge failed on the attempt before it", "lane default").await, "waiting_in_outbox");
    let judge_id = walk.dispatched().await;
    walk.finish(judge_id, &failed).await;
    assert_eq!(walk.place("disk full", "redrive").await, "parked");
    let events = walk.events().await;
    for event in ["due_again", "attempt_closed", "parked"] {
        assert!(events.iter().any(|found| found == event), "{event} is not among {events:?}");
    }
    let body = walk.read().await;
    assert_eq!((&body["state"], &body["verdict"], &body["cases"]), (&json!("parked"), &Value::Null, &json!([])));
}

#[actix::test]
async fn a_refusal_of_the_controller_is_shown_in_its_own_words() {
    let walk = Walk::begin().await;
    let leased = walk.claim().await;
    walk.publish(&leased, "17-0").await;
    let judge_id = walk.begin_attempt(&leased, "17-0").await;
    let refused = SendOutcome::Refused("test.cases.0.input should not be empty".to_owned());
    walk.record(judge_id, refused, Some(400)).await;
    assert_eq!(walk.place("refused_400: test.cases.0.input should not be empty", "redrive").await, "parked");
    walk.finish(judge_id, &json!({"result": {"cases": [{"kind": "Accepted", "time": 1, "memory": 1}]}})).await;
    assert_eq!(walk.place("accepted stands", "event").await, "judged");
    assert!(walk.events().await.contains(&"resolved".to_owned()), "a late verdict resolves it");
}

#[actix::test]
async fn a_parked_letter_of_any_actor_is_shown_with_its_cause() {
    let walk = Walk::begin().await;
    let entry = dead_letters::DeadEntry {
        boundary: "PelReaper",
        cause_class: "delivery_budget_spent",
        message: "delivered five times".to_owned(),
        stream: "judge:default".to_owned(),
        stream_id: "17-0".to_owned(),
        payload: None,
        submission: Some((walk.id, Generation(1))),
    };
    dead_letters::keep(&walk.scene.pool, &entry).await.expect("kept");
    assert_eq!(walk.place("PelReaper", "rejudge").await, "parked");
}

#[actix::test]
async fn cases_that_jsonb_could_not_hold_are_still_shown() {
    let walk = Walk::begin().await;
    let judge_id = walk.dispatched().await;
    let case = json!({"kind": "RuntimeError", "time": 1.5, "memory": null, "extraMessage": "a\u{0}b"});
    walk.finish(judge_id, &json!({"result": {"cases": [case]}})).await;
    let shown = walk.read().await["cases"][0].clone();
    assert_eq!(shown, json!({"kind": "RuntimeError", "time": 1.5, "memory": null, "extraMessage": "a\u{fffd}b"}));
}

#[actix::test]
async fn nothing_secret_is_in_any_answer() {
    let walk = Walk::begin().await;
    let judge_id = walk.dispatched().await;
    walk.finish(judge_id, &json!({"result": {"cases": [{"kind": "Accepted", "time": 1, "memory": 1}]}})).await;
    let scene = &walk.scene;
    let answers = [
        scene.get(&format!("/v1/submissions/{}", walk.id), CLIENT).await,
        scene.get("/v1/submissions", ADMIN).await,
        scene.get("/v1/status", ADMIN).await,
        scene.get("/readyz", CLIENT).await,
        scene.get("/openapi.json", CLIENT).await,
        scene.submit("k1", &with("/external_id", json!("x1"))).await,
        scene.submit("k1", &submission()).await,
        scene.submit("k2", &with("/request/test/policy", json!("x"))).await,
        scene.get("/v1/submissions?limit=x", STRANGER).await,
        scene.get("/v1/submissions", "an-unknown-secret-token").await,
        scene.send("DELETE", "/v1/admin/tokens/nobody", ADMIN, &[], "").await,
    ];
    for answer in answers {
        let whole = format!("{} {:?}", answer.text, answer.headers);
        let hash = hex::encode(judge_relay::http::hash_of(ADMIN));
        for secret in ["secret", SOURCE, "int main", "postgres://", &hash] {
            assert!(!whole.contains(secret), "{secret} is in {whole}");
        }
    }
}
