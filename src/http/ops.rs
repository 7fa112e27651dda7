//! Health, readiness, metrics and status: what Kubernetes, Prometheus and people on call ask.
//!
//! Everything but the lanes is read from memory, so that an outage of a store never makes a probe wait.

use actix_web::http::header::ContentType;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Permission, caller};
use super::error::{ApiError, ProblemDetails};
use crate::store::lanes::{self, Lane};
use crate::store::{Pool, StoreResult};
use crate::supervision::ActorStatus;

/// The format of Prometheus's text.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The process lives.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Health {
    /// Always `alive`.
    pub status: &'static str,
}

/// Whether the process should be given work.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// Should it?
    pub ready: bool,
    /// Every reason against it. Outages of stores and of the controller are none.
    pub reasons: Vec<String>,
    /// The actors.
    pub actors: Vec<ActorStatus>,
}

/// A lane and what is at the controller of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LaneStatus {
    /// Its name.
    pub name: String,
    /// Share of the permits while several lanes wait.
    pub weight: i32,
    /// At most this many at the controller; null: only the global cap.
    pub in_flight_cap: Option<i32>,
    /// This many of the global cap are kept for it.
    pub reserve: i32,
    /// Nothing is claimed or dispatched.
    pub paused: bool,
    /// Live attempts whose deadline has not passed.
    pub in_flight: i64,
}

/// The state of the service as this process sees it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Status {
    /// The version of the software.
    pub version: &'static str,
    /// Should this process be given work?
    pub ready: bool,
    /// Every reason against it.
    pub reasons: Vec<String>,
    /// Does it end?
    pub draining: bool,
    /// Did PostgreSQL answer just now?
    pub store_answers: bool,
    /// The lanes in reading order; null when PostgreSQL does not answer.
    pub lanes: Option<Vec<LaneStatus>>,
    /// The actors of this process.
    pub actors: Vec<ActorStatus>,
}

/// The process lives: 200 until it ends, whatever is broken around it.
#[utoipa::path(get, path = "/healthz", tag = "operation", responses((status = 200, description = "Alive", body = Health)))]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(Health { status: "alive" })
}

/// Should this process be given work? Stores and the controller are no part of the answer.
#[utoipa::path(
    get, path = "/readyz", tag = "operation",
    responses((status = 200, description = "Ready", body = Readiness), (status = 503, description = "Not ready, and why", body = Readiness))
)]
pub async fn readyz(api: web::Data<Api>) -> HttpResponse {
    let reasons = api.registry.ready().err().unwrap_or_default();
    let readiness = Readiness { ready: reasons.is_empty(), reasons, actors: api.registry.snapshot() };
    let mut response = if readiness.ready { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    response.json(readiness)
}

/// The metrics in Prometheus's text format.
#[utoipa::path(
    get, path = "/metrics", tag = "operation",
    responses((status = 200, description = "Metrics", body = String, content_type = "text/plain"))
)]
pub async fn metrics(api: web::Data<Api>) -> HttpResponse {
    HttpResponse::Ok().content_type(METRICS_TYPE).body((api.metrics)())
}

/// Actors and lanes.
#[utoipa::path(
    get, path = "/v1/status", tag = "operation", security(("bearer" = [])),
    responses(
        (status = 200, description = "The status; it is given with PostgreSQL down, too", body = Status),
        (status = 401, description = "No valid token", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 403, description = "The role may not see it", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "PostgreSQL does not answer whether the token is valid", body = ProblemDetails, content_type = "application/problem+json"),
    )
)]
pub async fn status(api: web::Data<Api>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    caller(&api, &request, Permission::ReadStatus).await?;
    let lanes = api.within_limit(lane_statuses(&api.pool)).await;
    if let Err(cause) = &lanes {
        log::warn!("the status is shown without its lanes: {cause}");
    }
    let reasons = api.registry.ready().err().unwrap_or_default();
    Ok(HttpResponse::Ok().json(Status {
        version: env!("CARGO_PKG_VERSION"),
        ready: reasons.is_empty(),
        reasons,
        draining: api.registry.draining(),
        store_answers: lanes.is_ok(),
        lanes: lanes.ok(),
        actors: api.registry.snapshot(),
    }))
}

async fn lane_statuses(pool: &Pool) -> StoreResult<Vec<LaneStatus>> {
    let (lanes, in_flight) = (lanes::list(pool).await?, lanes::in_flight(pool).await?);
    let counted = |name: &str| in_flight.iter().find(|(lane, _)| lane == name).map_or(0, |(_, count)| *count);
    let status = |lane: Lane| LaneStatus {
        in_flight: counted(&lane.name),
        name: lane.name,
        weight: lane.weight,
        in_flight_cap: lane.in_flight_cap,
        reserve: lane.reserve,
        paused: lane.paused,
    };
    Ok(lanes.into_iter().map(status).collect())
}

/// This document's own address.
#[utoipa::path(
    get, path = "/openapi.json", tag = "operation",
    responses((status = 200, description = "The OpenAPI document of this service", body = Object, content_type = "application/json"))
)]
pub async fn openapi_json() -> HttpResponse {
    HttpResponse::Ok().insert_header(ContentType::json()).json(super::document())
}
