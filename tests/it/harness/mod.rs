//! What every integration test stands on.
//! Not a mock of anything: the stores are real servers.

pub mod stores;
