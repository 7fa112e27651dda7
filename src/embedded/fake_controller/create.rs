//! `POST /judges`: from a request that was read to the job and its answer, or to whatever a switch makes of it.

use std::sync::Arc;
use std::time::SystemTime;

use super::answer::Answer;
use super::clock::seconds;
use super::directive;
use super::head::Head;
use super::judge::{Kind, Task};
use super::ledger::{CreateAnswer, JobRecord, Refusal};
use super::switches::{LoseAnswer, OrphanAnswer};
use super::world::{Job, JobFaults, Shared, World};
use super::{auth, runs};
use crate::protocol::heng::json::{self, Value};
use crate::protocol::heng::request::{self, Expected};
use crate::protocol::heng::signing::{self, BodyRefusal, Received};

/// What becomes of a connection after a request.
#[derive(Debug)]
pub(super) enum Reply {
    /// An answer.
    Answer(Answer),
    /// Closed without one.
    Close,
    /// Reset without one.
    Reset,
    /// Left open without one.
    Hang,
}

/// What the client hears once its job is written down.
enum Fate {
    Answer(Answer),
    Lose(LoseAnswer),
    AfterFirstCallback(Arc<Job>),
}

/// What a switch does in front of the controller; none when the request gets through.
pub(super) async fn in_front(shared: &Shared) -> Option<Answer> {
    let (status, delay) = shared.with(|world| {
        let World { switches, random, .. } = world;
        (switches.create_status.take(random), switches.create_delay.take(random))
    });
    if let Some(delay) = delay {
        tokio::time::sleep(seconds(delay)).await;
    }
    let answer = Answer::gateway(status?);
    shared.with(|world| world.ledger.refused(Refusal::Switch));
    Some(answer)
}

/// Parses the body as the controller's body parser does, which comes before everything else, and computes what is signed.
pub(super) fn receive(head: &Head, body: &[u8]) -> Result<Received, (Refusal, Answer)> {
    if let Some(encoding) = head.content_encoding.as_deref().filter(|encoding| *encoding != "identity") {
        let encoding = encoding.to_lowercase();
        return Err((Refusal::UnsupportedBody, Answer::unsupported("content encoding", &encoding)));
    }
    let headers = [
        (signing::CONTENT_TYPE, head.content_type.as_deref().unwrap_or_default()),
        (signing::ACCESS_KEY, head.access_key.as_deref().unwrap_or_default()),
        (signing::NONCE, head.nonce.as_deref().unwrap_or_default()),
        (signing::TIMESTAMP, head.timestamp.as_deref().unwrap_or_default()),
    ];
    signing::received_canonical(&head.method, &head.target, &headers, body).map_err(|refusal| match refusal {
        BodyRefusal::Malformed(_) => (Refusal::NotJson, Answer::bad_request(syntax_message(body))),
        BodyRefusal::TooLarge => (Refusal::BodyTooLarge, Answer::too_large()),
        BodyRefusal::Charset(charset) => {
            (Refusal::UnsupportedBody, Answer::unsupported("charset", &charset.to_uppercase()))
        }
    })
}

/// What JavaScript says of a body that is not JSON, or neither an object nor a list.
fn syntax_message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let offset = match json::parse(body) {
        Err(error) => error.offset,
        Ok(_) => text.len() - text.trim_start().len(),
    };
    match text.get(offset..).and_then(|rest| rest.chars().next()) {
        None => "Unexpected end of JSON input".to_owned(),
        Some(character) => {
            let position = text[..offset].encode_utf16().count();
            format!("Unexpected token {character} in JSON at position {position}")
        }
    }
}

/// Everything after the route is known.
pub(super) async fn create(shared: &Arc<Shared>, head: &Head, received: Received) -> Reply {
    if let Err(refusal) = auth::check(shared, head, &received.canonical) {
        shared.change(|world| world.ledger.refused(refusal));
        let is_key = refusal == Refusal::UnknownKey;
        return Reply::Answer(if is_key { Answer::server_error() } else { Answer::forbidden() });
    }
    let problems = request::validate(&received.body, Expected::Present);
    let wanted = wanted(&received.body);
    let Some(wanted) = wanted.filter(|_| problems.is_empty()) else {
        let messages: Vec<String> = problems.iter().map(|problem| problem.controller_message()).collect();
        shared.change(|world| world.ledger.refused(Refusal::Invalid));
        return Reply::Answer(Answer::bad_request(messages));
    };
    let body_sha256 = received.canonical.lines().last().unwrap_or_default().to_owned();
    let fate = shared.change(|world| world.write_down(wanted, body_sha256));
    runs::start(shared);
    settle(shared, fate).await
}

