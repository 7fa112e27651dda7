//! A test's own database: the pool that the code under test uses, and a plain connection to look into the tables with.
//! Not the store: what is looked at here goes through none of its code.

use std::time::Duration;

use judge_relay::store::Pool;
use judge_relay::store::pool::PoolOptions;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::SCHEMA;
use super::stores::TestStores;

/// A fresh database with the schema.
pub struct TestDatabase {
    /// What the code under test uses.
    pub pool: Pool,
    /// A connection of the test's own.
    pub client: Client,
    /// The database, its URL, and the Redis server and key prefix that go with it.
    pub stores: TestStores,
}

impl TestDatabase {
    /// A database for one test, dropped with it.
    pub async fn fresh() -> TestDatabase {
        let stores = SCHEMA.fresh();
        let pool = pool(&stores.database_url, 10);
        let client = connect(&stores.database_url).await;
        TestDatabase { pool, client, stores }
    }

    /// Runs statements.
    pub async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
    }

    /// The rows of a query, every value as text, null as `∅`, values joined by a space.
    pub async fn rows(&self, sql: &str) -> Vec<String> {
        rows(&self.client, sql).await
    }

    /// The single row of a query, as [`TestDatabase::rows`] shows it.
    pub async fn row(&self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows.into_iter().next().unwrap()
    }
}

/// A pool as the service makes one.
pub fn pool(url: &str, size: u32) -> Pool {
    let options = PoolOptions {
        application_name: "judge-relay tests",
        size,
        connect_limit: Duration::from_secs(10),
        statement_limit: Duration::from_secs(30),
    };
    Pool::new(url, &options).expect("a pool")
}

/// A connection outside every pool, driven by the test's runtime.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the database is there");
    #[expect(
        clippy::disallowed_methods,
        reason = "drives a connection: it ends with the client, its error is the client's"
    )]
    tokio::spawn(connection);
    client
}

/// The rows of a query, every value as text, null as `∅`, values joined by a space.
pub async fn rows(client: &Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{error:?}: {sql}"));
    let row = |message: SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or("∅")).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}
