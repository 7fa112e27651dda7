//! What the dispatcher does with a batch: attempt rows, POSTs side by side, outcomes written down, entries acked.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::{Batch, Desk, NAME, seconds_since};
use crate::actors::Engine;
use crate::controller::Answer;
use crate::protocol::breaker::Knock;
use crate::protocol::retry::Backoff;
use crate::store::attempts::{self, Begun, Request, SendOutcome, Sent, ToSend};
use crate::store::dead_letters::{self, DeadEntry};
use crate::store::{StoreError, StoreResult};
use crate::stream::{Entry, JudgeRequested, Undecodable};
use crate::supervision::catch_item;
use crate::telemetry::METRICS;

/// Between two tries to write outcomes down while PostgreSQL is away. The permits stay taken: nothing new is read meanwhile.
const RECORD_AGAIN: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(2) };
/// A submission that met a shut door is due again after about this; the breaker decides when the next one is tried.
const DOOR_DELAY: Duration = Duration::from_millis(500);
/// The controller may ask for a longer pause, up to here.
const DOOR_DELAY_MAX: Duration = Duration::from_secs(300);
/// Outcomes written down by one statement.
const RECORD_MAX: usize = 64;

impl Desk {
    /// Handles a batch to the end. What fails for an outside reason stays pending and is met again.
    pub(super) async fn handle_batch(&self, batch: Batch) {
        let Batch { entries, permits } = batch;
        let _under_way = UnderWay::begin(&self.engine);
        let mut requests = Vec::with_capacity(entries.len());
        for entry in &entries {
            match JudgeRequested::read(entry) {
                Ok(wanted) => {
                    observe_delay(&wanted);
                    requests.push((entry, request(entry, &wanted)));
                }
                Err(Undecodable::Newer(version)) => {
                    log::warn!("entry {} has schema version {version}: left for a newer process", entry.id);
                }
                Err(Undecodable::Broken(why)) => self.bury(entry, why).await,
            }
        }
        let begun = self.begin(&requests).await;
        let sends = FuturesUnordered::new();
        let mut needless = Vec::new();
        for ((entry, _), begun) in requests.iter().zip(begun) {
            match begun {
                Some(Begun::Send(to_send)) => sends.push(self.send(entry, to_send)),
                Some(Begun::NoNeed(reason)) => {
                    METRICS.dispatch_skipped_total.with_label_values(&[reason.as_str()]).inc();
                    needless.push(*entry);
                }
                Some(Begun::Parked(why)) => {
                    METRICS.dispatch_skipped_total.with_label_values(&["parked"]).inc();
                    log::warn!("entry {} cannot be dispatched: {why}", entry.id);
                    needless.push(*entry);
                }
                None => {}
            }
        }
        if sends.is_empty() {
            self.breaker.borrow_mut().probe_dropped();
        }
        self.in_flight_grows(sends.len());
        self.ack(&needless).await;
        let mut outcomes = sends.ready_chunks(RECORD_MAX);
        while let Some(chunk) = outcomes.next().await {
            let (done, sent): (Vec<&Entry>, Vec<Sent>) = chunk.into_iter().flatten().unzip();
            self.record(&sent).await;
            self.ack(&done).await;
        }
        for entry in &entries {
            self.put_down(entry);
        }
        drop(permits);
    }

    /// Begins attempts for a batch; one by one when its rows are refused together, so that the bad one is alone.
    async fn begin(&self, requests: &[(&Entry, Request)]) -> Vec<Option<Begun>> {
        let batch: Vec<Request> = requests.iter().map(|(_, request)| request.clone()).collect();
        if batch.is_empty() {
            return Vec::new();
        }
        match self.begin_caught(&batch).await {
            Ok(begun) => return begun.into_iter().map(Some).collect(),
            Err(StoreError::Unavailable(why)) => {
                log::warn!("{NAME}: {} entries stay pending: {why}", batch.len());
                self.reread.set(true);
                return vec![None; batch.len()];
            }
            Err(StoreError::Refused(_)) => {}
        }
        let mut all = Vec::with_capacity(batch.len());
        for (entry, request) in requests {
            let begun = match self.begin_caught(std::slice::from_ref(request)).await {
                Ok(begun) => begun.into_iter().next(),
                Err(StoreError::Refused(why)) => {
                    self.bury(entry, why).await;
                    None
                }
                Err(StoreError::Unavailable(_)) => {
                    self.reread.set(true);
                    None
                }
            };
            all.push(begun);
        }
        all
    }

    /// A panic over these rows is a refusal of these rows.
    async fn begin_caught(&self, requests: &[Request]) -> StoreResult<Vec<Begun>> {
        catch_item(attempts::begin(&self.engine.pool, requests, &self.rules))
            .await
            .unwrap_or_else(|panic| Err(StoreError::Refused(panic.to_string())))
    }