async fn settle(shared: &Shared, fate: Fate) -> Reply {
    match fate {
        Fate::Answer(answer) => Reply::Answer(answer),
        Fate::Lose(LoseAnswer::Close) => Reply::Close,
        Fate::Lose(LoseAnswer::Reset) => Reply::Reset,
        Fate::Lose(LoseAnswer::Hang) => Reply::Hang,
        Fate::Lose(LoseAnswer::AnswerAfter(delay)) => {
            tokio::time::sleep(seconds(delay)).await;
            Reply::Answer(Answer::created())
        }
        Fate::AfterFirstCallback(job) => {
            // A job whose callback is never tried must not keep its creator waiting for ever.
            let limit = shared.config.timing.callback_timeout;
            if tokio::time::timeout(limit, job.tried.notified()).await.is_err() {
                log::debug!("no callback of job {} was tried before its 201", job.number);
            }
            Reply::Answer(Answer::created())
        }
    }
}

/// What a valid body asks for.
struct Wanted {
    update_url: String,
    finish_url: String,
    source: Option<Arc<str>>,
    task: Task,
}

fn wanted(body: &Value) -> Option<Wanted> {
    let urls = body.get("callbackUrls")?;
    let url = |member: &str| urls.get(member).and_then(Value::as_str).map(str::to_owned);
    let judge = body.get("judge")?;
    let user = judge.get("user")?;
    let source = user.get("source")?.get("content").and_then(Value::as_text).map(|text| Arc::from(text.to_lossy()));
    let runtime = user.get("limit")?.get("runtime")?;
    let limit = |member: &str| runtime.get(member).and_then(Value::as_number).map(|number| number.as_f64() as u64);
    let test = body.get("test")?;
    let kind = match judge.get("type")?.as_str()? {
        "special" => Kind::Special,
        "interactive" => Kind::Interactive,
        _ => Kind::Normal,
    };
    let task = Task {
        kind,
        cases: test.get("cases")?.as_array().map_or(1, <[Value]>::len),
        fuse: test.get("policy")?.as_str() == Some("fuse"),
        cpu_limit: limit("cpuTime")?,
        memory_limit: limit("memory")?,
        directive: source.as_deref().map(directive::parse).unwrap_or_default(),
    };
    Some(Wanted { update_url: url("update")?, finish_url: url("finish")?, source, task })
}

impl World {
    /// Writes the job down, queues it, and decides what its creator hears; all as the switches say.
    fn write_down(&mut self, wanted: Wanted, body_sha256: String) -> Fate {
        if self.switches.create_500_not_created.take(&mut self.random).is_some() {
            self.ledger.refused(Refusal::Switch);
            return Fate::Answer(Answer::server_error());
        }
        let Wanted { update_url, finish_url, source, task } = wanted;
        let faults = self.draw_faults();
        // The ledger finds a job by its number, so these count jobs and nothing else.
        let number = self.ledger.counters.created;
        let job = Job { number, update_url, finish_url, task, faults, tried: Default::default() };
        let job = Arc::new(job);
        let orphan = self.switches.create_orphan.take(&mut self.random);
        let (answer, fate) = self.fate(&job, orphan);
        if self.ledger.is_detailed() {
            self.ledger.created(JobRecord {
                number,
                update_url: job.update_url.clone(),
                finish_url: job.finish_url.clone(),
                body_sha256,
                created_at: SystemTime::now(),
                source,
                answer,
                orphan: orphan.is_some(),
                lost: false,
                runs: 0,
                updates_tried: 0,
                finishes_tried: 0,
                finishes_delivered: 0,
            });
        } else {
            self.ledger.counters.created += 1;
        }
        self.jobs.insert(number, job.clone());
        if orphan.is_none() {
            self.enqueue(job);
        }
        fate
    }

    fn draw_faults(&mut self) -> JobFaults {
        let Self { switches, random, .. } = self;
        JobFaults {
            lost: switches.job_lost.take(random).is_some(),
            rejudge: switches.job_rejudge.take(random),
            twice_at_once: switches.job_twice_at_once.take(random).is_some(),
            duplicate: switches.cb_dup_finish.take(random),
            late_update: switches.cb_late_update.take(random).is_some(),
            odd_body: switches.cb_odd_body.take(random),
        }
    }

    fn fate(&mut self, job: &Arc<Job>, orphan: Option<OrphanAnswer>) -> (CreateAnswer, Fate) {
        let Self { switches, random, .. } = self;
        let created = Fate::Answer(Answer::created());
        match orphan {
            Some(OrphanAnswer::Created) => return (CreateAnswer::Created, created),
            Some(OrphanAnswer::Reset) => return (CreateAnswer::Nothing, Fate::Lose(LoseAnswer::Reset)),
            None => {}
        }
        if switches.create_500_created.take(random).is_some() {
            return (CreateAnswer::ServerError, Fate::Answer(Answer::server_error()));
        }
        if let Some(how) = switches.create_lose_answer.take(random) {
            let is_late = matches!(how, LoseAnswer::AnswerAfter(_));
            let answer = if is_late { CreateAnswer::Created } else { CreateAnswer::Nothing };
            return (answer, Fate::Lose(how));
        }
        if switches.cb_before_201.take(random).is_some() {
            return (CreateAnswer::Created, Fate::AfterFirstCallback(job.clone()));
        }
        (CreateAnswer::Created, created)
    }
}
