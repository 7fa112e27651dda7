//! Panics as values: raising one on purpose, catching one around a single item, reading its text.
//!
//! Not the place where an actor's panics are caught: the supervisor does that.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt;

/// The text of a caught panic, for a dead letter or a log line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("panicked: {0}")]
pub struct PanicText(pub String);

impl PanicText {
    /// Reads the payload of a panic, which is a text unless somebody panicked with something else.
    pub(super) fn of(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| payload.downcast_ref::<String>().cloned());
        Self(text.unwrap_or_else(|| "a panic without a text".to_owned()))
    }
}

/// Fails the actor that calls it, on purpose: unwinds without the panic hook, so no backtrace is printed. For drills.
pub fn crash(why: impl Into<String>) -> ! {
    resume_unwind(Box::new(why.into()))
}

/// Runs the work on one item so that its panic ends this item only.
///
/// Poison is found at its first panic, alone, instead of crashing the actor again and again together with its neighbours.
/// The error is the panic's text. State shared with the item must not be left half-written by it: give it values.
pub async fn catch_item<T>(item: impl Future<Output = T>) -> Result<T, PanicText> {
    AssertUnwindSafe(item).catch_unwind().await.map_err(|payload| PanicText::of(&*payload))
}
