//! The configuration: environment variables only, every one listed in `VARIABLES`, all problems reported at once.
//!
//! Relations between limits are checked here, each with its reason; nothing else reads the environment.

mod read;

use std::path::PathBuf;
use std::time::Duration;

use crate::protocol::callback_url::CallbackKeys;
use crate::protocol::deadline::DeadlinePolicy;
use crate::protocol::heng::request::callback_host_problem;
use crate::protocol::heng::signing::Credentials;
use crate::protocol::retry::Backoff;
use crate::protocol::submission::Budget;

pub use read::Environment;
use read::Reader;

/// The exit code of a configuration that cannot work (`EX_USAGE` of sysexits).
pub const EXIT_CONFIGURATION: i32 = 64;

/// A configuration that was checked.
#[derive(Debug)]
pub struct Config {
    /// Where the HTTP server listens, `host:port`.
    pub listen: String,
    /// PostgreSQL.
    pub database_url: Secret,
    /// Redis.
    pub redis_url: Secret,
    /// Before every Redis key.
    pub redis_prefix: String,
    /// The controller.
    pub controller: ControllerConfig,
    /// The callback door.
    pub callbacks: CallbackConfig,
    /// SHA-256 of the first admin token, from the environment.
    pub admin_token_hash: Option<[u8; 32]>,
    /// The tenant of the first admin token.
    pub admin_tenant: String,
    /// How work is paced.
    pub pace: Pace,
    /// HTTP worker threads.
    pub http_workers: usize,
    /// Apply pending migrations at start.
    pub migrate_at_start: bool,
}

/// How the controller is reached.
#[derive(Debug)]
pub struct ControllerConfig {
    /// Its address with the prefix, without a trailing slash.
    pub base_url: String,
    /// Access key and secret key.
    pub credentials: Credentials,
    /// Certificate authorities beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Longest wait for the answer to a POST.
    pub timeout: Duration,
    /// POSTs under way at once.
    pub concurrency: usize,
}

/// How callbacks come in.
#[derive(Debug)]
pub struct CallbackConfig {
    /// Our address as the controller reaches it, without a trailing slash.
    pub base_url: String,
    /// The first signs, all verify.
    pub keys: CallbackKeys,
    /// Callbacks being read or applied at once.
    pub concurrency: usize,
    /// Bytes of bodies being held at once.
    pub bytes_max: usize,
    /// Finishes that may wait in Redis while PostgreSQL is silent.
    pub spill_max: usize,
}

/// How work is paced and limited.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Rows per claim, script call and transaction.
    pub batch: usize,
    /// How long a claim lasts.
    pub lease: Duration,
    /// A batch older than lease minus this is not sent any more.
    pub lease_margin: Duration,
    /// How long a deduplication key of the streams lives.
    pub dedup_ttl: Duration,
    /// Longest wait before the outbox is looked at again without a wake-up.
    pub poll: Duration,
    /// Submissions at the controller at once, all replicas together.
    pub in_flight_cap: usize,
    /// How many tries a generation has.
    pub budget: Budget,
    /// How often a stream entry may be handed out.
    pub deliveries_max: usize,
    /// Wait before the attempt after a system error.
    pub retry: Backoff,
    /// How long an attempt may be silent.
    pub deadlines: DeadlinePolicy,
    /// How long events stay in the `events` stream.
    pub events_age: Duration,
    /// Longest time between SIGTERM and the end.
    pub drain: Duration,
}

/// A text that is never printed.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The secret itself, for the one who needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// One variable, for `--help` and the README.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its value when unset; none: it must be set.
    pub default: Option<&'static str>,
    /// What it is for.
    pub meaning: &'static str,
}

const fn required(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, default: None, meaning }
}

const fn optional(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, default: Some(default), meaning }
}

