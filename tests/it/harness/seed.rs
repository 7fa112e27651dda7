//! Submissions, attempts and finishes as the service would have them.
//! Not shortcuts around the store: everything goes in through its own functions.

use std::time::Duration;

use actix_web::web::Bytes;
use judge_relay::protocol::deadline::DeadlinePolicy;
use judge_relay::protocol::heng::request::JudgeRequest;
use judge_relay::protocol::heng::result::parse_finish;
use judge_relay::protocol::retry::Backoff;
use judge_relay::protocol::submission::{Applied, Budget};
use judge_relay::protocol::{Generation, JudgeId, SubmissionId};
use judge_relay::store::attempts::{self, Begun, Request, SendOutcome, Sent, ToSend};
use judge_relay::store::results::{self, Incoming, Via};
use judge_relay::store::submissions::{self, NewSubmission, Submitted};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::database::TestDatabase;

/// Whose submissions all tests make unless they say otherwise.
pub const TENANT: &str = "tenant";
/// How many cases a seeded request has.
pub const CASES: usize = 2;
/// Small, so that tests can spend it.
pub const BUDGET: Budget = Budget { attempts_max: 3, rescues_max: 2 };

/// The text of a judge request that passes intake.
pub fn request_text(cases: usize) -> String {
    let limits = concat!(
        r#"{"runtime":{"memory":134217728,"cpuTime":1000,"output":67108864},"#,
        r#""compiler":{"memory":536870912,"cpuTime":10000,"output":67108864,"message":102400}}"#
    );
    let cases = vec![r#"{"input":"in","output":"out"}"#; cases].join(",");
    format!(
        concat!(
            r#"{{"judge":{{"type":"normal","user":{{"source":{{"type":"direct","content":"int main(){{}}"}},"#,
            r#""environment":{{"language":"cpp","system":"Linux","arch":"x64","options":{{}}}},"limit":{}}}}},"#,
            r#""test":{{"cases":[{}],"policy":"all"}}}}"#
        ),
        limits, cases
    )
}

/// A new submission under that key, of user `user` for problem `problem` in lane `default`; change what a test is about.
pub fn new_submission(key: &str) -> NewSubmission {
    let request = JudgeRequest::parse(request_text(CASES).as_bytes()).expect("the seeded request passes intake");
    let number = |value: u32| i32::try_from(value).expect("a small number");
    NewSubmission {
        id: SubmissionId(Uuid::now_v7()),
        idempotency_key: key.to_owned(),
        body_hash: Sha256::digest(key).into(),
        external_id: None,
        user_id: "user".to_owned(),
        problem_id: "problem".to_owned(),
        contest_id: None,
        course_id: None,
        lane: "default".to_owned(),
        request: request.text,
        case_count: number(request.facts.cases),
        cpu_time_ms: number(request.facts.cpu_time_ms),
        compile_time_ms: number(request.facts.compile_time_ms),
    }
}

/// The body of a finish whose cases ended so, in the controller's words.
pub fn finish_body(kinds: &[&str]) -> Vec<u8> {
    let case = |kind: &&str| serde_json::json!({ "kind": kind, "time": 15, "memory": 1_048_576 });
    let cases: Vec<serde_json::Value> = kinds.iter().map(case).collect();
    serde_json::json!({ "result": { "cases": cases } }).to_string().into_bytes()
}

/// An authentic finish with that body.
pub fn incoming(attempt: &ToSend, body: &[u8]) -> Incoming {
    Incoming {
        judge_id: attempt.judge_id,
        submission: attempt.submission,
        generation: attempt.generation,
        report: parse_finish(body),
        body: Bytes::copy_from_slice(body),
        body_hash: Sha256::digest(body).into(),
        age: Duration::from_millis(3),
        via: Via::Callback,
    }
}

/// A finish of `attempt` in which every case ended as `kind`.
pub fn finish(attempt: &ToSend, kind: &str) -> Incoming {
    incoming(attempt, &finish_body(&[kind; CASES]))
}

/// The rules under which seeded attempts begin.
pub fn attempt_rules() -> attempts::Rules {
    let deadlines = DeadlinePolicy {
        factor: 2.0,
        queue_allowance: Duration::from_secs(60),
        floor: Duration::from_secs(30),
        ceiling: Duration::from_secs(3600),
    };
    attempts::Rules { instance: Uuid::from_u128(1), budget: BUDGET, deadlines }
}

/// The rules under which seeded finishes apply.
pub fn result_rules() -> results::Rules {
    let retry = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };
    results::Rules { budget: BUDGET, retry }
}

impl TestDatabase {
    /// Stores these, all of which must be new.
    pub async fn submit_all(&self, items: &[NewSubmission]) -> Vec<SubmissionId> {
        let submitted = submissions::submit(&self.pool, TENANT, items).await.unwrap();
        assert!(submitted.iter().all(|one| *one == Submitted::New), "{submitted:?}");
        items.iter().map(|item| item.id).collect()
    }

    /// Stores `n` submissions of one user for one problem.
    pub async fn submit(&self, n: usize) -> Vec<SubmissionId> {
        let items: Vec<NewSubmission> = (0..n).map(|_| new_submission(&Uuid::new_v4().to_string())).collect();
        self.submit_all(&items).await
    }

