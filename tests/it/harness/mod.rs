//! What every integration test stands on.
//! Not a mock of anything: the stores are real servers.

pub mod database;
pub mod seed;
pub mod settled;
pub mod stores;

use std::sync::LazyLock;

use self::stores::Template;

/// The schema, applied once for this process; `SCHEMA.fresh()` is a copy for one test.
pub static SCHEMA: LazyLock<Template> = LazyLock::new(|| Template::made_by(migrate));

fn migrate(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(judge_relay::store::migrations::run(url)).expect("the migrations apply to an empty database");
}
