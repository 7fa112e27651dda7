//! How the dispatcher takes entries: only with permits, only while the door is open and the cap is free, contest lanes first.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::{Batch, Desk};
use crate::protocol::breaker::Allowance;
use crate::protocol::shares::{Claimant, share};
use crate::store::instances;
use crate::store::lanes::{self, Lane};
use crate::stream::Entry;
use crate::supervision::Progress;
use crate::telemetry::METRICS;

/// Lanes and counts are read from PostgreSQL this often; in between own sends and ends are counted along.
const REFRESH: Duration = Duration::from_secs(1);
/// A batch is not read for fewer free permits while others are busy: batches of one cost as much as batches of many.
const WORTHWHILE: usize = 8;
/// As many entries are handled as one batch: the knee of the set-based statements.
const BATCH_MAX: usize = 64;

/// What PostgreSQL last said of the lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    list: Vec<Lane>,
    /// Attempts at the controller, all replicas together, by lane.
    in_flight: Vec<(String, i64)>,
    replicas: usize,
    read_at: Option<Instant>,
}

/// One pass of the loop: reads a batch and hands it over to be handled beside the next pass.
pub(super) async fn pass(desk: &Desk, batches: &mpsc::Sender<Batch>) -> anyhow::Result<Progress> {
    let Some(batch) = desk.take().await? else { return Ok(Progress::Idle) };
    batches.send(batch).await.map_err(|_| anyhow::anyhow!("the batches are handled no more"))?;
    Ok(Progress::More)
}

impl Desk {
    /// Reads as many entries as there are permits for; none when there is nothing to do or nothing may be done.
    pub(super) async fn take(&self) -> anyhow::Result<Option<Batch>> {
        self.refresh().await?;
        let allowance = self.breaker.borrow().allowance(Instant::now());
        let is_shut = self.breaker.borrow().is_shut();
        self.engine.controller_is_open.store(!is_shut, Ordering::Relaxed);
        METRICS.breaker_open.set(i64::from(is_shut));
        let wanted = match allowance {
            Allowance::Any => self.free_permits(),
            Allowance::OneProbe => 1,
            Allowance::Nothing(_) => 0,
        };
        // A probe always passes: it is how we learn that the cap's jobs are gone.
        let wanted = if allowance == Allowance::OneProbe { wanted } else { wanted.min(self.cap_free()) };
        if wanted == 0 {
            return Ok(None);
        }
        let Ok(mut permits) = Arc::clone(&self.permits).try_acquire_many_owned(u32::try_from(wanted)?) else {
            return Ok(None);
        };
        let entries = self.read(wanted).await?;
        let entries = self.pick_up(entries);
        if entries.is_empty() {
            return Ok(None);
        }
        if allowance == Allowance::OneProbe {
            self.breaker.borrow_mut().probe_sent();
        }
        // Permits that found no entry are free again at once.
        drop(permits.split(wanted.saturating_sub(entries.len())));
        Ok(Some(Batch { entries, permits }))
    }

    fn free_permits(&self) -> usize {
        let free = self.permits.available_permits();
        let all = self.engine.config.controller.concurrency;
        if free < WORTHWHILE.min(all) && free < all { 0 } else { free.min(BATCH_MAX) }
    }

    /// This replica's part of what the cap leaves free.
    fn cap_free(&self) -> usize {
        let lanes = self.lanes.borrow();
        let counted: i64 = lanes.in_flight.iter().map(|(_, count)| count).sum();
        let now = counted + self.engine.in_flight_delta.load(Ordering::Relaxed);
        let cap = i64::try_from(self.engine.config.pace.in_flight_cap).unwrap_or(i64::MAX);
        let free = usize::try_from(cap.saturating_sub(now)).unwrap_or(0);
        free.div_ceil(lanes.replicas.max(1))
    }

    async fn refresh(&self) -> anyhow::Result<()> {
        let is_fresh = self.lanes.borrow().read_at.is_some_and(|at| at.elapsed() < REFRESH);
        if is_fresh {
            return Ok(());
        }
        let pool = &self.engine.pool;
        let delta = self.engine.in_flight_delta.load(Ordering::Relaxed);
        let (list, in_flight, alive) =
            tokio::try_join!(lanes::list(pool), lanes::in_flight(pool), instances::alive(pool))?;
        self.engine.in_flight_delta.fetch_sub(delta, Ordering::Relaxed);
        for lane in &list {
            let count = in_flight.iter().find(|(name, _)| *name == lane.name).map_or(0, |(_, count)| *count);
            METRICS.attempts_in_flight.with_label_values(&[&lane.name]).set(count);
        }
        METRICS.controller_clock_offset_seconds.set(self.controller.clock_offset_ms() as f64 / 1000.0);
        *self.lanes.borrow_mut() = Lanes { list, in_flight, replicas: alive.len(), read_at: Some(Instant::now()) };
        Ok(())
    }

