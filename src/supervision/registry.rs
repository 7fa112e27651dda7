//! Every supervised actor of the process in one list: for health, for status, for drain and for the orders of drills.
//!
//! It sends no messages and waits for no actor: everything it says is read from the status cells.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::cell::{ActorHandle, Order, StatusCell, lock};
use super::policy::CheckedPolicy;
use super::status::ActorStatus;

/// A failure made on purpose, for drills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The actor panics.
    Panic,
    /// The actor stops itself.
    Stop,
    /// The actor takes no further turn.
    Hang,
}

/// The actors of one process. Clones share one list.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

/// Called with an actor's name and its last failure.
type EscalationHook = Box<dyn Fn(&str, &str) + Send + Sync>;

struct Shared {
    cells: Mutex<Vec<Arc<StatusCell>>>,
    flow: Mutex<Flow>,
    draining: watch::Sender<bool>,
    changes: watch::Sender<u64>,
    escalate: EscalationHook,
}

/// Behind one lock, so that no pass begins after `drained` has counted none.
#[derive(Default)]
struct Flow {
    draining: bool,
    passes: usize,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("actors", &lock(&self.shared.cells).len()).finish_non_exhaustive()
    }
}

impl Registry {
    /// An empty registry. `escalate` is called with an actor's name and its last failure when that actor has spent its
    /// restarts and its policy says so; in production it is [`exit_process_hook`](super::exit_process_hook).
    pub fn new(escalate: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        let shared = Shared {
            cells: Mutex::default(),
            flow: Mutex::default(),
            draining: watch::Sender::new(false),
            changes: watch::Sender::new(0),
            escalate: Box::new(escalate),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Every actor's status, in the order in which they were started.
    pub fn snapshot(&self) -> Vec<ActorStatus> {
        let draining = self.draining();
        lock(&self.shared.cells).iter().map(|cell| cell.status(draining)).collect()
    }

    /// One actor's status, or `None` if there is none of that name.
    pub fn status(&self, name: &str) -> Option<ActorStatus> {
        self.named(name).map(|cell| cell.status(self.draining()))
    }

    /// Whether this process should be given work; else every reason against it, in words.
    ///
    /// Ready means: not draining, every actor started, every actor's loop took a turn recently. A pass that ended in an
    /// error is a turn, so an outage of a store never makes a process unready.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        let mut reasons = Vec::new();
        if self.draining() {
            reasons.push("the process is draining".to_owned());
        }
        let cells = lock(&self.shared.cells);
        if cells.is_empty() {
            reasons.push("no actor has been started yet".to_owned());
        }
        reasons.extend(cells.iter().filter_map(|cell| cell.unready()));
        if reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    /// Fails an actor on purpose. False if there is none of that name. An actor that is already down is left alone.
    pub fn inject(&self, name: &str, fault: Fault) -> bool {
        self.order(name, Order::Inject(fault))
    }

    /// Restarts an actor in good order; not a failure, and an end to a running back-off. False if there is none of that name.
    pub fn restart(&self, name: &str) -> bool {
        self.order(name, Order::Restart)
    }

    /// Wakes an actor's loop by name. False if there is none of that name.
    pub fn wake(&self, name: &str) -> bool {
        self.named(name).map(|cell| cell.wake().notify_one()).is_some()
    }

    /// Ends every loop after the pass that it is in. Actors go on answering messages. There is no way back.
    pub fn drain(&self) {
        lock(&self.shared.flow).draining = true;
        self.shared.draining.send_replace(true);
        self.changed();
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn draining(&self) -> bool {
        *self.shared.draining.borrow()
    }

    /// Waits for [`drain`](Self::drain).
    pub async fn drain_begins(&self) {
        let mut draining = self.shared.draining.subscribe();
        // An error means that the sender is gone; it lives in `self`.
        drop(draining.wait_for(|draining| *draining).await);
    }

    /// Waits until no pass is running anywhere; after [`drain`](Self::drain) none begins again.
    ///
    /// The error names the actors whose pass was still running after `limit`.
    pub async fn drained(&self, limit: Duration) -> Result<(), Vec<String>> {
        let quiet = self.until(|registry| lock(&registry.shared.flow).passes == 0);
        if tokio::time::timeout(limit, quiet).await.is_ok() {
            return Ok(());
        }
        let cells = lock(&self.shared.cells);
        let busy = cells.iter().filter(|cell| cell.pass_running());
        Err(busy.map(|cell| cell.policy().name.clone()).collect())
    }

    /// Waits until `condition` holds, looking again at every change of an actor's state and at every end of a pass.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let mut changes = self.shared.changes.subscribe();
        while !condition(self) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    pub(super) fn enroll(&self, policy: CheckedPolicy) -> ActorHandle {
        let cell = Arc::new(StatusCell::new(policy.0));
        lock(&self.shared.cells).push(cell.clone());
        self.changed();
        ActorHandle { cell, registry: self.clone() }
    }

    pub(super) fn escalate(&self, name: &str, why: &str) {
        (self.shared.escalate)(name, why);
    }

    pub(super) fn changed(&self) {
        self.shared.changes.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Counts one more running pass, unless the process is draining.
    pub(super) fn admit_pass(&self) -> bool {
        let mut flow = lock(&self.shared.flow);
        if !flow.draining {
            flow.passes += 1;
        }
        !flow.draining
    }

    pub(super) fn discharge_pass(&self) {
        lock(&self.shared.flow).passes -= 1;
        self.changed();
    }

    fn order(&self, name: &str, order: Order) -> bool {
        self.named(name).map(|cell| cell.give_order(order)).is_some()
    }

    fn named(&self, name: &str) -> Option<Arc<StatusCell>> {
        lock(&self.shared.cells).iter().find(|cell| cell.policy().name == name).cloned()
    }
}
