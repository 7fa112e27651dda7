//! StreamPublisher: carries leased rows into Redis and marks them. It decides neither which rows nor who reads them.
//!
//! Boundary: PostgreSQL → Redis; accepted there, not yet marked here.
//! Takes: a `PublishBatch` of leased rows.
//! Leaves: stream entries, and `published_at` where the fence still matches.
//! If it dies here: the rows are appended again after their lease; the deduplication key, or the attempt index, makes that harmless.
//! Poison: quarantined with its reason; later events of the same submission wait, everything else goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, Context, Handler, Recipient, ResponseActFuture, Supervised, WrapFuture};

use super::{Engine, PublishBatch, PublishReport, Wake, policy};
use crate::store::outbox::{self, EVENTS, Leased, Published, Unpublished};
use crate::stream::{Appended, EventOut};
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PolicyError};
use crate::telemetry::{METRICS, destination_kind};

/// The actor's name.
pub const NAME: &str = "StreamPublisher";
/// A bigger entry is a mistake: payloads hold ids and verdicts, never a source.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// A row whose stream was missing is due again after this: recovery takes about as long.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How it is supervised.
pub fn supervised() -> Result<CheckedPolicy, PolicyError> {
    policy(NAME, Escalation::EndProcess).checked()
}

/// The actor.
pub struct StreamPublisher {
    _handle: ActorHandle,
    engine: Arc<Engine>,
    /// Told when a stream is missing.
    reconciler: Option<Recipient<Wake>>,
}

impl StreamPublisher {
    /// An actor that tells `reconciler` of missing streams.
    pub fn new(handle: ActorHandle, engine: Arc<Engine>, reconciler: Option<Recipient<Wake>>) -> StreamPublisher {
        StreamPublisher { _handle: handle, engine, reconciler }
    }
}

impl Actor for StreamPublisher {
    type Context = Context<Self>;
}

impl Supervised for StreamPublisher {}

impl Handler<PublishBatch> for StreamPublisher {
    type Result = ResponseActFuture<Self, PublishReport>;

    fn handle(&mut self, batch: PublishBatch, _: &mut Self::Context) -> Self::Result {
        let (engine, reconciler) = (Arc::clone(&self.engine), self.reconciler.clone());
        Box::pin(async move { publish(&engine, reconciler.as_ref(), batch).await }.into_actor(self))
    }
}

/// Publishes one batch: append, mark, give back what did not go.
pub async fn publish(engine: &Engine, reconciler: Option<&Recipient<Wake>>, batch: PublishBatch) -> PublishReport {
    let pace = &engine.config.pace;
    let is_late = batch.claimed_at.elapsed() + pace.lease_margin >= pace.lease;
    if is_late {
        // Somebody else may hold these rows by now: unsent, they cost nothing.
        METRICS.outbox_lease_expired_total.inc();
        return PublishReport { outage: Some("the lease was about to end".to_owned()), ..PublishReport::default() };
    }
    let (poison, rows): (Vec<Leased>, Vec<Leased>) = batch.rows.into_iter().partition(|row| poison(row).is_some());
    let mut unpublished: Vec<Unpublished> = poison.iter().map(|row| refused(row, poison_reason(row))).collect();
    let entries: Vec<EventOut> = rows.iter().map(entry).collect();
    let appended = match engine.streams.append(&entries, pace.dedup_ttl).await {
        Ok(appended) => appended,
        Err(error) => {
            METRICS.outbox_errors_total.with_label_values(&["unavailable"]).inc();
            // Nobody knows whether it went in: the lease stays, and the rows are published again after it.
            return settle(engine, &[], &unpublished, batch.claimed_at, Some(error.to_string())).await;
        }
    };
    let (mut published, mut missing) = (Vec::new(), false);
    for (row, outcome) in rows.iter().zip(appended) {
        match outcome {
            Appended::Now(stream_id) => published.push(done(row, stream_id)),
            Appended::Before(stream_id) => {
                METRICS.outbox_dedup_hits_total.inc();
                published.push(done(row, stream_id));
            }
            Appended::StreamMissing => {
                missing = true;
                unpublished.push(Unpublished { is_poison: false, ..refused(row, "its stream is missing".to_owned()) });
            }
            Appended::Refused(why) => {
                METRICS.outbox_errors_total.with_label_values(&["refused"]).inc();
                unpublished.push(Unpublished { is_poison: false, ..refused(row, why) });
            }
        }
    }
    if let (true, Some(reconciler)) = (missing, reconciler) {
        drop(reconciler.try_send(Wake));
    }
    settle(engine, &published, &unpublished, batch.claimed_at, None).await
}

/// Writes down what happened. A failure here leaves the leases to run out: the rows are published again, and recognised.
async fn settle(
    engine: &Engine,
    published: &[Published],
    unpublished: &[Unpublished],
    claimed_at: Instant,
    mut outage: Option<String>,
) -> PublishReport {
    let mut report = PublishReport::default();
    if !published.is_empty() {
        match outbox::mark_published(&engine.pool, published).await {
            Ok(marked) => {
                report.published = marked;
                METRICS.outbox_claim_lost_total.inc_by((published.len() - marked.min(published.len())) as u64);
                METRICS.outbox_publish_seconds.observe(claimed_at.elapsed().as_secs_f64());
            }
            Err(error) => outage = Some(error.to_string()),
        }
    }
    if !unpublished.is_empty() {
        match outbox::release(&engine.pool, unpublished, RETRY_AFTER).await {
            Ok(_) => {
                report.quarantined = unpublished.iter().filter(|row| row.is_poison).count();
                METRICS.outbox_quarantined_total.inc_by(report.quarantined as u64);
                for row in unpublished.iter().filter(|row| row.is_poison) {
                    log::error!("outbox event {} is quarantined: {}", row.event_id, row.error);
                }
            }
            Err(error) => outage = Some(error.to_string()),
        }
    }
    report.outage = outage;
    report
}

fn done(row: &Leased, stream_id: String) -> Published {
    METRICS.outbox_published_total.with_label_values(&[destination_kind(&row.destination)]).inc();
    Published { event_id: row.event_id, fence: row.fence, stream_id }
}

fn refused(row: &Leased, error: String) -> Unpublished {
    Unpublished { event_id: row.event_id, fence: row.fence, error, is_poison: true }
}

fn poison_reason(row: &Leased) -> String {
    poison(row).unwrap_or_default()
}

/// What can never be published as it is.
fn poison(row: &Leased) -> Option<String> {
    if row.destination != EVENTS && !row.destination.starts_with("judge:") {
        return Some(format!("there is no stream for the destination {:?}", row.destination));
    }
    if !row.payload.is_object() {
        return Some("its payload is not a JSON object".to_owned());
    }
    let bytes = row.payload.to_string().len();
    (bytes > PAYLOAD_BYTES_MAX).then(|| format!("its payload of {bytes} bytes is over {PAYLOAD_BYTES_MAX}"))
}

fn entry(row: &Leased) -> EventOut {
    EventOut {
        destination: row.destination.clone(),
        event_id: row.event_id,
        replay: 0,
        aggregate_id: row.aggregate_id,
        sequence: row.aggregate_sequence,
        generation: row.generation,
        event_type: row.event_type.clone(),
        schema_version: row.schema_version,
        cause: row.cause.clone(),
        occurred_ms: row.occurred_ms,
        payload: row.payload.to_string(),
    }
}
