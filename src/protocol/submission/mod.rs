//! The state machine of a submission: what stands, what a stream entry or a finish may change, and what it may not.
//!
//! Only decisions; the store carries them out under the submission's row lock. A decision that changes nothing is still a
//! decision with a name, because operators count them.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use super::heng::result::Outcome;
use super::{Generation, JudgeId, Verdict};

/// Where a submission is. The words are the database's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Its intent waits in the outbox or in a stream. In: submit, system error, the door's refusal, redrive, rejudge. Out: an
    /// attempt begins, a late verdict, cancel, park. A crash here loses nothing: the row is the intent.
    Pending,
    /// An attempt is, or may be, at the controller. In: the attempt row. Out: a verdict, a system error, a refusal, cancel. A
    /// crash here is found through the stream entry (not yet acked) or the attempt's deadline.
    Judging,
    /// The verdict of the current generation stands. Out: only a rejudge.
    Judged,
    /// The budget is spent or the row was refused; a dead letter says why. Out: a usable late verdict, redrive, rejudge.
    Parked,
    /// An operator or the judge withdrew it. Out: only a rejudge.
    Cancelled,
}

impl State {
    /// All states, in the order of their declaration.
    pub const ALL: [State; 5] = [State::Pending, State::Judging, State::Judged, State::Parked, State::Cancelled];

    /// The word used in the database, the API and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Judging => "judging",
            State::Judged => "judged",
            State::Parked => "parked",
            State::Cancelled => "cancelled",
        }
    }

    /// Is the submission still on its way to a verdict?
    pub const fn is_open(self) -> bool {
        matches!(self, State::Pending | State::Judging)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The word names no state.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAState;

impl FromStr for State {
    type Err = NotAState;

    fn from_str(text: &str) -> Result<Self, NotAState> {
        State::ALL.into_iter().find(|state| state.as_str() == text).ok_or(NotAState)
    }
}

/// Where an attempt is. The words are the database's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptState {
    /// The row is written, the POST may be under way or never happen: after a crash nobody knows.
    Sending,
    /// The controller answered 201, or a callback came.
    Accepted,
    /// The POST went out and its answer is unknown; the callback will tell.
    Ambiguous,
    /// Its verdict was applied.
    Finished,
    /// Over without a verdict of its own: refused, system error, superseded, lost.
    Closed,
}

impl AttemptState {
    /// All states, in the order of their declaration.
    pub const ALL: [AttemptState; 5] = [
        AttemptState::Sending,
        AttemptState::Accepted,
        AttemptState::Ambiguous,
        AttemptState::Finished,
        AttemptState::Closed,
    ];

    /// The word used in the database, the API and the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            AttemptState::Sending => "sending",
            AttemptState::Accepted => "accepted",
            AttemptState::Ambiguous => "ambiguous",
            AttemptState::Finished => "finished",
            AttemptState::Closed => "closed",
        }
    }

    /// May a callback of it still be the first?
    pub const fn is_live(self) -> bool {
        matches!(self, AttemptState::Sending | AttemptState::Accepted | AttemptState::Ambiguous)
    }
}

impl FromStr for AttemptState {
    type Err = NotAState;

    fn from_str(text: &str) -> Result<Self, NotAState> {
        AttemptState::ALL.into_iter().find(|state| state.as_str() == text).ok_or(NotAState)
    }
}

/// What the row lock shows of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where it is.
    pub state: State,
    /// The work in hand.
    pub generation: Generation,
    /// The highest generation ever minted.
    pub last_generation: Generation,
    /// Attempts of this generation that count against the budget.
    pub attempts_used: u32,
    /// Attempts of this generation repeated after a crash.
    pub rescues_used: u32,
}

/// The live attempt of a submission, as the one who wants to begin another sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveAttempt {
    /// Its name.
    pub judge_id: JudgeId,
    /// Where it is.
    pub state: AttemptState,
    /// Did this very stream entry begin it?
    pub begun_by_this_entry: bool,
}

/// How many tries a generation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Attempts that ended in a system error or in silence.
    pub attempts_max: u32,
    /// Attempts repeated because the process that sent them died.
    pub rescues_max: u32,
}

/// What to do with a stream entry that asks for a judging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Write an attempt row and POST.
    Attempt,
    /// The process that wrote this attempt row died before it recorded the POST: close it and POST a new attempt.
    Rescue(JudgeId),
    /// Like `Rescue`, but the budget of rescues is spent: what kills its sender must not kill the next one.
    Park(JudgeId),
    /// Nothing to do: ack the entry.
    Ack(NoNeed),
}

/// Why an entry needs no attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoNeed {
    /// No such submission: its row was rolled back by a failover.
    Unknown,
    /// The entry is of an older generation.
    Superseded,
    /// The submission is judged, parked or cancelled.
    Over,
    /// An attempt is live; this entry is its own, already recorded, or a second copy.
    LiveElsewhere,
    /// PostgreSQL does not know the entry's generation yet: it came back from a failover.
    Future,
}

