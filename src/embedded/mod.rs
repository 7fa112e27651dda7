//! What the demo, the drills, the benches and the tests need around the service: stores of their own and a controller to talk
//! to, on this machine. Not part of the service: `serve` uses nothing from here.

pub mod fake_controller;

pub mod stores;

pub mod stack;
