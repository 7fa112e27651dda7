//! The listening socket and the life of the process behind it: open, closed, restarted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::clock::seconds;
use super::runs::{self, Run};
use super::world::{Shared, World, report};
use super::{callbacks, connection};

/// How the controller's process ends and comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restart {
    /// Redis is lost with it: everything is forgotten, the keys included.
    pub flush: bool,
    /// The new process has the old one's id: what judgers held is never judged again.
    pub lose_held: bool,
    /// For how many seconds connections are refused.
    pub down_seconds: f64,
}

/// What the door is told; answered when it is done.
pub(super) enum Order {
    Down(oneshot::Sender<()>),
    Up(oneshot::Sender<()>),
    Restart(Restart, Option<oneshot::Sender<()>>),
}

/// The port, listened to or only held.
enum Port {
    Open(TcpListener),
    /// Bound but not listening: connections are refused, and nobody else gets the port.
    Held(TcpSocket),
    Lost,
}

/// The door and everything behind it.
pub(super) struct Door {
    shared: Arc<Shared>,
    address: SocketAddr,
    port: Port,
    connections: JoinSet<()>,
}

/// Binds and listens.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)?.listen(1024)
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl Door {
    pub(super) fn new(shared: Arc<Shared>, address: SocketAddr, listener: TcpListener) -> Self {
        Self { shared, address, port: Port::Open(listener), connections: JoinSet::new() }
    }

    /// Keeps the door until it is dropped.
    pub(super) async fn keep(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        self.start_work(Vec::new());
        loop {
            tokio::select! {
                stream = self.port.accept() => {
                    self.connections.spawn(connection::serve(self.shared.clone(), stream));
                }
                Some(ended) = self.connections.join_next(), if !self.connections.is_empty() => report(ended),
                order = orders.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return,
                }
            }
        }
    }

    async fn obey(&mut self, order: Order) {
        let done = match order {
            Order::Down(done) => {
                self.close().await;
                Some(done)
            }
            Order::Up(done) => {
                self.open();
                Some(done)
            }
            Order::Restart(restart, done) => {
                self.restart(restart).await;
                done
            }
        };
        self.shared.change(|_| ());
        if done.is_some_and(|done| done.send(()).is_err()) {
            log::debug!("nobody waits for the fake controller's door any more");
        }
    }

    async fn restart(&mut self, restart: Restart) {
        self.close().await;
        self.shared.work.stop().await;
        let held = self.shared.change(|world| world.restarted(restart));
        tokio::time::sleep(seconds(restart.down_seconds)).await;
        self.open();
        self.start_work(held);
    }

    fn start_work(&self, held: Vec<Run>) {
        let shared = &self.shared;
        callbacks::start_workers(shared);
        shared.work.start(callbacks::retry(shared.clone()));
        if !held.is_empty() {
            let after = shared.with(|world| world.random.within(shared.config.timing.held_again));
            shared.work.start(runs::resume_held(shared.clone(), held, after));
        }
        runs::start(shared);
    }

    /// Refuses connections and drops those there are.
    async fn close(&mut self) {
        // The listener has to go before the port can be bound again.
        self.port = Port::Lost;
        match bind(self.address) {
            Ok(socket) => self.port = Port::Held(socket),
            Err(error) => log::error!("the fake controller cannot hold its port {}: {error}", self.address),
        }
        self.connections.shutdown().await;
    }

    fn open(&mut self) {
        let listening = match std::mem::replace(&mut self.port, Port::Lost) {
            Port::Open(listener) => Ok(listener),
            Port::Held(socket) => socket.listen(1024),
            Port::Lost => listen(self.address),
        };
        match listening {
            Ok(listener) => self.port = Port::Open(listener),
            Err(error) => log::error!("the fake controller cannot open its port {}: {error}", self.address),
        }
    }
}

impl Port {
    /// The next connection; never while the port is closed.
    async fn accept(&self) -> TcpStream {
        let Port::Open(listener) = self else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => {
                    // Out of file descriptors, most likely: trying again at once would only burn the processor.
                    log::warn!("the fake controller cannot accept: {error}");
                    tokio::time::sleep_until(Instant::now() + Duration::from_millis(20)).await;
                }
            }
        }
    }
}

impl World {
    /// What a new process finds; returns the judgings that are queued again in a while.
    fn restarted(&mut self, restart: Restart) -> Vec<Run> {
        self.ledger.counters.restarts += 1;
        self.workers.clear();
        let mut held: Vec<(u64, Run)> = self.held.drain().collect();
        held.sort_by_key(|(number, _)| *number);
        if restart.flush {
            self.forget();
        }
        if restart.flush || restart.lose_held {
            for (_, run) in held.drain(..) {
                self.ledger.change_job(run.job.number, |record| record.lost = true);
            }
        }
        held.into_iter().map(|(_, run)| run).collect()
    }
}
