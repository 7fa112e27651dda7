//! One PostgreSQL and one Redis for all tests of this process; a database and a Redis key prefix for each test.
//! Not the schema: the caller of [`Template::made_by`] brings the migrations, which run once.
//!
//! The servers are private ones, which end with the test process however it ends. With `TEST_DATABASE_URL` or
//! `TEST_REDIS_URL` the tests use those servers instead: then the user must be allowed to create databases, and one
//! template per test process stays there.

use std::{env, sync::LazyLock, thread};

use judge_relay::embedded::stores::{PrivatePostgres, PrivateRedis, StoreOptions};
use tokio_postgres::NoTls;
use url::Url;
use uuid::Uuid;

/// Tests run in parallel, each with pools of its own.
const CONNECTIONS_MAX: &str = "400";

/// A server that the environment names, or one of our own.
enum Source<Server> {
    Given(String),
    Private(Server),
}

impl<Server> Source<Server> {
    fn url(&self, of: impl FnOnce(&Server) -> String) -> String {
        match self {
            Self::Given(url) => url.clone(),
            Self::Private(server) => of(server),
        }
    }
}

/// Statics are never dropped: the kernel ends the servers with the process, and the next start removes the directories.
static POSTGRES: LazyLock<Source<PrivatePostgres>> = LazyLock::new(|| match env::var("TEST_DATABASE_URL") {
    Ok(url) => Source::Given(url),
    Err(_) => Source::Private(
        PrivatePostgres::start(&StoreOptions::disposable().setting("max_connections", CONNECTIONS_MAX))
            .unwrap_or_else(|error| panic!("the tests need a PostgreSQL server: {error}")),
    ),
});

static REDIS: LazyLock<Source<PrivateRedis>> = LazyLock::new(|| match env::var("TEST_REDIS_URL") {
    Ok(url) => Source::Given(url),
    Err(_) => Source::Private(
        PrivateRedis::start(&StoreOptions::disposable())
            .unwrap_or_else(|error| panic!("the tests need a Redis server: {error}")),
    ),
});

/// A database with the schema, from which each test's database is copied.
#[derive(Debug)]
pub struct Template(Database);

/// The stores of one test. The database is dropped with it.
#[derive(Debug)]
pub struct TestStores {
    /// A database of this test alone, with the schema.
    pub database_url: String,
    /// The Redis server that all tests share.
    pub redis_url: String,
    /// Goes before every Redis key of this test.
    pub redis_prefix: String,
    _database: Database,
}

impl Template {
    /// `migrate` gets the URL of an empty database, and must have closed its connections when it returns. It runs on a
    /// plain thread, outside every asynchronous runtime, so that it may block and start a runtime of its own.
    pub fn made_by(migrate: impl FnOnce(&str) + Send) -> Self {
        outside_every_runtime(|| {
            let database = Database::create("judge_relay_template", "");
            migrate(&database.url());
            // A connection to the template would make the next copy of it fail.
            administer(&format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false", database.0)).unwrap();
            Self(database)
        })
    }

    /// A fresh database and prefix, for one test.
    pub fn fresh(&self) -> TestStores {
        let database =
            outside_every_runtime(|| Database::create("judge_relay_test", &format!("TEMPLATE {}", self.0.0)));
        TestStores {
            database_url: database.url(),
            redis_url: REDIS.url(PrivateRedis::url),
            redis_prefix: format!("{}:", unique("test")),
            _database: database,
        }
    }
}

/// A database by its name, dropped with this. Without that, hundreds of tests would fill the disk with 8 MB each.
#[derive(Debug)]
struct Database(String);

impl Database {
    fn create(kind: &str, options: &str) -> Self {
        let name = unique(kind);
        administer(&format!("CREATE DATABASE {name} {options}")).unwrap();
        Self(name)
    }

    fn url(&self) -> String {
        let mut url = Url::parse(&POSTGRES.url(PrivatePostgres::url)).expect("the server's address is a URL");
        url.set_path(&self.0);
        url.into()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let dropped = outside_every_runtime(|| administer(&format!("DROP DATABASE {} WITH (FORCE)", self.0)));
        // A second panic during a failed test's cleanup would abort all tests and hide the first.
        assert!(dropped.is_ok() || thread::panicking(), "{}: {dropped:?}", self.0);
    }
}

/// Runs one statement in the server's own database.
fn administer(statement: &str) -> Result<(), tokio_postgres::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&POSTGRES.url(PrivatePostgres::url), NoTls).await?;
        tokio::select! {
            done = client.batch_execute(statement) => done,
            closed = connection => closed,
        }
    })
}

fn unique(kind: &str) -> String {
    format!("{kind}_{}", Uuid::new_v4().simple())
}

fn outside_every_runtime<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
