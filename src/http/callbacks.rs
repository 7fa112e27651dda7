//! The door for the controller's callbacks: tag first, then a permit, then the body. What a body means is decided elsewhere.
//!
//! 2xx means stored. 404: not authentic, whatever is wrong with it. 503: not stored, the controller comes again. Never a redirect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::Addr;
use actix_web::http::header;
use actix_web::web::{self, Bytes, BytesMut};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::actors::VerifyCallback;
use crate::actors::callback_verifier::CallbackVerifier;
use crate::config::Config;
use crate::protocol::CallbackKind;
use crate::telemetry::METRICS;

/// The controller itself sends no more than 10 MiB; what is longer is cut and then makes no sense, which is recorded.
pub const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Permits for bytes are counted in units of this.
const UNIT: usize = 4 * 1024;
/// No permit for this long: the controller comes again.
const PERMIT_LIMIT: Duration = Duration::from_millis(500);
/// A body that trickles for longer is not waited for.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// From the last byte to the answer.
const ANSWER_LIMIT: Duration = Duration::from_millis(1_900);

/// What the door needs.
pub struct CallbackDoor {
    config: Arc<Config>,
    verifier: Addr<CallbackVerifier>,
    callbacks: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

impl CallbackDoor {
    /// A door that hands authentic callbacks to `verifier`.
    pub fn new(config: Arc<Config>, verifier: Addr<CallbackVerifier>) -> CallbackDoor {
        let callbacks = Arc::new(Semaphore::new(config.callbacks.concurrency));
        let bytes = Arc::new(Semaphore::new(config.callbacks.bytes_max / UNIT));
        CallbackDoor { config, verifier, callbacks, bytes }
    }

    /// A place among the callbacks and room for its body, before a byte of it is read.
    async fn permits(&self, length: usize) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let units = u32::try_from(length.div_ceil(UNIT).max(1)).ok()?;
        let both = async {
            let place = Arc::clone(&self.callbacks).acquire_owned().await.ok()?;
            let room = Arc::clone(&self.bytes).acquire_many_owned(units).await.ok()?;
            Some((place, room))
        };
        tokio::time::timeout(PERMIT_LIMIT, both).await.ok().flatten()
    }
}

/// Mounts both routes.
pub fn configure(service: &mut web::ServiceConfig, door: web::Data<CallbackDoor>) {
    service
        .app_data(door)
        .route("/heng/update/{submission_id}/{judge_id}", web::post().to(update))
        .route("/heng/finish/{submission_id}/{judge_id}", web::post().to(finish));
}

async fn update(
    request: HttpRequest,
    path: web::Path<(String, String)>,
    payload: web::Payload,
    door: web::Data<CallbackDoor>,
) -> HttpResponse {
    receive(&door, CallbackKind::Update, &request, &path, payload).await
}

async fn finish(
    request: HttpRequest,
    path: web::Path<(String, String)>,
    payload: web::Payload,
    door: web::Data<CallbackDoor>,
) -> HttpResponse {
    receive(&door, CallbackKind::Finish, &request, &path, payload).await
}

async fn receive(
    door: &CallbackDoor,
    kind: CallbackKind,
    request: &HttpRequest,
    (submission, judge_id): &(String, String),
    payload: web::Payload,
) -> HttpResponse {
    let callback = match door.config.callbacks.keys.verify(kind, submission, judge_id, request.query_string()) {
        Ok(callback) => callback,
        Err(rejection) => {
            METRICS.callbacks_total.with_label_values(&[kind.as_str(), rejection.as_str()]).inc();
            return HttpResponse::NotFound().body("no such callback");
        }
    };
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let Some(permits) = door.permits(length.unwrap_or(BODY_BYTES_MAX).min(BODY_BYTES_MAX)).await else {
        return again(kind, "busy");
    };
    let Some(body) = read(payload).await else { return again(kind, "body_incomplete") };
    let received_at = Instant::now();
    let message = VerifyCallback { callback, body, received_at };
    let stored = door.verifier.send(message).timeout(ANSWER_LIMIT).await;
    METRICS.callback_seconds.observe(received_at.elapsed().as_secs_f64());
    drop(permits);
    match stored {
        Ok(Ok(())) => HttpResponse::Ok().finish(),
        Ok(Err(_)) => again(kind, "not_stored"),
        Err(_) => again(kind, "no_answer"),
    }
}

/// The controller sends again after 30 to 70 seconds, whatever is said here.
fn again(kind: CallbackKind, why: &str) -> HttpResponse {
    METRICS.callbacks_total.with_label_values(&[kind.as_str(), why]).inc();
    HttpResponse::ServiceUnavailable().insert_header((header::RETRY_AFTER, "30")).body("not stored, send again")
}

/// The whole body, cut at the limit; none when it broke off or took too long.
async fn read(mut payload: web::Payload) -> Option<Bytes> {
    let reading = async {
        let mut body = BytesMut::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.ok()?;
            let room = BODY_BYTES_MAX.saturating_sub(body.len());
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        Some(body.freeze())
    };
    tokio::time::timeout(BODY_LIMIT, reading).await.ok().flatten()
}
