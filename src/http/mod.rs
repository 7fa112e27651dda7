//! The HTTP API under `/v1`, health and metrics: who may ask what, and what is answered.
//!
//! The callback door is not here but beside it. Handlers read, check, call the store once and answer; no state of a submission
//! is decided in them.

pub mod callbacks;

mod auth;
mod body;
mod error;
mod listing;
mod members;
mod openapi;
mod ops;
mod query;
mod reads;
mod routes;
mod submission_body;
mod submissions;
mod timeline;
mod tokens;
mod whereabouts;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use auth::{Caller, ENVIRONMENT_ADMIN, Permission, Role, hash_of};
pub use error::{ApiError, InvalidMember, PROBLEM_JSON, ProblemDetails};
pub use openapi::{CALLBACK_PATHS, document};
pub use routes::{Endpoint, configure, endpoints};
pub use submission_body::BATCH_ITEMS_MAX;

use crate::store::{Pool, StoreError, StoreResult, lanes};
use crate::supervision::Registry;

/// The longest wait for one call of the store: a caller gets its 503 within two seconds.
pub const STORE_LIMIT: Duration = Duration::from_millis(1_800);

/// How old the list of lanes may be that submissions are checked against.
const LANES_KNOWN_FOR: Duration = Duration::from_secs(1);

/// What the API is made of.
pub struct ApiOptions {
    /// Connections of the edge, apart from those of the actors.
    pub pool: Pool,
    /// The actors, for health and status.
    pub registry: Registry,
    /// SHA-256 of the environment's administrator token.
    pub admin_token_hash: Option<[u8; 32]>,
    /// The tenant that this token acts for unless it names another.
    pub admin_tenant: String,
    /// Called after new submissions were committed.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// The text of `/metrics`.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// How large bodies may be.
    pub body_limits: BodyLimits,
    /// The longest wait for one call of the store; [`STORE_LIMIT`] where people wait.
    pub store_limit: Duration,
}

/// The largest bodies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Of one submission, and of everything else that is no batch.
    pub single: usize,
    /// Of a batch.
    pub batch: usize,
}

impl Default for BodyLimits {
    fn default() -> Self {
        BodyLimits { single: 256 * 1024, batch: 8 * 1024 * 1024 }
    }
}

/// What every handler works with. One per process, shared by the HTTP workers.
pub struct Api {
    pool: Pool,
    registry: Registry,
    admin_token_hash: Option<[u8; 32]>,
    admin_tenant: String,
    wake: Arc<dyn Fn() + Send + Sync>,
    metrics: Arc<dyn Fn() -> String + Send + Sync>,
    body_limits: BodyLimits,
    store_limit: Duration,
    tokens: auth::TokenCache,
    lanes: Mutex<Option<KnownLanes>>,
}

/// The names of the lanes, and when they were read.
type KnownLanes = (Instant, Arc<[String]>);

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("body_limits", &self.body_limits).finish_non_exhaustive()
    }
}

impl Api {
    /// The API; it connects when it is first asked.
    pub fn new(options: ApiOptions) -> Api {
        Api {
            pool: options.pool,
            registry: options.registry,
            admin_token_hash: options.admin_token_hash,
            admin_tenant: options.admin_tenant,
            wake: options.wake,
            metrics: options.metrics,
            body_limits: options.body_limits,
            store_limit: options.store_limit,
            tokens: auth::TokenCache::default(),
            lanes: Mutex::default(),
        }
    }

    /// Waits for the store, but not longer than a caller would.
    async fn store<T>(&self, call: impl Future<Output = StoreResult<T>>) -> Result<T, ApiError> {
        Ok(self.within_limit(call).await?)
    }

    async fn within_limit<T>(&self, call: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        let limit = self.store_limit;
        let silent = |_| StoreError::Unavailable(format!("no answer within {limit:?}"));
        tokio::time::timeout(limit, call).await.map_err(silent)?
    }

    /// The names of the lanes, at most a second old.
    async fn lane_names(&self) -> Result<Arc<[String]>, ApiError> {
        let known = self.lanes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((since, names)) = known
            && since.elapsed() < LANES_KNOWN_FOR
        {
            return Ok(names);
        }
        let lanes = self.store(lanes::list(&self.pool)).await?;
        let names: Arc<[String]> = lanes.into_iter().map(|lane| lane.name).collect();
        *self.lanes.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), names.clone()));
        Ok(names)
    }
}