    /// A stream entry for the newest intent of a submission, as if it had been published: the row is marked so.
    pub async fn entry(&self, submission: SubmissionId) -> Request {
        let id = submission.0;
        self.execute(&format!(
            "update outbox_events set claimed_by = null, claim_until = null, published_at = clock_timestamp(),
                    stream_id = aggregate_sequence || '-' || substr(event_id::text, 1, 8)
             where aggregate_id = '{id}' and destination <> 'events' and published_at is null and superseded_at is null"
        ))
        .await;
        let row = self
            .row(&format!(
                "select event_id, generation, stream_id from outbox_events
                 where aggregate_id = '{id}' and destination <> 'events' and published_at is not null
                 order by aggregate_sequence desc limit 1"
            ))
            .await;
        let [event_id, generation, stream_id] = row.split(' ').collect::<Vec<_>>()[..] else { panic!("{row}") };
        Request {
            event_id: event_id.parse().unwrap(),
            submission,
            generation: Generation(generation.parse().unwrap()),
            stream_id: stream_id.to_owned(),
        }
    }

    /// Begins attempts for these entries, all of which must need one.
    pub async fn begin(&self, entries: &[Request]) -> Vec<ToSend> {
        let begun = attempts::begin(&self.pool, entries, &attempt_rules()).await.unwrap();
        let to_send = |one| match one {
            Begun::Send(to_send) => to_send,
            other => panic!("not sent: {other:?}"),
        };
        begun.into_iter().map(to_send).collect()
    }

    /// Brings a submission to the controller: its newest intent is published, its attempt sent and accepted.
    pub async fn accepted(&self, submission: SubmissionId) -> ToSend {
        let entry = self.entry(submission).await;
        let attempt = self.begin(&[entry]).await.remove(0);
        self.record(&attempt, SendOutcome::Accepted, Some(201)).await;
        attempt
    }

    /// Records how the POST of an attempt ended.
    pub async fn record(&self, attempt: &ToSend, outcome: SendOutcome, http_status: Option<u16>) {
        attempts::record(&self.pool, &[sent(attempt, outcome, http_status)]).await.unwrap();
    }

    /// Applies finishes together.
    pub async fn apply(&self, incoming: &[Incoming]) -> Vec<Applied> {
        results::apply(&self.pool, incoming, &result_rules(), 0.5).await.unwrap()
    }

    /// Submits one, has it judged with this word for every case, and returns its attempt.
    pub async fn judged(&self, item: NewSubmission, kind: &str) -> ToSend {
        let submission = self.submit_all(&[item]).await[0];
        let attempt = self.accepted(submission).await;
        let applied = self.apply(&[finish(&attempt, kind)]).await;
        assert!(matches!(applied[0], Applied::Verdict(_)), "{applied:?}");
        attempt
    }

    /// Starts a new generation, as an operator's rejudge does.
    pub async fn rejudge(&self, submission: SubmissionId) {
        let id = submission.0;
        self.execute(&format!(
            "begin;
             select id from submissions where id = '{id}' for update;
             update judge_attempts set state = 'closed', close_reason = 'rejudged', finished_at = clock_timestamp()
             where submission_id = '{id}' and state in ('sending', 'accepted', 'ambiguous');
             update outbox_events set superseded_at = clock_timestamp(), claimed_by = null, claim_until = null
             where aggregate_id = '{id}' and destination <> 'events' and published_at is null and superseded_at is null;
             update dead_letters set resolved_at = clock_timestamp(), resolved_by = 'test', resolution = 'rejudged'
             where submission_id = '{id}' and resolved_at is null;
             insert into judge_requests (submission_id, generation, body, case_count, cpu_time_ms, compile_time_ms)
             select submission_id, s.last_generation + 1, body, case_count, cpu_time_ms, compile_time_ms
             from judge_requests r join submissions s on s.id = r.submission_id and s.generation = r.generation
             where s.id = '{id}';
             update submissions set generation = last_generation + 1, last_generation = last_generation + 1,
                    state = 'pending', attempts_used = 0, rescues_used = 0, last_sequence = last_sequence + 1
             where id = '{id}';
             insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type,
                                        cause, fair_tag)
             select gen_random_uuid(), id, last_sequence, generation, 'judge:rejudge', 'JudgeRequested', 'rejudge', fair_tag
             from submissions where id = '{id}';
             commit"
        ))
        .await;
    }

    /// Marks everything that is still unpublished as published, in its order, as the relay would in the end.
    pub async fn publish_the_rest(&self) {
        self.execute(
            "update outbox_events o
             set published_at = clock_timestamp(), claimed_by = null, claim_until = null, stream_id = '1-' || place
             from (select event_id, row_number() over (order by aggregate_id, aggregate_sequence) as place
                   from outbox_events) ordered
             where o.event_id = ordered.event_id and published_at is null and superseded_at is null
               and quarantined_at is null",
        )
        .await;
    }
}

/// The record of a POST.
pub fn sent(attempt: &ToSend, outcome: SendOutcome, http_status: Option<u16>) -> Sent {
    Sent {
        judge_id: attempt.judge_id,
        submission: attempt.submission,
        generation: attempt.generation,
        outcome,
        http_status,
        took: Duration::from_millis(7),
    }
}

/// An attempt of which PostgreSQL knows nothing, as a callback's URL may name one after a failover.
pub fn unknown_attempt(submission: SubmissionId, generation: i32) -> ToSend {
    ToSend {
        judge_id: JudgeId(Uuid::new_v4()),
        submission,
        generation: Generation(generation),
        body: String::new(),
        is_rescue: false,
    }
}
