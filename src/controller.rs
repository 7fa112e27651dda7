//! The only code that calls the judge controller: signs a POST, sends it, and says of whom its answer speaks.
//!
//! It never repeats a POST whose outcome is unknown, and it knows no table and no stream.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use awc::error::{ConnectError, SendRequestError};
use awc::http::StatusCode;
use awc::http::header::{DATE, HeaderMap, RETRY_AFTER};

use crate::config::Config;
use crate::protocol::CallbackKind;
use crate::protocol::heng::request::with_callback_urls;
use crate::protocol::heng::signing::sign;
use crate::protocol::{Generation, JudgeId, SubmissionId};

/// The controller closes idle connections after five seconds; a POST on a connection that it is closing is a POST whose outcome
/// nobody knows.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// An answer's text is read up to here; only refusals have one.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// As much of an answer is kept.
const ANSWER_KEPT_MAX: usize = 2_000;

/// Of whom the answer speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 201: the controller has the job.
    Accepted,
    /// Of the door: nothing was begun, every other submission would be told the same.
    Door {
        /// What it said.
        why: String,
        /// The HTTP status, if one came.
        status: Option<u16>,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// Of this very request: it would be refused again.
    Refused {
        /// What it said.
        message: String,
        /// 400 or 413.
        status: u16,
    },
    /// Nobody knows: sent, and the answer was lost or says nothing.
    Ambiguous {
        /// What happened.
        why: String,
        /// The HTTP status, if one came.
        status: Option<u16>,
    },
}

/// A client of the controller; it lives on one thread.
#[derive(Clone)]
pub struct Controller {
    client: awc::Client,
    url: String,
    config: Arc<Config>,
    /// The controller's clock minus ours, milliseconds; corrects the timestamp that is signed and nothing else.
    clock_offset_ms: Rc<AtomicI64>,
}

impl Controller {
    /// A client that connects when first used, on the thread that makes it.
    pub fn new(config: Arc<Config>, tls: Arc<rustls::ClientConfig>) -> Controller {
        let connector = awc::Connector::new()
            .rustls_0_23(tls)
            .timeout(config.controller.timeout)
            .conn_keep_alive(IDLE_MAX)
            .conn_lifetime(Duration::from_secs(300))
            .limit(config.controller.concurrency);
        let client = awc::Client::builder()
            .connector(connector)
            .disable_redirects()
            .timeout(config.controller.timeout)
            .no_default_headers()
            .finish();
        let url = format!("{}/judges", config.controller.base_url);
        Controller { client, url, config, clock_offset_ms: Rc::new(AtomicI64::new(0)) }
    }

    /// The controller's clock minus ours, as its answers show it.
    pub fn clock_offset_ms(&self) -> i64 {
        self.clock_offset_ms.load(Ordering::Relaxed)
    }

    /// Sends one attempt. A 403 is tried once more with the controller's own time: a clock that is off looks the same as a wrong key.
    pub async fn post(
        &self,
        submission: SubmissionId,
        generation: Generation,
        judge_id: JudgeId,
        request: &str,
    ) -> Answer {
        let callbacks = &self.config.callbacks;
        let url = |kind| callbacks.keys.url(&callbacks.base_url, kind, submission, generation, judge_id);
        let body = with_callback_urls(request, &url(CallbackKind::Update), &url(CallbackKind::Finish));
        match self.post_once(body.clone()).await {
            Answer::Door { status: Some(403), .. } => self.post_once(body).await,
            answer => answer,
        }
    }

    async fn post_once(&self, body: String) -> Answer {
        let timestamp = crate::clock::now().timestamp_millis().saturating_add(self.clock_offset_ms()) / 1000;
        // Digits only: a letter's case is not signed, so a nonce with letters could be replayed.
        let nonce = format!("{:020}{:010}", rand::random::<u64>(), rand::random::<u32>());
        let headers = sign(&self.config.controller.credentials, "POST", &self.url, &body, &nonce, timestamp);
        let mut request = self.client.post(&self.url);
        for (name, value) in headers.pairs() {
            request = request.insert_header((name, value));
        }
        match request.send_body(body).await {
            Ok(mut response) => {
                self.learn_clock(response.headers());
                let (status, retry_after) = (response.status(), retry_after(response.headers()));
                if status == StatusCode::CREATED {
                    return Answer::Accepted;
                }
                let text = response.body().limit(ANSWER_BYTES_MAX).await.unwrap_or_default();
                by_status(status, String::from_utf8_lossy(&text).chars().take(ANSWER_KEPT_MAX).collect(), retry_after)
            }
            Err(error) => by_error(&error),
        }
    }

    fn learn_clock(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|value| value.to_str().ok());
        let Some(theirs) = date.and_then(|text| chrono::DateTime::parse_from_rfc2822(text).ok()) else { return };
        // The header has whole seconds, cut off: half a second is the best guess of the rest.
        let offset = theirs.timestamp_millis() + 500 - crate::clock::now().timestamp_millis();
        // Within a second and a half it says nothing but the cut and the way here.
        let offset = if offset.abs() <= 1_500 { 0 } else { offset };
        self.clock_offset_ms.store(offset, Ordering::Relaxed);
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Of whom a status speaks.
fn by_status(status: StatusCode, text: String, retry_after: Option<Duration>) -> Answer {
    let code = status.as_u16();
    match code {
        400 | 413 => Answer::Refused { message: text, status: code },
        401 | 403 | 404 | 405 | 415 | 429 | 300..=399 => {
            let why = match code {
                403 => "403: access key, role, signature or clock; check HENG_AK, HENG_SK and the clocks".to_owned(),
                404 => "404: no such route; check HENG_BASE_URL, it must include the controller's prefix".to_owned(),
                300..=399 => format!("{code}: a redirect; check HENG_BASE_URL"),
                _ => format!("{code}: {text}"),
            };
            Answer::Door { why, status: Some(code), retry_after }
        }
        503 if retry_after.is_some() => Answer::Door { why: format!("503: {text}"), status: Some(code), retry_after },
        _ => Answer::Ambiguous { why: format!("{code}: {text}"), status: Some(code) },
    }
}

/// Before a connection stood nothing was sent; after that nobody knows.
fn by_error(error: &SendRequestError) -> Answer {
    match error {
        SendRequestError::Connect(ConnectError::Disconnected) | SendRequestError::Timeout => {
            Answer::Ambiguous { why: error.to_string(), status: None }
        }
        SendRequestError::Connect(_) | SendRequestError::Url(_) => {
            Answer::Door { why: error.to_string(), status: None, retry_after: None }
        }
        _ => Answer::Ambiguous { why: error.to_string(), status: None },
    }
}