impl NoNeed {
    /// The word in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            NoNeed::Unknown => "unknown",
            NoNeed::Superseded => "superseded",
            NoNeed::Over => "over",
            NoNeed::LiveElsewhere => "live_elsewhere",
            NoNeed::Future => "future",
        }
    }
}

/// Decides what an entry of `generation` may begin.
pub fn begin(standing: Option<&Standing>, live: Option<&LiveAttempt>, generation: Generation, budget: Budget) -> Begin {
    let Some(standing) = standing else { return Begin::Ack(NoNeed::Unknown) };
    if generation < standing.generation {
        return Begin::Ack(NoNeed::Superseded);
    }
    if generation > standing.generation {
        return Begin::Ack(NoNeed::Future);
    }
    if !standing.state.is_open() {
        return Begin::Ack(NoNeed::Over);
    }
    match live {
        None => Begin::Attempt,
        // Whoever holds the other entry acks or repeats it: this one would only be a second judging.
        Some(live) if !live.begun_by_this_entry || live.state != AttemptState::Sending => {
            Begin::Ack(NoNeed::LiveElsewhere)
        }
        Some(live) if standing.rescues_used >= budget.rescues_max => Begin::Park(live.judge_id),
        Some(live) => Begin::Rescue(live.judge_id),
    }
}

/// A finish callback, as the decision sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// The generation its URL names.
    pub generation: Generation,
    /// What its body says, given the number of cases that the request has.
    pub outcome: Outcome,
    /// The attempt's row, if it is known and where it is.
    pub attempt: Option<AttemptState>,
    /// Is its body the same as the one that ended this attempt before?
    pub same_body_as_before: bool,
}

/// What a finish does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The verdict stands from now on; counters move, consumers are told.
    Verdict(Verdict),
    /// The attempt failed on the judge's side: another one becomes due after a back-off.
    Retry(String),
    /// The attempt failed on the judge's side and the budget is spent: a person must look.
    Park(String),
    /// The same again: no effect.
    Duplicate,
    /// Another result for what is decided: kept, counted, no effect.
    Conflicting,
    /// An older generation, or a cancelled submission: kept, no effect.
    Stale,
    /// A generation that PostgreSQL does not know: kept and alarmed, the next rejudge mints above it.
    Future,
    /// No such submission: kept and alarmed.
    Unknown,
}

impl Applied {
    /// The word in the results table and the metrics.
    pub const fn disposition(&self) -> &'static str {
        match self {
            Applied::Verdict(_) => "applied",
            Applied::Retry(_) | Applied::Park(_) => "system_error",
            Applied::Duplicate => "duplicate",
            Applied::Conflicting => "conflicting",
            Applied::Stale => "stale",
            Applied::Future => "future",
            Applied::Unknown => "unknown",
        }
    }

    /// Does it change the submission?
    pub const fn has_effect(&self) -> bool {
        matches!(self, Applied::Verdict(_) | Applied::Retry(_) | Applied::Park(_))
    }
}

/// Decides what a finish does: the first usable finish of the current generation counts, from whichever attempt it comes.
pub fn finish(standing: Option<&Standing>, finish: &Finish, budget: Budget) -> Applied {
    let Some(standing) = standing else { return Applied::Unknown };
    if finish.generation > standing.last_generation {
        return Applied::Future;
    }
    if finish.generation != standing.generation || standing.state == State::Cancelled {
        return Applied::Stale;
    }
    if standing.state == State::Judged {
        return repeated(finish);
    }
    match &finish.outcome {
        Outcome::Verdict(verdict) => Applied::Verdict(*verdict),
        // A system error ends its own attempt, and only while that one is live: a late or repeated one must not spend the
        // budget of the attempt that followed.
        Outcome::SystemError(_) if standing.state == State::Parked => repeated(finish),
        Outcome::SystemError(_) if finish.attempt.is_some_and(|attempt| !attempt.is_live()) => repeated(finish),
        Outcome::SystemError(reason) if standing.attempts_used >= budget.attempts_max => Applied::Park(reason.clone()),
        Outcome::SystemError(reason) => Applied::Retry(reason.clone()),
    }
}

fn repeated(finish: &Finish) -> Applied {
    if finish.same_body_as_before { Applied::Duplicate } else { Applied::Conflicting }
}

/// How the counters move when a verdict replaces what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Deltas {
    /// 1 when this submission is counted for the first time.
    pub submits: i64,
    /// Change of "is accepted".
    pub accepts: i32,
    /// Change of "its program ran", which contests and courses count.
    pub eligible: i64,
}

/// The difference between what is counted and a new verdict.
pub fn deltas(counted: Option<Verdict>, new: Verdict) -> Deltas {
    let accepted = |verdict: Option<Verdict>| i32::from(verdict == Some(Verdict::Accepted));
    let eligible = |verdict: Option<Verdict>| i64::from(verdict.is_some_and(Verdict::is_eligible));
    Deltas {
        submits: i64::from(counted.is_none()),
        accepts: accepted(Some(new)) - accepted(counted),
        eligible: eligible(Some(new)) - eligible(counted),
    }
}
