//! The wiring: pools, actors under supervision, the HTTP server; what starts first and what ends last. It decides nothing.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use actix::Addr;
use actix_rt::{Arbiter, ArbiterHandle};
use actix_web::{App as WebApp, HttpServer, web};
use anyhow::Context as _;
use uuid::Uuid;

use crate::actors::callback_verifier::{self, CallbackVerifier};
use crate::actors::gauge_collector::{self, GaugeCollector};
use crate::actors::heartbeat::{self, Heartbeat};
use crate::actors::judge_dispatcher::{self, JudgeDispatcher};
use crate::actors::outbox_poller::{self, OutboxPoller};
use crate::actors::pel_reaper::{self, PelReaper};
use crate::actors::reconciler::{self, Reconciler};
use crate::actors::result_applier::{self, ResultApplier};
use crate::actors::retention_sweeper::{self, RetentionSweeper};
use crate::actors::stream_publisher::{self, StreamPublisher};
use crate::actors::{Engine, Wake};
use crate::config::Config;
use crate::controller::Controller;
use crate::http::callbacks::{self, CallbackDoor};
use crate::http::{self, Api, ApiOptions};
use crate::protocol::retry::Backoff;
use crate::store::pool::PoolOptions;
use crate::store::{Pool, instances, lanes, migrations, outbox};
use crate::stream::{StreamOptions, Streams};
use crate::supervision::{Registry, Watchdog, exit_process_hook, exit_stuck_process, supervise};

/// A thread that makes no progress for this long ends the process.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Between tries to reach PostgreSQL at start.
const START_AGAIN: Backoff = Backoff { base: Duration::from_millis(250), max: Duration::from_secs(5) };

/// A service that was built and has not been run.
pub struct App {
    config: Arc<Config>,
    engine: Arc<Engine>,
    registry: Registry,
    edge_pool: Pool,
    listener: TcpListener,
    actors: Actors,
    _watchdog: Watchdog,
}

/// The actors whose addresses others need.
struct Actors {
    poller: Addr<OutboxPoller>,
    verifier: Addr<CallbackVerifier>,
}

impl App {
    /// Opens the port and starts the actors; no store has to be reachable. Must be called inside an actix system.
    pub fn build(config: Config) -> anyhow::Result<App> {
        let config = Arc::new(config);
        let listener = TcpListener::bind(&config.listen)
            .with_context(|| format!("JUDGE_RELAY_LISTEN: cannot listen on {}", config.listen))?;
        let registry = Registry::new(exit_process_hook());
        let watchdog = Watchdog::start(STUCK_AFTER, exit_stuck_process).context("the watchdog cannot start")?;
        let engine = Arc::new(engine(&config)?);
        let edge_pool = pool(&config, "judge-relay edge", 24, http::STORE_LIMIT)?;
        let actors = start_actors(&engine, &registry, &watchdog)?;
        Ok(App { config, engine, registry, edge_pool, listener, actors, _watchdog: watchdog })
    }

    /// Where it listens.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What is supervised.
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Runs until `shutdown` completes, then drains: intake stops at once, callbacks are taken to the last.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        let server = self.server()?;
        let handle = server.handle();
        let serving = async { server.await.context("the HTTP server failed") };
        let preparing = async {
            prepare(&self.config, &self.engine).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = serving => ended,
            () = preparing => Ok(()),
            () = shutdown => {
                log::info!("draining");
                drain(&self.config, &self.engine, &self.registry).await;
                handle.stop(true).await;
                if let Err(error) = instances::leave(&self.engine.pool, self.engine.instance).await {
                    log::debug!("this process's row stays until its heartbeat is old: {error}");
                }
                log::info!("drained");
                Ok(())
            }
        }
    }

    fn server(&self) -> anyhow::Result<actix_web::dev::Server> {
        let poller = self.actors.poller.clone();
        let api = web::Data::new(Api::new(ApiOptions {
            pool: self.edge_pool.clone(),
            registry: self.registry.clone(),
            admin_token_hash: self.config.admin_token_hash,
            admin_tenant: self.config.admin_tenant.clone(),
            // A full mailbox holds a wake-up already.
            wake: Arc::new(move || drop(poller.try_send(Wake))),
            metrics: metrics(self.registry.clone()),
            body_limits: http::BodyLimits::default(),
            store_limit: http::STORE_LIMIT,
        }));
        let door = web::Data::new(CallbackDoor::new(Arc::clone(&self.config), self.actors.verifier.clone()));
        let server = HttpServer::new(move || {
            let (api, door) = (api.clone(), door.clone());
            WebApp::new()
                .configure(|service| callbacks::configure(service, door))
                .configure(|service| http::configure(service, api))
        });
        let server = server
            .workers(self.config.http_workers)
            // Longer than the controller's own five seconds, so that it is never us who closes a connection that it reuses.
            .keep_alive(Duration::from_secs(75))
            .client_request_timeout(Duration::from_secs(10))
            // A quarter of the drain is left for the callbacks that are being answered when the rest is done.
            .shutdown_timeout((self.config.pace.drain.as_secs() / 4).max(1))
            .disable_signals()
            .listen(self.listener.try_clone().context("the listening socket cannot be shared")?)
            .context("the HTTP server cannot listen")?;
        Ok(server.run())
    }
}