    /// Sends one attempt; a panic is an outcome that nobody knows.
    async fn send<'a>(&self, entry: &'a Entry, to_send: ToSend) -> Option<(&'a Entry, Sent)> {
        let started = Instant::now();
        let post = self.controller.post(to_send.submission, to_send.generation, to_send.judge_id, &to_send.body);
        let answer =
            catch_item(post).await.unwrap_or_else(|panic| Answer::Ambiguous { why: panic.to_string(), status: None });
        METRICS.dispatch_seconds.observe(seconds_since(started));
        self.learn(&answer);
        let (outcome, http_status) = outcome(answer);
        METRICS.dispatch_total.with_label_values(&[outcome_word(&outcome)]).inc();
        let sent = Sent {
            judge_id: to_send.judge_id,
            submission: to_send.submission,
            generation: to_send.generation,
            outcome,
            http_status,
            took: started.elapsed(),
        };
        Some((entry, sent))
    }

    fn learn(&self, answer: &Answer) {
        let knock = match answer {
            Answer::Accepted | Answer::Refused { .. } => Knock::Open,
            Answer::Door { retry_after, .. } => Knock::Shut(*retry_after),
            Answer::Ambiguous { .. } => Knock::Unknown,
        };
        let was_shut = self.breaker.borrow().is_shut();
        self.breaker.borrow_mut().learn(knock, Instant::now(), rand::random());
        match (was_shut, self.breaker.borrow().is_shut(), answer) {
            (false, true, Answer::Door { why, .. } | Answer::Ambiguous { why, .. }) => {
                log::warn!("{NAME}: the controller's door is shut, submissions wait: {why}");
            }
            (true, false, _) => log::info!("{NAME}: the controller's door is open again"),
            _ => {}
        }
    }

    /// Writes outcomes down, however long PostgreSQL is away: forgetting one would mean a second judging.
    async fn record(&self, sent: &[Sent]) {
        let gone = sent.iter().filter(|sent| !is_at_controller(sent)).count();
        let mut failures = 0;
        loop {
            match attempts::record(&self.engine.pool, sent).await {
                Ok(()) => break,
                Err(StoreError::Refused(why)) => {
                    log::error!("{NAME}: outcomes of {} POSTs cannot be written down: {why}", sent.len());
                    break;
                }
                Err(StoreError::Unavailable(why)) => {
                    if failures == 0 {
                        log::warn!("{NAME}: outcomes of {} POSTs wait for PostgreSQL: {why}", sent.len());
                    }
                    tokio::time::sleep(RECORD_AGAIN.ceiling(failures)).await;
                    failures += 1;
                }
            }
        }
        self.in_flight_shrinks(gone);
    }

    /// Acks what is settled. A failure leaves it pending: it is met again, and found to need nothing.
    async fn ack(&self, entries: &[&Entry]) {
        if entries.is_empty() {
            return;
        }
        if let Err(error) = self.engine.streams.ack_entries(entries.iter().copied()).await {
            log::warn!("{NAME}: {} settled entries stay pending: {error}", entries.len());
            self.reread.set(true);
        }
    }

    /// Keeps an entry that nobody can handle, then acks it.
    async fn bury(&self, entry: &Entry, why: String) {
        log::error!("{NAME}: entry {} of {} is a dead letter: {why}", entry.id, entry.key);
        let letter = DeadEntry {
            boundary: NAME,
            cause_class: "undecodable_entry",
            message: why,
            stream: entry.key.clone(),
            stream_id: entry.id.clone(),
            payload: Some(entry.to_json()),
            submission: None,
        };
        match dead_letters::keep(&self.engine.pool, &letter).await {
            Ok(()) => self.ack(&[entry]).await,
            Err(_) => self.reread.set(true),
        }
    }

    fn in_flight_grows(&self, by: usize) {
        self.engine.in_flight_delta.fetch_add(i64::try_from(by).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    fn in_flight_shrinks(&self, by: usize) {
        self.engine.in_flight_delta.fetch_sub(i64::try_from(by).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

/// A batch under way, for the drain to wait for; it counts itself off whatever ends it.
struct UnderWay<'a>(&'a Engine);

impl<'a> UnderWay<'a> {
    fn begin(engine: &'a Engine) -> UnderWay<'a> {
        engine.dispatching.fetch_add(1, Ordering::Relaxed);
        UnderWay(engine)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.dispatching.fetch_sub(1, Ordering::Relaxed);
    }
}

fn request(entry: &Entry, wanted: &JudgeRequested) -> Request {
    Request {
        event_id: wanted.event_id,
        submission: wanted.submission,
        generation: wanted.generation,
        stream_id: entry.id.clone(),
    }
}

fn observe_delay(wanted: &JudgeRequested) {
    let waited_ms = crate::clock::now().timestamp_millis().saturating_sub(wanted.occurred_ms).max(0);
    METRICS.stream_delay_seconds.observe(waited_ms as f64 / 1000.0);
}

fn is_at_controller(sent: &Sent) -> bool {
    matches!(sent.outcome, SendOutcome::Accepted | SendOutcome::Ambiguous(_))
}

fn outcome(answer: Answer) -> (SendOutcome, Option<u16>) {
    match answer {
        Answer::Accepted => (SendOutcome::Accepted, Some(201)),
        Answer::Door { why, status, retry_after } => {
            (SendOutcome::Door(why, retry_after.unwrap_or(DOOR_DELAY).clamp(DOOR_DELAY, DOOR_DELAY_MAX)), status)
        }
        Answer::Refused { message, status } => (SendOutcome::Refused(message), Some(status)),
        Answer::Ambiguous { why, status } => (SendOutcome::Ambiguous(why), status),
    }
}

fn outcome_word(outcome: &SendOutcome) -> &'static str {
    match outcome {
        SendOutcome::Accepted => "accepted",
        SendOutcome::Ambiguous(_) => "ambiguous",
        SendOutcome::Door(..) => "door",
        SendOutcome::Refused(_) => "refused",
    }
}