/// Every variable that `serve` reads.
pub const VARIABLES: &[Variable] = &[
    required(
        "DATABASE_URL",
        "PostgreSQL: postgres://user:password@host/database; TLS is verified where the server offers it, sslmode=require insists on it",
    ),
    required("REDIS_URL", "Redis: redis://host:6379/0, rediss:// for verified TLS"),
    required("HENG_BASE_URL", "heng-controller with its prefix: http://controller.judge.svc:8080/c/v1"),
    required("HENG_AK", "access key at the controller, role user"),
    required("HENG_SK", "secret key of that access key"),
    required("BASE_URL", "this service as the controller reaches it; its host needs a dot or an IP address"),
    required(
        "JUDGE_RELAY_CALLBACK_KEYS",
        "id:secret,id:secret of the callback tags; the first signs, all verify; secrets of 32 bytes or more",
    ),
    optional("HENG_CA_FILE", "", "PEM file of certificate authorities for the controller, beside the system's"),
    optional("JUDGE_RELAY_ADMIN_TOKEN", "", "bearer token of the first administrator, 32 characters or more"),
    optional("JUDGE_RELAY_ADMIN_TENANT", "default", "the tenant of that token"),
    optional("JUDGE_RELAY_LISTEN", "0.0.0.0:8080", "address of the HTTP server"),
    optional("JUDGE_RELAY_HTTP_WORKERS", "2", "threads of the HTTP server"),
    optional(
        "JUDGE_RELAY_REDIS_PREFIX",
        "{judge-relay}",
        "before every Redis key; the braces keep all keys in one slot of a cluster",
    ),
    optional("JUDGE_RELAY_MIGRATE", "true", "apply pending migrations at start"),
    optional("JUDGE_RELAY_BATCH", "200", "rows per claim, script call and transaction (1..500)"),
    optional("JUDGE_RELAY_LEASE_MS", "10000", "how long a claim on outbox rows lasts"),
    optional("JUDGE_RELAY_DEDUP_TTL_MS", "600000", "how long a stream entry's deduplication key lives"),
    optional("JUDGE_RELAY_POLL_MS", "200", "longest wait before the outbox is looked at without a wake-up"),
    optional("JUDGE_RELAY_IN_FLIGHT_CAP", "512", "submissions at the controller at once, all replicas together"),
    optional("JUDGE_RELAY_CONTROLLER_TIMEOUT_MS", "5000", "longest wait for the controller's answer to a POST"),
    optional("JUDGE_RELAY_CONTROLLER_CONCURRENCY", "64", "POSTs under way at once, each replica"),
    optional(
        "JUDGE_RELAY_ATTEMPTS_MAX",
        "5",
        "attempts of a generation that may end in a system error before it is parked",
    ),
    optional("JUDGE_RELAY_RESCUES_MAX", "5", "attempts repeated after a crash before the submission is parked"),
    optional(
        "JUDGE_RELAY_DELIVERIES_MAX",
        "10",
        "how often a stream entry may be handed out before it is a dead letter",
    ),
    optional("JUDGE_RELAY_RETRY_BASE_MS", "2000", "first wait after a system error; doubles, with full jitter"),
    optional("JUDGE_RELAY_RETRY_MAX_MS", "300000", "longest wait after a system error"),
    optional("JUDGE_RELAY_DEADLINE_FACTOR", "3", "judging may take the sum of the CPU limits times this"),
    optional("JUDGE_RELAY_DEADLINE_QUEUE_MS", "600000", "allowance for the controller's own queue"),
    optional("JUDGE_RELAY_DEADLINE_FLOOR_MS", "120000", "no deadline is shorter"),
    optional("JUDGE_RELAY_DEADLINE_CEILING_MS", "7200000", "no deadline is longer"),
    optional("JUDGE_RELAY_CALLBACK_CONCURRENCY", "512", "callbacks being read or applied at once"),
    optional("JUDGE_RELAY_CALLBACK_BYTES", "134217728", "bytes of callback bodies being held at once"),
    optional("JUDGE_RELAY_SPILL_MAX", "50000", "finishes that may wait in Redis while PostgreSQL is silent"),
    optional("JUDGE_RELAY_EVENTS_AGE_MS", "604800000", "how long events stay in the events stream"),
    optional("JUDGE_RELAY_DRAIN_MS", "25000", "longest time between SIGTERM and the end"),
];

