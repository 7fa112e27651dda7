//! Connections to PostgreSQL: how they are made, checked and thrown away. Nothing here knows a table.

use std::sync::Arc;
use std::time::Duration;

use diesel::{ConnectionError, ConnectionResult};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_postgres::config::SslMode;

use super::{StoreError, StoreResult};

/// A borrowed connection; it goes back, or is thrown away when broken, when dropped.
pub type Connection<'a> = bb8::PooledConnection<'a, AsyncDieselConnectionManager<AsyncPgConnection>>;

/// A pool of connections with a limit on every wait.
#[derive(Clone)]
pub struct Pool {
    inner: bb8::Pool<AsyncDieselConnectionManager<AsyncPgConnection>>,
}

/// How a pool is made.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Shown by PostgreSQL in `pg_stat_activity`.
    pub application_name: &'static str,
    /// Most connections.
    pub size: u32,
    /// Longest wait for a connection.
    pub connect_limit: Duration,
    /// Longest run of one statement; the server ends it.
    pub statement_limit: Duration,
}

impl Pool {
    /// A pool that connects when first asked: PostgreSQL may be down now.
    pub fn new(url: &str, options: &PoolOptions) -> StoreResult<Pool> {
        let mut config = ManagerConfig::default();
        // A closed connection is seen without asking; a broken one fails its first statement and is thrown away then.
        config.recycling_method = RecyclingMethod::Fast;
        let (limit, name) = (options.statement_limit, options.application_name);
        config.custom_setup = Box::new(move |url| establish(url.to_owned(), name, limit));
        let manager = AsyncDieselConnectionManager::new_with_config(url, config);
        let inner = bb8::Pool::builder()
            .max_size(options.size)
            .min_idle(None)
            .connection_timeout(options.connect_limit)
            .idle_timeout(Some(Duration::from_secs(300)))
            .error_sink(Box::new(LogErrors))
            .build_unchecked(manager);
        Ok(Pool { inner })
    }

    /// A connection, within the pool's limit.
    pub async fn get(&self) -> StoreResult<Connection<'_>> {
        self.inner.get().await.map_err(|error| StoreError::Unavailable(format!("no connection: {error}")))
    }

    /// Connections open and idle.
    pub fn usage(&self) -> (u32, u32) {
        let state = self.inner.state();
        (state.connections, state.idle_connections)
    }
}

/// bb8 reports a time-out without its reason; the reason comes here.
#[derive(Clone, Copy, Debug)]
struct LogErrors;

impl bb8::ErrorSink<diesel_async::pooled_connection::PoolError> for LogErrors {
    fn sink(&self, error: diesel_async::pooled_connection::PoolError) {
        log::debug!("postgresql connection failed: {error}");
    }

    fn boxed_clone(&self) -> Box<dyn bb8::ErrorSink<diesel_async::pooled_connection::PoolError>> {
        Box::new(*self)
    }
}

/// Opens one connection: over verified TLS where the server offers it, in plain where it does not and `sslmode` allows that.
pub fn establish(
    url: String,
    application_name: &'static str,
    statement_limit: Duration,
) -> BoxFuture<'static, ConnectionResult<AsyncPgConnection>> {
    async move {
        let mut config: tokio_postgres::Config = url.parse().map_err(|_| bad_url())?;
        config.application_name(application_name);
        config.connect_timeout(Duration::from_secs(3));
        let own = config.get_options().unwrap_or_default();
        let options = format!(
            "-c statement_timeout={limit} -c idle_in_transaction_session_timeout=10000 -c lock_timeout={limit} \
             -c default_transaction_isolation=read\\ committed -c TimeZone=UTC {own}",
            limit = statement_limit.as_millis(),
        );
        config.options(options);
        if uses_tls(&config) { connect_tls(config).await } else { connect_plain(config).await }
    }
    .boxed()
}

fn bad_url() -> ConnectionError {
    // The parser's message may quote the URL, which holds a password.
    ConnectionError::InvalidConnectionUrl("DATABASE_URL is not a PostgreSQL connection URL".to_owned())
}

fn uses_tls(config: &tokio_postgres::Config) -> bool {
    let over_tcp = config.get_hosts().iter().any(|host| matches!(host, tokio_postgres::config::Host::Tcp(_)));
    over_tcp && config.get_ssl_mode() != SslMode::Disable
}

async fn connect_plain(config: tokio_postgres::Config) -> ConnectionResult<AsyncPgConnection> {
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.map_err(cannot_connect)?;
    AsyncPgConnection::try_from_client_and_connection(client, connection).await
}

async fn connect_tls(config: tokio_postgres::Config) -> ConnectionResult<AsyncPgConnection> {
    let tls = tokio_postgres_rustls::MakeRustlsConnect::new(crate::tls::client_config(None).map_err(|error| {
        ConnectionError::BadConnection(format!("the system's certificate authorities cannot be read: {error}"))
    })?);
    let (client, connection) = config.connect(tls).await.map_err(cannot_connect)?;
    AsyncPgConnection::try_from_client_and_connection(client, connection).await
}

fn cannot_connect(error: tokio_postgres::Error) -> ConnectionError {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    ConnectionError::BadConnection(text)
}

/// A single connection outside any pool, for migrations and tools.
pub async fn single(url: &str) -> StoreResult<AsyncPgConnection> {
    establish(url.to_owned(), "judge-relay", Duration::from_secs(600))
        .await
        .map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// A shared pool handle.
pub type SharedPool = Arc<Pool>;

#[allow(dead_code)]
fn assert_traits() {
    fn is_send<T: Send + Sync>() {}
    is_send::<Pool>();
    fn is_connection<T: AsyncConnection>() {}
    is_connection::<AsyncPgConnection>();
}
