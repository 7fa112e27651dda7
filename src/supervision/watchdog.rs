//! A thread outside every runtime that sees when an arbiter's thread is stuck in synchronous code.
//!
//! It restarts nothing, because nothing can: it says which thread is stuck, and in production the process ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use actix::ArbiterHandle;

use super::cell::lock;

/// Looks per limit; so many in a row without a beat between mean stuck. Counted in looks and not by a clock, so that a
/// machine that slept does not end the process when it wakes up.
const LOOKS_PER_LIMIT: u32 = 4;

/// Watches the threads of arbiters. Dropping it ends the watching.
#[derive(Debug)]
pub struct Watchdog {
    limit: Duration,
    watched: Arc<Mutex<Vec<Watched>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Watched {
    pulse: Arc<Pulse>,
    seen: u64,
    missed: u32,
}

#[derive(Debug)]
struct Pulse {
    name: String,
    beats: AtomicU64,
    /// The arbiter ended in good order, or the watchdog is gone.
    over: AtomicBool,
}

/// Tells the watchdog that the beating ended because its runtime did.
struct Beating(Arc<Pulse>);

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

impl Watchdog {
    /// Starts the thread. `on_stuck` is called there, once per stuck thread, with the name given to [`watch`](Self::watch);
    /// in production it is [`exit_stuck_process`](super::exit_stuck_process). The error is the system's: no thread to be had.
    pub fn start(limit: Duration, on_stuck: impl FnMut(&str) + Send + 'static) -> std::io::Result<Self> {
        let watched = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = channel();
        let list = watched.clone();
        let thread = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || look_around(limit / LOOKS_PER_LIMIT, &list, &stopped, on_stuck))?;
        Ok(Self { limit, watched, stop: Some(stop), thread: Some(thread) })
    }

    /// Watches one arbiter's thread from now on, until the arbiter stops.
    pub fn watch(&self, name: impl Into<String>, arbiter: &ArbiterHandle) {
        let pulse = Arc::new(Pulse { name: name.into(), beats: AtomicU64::new(0), over: AtomicBool::new(false) });
        let period = (self.limit / (2 * LOOKS_PER_LIMIT)).min(Duration::from_secs(1));
        if arbiter.spawn(beat(Beating(pulse.clone()), period)) {
            lock(&self.watched).push(Watched { pulse, seen: 0, missed: 0 });
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        for watched in lock(&self.watched).iter() {
            watched.pulse.over.store(true, Ordering::Relaxed);
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the watchdog's thread panicked");
        }
    }
}

async fn beat(beating: Beating, period: Duration) {
    while !beating.0.over.load(Ordering::Relaxed) {
        beating.0.beats.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(period).await;
    }
}

fn look_around(period: Duration, list: &Mutex<Vec<Watched>>, stopped: &Receiver<()>, mut on_stuck: impl FnMut(&str)) {
    while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
        let stuck = find_stuck(&mut lock(list));
        // Outside the lock, as in production this call does not return.
        stuck.iter().for_each(|name| on_stuck(name));
    }
}

/// One look at every thread; returns those that were found stuck just now.
fn find_stuck(list: &mut Vec<Watched>) -> Vec<String> {
    list.retain(|watched| !watched.pulse.over.load(Ordering::Relaxed));
    let missed = list.iter_mut().filter_map(|watched| {
        let beats = watched.pulse.beats.load(Ordering::Relaxed);
        watched.missed = if beats == watched.seen { watched.missed.saturating_add(1) } else { 0 };
        watched.seen = beats;
        (watched.missed == LOOKS_PER_LIMIT).then(|| watched.pulse.name.clone())
    });
    missed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(name: &str) -> Watched {
        let pulse = Pulse { name: name.to_owned(), beats: AtomicU64::new(0), over: AtomicBool::new(false) };
        Watched { pulse: Arc::new(pulse), seen: 0, missed: 0 }
    }

    #[test]
    fn a_thread_without_beats_is_reported_once_after_all_looks_and_a_beating_one_never() {
        let mut list = vec![watched("stuck"), watched("alive")];
        let mut reports = Vec::new();
        for look in 1..=3 * LOOKS_PER_LIMIT {
            list[1].pulse.beats.fetch_add(1, Ordering::Relaxed);
            reports.extend(find_stuck(&mut list).into_iter().map(|name| (look, name)));
        }
        assert_eq!(reports, [(LOOKS_PER_LIMIT, "stuck".to_owned())]);
    }

    #[test]
    fn a_thread_that_ended_in_good_order_is_forgotten() {
        let mut list = vec![watched("ended")];
        drop(Beating(list[0].pulse.clone()));
        assert!((0..9).all(|_| find_stuck(&mut list).is_empty()));
        assert!(list.is_empty());
    }
}