impl Config {
    /// Reads and checks the configuration. Errors: every problem, each a sentence that names its variable.
    pub fn read(environment: &dyn Environment) -> Result<Config, Vec<String>> {
        let mut reader = Reader::new(environment);
        let controller = read_controller(&mut reader);
        let callbacks = read_callbacks(&mut reader);
        let pace = read_pace(&mut reader);
        let admin_token = reader.text("JUDGE_RELAY_ADMIN_TOKEN");
        if !admin_token.is_empty() && admin_token.len() < 32 {
            reader.problem("JUDGE_RELAY_ADMIN_TOKEN", "is shorter than 32 characters; use 32 random bytes in hex");
        }
        let config = Config {
            listen: reader.text("JUDGE_RELAY_LISTEN"),
            database_url: Secret(reader.url("DATABASE_URL", &["postgres", "postgresql"])),
            redis_url: Secret(reader.url("REDIS_URL", &["redis", "rediss", "redis+unix", "unix"])),
            redis_prefix: reader.text("JUDGE_RELAY_REDIS_PREFIX"),
            admin_token_hash: (!admin_token.is_empty()).then(|| crate::http::hash_of(&admin_token)),
            admin_tenant: reader.text("JUDGE_RELAY_ADMIN_TENANT"),
            http_workers: reader.number("JUDGE_RELAY_HTTP_WORKERS", 1, 64),
            migrate_at_start: reader.boolean("JUDGE_RELAY_MIGRATE"),
            controller: match controller {
                Some(controller) => controller,
                None => return Err(reader.problems_or("HENG_AK and HENG_SK must be set")),
            },
            callbacks: match callbacks {
                Some(callbacks) => callbacks,
                None => return Err(reader.problems_or("JUDGE_RELAY_CALLBACK_KEYS must be set")),
            },
            pace,
        };
        let problems = reader.problems();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

fn read_controller(reader: &mut Reader<'_>) -> Option<ControllerConfig> {
    let base_url = reader.url("HENG_BASE_URL", &["http", "https"]);
    let access_key = reader.text("HENG_AK");
    let secret_key = reader.text("HENG_SK");
    let ca_file = reader.text("HENG_CA_FILE");
    if !ca_file.is_empty()
        && let Err(error) = crate::tls::client_config(Some(ca_file.as_ref()))
    {
        reader.problem("HENG_CA_FILE", &format!("cannot be used: {error:#}"));
    }
    let timeout = reader.duration("JUDGE_RELAY_CONTROLLER_TIMEOUT_MS", 100, 60_000);
    let concurrency = reader.number("JUDGE_RELAY_CONTROLLER_CONCURRENCY", 1, 1024);
    if access_key.is_empty() || secret_key.is_empty() {
        return None;
    }
    Some(ControllerConfig {
        base_url: base_url.trim_end_matches('/').to_owned(),
        credentials: Credentials::new(access_key, &secret_key),
        ca_file: (!ca_file.is_empty()).then(|| PathBuf::from(ca_file)),
        timeout,
        concurrency,
    })
}

fn read_callbacks(reader: &mut Reader<'_>) -> Option<CallbackConfig> {
    let base_url = reader.url("BASE_URL", &["http", "https"]).trim_end_matches('/').to_owned();
    if !base_url.is_empty()
        && let Some(problem) = callback_host_problem(&base_url)
    {
        reader.problem("BASE_URL", &problem);
    }
    let text = reader.text("JUDGE_RELAY_CALLBACK_KEYS");
    let keys = if text.is_empty() { None } else { Some(CallbackKeys::parse(&text)) };
    let concurrency = reader.number("JUDGE_RELAY_CALLBACK_CONCURRENCY", 1, 10_000);
    // One body of the largest size must always fit.
    let bytes_max = reader.number("JUDGE_RELAY_CALLBACK_BYTES", 16 * 1024 * 1024, 4 * 1024 * 1024 * 1024);
    let spill_max = reader.number("JUDGE_RELAY_SPILL_MAX", 1, 10_000_000);
    match keys? {
        Ok(keys) => Some(CallbackConfig { base_url, keys, concurrency, bytes_max, spill_max }),
        Err(problems) => {
            for problem in problems {
                reader.problem("JUDGE_RELAY_CALLBACK_KEYS", &problem);
            }
            None
        }
    }
}

fn read_pace(reader: &mut Reader<'_>) -> Pace {
    let pace = Pace {
        batch: reader.number("JUDGE_RELAY_BATCH", 1, 500),
        lease: reader.duration("JUDGE_RELAY_LEASE_MS", 2_000, 300_000),
        lease_margin: Duration::from_secs(1),
        dedup_ttl: reader.duration("JUDGE_RELAY_DEDUP_TTL_MS", 10_000, 86_400_000),
        poll: reader.duration("JUDGE_RELAY_POLL_MS", 10, 60_000),
        in_flight_cap: reader.number("JUDGE_RELAY_IN_FLIGHT_CAP", 1, 100_000),
        budget: Budget {
            attempts_max: reader.number("JUDGE_RELAY_ATTEMPTS_MAX", 1, 100),
            rescues_max: reader.number("JUDGE_RELAY_RESCUES_MAX", 1, 100),
        },
        deliveries_max: reader.number("JUDGE_RELAY_DELIVERIES_MAX", 1, 1_000),
        retry: Backoff {
            base: reader.duration("JUDGE_RELAY_RETRY_BASE_MS", 1, 3_600_000),
            max: reader.duration("JUDGE_RELAY_RETRY_MAX_MS", 1, 86_000_000),
        },
        deadlines: DeadlinePolicy {
            factor: reader.factor("JUDGE_RELAY_DEADLINE_FACTOR", 1.0, 100.0),
            queue_allowance: reader.duration("JUDGE_RELAY_DEADLINE_QUEUE_MS", 0, 86_400_000),
            floor: reader.duration("JUDGE_RELAY_DEADLINE_FLOOR_MS", 1_000, 86_400_000),
            ceiling: reader.duration("JUDGE_RELAY_DEADLINE_CEILING_MS", 1_000, 604_800_000),
        },
        events_age: reader.duration("JUDGE_RELAY_EVENTS_AGE_MS", 60_000, 31_536_000_000),
        drain: reader.duration("JUDGE_RELAY_DRAIN_MS", 1_000, 600_000),
    };
    if pace.dedup_ttl <= pace.lease {
        reader.problem(
            "JUDGE_RELAY_DEDUP_TTL_MS",
            "must be longer than JUDGE_RELAY_LEASE_MS: a batch that is published again after its lease must still be recognised",
        );
    }
    if pace.retry.base > pace.retry.max {
        reader.problem("JUDGE_RELAY_RETRY_MAX_MS", "must not be shorter than JUDGE_RELAY_RETRY_BASE_MS");
    }
    if pace.deadlines.floor > pace.deadlines.ceiling {
        reader.problem("JUDGE_RELAY_DEADLINE_CEILING_MS", "must not be shorter than JUDGE_RELAY_DEADLINE_FLOOR_MS");
    }
    pace
}