    /// The own pending list first, if something may lie there; then new entries, by weight while several lanes wait.
    async fn read(&self, wanted: usize) -> anyhow::Result<Vec<Entry>> {
        let lanes: Vec<Lane> = self.lanes.borrow().list.iter().filter(|lane| !lane.paused).cloned().collect();
        if self.reread.get() {
            let own = self.read_own(&lanes, wanted).await?;
            if !own.is_empty() {
                return Ok(own);
            }
        }
        let caps = self.lane_caps(&lanes);
        let claimants: Vec<Claimant> = lanes
            .iter()
            .zip(&caps)
            .map(|(lane, cap)| Claimant { weight: lane.weight.unsigned_abs(), wants: wanted.min(*cap) })
            .collect();
        let shares = share(wanted, &claimants);
        let mut entries = self.read_new(&lanes, &shares).await?;
        let left = wanted.saturating_sub(entries.len());
        // What one lane left goes to those that filled their share.
        if left > 0 && !entries.is_empty() {
            let filled = |lane: &Lane| entries.iter().filter(|entry| entry.key == self.key_of(lane)).count();
            let more: Vec<usize> = lanes
                .iter()
                .zip(shares.iter().zip(&caps))
                .map(|(lane, (share, cap))| if filled(lane) == *share { left.min(cap - share.min(cap)) } else { 0 })
                .collect();
            let claimants: Vec<Claimant> = lanes
                .iter()
                .zip(more)
                .map(|(lane, wants)| Claimant { weight: lane.weight.unsigned_abs(), wants })
                .collect();
            entries.extend(self.read_new(&lanes, &share(left, &claimants)).await?);
        }
        Ok(entries)
    }

    fn key_of(&self, lane: &Lane) -> String {
        self.engine.streams.key(&format!("judge:{}", lane.name))
    }

    /// How many more of each lane may go: its own cap, and the part of the global cap that is not kept for the others.
    fn lane_caps(&self, lanes: &[Lane]) -> Vec<usize> {
        let state = self.lanes.borrow();
        let count =
            |lane: &Lane| state.in_flight.iter().find(|(name, _)| *name == lane.name).map_or(0, |(_, count)| *count);
        let cap = i64::try_from(self.engine.config.pace.in_flight_cap).unwrap_or(i64::MAX);
        let total: i64 = state.in_flight.iter().map(|(_, count)| count).sum();
        let free_reserve = |lane: &Lane| (i64::from(lane.reserve) - count(lane)).max(0);
        let room = |lane: &Lane| {
            let kept: i64 = lanes.iter().filter(|other| other.name != lane.name).map(free_reserve).sum();
            let own = lane.in_flight_cap.map_or(i64::MAX, |cap| i64::from(cap) - count(lane));
            usize::try_from(own.min(cap - total - kept)).unwrap_or(0)
        };
        // A probe must pass even with the cap spent.
        let is_shut = self.breaker.borrow().is_shut();
        lanes.iter().map(|lane| room(lane).max(usize::from(is_shut))).collect()
    }

    async fn read_new(&self, lanes: &[Lane], shares: &[usize]) -> anyhow::Result<Vec<Entry>> {
        let counts: Vec<(String, usize)> = lanes
            .iter()
            .zip(shares)
            .filter(|(_, share)| **share > 0)
            .map(|(lane, share)| (format!("judge:{}", lane.name), *share))
            .collect();
        if counts.is_empty() {
            return Ok(Vec::new());
        }
        let read = self.engine.streams.read_new(&self.engine.consumer(), &counts).await;
        if read.is_err() {
            // What the server had handed out before the answer was lost lies in the pending list.
            self.reread.set(true);
        }
        Ok(read?)
    }

    async fn read_own(&self, lanes: &[Lane], wanted: usize) -> anyhow::Result<Vec<Entry>> {
        for lane in lanes {
            let mut after = "0".to_owned();
            loop {
                let destination = format!("judge:{}", lane.name);
                let page = self.engine.streams.read_own(&self.engine.consumer(), &destination, &after, 200).await?;
                let Some(last) = page.last() else { break };
                after.clone_from(&last.id);
                let in_hand = |entry: &Entry| self.in_hand.borrow().contains(&(entry.key.clone(), entry.id.clone()));
                let found: Vec<Entry> = page.into_iter().filter(|entry| !in_hand(entry)).take(wanted).collect();
                if !found.is_empty() {
                    return Ok(found);
                }
            }
        }
        self.reread.set(false);
        Ok(Vec::new())
    }
}
