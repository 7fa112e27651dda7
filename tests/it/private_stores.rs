//! The private stores: they serve, survive a kill with their data, and leave nothing behind.

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use judge_relay::embedded::stores::{Listen, PrivatePostgres, PrivateRedis, StoreOptions};
use tokio_postgres::NoTls;

use crate::harness::stores::Template;

/// Set for the process that the test of the killed owner starts.
const OWNER: &str = "JUDGE_RELAY_TEST_STORES_OWNER";
const OWNER_READY: &str = "the owner is ready: ";

async fn postgres(url: &str, sql: &str) -> Result<Vec<tokio_postgres::SimpleQueryMessage>, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::select! { answer = client.simple_query(sql) => answer, closed = connection => Err(closed.unwrap_err()) }
}

async fn number(url: &str, sql: &str) -> String {
    let answer = postgres(url, sql).await.unwrap();
    let row = answer.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.unwrap().to_owned()
}

async fn redis(url: &str, command: &[&str]) -> redis::RedisResult<Option<String>> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await
}

/// Whether the process exists and is not just a zombie that its parent has not collected.
fn runs(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Looks again and again until it holds; the limit only ends a test that has failed.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

async fn serves_survives_a_kill_and_leaves_nothing(options: StoreOptions) {
    // Started on a thread that ends: the servers must depend on the handle, not on the thread.
    let (mut database, mut stream) =
        thread::spawn(move || (PrivatePostgres::start(&options).unwrap(), PrivateRedis::start(&options).unwrap()))
            .join()
            .unwrap();
    let (database_url, stream_url) = (database.url(), stream.url());
    postgres(&database_url, "CREATE TABLE kept AS SELECT 7 AS seven").await.unwrap();
    redis(&stream_url, &["SET", "before", "the kill"]).await.unwrap();
    let before = [database.process_id().unwrap(), stream.process_id().unwrap()];

    database.kill().unwrap();
    stream.kill().unwrap();
    assert!(!before.into_iter().any(runs));
    assert!(postgres(&database_url, "SELECT 1").await.is_err(), "PostgreSQL is down");
    assert!(redis(&stream_url, &["PING"]).await.is_err(), "Redis is down");

    database.start_again().unwrap();
    stream.start_again().unwrap();
    assert_eq!((database.url(), stream.url()), (database_url.clone(), stream_url.clone()));
    assert_eq!(number(&database_url, "SELECT seven FROM kept").await, "7");
    assert_eq!(redis(&stream_url, &["PING"]).await.unwrap().as_deref(), Some("PONG"));

    database.stop().unwrap();
    stream.stop().unwrap();
    database.start_again().unwrap();
    stream.start_again().unwrap();
    assert_eq!(number(&database_url, "SELECT seven FROM kept").await, "7");

    let processes = [database.process_id().unwrap(), stream.process_id().unwrap()];
    let directories = [database.directory().to_owned(), stream.directory().to_owned()];
    assert!(directories.iter().all(|directory| directory.exists()));
    drop((database, stream));
    assert!(!processes.into_iter().any(runs), "the servers end with the handle");
    assert!(!directories.iter().any(|directory| directory.exists()), "the data go with the handle");
}

#[tokio::test]
async fn stores_on_a_socket_serve_survive_a_kill_and_leave_nothing() {
    serves_survives_a_kill_and_leaves_nothing(StoreOptions::disposable()).await;
}

#[tokio::test]
async fn stores_on_a_port_serve_survive_a_kill_and_leave_nothing() {
    serves_survives_a_kill_and_leaves_nothing(StoreOptions::durable().listen(Listen::Loopback)).await;
}

#[tokio::test]
async fn a_port_is_closed_to_whoever_lacks_the_password() {
    let options = StoreOptions::disposable().listen(Listen::Loopback);
    let (database, stream) = (PrivatePostgres::start(&options).unwrap(), PrivateRedis::start(&options).unwrap());

    let mut guessed = url::Url::parse(&database.url()).unwrap();
    guessed.set_password(Some("guessed")).unwrap();
    let mut anonymous = url::Url::parse(&stream.url()).unwrap();
    anonymous.set_password(None).unwrap();

    assert!(postgres(guessed.as_str(), "SELECT 1").await.is_err());
    assert!(redis(anonymous.as_str(), &["GET", "anything"]).await.is_err());
}

#[tokio::test]
async fn a_durable_redis_keeps_its_entries_over_a_stop() {
    let mut stream = PrivateRedis::start(&StoreOptions::durable()).unwrap();
    redis(&stream.url(), &["SET", "entry", "kept"]).await.unwrap();
    stream.stop().unwrap();
    stream.start_again().unwrap();
    assert_eq!(redis(&stream.url(), &["GET", "entry"]).await.unwrap().as_deref(), Some("kept"));
}

#[tokio::test]
async fn a_setting_overrides_ours() {
    let database = PrivatePostgres::start(&StoreOptions::disposable().setting("fsync", "on")).unwrap();
    assert_eq!(number(&database.url(), "SELECT (current_setting('fsync') = 'on')::int").await, "1");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let error = PrivatePostgres::start(&StoreOptions::disposable().setting("max_connections", "many")).unwrap_err();
    assert!(error.to_string().contains("max_connections"), "{error}");
}

#[test]
fn servers_end_with_a_killed_owner_and_the_next_start_removes_what_it_left() {
    if env::var_os(OWNER).is_some() {
        return own_stores_until_killed();
    }
    let mut owner = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("private_stores::servers_end_with_a_killed_owner_and_the_next_start_removes_what_it_left")
        .env(OWNER, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).find_map(|line| Some(line.split_once(OWNER_READY)?.1.to_owned()));
    let ready = ready.expect("the owner starts its stores");
    let [database, stream, database_directory, stream_directory] = *ready.split(' ').collect::<Vec<_>>() else {
        panic!("unexpected: {ready}")
    };
    let processes = [database, stream].map(|process| process.parse().unwrap());
    assert!(processes.into_iter().all(runs));

    owner.kill().unwrap();
    owner.wait().unwrap();

    eventually("both servers end", || !processes.into_iter().any(runs));
    let directories = [database_directory, stream_directory].map(PathBuf::from);
    let other = PrivateRedis::start(&StoreOptions::disposable()).unwrap();
    assert!(!directories.iter().any(|directory| directory.exists()), "the next start removes them");
    assert!(other.directory().exists(), "but not those of the living");
    let another = PrivateRedis::start(&StoreOptions::disposable()).unwrap();
    assert!(other.directory() != another.directory() && other.directory().join("redis.sock").exists());
}

fn own_stores_until_killed() {
    let options = StoreOptions::disposable();
    let (database, stream) = (PrivatePostgres::start(&options).unwrap(), PrivateRedis::start(&options).unwrap());
    println!(
        "{OWNER_READY}{} {} {} {}",
        database.process_id().unwrap(),
        stream.process_id().unwrap(),
        shown(database.directory()),
        shown(stream.directory())
    );
    loop {
        thread::park();
    }
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn each_test_gets_a_database_of_its_own_with_the_schema() {
    let schema = Template::made_by(|url| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(postgres(url, "CREATE TABLE harness_check (id int PRIMARY KEY)")).unwrap();
    });
    let (one, other) = (schema.fresh(), schema.fresh());
    postgres(&one.database_url, "INSERT INTO harness_check VALUES (1)").await.unwrap();
    assert_eq!(number(&one.database_url, "SELECT count(*) FROM harness_check").await, "1");
    assert_eq!(number(&other.database_url, "SELECT count(*) FROM harness_check").await, "0");
    assert_ne!(one.redis_prefix, other.redis_prefix);
    assert_eq!(redis(&one.redis_url, &["PING"]).await.unwrap().as_deref(), Some("PONG"));

    let gone = one.database_url.clone();
    drop(one);
    assert!(postgres(&gone, "SELECT 1").await.is_err(), "the database is dropped with its test");
}