fn engine(config: &Arc<Config>) -> anyhow::Result<Engine> {
    let options = StreamOptions {
        prefix: config.redis_prefix.clone(),
        size: 16,
        connect_limit: Duration::from_secs(1),
        response_limit: Duration::from_secs(2),
    };
    Ok(Engine {
        config: Arc::clone(config),
        pool: pool(config, "judge-relay engine", 16, Duration::from_secs(10))?,
        streams: Streams::new(config.redis_url.expose(), &options)?,
        instance: Uuid::new_v4(),
        in_flight_delta: AtomicI64::new(0),
        dispatching: AtomicUsize::new(0),
        controller_is_open: AtomicBool::new(true),
        controller_was_heard: AtomicBool::new(false),
    })
}

fn pool(config: &Config, application_name: &'static str, size: u32, statement_limit: Duration) -> anyhow::Result<Pool> {
    let options = PoolOptions { application_name, size, connect_limit: Duration::from_millis(1_500), statement_limit };
    Pool::new(config.database_url.expose(), &options).map_err(anyhow::Error::from)
}

/// Starts every actor after those whose address it needs. Four threads: what relays, what talks to the controller,
/// what applies, and the heartbeat.
fn start_actors(engine: &Arc<Engine>, registry: &Registry, watchdog: &Watchdog) -> anyhow::Result<Actors> {
    let thread = |name: &'static str| {
        let arbiter = Arbiter::new().handle();
        watchdog.watch(name, &arbiter);
        arbiter
    };
    let (relay, dispatch, results) = (thread("relay"), thread("dispatch"), thread("results"));
    let poll = engine.config.pace.poll;
    let reconciler = {
        let engine = Arc::clone(engine);
        supervise(&relay, registry, reconciler::supervised()?, move |handle| Reconciler::new(handle, engine))
    };
    let publisher = {
        let (engine, reconciler) = (Arc::clone(engine), reconciler.recipient());
        let make = move |handle| StreamPublisher::new(handle, engine, Some(reconciler));
        supervise(&relay, registry, stream_publisher::supervised()?, make)
    };
    let dispatcher = {
        let engine = Arc::clone(engine);
        let tls = Arc::new(crate::tls::client_config(engine.config.controller.ca_file.as_deref())?);
        let make = move |handle| {
            let controller = Controller::new(Arc::clone(&engine.config), tls);
            JudgeDispatcher::new(handle, engine, controller)
        };
        supervise(&dispatch, registry, judge_dispatcher::supervised(poll)?, make)
    };
    let poller = {
        let (engine, dispatcher) = (Arc::clone(engine), dispatcher.clone().recipient());
        let make = move |handle| OutboxPoller::new(handle, engine, publisher, Some(dispatcher));
        supervise(&relay, registry, outbox_poller::supervised(poll)?, make)
    };
    let applier = {
        let (engine, poller) = (Arc::clone(engine), poller.clone().recipient());
        let make = move |handle| ResultApplier::new(handle, engine, Some(poller));
        supervise(&results, registry, result_applier::supervised()?, make)
    };
    let verifier = {
        let (engine, applier) = (Arc::clone(engine), applier.clone());
        let make = move |handle| CallbackVerifier::new(handle, engine, applier);
        supervise(&results, registry, callback_verifier::supervised()?, make)
    };
    let beat = {
        let (engine, pool) =
            (Arc::clone(engine), pool(&engine.config, "judge-relay heartbeat", 1, Duration::from_secs(2))?);
        move |handle| Heartbeat::new(handle, engine, pool)
    };
    drop(supervise(&thread("pulse"), registry, heartbeat::supervised()?, beat));
    start_side_roads(&relay, engine, registry, dispatcher, applier)?;
    Ok(Actors { poller, verifier })
}

/// The actors that nobody sends messages to; the registry keeps them.
fn start_side_roads(
    relay: &ArbiterHandle,
    engine: &Arc<Engine>,
    registry: &Registry,
    dispatcher: Addr<JudgeDispatcher>,
    applier: Addr<ResultApplier>,
) -> anyhow::Result<()> {
    let shared = || Arc::clone(engine);
    let for_reaper = shared();
    let reaper = move |handle| PelReaper::new(handle, for_reaper, dispatcher, applier);
    drop(supervise(relay, registry, pel_reaper::supervised()?, reaper));
    let for_gauges = shared();
    drop(supervise(relay, registry, gauge_collector::supervised()?, move |h| GaugeCollector::new(h, for_gauges)));
    let for_sweep = shared();
    drop(supervise(relay, registry, retention_sweeper::supervised()?, move |h| RetentionSweeper::new(h, for_sweep)));
    Ok(())
}

