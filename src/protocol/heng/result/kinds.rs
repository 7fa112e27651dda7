//! The controller's words for what happened to a case.
//!
//! Some are misspelt on the wire. The correct spelling is taken too, in case a judger or a later version uses it.

use super::super::super::Verdict;

/// What a case's word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Accepted,
    /// The user's program or source is at fault.
    User(Verdict),
    /// The judge failed, did not run the case, or said something we do not know.
    System,
}

/// Case matters: the controller's words are exact.
pub(super) fn kind_of(word: &str) -> Kind {
    let verdict = match word {
        "Accepted" => return Kind::Accepted,
        "WrongAnswer" => Verdict::WrongAnswer,
        "PresentationError" => Verdict::PresentationError,
        "TimeLimitExceeded" => Verdict::TimeLimitExceeded,
        "MemoryLimitExceeded" => Verdict::MemoryLimitExceeded,
        "OutpuLimitExceeded" | "OutputLimitExceeded" => Verdict::OutputLimitExceeded,
        "RuntimeError" => Verdict::RuntimeError,
        "CompileError" => Verdict::CompileError,
        "CompileTimeLimitExceeded" => Verdict::CompileTimeLimitExceeded,
        "CompileMemoryLimitExceed" | "CompileMemoryLimitExceeded" => Verdict::CompileMemoryLimitExceeded,
        "CompileFileLimitExceed" | "CompileFileLimitExceeded" => Verdict::CompileFileLimitExceeded,
        // SystemError and its kin, Unjudged, and whatever a later judger may say.
        _ => return Kind::System,
    };
    Kind::User(verdict)
}
