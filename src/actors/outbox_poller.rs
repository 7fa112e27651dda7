//! OutboxPoller: decides who may publish which rows until when. It talks to no controller and appends nothing.
//!
//! Boundary: the claim; who may act, and until when.
//! Takes: due rows of `outbox_events`, in fair order, as many as the streams' windows have room for.
//! Leaves: the rows leased (owner, fence, deadline) and a `PublishBatch` on its way.
//! If it dies here: the leases run out and the rows are claimed again under a higher fence.
//! Poison: none; a row is not looked into here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Context, Handler, Recipient, Supervised};

use super::stream_publisher::StreamPublisher;
use super::{Engine, PublishBatch, PublishReport, Wake, policy};
use crate::protocol::shares::{Claimant, share};
use crate::store::lanes::{self, Lane};
use crate::store::outbox::{self, Leased};
use crate::supervision::{ActorHandle, CheckedPolicy, Escalation, PassLoop, PolicyError, Progress};
use crate::telemetry::{METRICS, destination_kind};

/// The actor's name.
pub const NAME: &str = "OutboxPoller";
/// No lane's window is smaller, so that a lane of little weight does not wait for a round trip per entry.
const WINDOW_MIN: usize = 16;
/// An answer of the publisher takes no longer; the lease covers what was lost.
const PUBLISH_LIMIT: Duration = Duration::from_secs(8);

/// How it is supervised.
pub fn supervised(poll: Duration) -> Result<CheckedPolicy, PolicyError> {
    let mut policy = policy(NAME, Escalation::EndProcess);
    policy.passes.idle = poll;
    policy.checked()
}

/// The actor.
pub struct OutboxPoller {
    handle: ActorHandle,
    passes: Arc<Passes>,
}

/// What a pass needs; it holds no state between passes.
pub struct Passes {
    engine: Arc<Engine>,
    publisher: Addr<StreamPublisher>,
    /// Told when something was published to a lane.
    dispatcher: Option<Recipient<Wake>>,
}

impl OutboxPoller {
    /// An actor that publishes through `publisher` and wakes `dispatcher`.
    pub fn new(
        handle: ActorHandle,
        engine: Arc<Engine>,
        publisher: Addr<StreamPublisher>,
        dispatcher: Option<Recipient<Wake>>,
    ) -> OutboxPoller {
        OutboxPoller { handle, passes: Arc::new(Passes::new(engine, publisher, dispatcher)) }
    }
}

impl Passes {
    /// Passes without an actor around them, for whoever repeats them by hand.
    pub fn new(engine: Arc<Engine>, publisher: Addr<StreamPublisher>, dispatcher: Option<Recipient<Wake>>) -> Passes {
        Passes { engine, publisher, dispatcher }
    }

    /// One pass: claims what the windows have room for, has it published, says whether more may wait.
    pub async fn pass(&self) -> anyhow::Result<Progress> {
        let engine = &self.engine;
        let claimed_at = Instant::now();
        let limit = i32::try_from(engine.config.pace.batch).unwrap_or(i32::MAX);
        let (events, lanes) = tokio::join!(
            outbox::claim_events(&engine.pool, engine.instance, engine.config.pace.lease, limit),
            self.claim_lanes(),
        );
        // One of them failing must not leave what the other has leased lying until the lease ends.
        let (mut rows, mut failure) = (Vec::new(), None);
        for claimed in [events.map_err(anyhow::Error::from), lanes] {
            match claimed {
                Ok(claimed) => rows.extend(claimed),
                Err(error) => failure = Some(error),
            }
        }
        if !rows.is_empty() {
            self.publish(rows, claimed_at).await?;
            return failure.map_or(Ok(Progress::More), Err);
        }
        failure.map_or(Ok(Progress::Idle), Err)
    }

    async fn publish(&self, rows: Vec<Leased>, claimed_at: Instant) -> anyhow::Result<()> {
        for row in &rows {
            METRICS.outbox_claimed_total.with_label_values(&[destination_kind(&row.destination)]).inc();
        }
        let for_lanes = rows.iter().any(|row| row.destination != outbox::EVENTS);
        let report: PublishReport =
            self.publisher.send(PublishBatch { rows, claimed_at }).timeout(PUBLISH_LIMIT).await?;
        if let (true, Some(dispatcher)) = (for_lanes, &self.dispatcher) {
            // A full mailbox holds a wake-up already.
            drop(dispatcher.try_send(Wake));
        }
        report.outage.map_or(Ok(()), |why| Err(anyhow::anyhow!("publishing: {why}")))
    }

    /// Leases rows of the lanes into the free part of their windows; the backlog stays in PostgreSQL, where it can be seen,
    /// paused, cancelled and ordered.
    async fn claim_lanes(&self) -> anyhow::Result<Vec<Leased>> {
        let engine = &self.engine;
        let lanes: Vec<Lane> = lanes::list(&engine.pool).await?.into_iter().filter(|lane| !lane.paused).collect();
        let destinations: Vec<String> = lanes.iter().map(|lane| format!("judge:{}", lane.name)).collect();
        if destinations.is_empty() {
            return Ok(Vec::new());
        }
        let lengths = engine.streams.lengths(&destinations).await?;
        let rooms = rooms(&lanes, &lengths, engine.config.pace.in_flight_cap, engine.config.pace.batch);
        let rooms: Vec<(String, i32)> = destinations.into_iter().zip(rooms).filter(|(_, room)| *room > 0).collect();
        if rooms.is_empty() {
            return Ok(Vec::new());
        }
        Ok(outbox::claim_lanes(&engine.pool, engine.instance, engine.config.pace.lease, &rooms).await?)
    }
}

/// How many rows of each lane may be claimed: the free part of its window, which is twice its share of the in-flight cap.
fn rooms(lanes: &[Lane], lengths: &[usize], in_flight_cap: usize, batch: usize) -> Vec<i32> {
    let weight = |lane: &Lane| lane.weight.unsigned_abs();
    let weights: usize = lanes.iter().map(|lane| weight(lane) as usize).sum();
    let window = |lane: &Lane| (2 * in_flight_cap * weight(lane) as usize).div_ceil(weights.max(1)).max(WINDOW_MIN);
    let claimants: Vec<Claimant> = lanes
        .iter()
        .zip(lengths)
        .map(|(lane, length)| Claimant { weight: weight(lane), wants: window(lane).saturating_sub(*length) })
        .collect();
    share(batch, &claimants).into_iter().map(|room| i32::try_from(room).unwrap_or(i32::MAX)).collect()
}

impl Actor for OutboxPoller {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let passes = Arc::clone(&self.passes);
        PassLoop::spawn(&self.handle, ctx, async move || passes.pass().await);
    }
}

impl Supervised for OutboxPoller {}

impl Handler<Wake> for OutboxPoller {
    type Result = ();

    fn handle(&mut self, _: Wake, _: &mut Self::Context) {
        self.handle.wake();
    }
}
