//! Everything the controller remembers, under one lock: what the real one keeps in Redis, and what the fake adds for tests.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::auth::KnownKey;
use super::callbacks::{Backup, Callback};
use super::clock;
use super::config::{Config, Key};
use super::door::Order;
use super::judge::Task;
use super::ledger::{Ledger, Pending};
use super::nonces::Nonces;
use super::random::Random;
use super::runs::Run;
use super::switches::{DuplicateFinish, OddBody, Rejudge, Switches};

/// A job as it was written down.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) update_url: String,
    pub(super) finish_url: String,
    pub(super) task: Task,
    pub(super) faults: JobFaults,
    /// Told after each attempt of a callback; whoever holds the 201 back waits for it.
    pub(super) tried: Notify,
}

/// What will go wrong with a job, drawn when it was created.
#[derive(Clone, Debug, Default)]
pub(super) struct JobFaults {
    pub(super) lost: bool,
    pub(super) rejudge: Option<Rejudge>,
    pub(super) twice_at_once: bool,
    pub(super) duplicate: Option<DuplicateFinish>,
    pub(super) late_update: bool,
    pub(super) odd_body: Option<OddBody>,
}

/// What the lock protects.
pub(super) struct World {
    pub(super) config: Arc<Config>,
    pub(super) switches: Switches,
    pub(super) random: Random,
    pub(super) ledger: Ledger,
    /// The key table; a flush empties it.
    pub(super) keys: BTreeMap<String, Arc<KnownKey>>,
    pub(super) nonces: Nonces,
    /// Jobs without an acknowledged finish.
    pub(super) jobs: HashMap<u64, Arc<Job>>,
    /// Judgings waiting for a judger, first in, first out.
    pub(super) queue: VecDeque<Run>,
    /// Judgings that take time and are under way.
    pub(super) held: HashMap<u64, Run>,
    /// Callbacks waiting for a worker.
    pub(super) callbacks: VecDeque<Callback>,
    /// Callbacks under way or failed.
    pub(super) backups: HashMap<u64, Backup>,
    /// The workers that run.
    pub(super) workers: BTreeSet<usize>,
    pub(super) callbacks_ready: Arc<Notify>,
    next_number: u64,
}

impl World {
    /// A number not given before.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Fills the configured keys in again.
    pub(super) fn restore_keys(&mut self) {
        let config = self.config.clone();
        for (access_key, key) in &config.keys {
            self.set_key(access_key, key);
        }
    }

    /// Adds a key, or replaces it.
    pub(super) fn set_key(&mut self, access_key: &str, key: &Key) {
        self.keys.insert(access_key.to_owned(), Arc::new(KnownKey::new(access_key, key)));
    }

    /// Redis is flushed: jobs, callbacks, nonces and keys are gone. The ledger is not the controller's.
    pub(super) fn forget(&mut self) {
        self.keys.clear();
        self.nonces.clear();
        self.jobs.clear();
        self.queue.clear();
        self.held.clear();
        self.callbacks.clear();
        self.backups.clear();
    }

    /// The ledger with what is under way at this moment.
    pub(super) fn current_ledger(&mut self) -> &Ledger {
        self.ledger.pending = Pending {
            jobs: self.jobs.len(),
            runs_queued: self.queue.len(),
            runs_held: self.held.len(),
            callbacks_queued: self.callbacks.len(),
            callbacks_held: self.backups.len(),
        };
        &self.ledger
    }
}

/// What every task of the fake shares.
pub(super) struct Shared {
    pub(super) config: Arc<Config>,
    world: Mutex<World>,
    /// Told after every change that a test may wait for.
    pub(super) changed: Notify,
    pub(super) callbacks_ready: Arc<Notify>,
    pub(super) work: Work,
    pub(super) orders: mpsc::UnboundedSender<Order>,
    skew_milliseconds: AtomicI64,
}

impl Shared {
    pub(super) fn new(config: Config, runtime: Handle, orders: mpsc::UnboundedSender<Order>) -> Self {
        let config = Arc::new(config);
        let callbacks_ready = Arc::new(Notify::new());
        let mut world = World {
            switches: config.switches.clone(),
            random: Random::new(config.seed),
            ledger: Ledger::new(config.ledger),
            keys: BTreeMap::new(),
            nonces: Nonces::new(config.timing.nonce_lifetime),
            jobs: HashMap::new(),
            queue: VecDeque::new(),
            held: HashMap::new(),
            callbacks: VecDeque::new(),
            backups: HashMap::new(),
            workers: BTreeSet::new(),
            callbacks_ready: callbacks_ready.clone(),
            next_number: 0,
            config: config.clone(),
        };
        world.restore_keys();
        let skew_milliseconds = AtomicI64::new(milliseconds(world.switches.auth_skew));
        let work = Work { tasks: Mutex::default(), runtime };
        let (world, changed) = (Mutex::new(world), Notify::new());
        Self { config, world, changed, callbacks_ready, work, orders, skew_milliseconds }
    }

    /// Looks at or changes the world. Tests that wait are not told; see [`Shared::change`].
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        // A panic elsewhere is a bug of the fake; what it left behind is still the best there is.
        act(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the world and tells those who wait.
    pub(super) fn change<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        let result = self.with(act);
        self.changed.notify_waiters();
        result
    }

    /// The controller's own time, in milliseconds since 1970.
    pub(super) fn now(&self) -> i64 {
        clock::unix_milliseconds(self.skew_milliseconds.load(Ordering::Relaxed))
    }

    /// Takes over a changed skew.
    pub(super) fn set_skew(&self, seconds: f64) {
        self.skew_milliseconds.store(milliseconds(seconds), Ordering::Relaxed);
    }
}

fn milliseconds(seconds: f64) -> i64 {
    // Saturating is what `as` does, and a clock that far off is as wrong as any.
    (seconds * 1000.0) as i64
}

/// The tasks that a restart ends, other than connections: judgings, workers, the retry clock.
pub(super) struct Work {
    tasks: Mutex<JoinSet<()>>,
    runtime: Handle,
}

impl Work {
    /// Starts a task.
    pub(super) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = tasks.try_join_next() {
            report(ended);
        }
        tasks.spawn_on(task, &self.runtime);
    }

    /// Ends all tasks and waits until they are gone.
    pub(super) async fn stop(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
    }

    /// Ends all tasks without waiting.
    pub(super) fn abort(&self) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// A panicked task must not go unseen: everything after it would look like a fault of the one tested.
pub(super) fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        log::error!("a task of the fake controller panicked: {error}");
    }
}

/// When the next thing is due, if anything is.
pub(super) async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
