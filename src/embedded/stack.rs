//! A whole installation of its own: private stores, the fake controller and the service, for demos, benches and tests. Everything
//! ends with it.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::oneshot;

use super::fake_controller::{Config as FakeConfig, FakeController, FakeThread};
use super::stores::{PrivatePostgres, PrivateRedis, StoreOptions};
use crate::app::App;
use crate::config::Config;
use crate::supervision::Registry;

/// The service on a thread of its own, with a system of its own.
pub struct ServiceThread {
    address: SocketAddr,
    registry: Registry,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServiceThread {
    /// Starts the service with these variables. Errors: the configuration cannot work, or the port is taken.
    pub fn start(variables: Vec<(String, String)>) -> anyhow::Result<ServiceThread> {
        let (stop, stopped) = oneshot::channel();
        let (report, started) = mpsc::channel();
        let thread = std::thread::Builder::new().name("service".to_owned()).spawn(move || {
            actix::System::new().block_on(serve(&variables, report, stopped));
        })?;
        let (address, registry) = started.recv().context("the service ended before it began")??;
        Ok(ServiceThread { address, registry, stop: Some(stop), thread: Some(thread) })
    }

    /// Where its HTTP server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its actors.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl Drop for ServiceThread {
    fn drop(&mut self) {
        if self.stop.take().is_some_and(|stop| stop.send(()).is_err()) {
            log::debug!("the service had ended before it was asked to");
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the service's thread panicked");
        }
    }
}

type Report = mpsc::Sender<anyhow::Result<(SocketAddr, Registry)>>;

async fn serve(variables: &[(String, String)], report: Report, stopped: oneshot::Receiver<()>) {
    let get = |name: &str| variables.iter().find(|(variable, _)| variable == name).map(|(_, value)| value.clone());
    let built = Config::read(&get).map_err(|problems| anyhow!(problems.join("; "))).and_then(App::build);
    let (app, address) = match built.and_then(|app| app.address().map(|at| (app, at)).map_err(anyhow::Error::from)) {
        Ok(started) => started,
        Err(error) => return drop(report.send(Err(error))),
    };
    drop(report.send(Ok((address, app.registry()))));
    let shutdown = async {
        // The handle that was dropped asks for the end, too.
        drop(stopped.await);
    };
    if let Err(error) = app.run(shutdown).await {
        log::error!("the service ended: {error:#}");
    }
}

/// The access to a stack's service.
pub const ADMIN_TOKEN: &str = "demo-token-for-the-private-service-0001";
const CALLBACK_KEYS: &str = "demo:0123456789abcdef0123456789abcdef";

/// How a stack is made.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// PostgreSQL and Redis.
    pub stores: StoreOptions,
    /// The controller.
    pub controller: FakeConfig,
    /// Variables of the service beside those that the stack needs.
    pub variables: Vec<(String, String)>,
}

/// Everything together. The fields are dropped in this order: the service drains while its stores still live.
pub struct Stack {
    /// The service.
    pub service: ServiceThread,
    /// The controller.
    pub controller: FakeThread,
    /// Redis.
    pub redis: PrivateRedis,
    /// PostgreSQL.
    pub postgres: PrivatePostgres,
}

impl Stack {
    /// Starts everything; comes back when the service is ready.
    pub fn start(options: StackOptions) -> anyhow::Result<Stack> {
        let postgres = PrivatePostgres::start(&options.stores)?;
        let redis = PrivateRedis::start(&options.stores)?;
        let controller =
            FakeController::spawn_thread(options.controller).context("the fake controller cannot start")?;
        let port = free_port()?;
        let mut variables = options.variables;
        variables.extend(variables_for(&postgres.url(), &redis.url(), &controller.base_url(), port));
        let service = ServiceThread::start(variables)?;
        let stack = Stack { service, controller, redis, postgres };
        stack.wait_until_ready()?;
        Ok(stack)
    }

    /// `http://…` of the service.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.service.address())
    }

    fn wait_until_ready(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let registry = self.service.registry().clone();
        let ready = async {
            registry.until(|registry| registry.ready().is_ok()).await;
            // The first passes may have failed while the tables were being made: working means that none fails now.
            let works = |registry: &Registry| registry.snapshot().iter().all(|actor| actor.consecutive_errors == 0);
            registry.until(works).await;
        };
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), ready).await }).with_context(|| {
            format!(
                "the service is not ready after a minute: {}",
                registry.ready().err().unwrap_or_default().join("; ")
            )
        })
    }
}

/// The variables that tie a service to its stores and its controller.
pub fn variables_for(database_url: &str, redis_url: &str, controller_url: &str, port: u16) -> Vec<(String, String)> {
    [
        ("DATABASE_URL", database_url),
        ("REDIS_URL", redis_url),
        ("HENG_BASE_URL", controller_url),
        ("HENG_AK", FakeConfig::ACCESS_KEY),
        ("HENG_SK", FakeConfig::SECRET_KEY),
        ("BASE_URL", &format!("http://127.0.0.1:{port}")),
        ("JUDGE_RELAY_LISTEN", &format!("127.0.0.1:{port}")),
        ("JUDGE_RELAY_CALLBACK_KEYS", CALLBACK_KEYS),
        ("JUDGE_RELAY_ADMIN_TOKEN", ADMIN_TOKEN),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// A port that was free a moment ago.
pub fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
