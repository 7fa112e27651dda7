//! What Redis's refusals mean, by what follows from them. Read from the error's code, never from its text.

use redis::RedisError;

/// Redis's code for a stream or a group that is not there.
const NO_GROUP: &str = "NOGROUP";

/// Why Redis did not do it, by what follows from it.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Redis did not answer, or refused for a reason of its own. It may have happened; try again later.
    #[error("Redis is unavailable: {0}")]
    Unavailable(String),
    /// The stream or its group is gone: record the loss, create it, make the lost work due again.
    #[error("stream {0} or its group is missing")]
    Missing(String),
    /// The stream holds as much as it may.
    #[error("stream {0} is full")]
    Full(String),
}

/// What streams give back.
pub type StreamResult<T> = Result<T, StreamError>;

/// A failed pipeline has no code of its own: if any of its commands missed its group, that is what must be mended first.
pub(super) fn classify(error: RedisError, key: &str) -> StreamError {
    let message = error.to_string();
    let code = error.code().map(str::to_owned).or_else(|| {
        let failures = error.into_server_errors()?;
        failures.iter().find_map(|(_, failure)| (failure.code() == NO_GROUP).then(|| NO_GROUP.to_owned()))
    });
    match code.as_deref() {
        Some(NO_GROUP) => StreamError::Missing(key.to_owned()),
        _ => StreamError::Unavailable(message),
    }
}
