//! The state machine, shown as a table and walked through every sequence of events up to a length.

mod matrix;
mod sequences;
mod world;
