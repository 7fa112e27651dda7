//! Control over HTTP, for a fake in a process of its own; not part of the real controller, and without authentication.
//!
//! * `GET /_fake/ledger`: counters, and what is under way.
//! * `GET /_fake/switches`: all switches. `PUT /_fake/switches` with some of them as a JSON object changes these.
//! * `POST /_fake/restart` with `{"flush": false, "lose_held": false, "down_seconds": 0}`, every member optional: 202, then
//!   the restart.
//! * `POST /_fake/keys`: fills the configured keys in again after a flush.

use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::Answer;
use super::door::{Order, Restart};
use super::head::Head;
use super::world::Shared;

/// The beginning of all these paths.
pub(super) const PREFIX: &str = "/_fake/";

/// What is to be done once the answer is sent.
pub(super) enum Afterwards {
    Order(Order),
}

/// Carries out a request.
pub(super) fn answer(shared: &Arc<Shared>, head: &Head, body: &[u8]) -> (Answer, Option<Afterwards>) {
    let route = head.path().strip_prefix(PREFIX).unwrap_or_default();
    match (head.method.as_str(), route) {
        ("GET", "ledger") => (ledger(shared), None),
        ("GET", "switches") => (switches(shared), None),
        ("PUT", "switches") => (change_switches(shared, body), None),
        ("POST", "keys") => {
            shared.with(|world| world.restore_keys());
            (Answer::json(200, &json!({})), None)
        }
        ("POST", "restart") => match restart_of(body) {
            Ok(restart) => {
                let order = Order::Restart(restart, None);
                (Answer::json(202, &json!(restart)), Some(Afterwards::Order(order)))
            }
            Err(message) => (Answer::bad_request(message), None),
        },
        _ => (Answer::not_found(&head.method, &head.target), None),
    }
}

fn ledger(shared: &Shared) -> Answer {
    shared.with(|world| {
        let ledger = world.current_ledger();
        Answer::json(200, &json!({"counters": ledger.counters, "pending": ledger.pending}))
    })
}

fn switches(shared: &Shared) -> Answer {
    shared.with(|world| Answer::json(200, &json!(world.switches)))
}

fn change_switches(shared: &Arc<Shared>, body: &[u8]) -> Answer {
    let patch: Value = match serde_json::from_slice(body) {
        Ok(patch) => patch,
        Err(error) => return Answer::bad_request(error.to_string()),
    };
    let changed = shared.with(|world| {
        let changed = world.switches.changed_by(&patch)?;
        world.switches = changed;
        Ok::<(), String>(())
    });
    match changed {
        Err(message) => Answer::bad_request(message),
        Ok(()) => {
            shared.switches_changed();
            switches(shared)
        }
    }
}

fn restart_of(body: &[u8]) -> Result<Restart, String> {
    if body.is_empty() {
        return Ok(Restart::default());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}
