//! The store's functions on real PostgreSQL, one file per table.
//! Not the actors that call them, and not the counters: those have `accounting`.

mod attempts;
mod instances;
mod outbox;
mod results;
mod submissions;
