//! This process's wall clock, for what is shown to people and signed for the controller. Stored times are the database's.

use chrono::{DateTime, Utc};

/// Now, on this machine's clock.
#[expect(clippy::disallowed_methods, reason = "the one place where the process's clock is read")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}
