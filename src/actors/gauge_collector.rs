//! GaugeCollector: shows in the metrics what tables and streams hold. It changes nothing.
//!
//! Boundary: what is so → what is shown.
//! Takes: counts and ages of tables and streams.
//! Leaves: gauges, and `collector_up`, which says whether they are fresh: a failure is shown, not the last good value.
//! If it dies here: the gauges are old and `collector_up` is 0 until the next pass.
//! Poison: none.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Supervised};

use super::{Engine, policy};
use crate::store::gauges;
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PassLoop, PolicyError, Progress};
use crate::telemetry::METRICS;

/// The actor's name.
pub const NAME: &str = "GaugeCollector";
/// Between two collections.
const EVERY: Duration = Duration::from_secs(5);

/// How it is supervised.
pub fn supervised() -> Result<CheckedPolicy, PolicyError> {
    let mut policy = policy(NAME, Escalation::BackOffToAMinute);
    policy.passes.idle = EVERY;
    policy.checked()
}

/// The actor.
pub struct GaugeCollector {
    handle: ActorHandle,
    engine: Arc<Engine>,
}

impl GaugeCollector {
    /// An actor for this process's view.
    pub fn new(handle: ActorHandle, engine: Arc<Engine>) -> GaugeCollector {
        GaugeCollector { handle, engine }
    }
}

/// One pass. Both stores are asked even if one of them fails.
pub async fn pass(engine: &Engine) -> anyhow::Result<Progress> {
    METRICS.collector_up.set(0);
    let (tables, streams) = tokio::join!(tables(engine), streams(engine));
    tables?;
    streams?;
    METRICS.collector_up.set(1);
    Ok(Progress::Idle)
}

async fn tables(engine: &Engine) -> anyhow::Result<()> {
    let backlog = gauges::backlog(&engine.pool).await?;
    let counts = gauges::counts(&engine.pool).await?;
    let silent = gauges::controller_silent_seconds(&engine.pool).await?;
    let mut pending = 0;
    for row in &backlog {
        METRICS.outbox_pending.with_label_values(&[&row.destination]).set(row.rows);
        METRICS.outbox_oldest_seconds.with_label_values(&[&row.destination]).set(row.oldest_seconds);
        pending += if row.destination.starts_with("judge:") { row.rows } else { 0 };
    }
    METRICS.attempts_live.reset();
    METRICS.dead_letters_open.reset();
    let mut judging = 0;
    for (kind, label, value) in &counts {
        match kind.as_str() {
            "attempts" => {
                METRICS.attempts_live.with_label_values(&[label]).set(*value);
                judging += value;
            }
            "dead_letters" => METRICS.dead_letters_open.with_label_values(&[label]).set(*value),
            "quarantined" => METRICS.outbox_quarantined.set(*value),
            _ => METRICS.table_dead_rows.with_label_values(&[label]).set(*value),
        }
    }
    METRICS.submissions_open.with_label_values(&["pending"]).set(pending);
    METRICS.submissions_open.with_label_values(&["judging"]).set(judging);
    METRICS.controller_silent_seconds.set(silent.unwrap_or(-1.0));
    Ok(())
}

async fn streams(engine: &Engine) -> anyhow::Result<()> {
    let lanes = crate::store::lanes::list(&engine.pool).await?;
    let mut destinations: Vec<String> = lanes.iter().map(|lane| format!("judge:{}", lane.name)).collect();
    destinations.extend(["results".to_owned(), "events".to_owned()]);
    let now_ms = crate::clock::now().timestamp_millis();
    for destination in &destinations {
        let depth = engine.streams.depth(destination).await?;
        METRICS.stream_length.with_label_values(&[destination]).set(i64::try_from(depth.length).unwrap_or(i64::MAX));
        METRICS.stream_pending.with_label_values(&[destination]).set(i64::try_from(depth.pending).unwrap_or(i64::MAX));
        let oldest = depth.oldest_ms.map_or(0, |at| now_ms.saturating_sub(i64::try_from(at).unwrap_or(now_ms)).max(0));
        METRICS.stream_oldest_seconds.with_label_values(&[destination]).set(oldest as f64 / 1000.0);
    }
    Ok(())
}

impl Actor for GaugeCollector {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let engine = Arc::clone(&self.engine);
        PassLoop::spawn(&self.handle, ctx, async move || pass(&engine).await);
    }
}

impl Supervised for GaugeCollector {}
