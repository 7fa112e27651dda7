//! The queue of callbacks: workers, what a failed one becomes, and the clock by which it comes again. How one is sent is
//! the courier's business.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use super::clock::seconds;
use super::courier::{Courier, Orders};
use super::ledger::{CallbackRecord, Outcome};
use super::world::{Job, Shared, World, sleep_until};
use crate::protocol::CallbackKind;

/// One callback, waiting or under way.
#[derive(Clone)]
pub(super) struct Callback {
    job: Arc<Job>,
    kind: CallbackKind,
    body: Arc<str>,
    /// How many attempts there were.
    tried: u32,
    /// Sent even when the job is finished: another process had read the URL before.
    forced: bool,
    /// The body of a second finish, sent when this one was acknowledged.
    pub(super) second: Option<Arc<str>>,
}

impl Callback {
    pub(super) fn new(job: Arc<Job>, kind: CallbackKind, body: Arc<str>) -> Self {
        Self { job, kind, body, tried: 0, forced: false, second: None }
    }

    fn forced(job: Arc<Job>, kind: CallbackKind, body: Arc<str>) -> Self {
        Self { forced: true, ..Self::new(job, kind, body) }
    }

    fn url(&self) -> &str {
        match self.kind {
            CallbackKind::Update => &self.job.update_url,
            CallbackKind::Finish => &self.job.finish_url,
        }
    }
}

/// A callback that left the queue and is not known to be delivered.
pub(super) struct Backup {
    /// When its worker began to wait for it; its age counts from there.
    began: Instant,
    callback: Callback,
}

/// What a worker does next.
enum Next {
    Retire,
    Wait,
    Send { backup: u64, callback: Callback, orders: Orders },
}

/// Brings the number of workers to what the switches say; too many retire by themselves.
pub(super) fn start_workers(shared: &Arc<Shared>) {
    let missing: Vec<usize> = shared.with(|world| {
        let wanted = 0..world.switches.cb_workers.max(1);
        wanted.filter(|index| world.workers.insert(*index)).collect()
    });
    for index in missing {
        shared.work.start(work(shared.clone(), index));
    }
}

/// One worker, as one controller process has it: one callback at a time.
async fn work(shared: Arc<Shared>, index: usize) {
    let mut courier = Courier::new(shared.config.timing.idle_close);
    let mut began = Instant::now();
    loop {
        match shared.with(|world| world.next_callback(index, began)) {
            Next::Retire => {
                // The call that woke this worker may have been meant for one that stays.
                shared.callbacks_ready.notify_one();
                return;
            }
            Next::Wait => {
                wait(&shared, &mut courier, &mut began).await;
            }
            Next::Send { backup, callback, orders } => {
                let outcome = courier.deliver(callback.url(), &callback.body, orders).await;
                shared.change(|world| world.settle(backup, callback, outcome));
                began = Instant::now();
            }
        }
    }
}

async fn wait(shared: &Shared, courier: &mut Courier, began: &mut Instant) {
    let renewal = *began + shared.config.timing.retry_block;
    tokio::select! {
        () = shared.callbacks_ready.notified() => {}
        () = sleep_until(courier.next_expiry()) => courier.close_expired(),
        () = tokio::time::sleep_until(renewal) => *began = Instant::now(),
    }
}

/// The retry clock: looks for failed callbacks, first at a random moment, then regularly.
pub(super) async fn retry(shared: Arc<Shared>) {
    let scan = shared.config.timing.retry_scan;
    tokio::time::sleep(shared.with(|world| world.random.within(scan))).await;
    loop {
        shared.change(World::requeue_due);
        tokio::time::sleep(scan).await;
    }
}

impl World {
    /// Puts a callback at the tail of the queue.
    pub(super) fn push_callback(&mut self, callback: Callback) {
        self.callbacks.push_back(callback);
        self.callbacks_ready.notify_one();
    }

    fn next_callback(&mut self, index: usize, began: Instant) -> Next {
        if index >= self.switches.cb_workers.max(1) {
            self.workers.remove(&index);
            return Next::Retire;
        }
        while let Some(mut callback) = self.callbacks.pop_front() {
            callback.tried += 1;
            if !callback.forced && !self.jobs.contains_key(&callback.job.number) {
                self.record(&callback, Outcome::Dropped);
                continue;
            }
            let backup = self.number();
            self.backups.insert(backup, Backup { began, callback: callback.clone() });
            return Next::Send { backup, callback, orders: self.orders() };
        }
        Next::Wait
    }

    fn orders(&mut self) -> Orders {
        let limit = self.switches.cb_timeout.map_or(self.config.timing.callback_timeout, seconds);
        Orders {
            limit: (!limit.is_zero()).then_some(limit),
            follow_redirects: self.switches.cb_follow_redirects,
            abort_after_send: self.switches.cb_abort_after_send.take(&mut self.random).is_some(),
        }
    }

    fn record(&mut self, callback: &Callback, outcome: Outcome) {
        self.ledger.tried(CallbackRecord {
            job: callback.job.number,
            kind: callback.kind,
            body: callback.body.clone(),
            attempt: callback.tried,
            ended_at: SystemTime::now(),
            outcome,
        });
    }

    /// An attempt has ended.
    fn settle(&mut self, backup: u64, callback: Callback, outcome: Outcome) {
        self.record(&callback, outcome);
        callback.job.tried.notify_one();
        let is_finish = callback.kind == CallbackKind::Finish;
        if outcome.is_delivered() {
            if is_finish {
                self.jobs.remove(&callback.job.number);
            }
            self.backups.remove(&backup);
        } else if !self.switches.cb_retry {
            self.backups.remove(&backup);
        }
        if is_finish && !callback.forced {
            self.follow_up(callback, outcome);
        }
    }

    /// What other processes still send about a job whose finish was tried.
    fn follow_up(&mut self, callback: Callback, outcome: Outcome) {
        let job = callback.job;
        if callback.tried == 1 && job.faults.late_update {
            let body = "{\"state\":\"judging\"}".into();
            self.push_callback(Callback::forced(job.clone(), CallbackKind::Update, body));
        }
        if let Some(second) = callback.second
            && outcome.is_delivered()
        {
            self.push_callback(Callback::forced(job, CallbackKind::Finish, second));
        }
    }

    /// Moves every callback that failed long enough ago back to the tail of the queue, in arbitrary order.
    fn requeue_due(&mut self) {
        let timing = &self.config.timing;
        let age = timing.retry_expire + timing.retry_block;
        let now = Instant::now();
        let due = self.backups.extract_if(|_, backup| backup.began + age <= now);
        let mut due: Vec<(u64, Backup)> = due.collect();
        // Chance comes from the seed alone, not from the order of a hash map.
        due.sort_by_key(|(number, _)| *number);
        self.random.shuffle(&mut due);
        for (_, backup) in due {
            self.push_callback(backup.callback);
        }
    }
}
