//! The `judge-relay` command.

fn main() {}
