//! What the controller calls back with: progress and results, read leniently, because it passes on whatever a judger
//! sent.
//!
//! Nothing here decides what a result does to a submission. The controller's spellings stay in this folder.

mod kinds;
mod report;
mod sanitised;
#[cfg(test)]
mod tests;

use std::fmt;

use super::json::{self, Text, Value};

pub use report::{Decision, Outcome, Report, parse_finish};
pub use sanitised::{DEPTH_MAX, LITERAL_BYTES_MAX};

/// Texts of a judger are cut to this many characters where they are shown as a word.
pub const WORD_CHARACTERS_MAX: usize = 64;

/// How far a judging is, as the judger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateState {
    /// Taken by a judger.
    Confirmed,
    /// Waits inside the judger.
    Pending,
    /// Files are fetched, sources compiled.
    Preparing,
    /// The cases run.
    Judging,
    /// Over; the result follows by itself.
    Finished,
    /// Anything else, cut; empty when there was no readable state at all.
    Unknown(String),
}

impl UpdateState {
    /// The word for this state.
    pub fn as_str(&self) -> &str {
        match self {
            UpdateState::Confirmed => "confirmed",
            UpdateState::Pending => "pending",
            UpdateState::Preparing => "preparing",
            UpdateState::Judging => "judging",
            UpdateState::Finished => "finished",
            UpdateState::Unknown(word) => word,
        }
    }
}

impl fmt::Display for UpdateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads the body of an update. Never fails.
pub fn parse_update(body: &[u8]) -> UpdateState {
    let value = json::parse(body).ok();
    let word = match value.as_ref().and_then(|value| value.get("state")).and_then(Value::as_text) {
        Some(state) => storable(state, WORD_CHARACTERS_MAX),
        None => String::new(),
    };
    match word.as_str() {
        "confirmed" => UpdateState::Confirmed,
        "pending" => UpdateState::Pending,
        "preparing" => UpdateState::Preparing,
        "judging" => UpdateState::Judging,
        "finished" => UpdateState::Finished,
        _ => UpdateState::Unknown(word),
    }
}

/// A foreign text, cut, as PostgreSQL can store it: without U+0000 and lone surrogates.
fn storable(text: &Text, characters_max: usize) -> String {
    let replaced = |character| if character == '\0' { char::REPLACEMENT_CHARACTER } else { character };
    text.to_lossy().chars().take(characters_max).map(replaced).collect()
}