/// Migrates and checks the stores, however long they take to come. The callback door is open meanwhile.
async fn prepare(config: &Config, engine: &Engine) {
    if config.migrate_at_start {
        migrate(config.database_url.expose()).await;
    }
    check_postgresql(engine).await;
    check_redis(engine).await;
}

/// Tries until it has worked; what a migration itself does wrong is tried again, too, so that a newer image can put it right.
async fn migrate(database_url: &str) {
    let mut failures = 0;
    loop {
        match migrations::run(database_url).await {
            Ok(applied) if applied.is_empty() => return,
            Ok(applied) => return log::info!("applied {} migrations: {}", applied.len(), applied.join(", ")),
            Err(error) => log::warn!("PostgreSQL cannot be migrated yet, callbacks are taken meanwhile: {error}"),
        }
        tokio::time::sleep(START_AGAIN.ceiling(failures)).await;
        failures += 1;
    }
}

/// What the promises rest on; a server that breaks them is named loudly, not silently used.
async fn check_postgresql(engine: &Engine) {
    match instances::settings(&engine.pool).await {
        Ok(settings) => {
            if !settings.fsync || settings.synchronous_commit == "off" {
                log::error!(
                    "PostgreSQL runs with fsync or synchronous_commit off: a crash loses what was acknowledged; turn both on"
                );
            }
            if settings.is_standby {
                log::error!("DATABASE_URL leads to a standby, which takes no writes; it must lead to the primary");
            }
        }
        Err(error) => log::warn!("PostgreSQL's settings are unknown: {error}"),
    }
    if let Ok(false) = instances::session_is_kept(&engine.pool).await {
        log::error!(
            "DATABASE_URL leads to a transaction pooler, which breaks locks and prepared statements; use session pooling"
        );
    }
}

async fn check_redis(engine: &Engine) {
    match engine.streams.settings().await {
        Ok((policy, version)) => {
            if policy.as_deref().is_some_and(|policy| policy != "noeviction") {
                log::error!("Redis evicts keys ({}): set maxmemory-policy noeviction", policy.unwrap_or_default());
            }
            let major = version.as_deref().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
            if major.is_some_and(|major| major < 7) {
                log::error!("Redis {} is too old: 7.0 or newer is needed", version.unwrap_or_default());
            }
        }
        Err(error) => log::warn!("Redis's settings are unknown: {error}"),
    }
}

/// Stops all intake at once, finishes what is in hand, gives back the rest; takes three quarters of the drain at most.
async fn drain(config: &Config, engine: &Engine, registry: &Registry) {
    registry.drain();
    let finished = async {
        if let Err(busy) = registry.drained(config.pace.drain / 2).await {
            log::warn!("still busy after {:?}: {}", config.pace.drain / 2, busy.join(", "));
        }
        while engine.dispatching.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // The Heartbeat drains like the others; whoever takes this process for dead now would send again what is under way.
    let beating = async {
        loop {
            if let Err(error) = instances::heartbeat(&engine.pool, engine.instance, "draining").await {
                log::debug!("no heartbeat while draining: {error}");
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let limit = config.pace.drain.mul_f64(0.75);
    tokio::select! {
        () = finished => {}
        () = beating => {}
        () = tokio::time::sleep(limit) => log::warn!("POSTs are still under way; another process sends theirs again"),
    }
    if let Err(error) = outbox::release_all(&engine.pool, engine.instance).await {
        log::debug!("leases run out by themselves: {error}");
    }
    let mut destinations: Vec<String> = lanes::list(&engine.pool)
        .await
        .map(|lanes| lanes.into_iter().map(|lane| format!("judge:{}", lane.name)).collect())
        .unwrap_or_default();
    destinations.push("results".to_owned());
    for destination in destinations {
        if let Err(error) = engine.streams.give_up(&destination, &engine.consumer()).await {
            log::debug!("pending entries of {destination} are found by their consumer's absence: {error}");
        }
    }
}

/// The metrics' text; what the registry knows is put in when it is asked for.
fn metrics(registry: Registry) -> Arc<dyn Fn() -> String + Send + Sync> {
    use crate::telemetry::METRICS;
    Arc::new(move || {
        for actor in registry.snapshot() {
            let is_up = matches!(actor.state, crate::supervision::ActorState::Running);
            METRICS.actor_up.with_label_values(&[&actor.name]).set(i64::from(is_up));
            METRICS
                .actor_restarts
                .with_label_values(&[&actor.name])
                .set(i64::try_from(actor.restarts).unwrap_or(i64::MAX));
        }
        METRICS.render()
    })
}
