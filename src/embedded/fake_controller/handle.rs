//! Starting, steering and stopping a fake controller.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::config::{Config, Key};
use super::door::{self, Door, Order, Restart};
use super::ledger::Ledger;
use super::switches::Switches;
use super::world::Shared;
use super::{callbacks, runs};

/// A running fake controller; dropping it ends it.
pub struct FakeController {
    handle: FakeHandle,
    _door: JoinSet<()>,
}

impl FakeController {
    /// Starts one on the runtime of the caller.
    ///
    /// # Errors
    /// There is no runtime, or the address cannot be listened to.
    pub fn start(config: Config) -> io::Result<Self> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let listener = door::listen(config.address)?;
        let address = listener.local_addr()?;
        let (orders, received) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(config, runtime.clone(), orders));
        let door = Door::new(shared.clone(), address, listener);
        let mut tasks = JoinSet::new();
        tasks.spawn_on(door.keep(received), &runtime);
        Ok(Self { handle: FakeHandle { shared, address }, _door: tasks })
    }

    /// Starts one on a thread and a runtime of its own.
    ///
    /// # Errors
    /// The thread or its runtime cannot be made, or the address cannot be listened to.
    pub fn spawn_thread(config: Config) -> io::Result<FakeThread> {
        let (started, outcome) = std_mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            let said = live(config, &started, stopped);
            if let Err(error) = said
                && started.send(Err(error)).is_err()
            {
                log::debug!("nobody waits for the fake controller to start");
            }
        };
        let thread = std::thread::Builder::new().name("fake-controller".to_owned()).spawn(body)?;
        let handle = outcome.recv().map_err(io::Error::other)??;
        Ok(FakeThread { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// What steers it from anywhere.
    pub fn handle(&self) -> FakeHandle {
        self.handle.clone()
    }
}

/// The life of the thread: until the sender of `stopped` is gone.
fn live(
    config: Config,
    started: &std_mpsc::Sender<io::Result<FakeHandle>>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let controller = FakeController::start(config)?;
        if started.send(Ok(controller.handle())).is_ok() {
            // Told or dropped, it means the same.
            drop(stopped.await);
        }
        Ok(())
    })
}

impl Deref for FakeController {
    type Target = FakeHandle;

    fn deref(&self) -> &FakeHandle {
        &self.handle
    }
}

impl Drop for FakeController {
    fn drop(&mut self) {
        self.handle.shared.work.abort();
    }
}

/// A fake controller on its own thread; dropping it ends both, and waits for the end.
pub struct FakeThread {
    handle: FakeHandle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeThread {
    /// What steers it from anywhere.
    pub fn handle(&self) -> FakeHandle {
        self.handle.clone()
    }
}

impl Deref for FakeThread {
    type Target = FakeHandle;

    fn deref(&self) -> &FakeHandle {
        &self.handle
    }
}

impl Drop for FakeThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("the fake controller's thread panicked");
        }
    }
}

/// Runs one until this process is asked to stop (SIGINT or SIGTERM); `started` is told once where it listens.
///
/// # Errors
/// The address cannot be listened to, or signals cannot be received.
pub async fn run(config: Config, started: impl FnOnce(&FakeHandle)) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let controller = FakeController::start(config)?;
    started(&controller);
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}

/// What was waited for did not happen in time.
#[derive(Debug, Error)]
#[error("not within {limit:?}; {counters}")]
pub struct NotInTime {
    limit: Duration,
    counters: String,
}

/// Steers a fake controller, from any thread and any runtime.
#[derive(Clone)]
pub struct FakeHandle {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl FakeHandle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a client takes as the controller's base URL, the prefix included.
    pub fn base_url(&self) -> String {
        format!("http://{}{}", self.address, self.shared.config.prefix)
    }

    /// The switches as they are, with what is left of the limited ones.
    pub fn switches(&self) -> Switches {
        self.shared.with(|world| world.switches.clone())
    }

    /// Changes switches.
    pub fn set(&self, change: impl FnOnce(&mut Switches)) {
        self.shared.with(|world| change(&mut world.switches));
        self.shared.switches_changed();
    }

    /// Adds a key, or replaces it.
    pub fn set_key(&self, access_key: &str, key: &Key) {
        self.shared.with(|world| world.set_key(access_key, key));
    }

    /// Removes a key, as an administrator would.
    pub fn remove_key(&self, access_key: &str) {
        self.shared.with(|world| world.keys.remove(access_key));
    }

    /// Makes the configured keys known again, after a flush.
    pub fn restore_keys(&self) {
        self.shared.with(|world| world.restore_keys());
    }

    /// A copy of the ledger.
    pub fn ledger(&self) -> Ledger {
        self.with_ledger(Clone::clone)
    }

    /// Reads the ledger in place. The fake stands still meanwhile.
    pub fn with_ledger<R>(&self, read: impl FnOnce(&Ledger) -> R) -> R {
        self.shared.with(|world| read(world.current_ledger()))
    }

    /// Waits until the ledger fulfils a condition, which is looked at after every change.
    ///
    /// # Errors
    /// It did not within `limit`.
    pub async fn wait_until(&self, limit: Duration, condition: impl FnMut(&Ledger) -> bool) -> Result<(), NotInTime> {
        match tokio::time::timeout(limit, self.fulfilled(condition)).await {
            Ok(()) => Ok(()),
            Err(_) => {
                let counters = self.with_ledger(|ledger| format!("{:?}, {:?}", ledger.counters, ledger.pending));
                Err(NotInTime { limit, counters })
            }
        }
    }

    async fn fulfilled(&self, mut condition: impl FnMut(&Ledger) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            // Registered before looking, so that a change between the look and the wait is not missed.
            changed.as_mut().enable();
            if self.with_ledger(&mut condition) {
                return;
            }
            changed.await;
        }
    }

    /// Refuses connections, and drops those there are, until [`FakeHandle::come_up`]. Judging and callbacks go on.
    pub async fn go_down(&self) {
        self.order(Order::Down).await;
    }

    /// Accepts connections again.
    pub async fn come_up(&self) {
        self.order(Order::Up).await;
    }

    /// The process dies and comes back: connections and judgings are dropped, the queues stay. Callbacks under way are sent
    /// again by the retry clock, judgings that were held are queued again after a while. Returns when it listens again.
    pub async fn restart(&self, restart: Restart) {
        self.order(|done| Order::Restart(restart, Some(done))).await;
    }

    async fn order(&self, order: impl FnOnce(oneshot::Sender<()>) -> Order) {
        let (done, obeyed) = oneshot::channel();
        // Both fail only when the fake is stopping, and then there is nothing left to steer.
        if self.shared.orders.send(order(done)).is_err() || obeyed.await.is_err() {
            log::debug!("the fake controller is stopping");
        }
    }
}

impl Shared {
    /// Brings everything in line with changed switches.
    pub(super) fn switches_changed(self: &Arc<Self>) {
        let skew = self.with(|world| world.switches.auth_skew);
        self.set_skew(skew);
        callbacks::start_workers(self);
        runs::start(self);
        self.changed.notify_waiters();
    }
}
