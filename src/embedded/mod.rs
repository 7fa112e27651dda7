//! What the demo, the drills and the tests need around the service: stores of their own, on this machine.
//! Not part of the service: `serve` uses nothing from here.

pub mod stores;
