//! What the demo, the benches and the tests bring along instead of finding it installed; never part of a real deployment.

pub mod fake_controller;
