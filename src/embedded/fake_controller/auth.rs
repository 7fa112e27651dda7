//! Who may create a job: the controller's checks in the controller's order. What the client hears is decided elsewhere.

use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::config::{Key, Role};
use super::head::Head;
use super::ledger::Refusal;
use super::world::{Shared, World};
use crate::protocol::heng::signing::Credentials;

/// A key of the key table, ready to verify.
pub(super) struct KnownKey {
    credentials: Credentials,
    role: Role,
}

impl KnownKey {
    pub(super) fn new(access_key: &str, key: &Key) -> Self {
        Self { credentials: Credentials::new(access_key, &key.secret), role: key.role }
    }
}

impl fmt::Debug for KnownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownKey").field("role", &self.role).finish_non_exhaustive()
    }
}

/// Checks a request whose canonical text is known. A refused one has still used up its nonce, unless the key or the
/// timestamp was refused.
pub(super) fn check(shared: &Shared, head: &Head, canonical: &str) -> Result<(), Refusal> {
    let now = shared.now();
    let key = shared.with(|world| world.admit(head, now))?;
    if !matches!(key.role, Role::Root | Role::User) {
        return Err(Refusal::Role);
    }
    let expected = key.credentials.signature(canonical);
    let given = head.signature.as_deref().unwrap_or_default();
    if bool::from(expected.as_bytes().ct_eq(given.as_bytes())) { Ok(()) } else { Err(Refusal::Signature) }
}

impl World {
    fn admit(&mut self, head: &Head, unix_milliseconds: i64) -> Result<Arc<KnownKey>, Refusal> {
        let access_key = head.access_key.as_deref().unwrap_or_default();
        if self.switches.auth_forget_keys.take(&mut self.random).is_some() {
            return Err(Refusal::UnknownKey);
        }
        let key = self.keys.get(access_key).cloned().ok_or(Refusal::UnknownKey)?;
        let timestamp = head.timestamp.as_deref().and_then(leading_integer).ok_or(Refusal::Skew)?;
        // The server's time has a fraction, the client's has none: that is why one end of the range is open.
        let off = (unix_milliseconds as f64 / 1000.0 - timestamp).abs();
        if timestamp == 0.0 || off > self.config.timing.skew_limit.as_secs_f64() {
            return Err(Refusal::Skew);
        }
        let nonce = head.nonce.as_deref().unwrap_or_default();
        if nonce.is_empty() || !self.nonces.record(access_key, nonce, Instant::now()) {
            return Err(Refusal::Replay);
        }
        Ok(key)
    }
}

/// JavaScript's `parseInt`: what follows the digits is ignored.
fn leading_integer(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (radix, text) = hexadecimal.map_or((10, text), |digits| (16, digits));
    let mut digits = text.chars().map_while(|character| character.to_digit(radix)).peekable();
    digits.peek()?;
    Some(sign * digits.fold(0.0, |number, digit| number * f64::from(radix) + f64::from(digit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timestamp_is_read_as_javascript_reads_integers() {
        assert_eq!(leading_integer("1700000000abc"), Some(1_700_000_000.0));
        assert_eq!(leading_integer(" +17.9"), Some(17.0));
        assert_eq!(leading_integer("0x10"), Some(16.0));
        assert_eq!(leading_integer("-3"), Some(-3.0));
        assert_eq!(leading_integer("abc"), None);
        assert_eq!(leading_integer(""), None);
    }
}
