//! What is decided, and nothing else: pure functions and the vocabulary they share.
//!
//! No I/O, no async, no clock and no randomness in here; time and chance come in as arguments, so every decision can be
//! tested by enumeration.

pub mod submission;

pub mod callback_url;

pub mod retry;

pub mod deadline;

pub mod breaker;

pub mod shares;

pub mod heng;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One submission of one user; a version 7 UUID, so that ids sort by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SubmissionId(pub Uuid);

impl fmt::Display for SubmissionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which judging of a submission: 1 is the first, every rejudge adds one, nothing automatic does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub i32);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One attempt to have a generation judged. Written as 32 lower-case hex digits everywhere outside the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JudgeId(pub Uuid);

impl fmt::Display for JudgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

/// The text is not 32 lower-case hex digits.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAJudgeId;

impl FromStr for JudgeId {
    type Err = NotAJudgeId;

    fn from_str(text: &str) -> Result<Self, NotAJudgeId> {
        let is_lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_lower_hex) {
            return Err(NotAJudgeId);
        }
        Uuid::parse_str(text).map(JudgeId).map_err(|_| NotAJudgeId)
    }
}

impl Serialize for JudgeId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A lease's token: it only grows, and every write-back names the one it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Fence(pub i64);

/// What a judging says of a submission. System errors of the judge are never a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every case was accepted, and there were at least as many as the request has.
    Accepted,
    /// A case's output is wrong.
    WrongAnswer,
    /// A case's output is right but for its layout.
    PresentationError,
    /// A case ran too long.
    TimeLimitExceeded,
    /// A case used too much memory.
    MemoryLimitExceeded,
    /// A case printed too much.
    OutputLimitExceeded,
    /// The program failed on a case.
    RuntimeError,
    /// The source does not compile.
    CompileError,
    /// The compiler ran too long.
    CompileTimeLimitExceeded,
    /// The compiler used too much memory.
    CompileMemoryLimitExceeded,
    /// The compiler wrote too much.
    CompileFileLimitExceeded,
}

impl Verdict {
    /// All verdicts, in the order of their declaration.
    pub const ALL: [Verdict; 11] = [
        Verdict::Accepted,
        Verdict::WrongAnswer,
        Verdict::PresentationError,
        Verdict::TimeLimitExceeded,
        Verdict::MemoryLimitExceeded,
        Verdict::OutputLimitExceeded,
        Verdict::RuntimeError,
        Verdict::CompileError,
        Verdict::CompileTimeLimitExceeded,
        Verdict::CompileMemoryLimitExceeded,
        Verdict::CompileFileLimitExceeded,
    ];

    /// The word used in the database, the API and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Accepted => "accepted",
            Verdict::WrongAnswer => "wrong_answer",
            Verdict::PresentationError => "presentation_error",
            Verdict::TimeLimitExceeded => "time_limit_exceeded",
            Verdict::MemoryLimitExceeded => "memory_limit_exceeded",
            Verdict::OutputLimitExceeded => "output_limit_exceeded",
            Verdict::RuntimeError => "runtime_error",
            Verdict::CompileError => "compile_error",
            Verdict::CompileTimeLimitExceeded => "compile_time_limit_exceeded",
            Verdict::CompileMemoryLimitExceeded => "compile_memory_limit_exceeded",
            Verdict::CompileFileLimitExceeded => "compile_file_limit_exceeded",
        }
    }

    /// Did the program run at all? Only then the submission counts in a contest's or course's standings.
    pub const fn is_eligible(self) -> bool {
        match self {
            Verdict::Accepted
            | Verdict::WrongAnswer
            | Verdict::PresentationError
            | Verdict::TimeLimitExceeded
            | Verdict::MemoryLimitExceeded
            | Verdict::OutputLimitExceeded
            | Verdict::RuntimeError => true,
            Verdict::CompileError
            | Verdict::CompileTimeLimitExceeded
            | Verdict::CompileMemoryLimitExceeded
            | Verdict::CompileFileLimitExceeded => false,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The word names no verdict.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAVerdict;

impl FromStr for Verdict {
    type Err = NotAVerdict;

    fn from_str(text: &str) -> Result<Self, NotAVerdict> {
        Verdict::ALL.into_iter().find(|verdict| verdict.as_str() == text).ok_or(NotAVerdict)
    }
}

/// Which of the two callbacks of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackKind {
    /// Progress: a hint, may be lost, repeated or late.
    Update,
    /// The result.
    Finish,
}

impl CallbackKind {
    /// The word in the callback's path and in its tag.
    pub const fn as_str(self) -> &'static str {
        match self {
            CallbackKind::Update => "update",
            CallbackKind::Finish => "finish",
        }
    }
}

impl fmt::Display for CallbackKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
