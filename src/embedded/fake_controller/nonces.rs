//! The nonces seen lately; a replay guard that forgets.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// Which nonces were seen, and until when they count.
///
/// Hashes of 128 bits stand for the texts: a bench leaves millions of them behind within their lifetime.
pub(super) struct Nonces {
    lifetime: Duration,
    hashers: [RandomState; 2],
    seen: HashMap<u128, Instant>,
    order: VecDeque<(Instant, u128)>,
}

impl Nonces {
    pub(super) fn new(lifetime: Duration) -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        Self { lifetime, hashers, seen: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn clear(&mut self) {
        self.seen.clear();
        self.order.clear();
    }

    /// Records a nonce, and says whether it is new. A repeat starts its lifetime anew.
    pub(super) fn record(&mut self, access_key: &str, nonce: &str, now: Instant) -> bool {
        self.drop_expired(now);
        let [high, low] = self.hashers.each_ref().map(|hasher| u128::from(hasher.hash_one((access_key, nonce))));
        let hash = high << 64 | low;
        let until = now + self.lifetime;
        self.order.push_back((until, hash));
        self.seen.insert(hash, until).is_none()
    }

    fn drop_expired(&mut self, now: Instant) {
        while let Some((until, hash)) = self.order.front().copied()
            && until <= now
        {
            self.order.pop_front();
            // A repeat has a later entry of its own.
            if self.seen.get(&hash) == Some(&until) {
                self.seen.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_new_again_after_its_lifetime_and_each_repeat_prolongs_it() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut nonces = Nonces::new(Duration::from_secs(120));
        assert!(nonces.record("key", "1", start));
        assert!(nonces.record("other key", "1", start));
        assert!(!nonces.record("key", "1", after(100)));
        assert!(!nonces.record("key", "1", after(219)));
        assert!(nonces.record("key", "1", after(340)));
        assert_eq!(nonces.seen.len(), 1);
    }
}
