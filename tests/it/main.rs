//! The integration tests: one binary, real PostgreSQL and Redis.

mod fake_controller;
