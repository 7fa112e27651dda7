//! One submission with its attempts, intents and stream entries: carries decisions out as the store does, under one lock.
//! Not the store: no leases, no times, no publisher; whatever is written may be delivered at once, twice and again.

use uuid::Uuid;

use super::super::{
    Applied, AttemptState, Begin, Budget, Deltas, Finish, LiveAttempt, Outcome, Standing, State, begin, deltas, finish,
};
use crate::protocol::{Generation, JudgeId, Verdict};

/// Small, so that short sequences can spend it.
pub(super) const BUDGET: Budget = Budget { attempts_max: 2, rescues_max: 1 };

/// The functions under test, exchangeable so that the checks can be shown to fail, and one choice of the store's.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub begin: fn(Option<&Standing>, Option<&LiveAttempt>, Generation, Budget) -> Begin,
    pub finish: fn(Option<&Standing>, &Finish, Budget) -> Applied,
    pub deltas: fn(Option<Verdict>, Verdict) -> Deltas,
    /// A shut door makes the submission due again only while its state is `judging`.
    pub door_needs_judging: bool,
}

pub(super) const PRODUCTION: Rules = Rules { begin, finish, deltas, door_needs_judging: false };

/// What a finish says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Says {
    Right,
    Wrong,
    Failed,
}

impl Says {
    const ALL: [Says; 3] = [Says::Right, Says::Wrong, Says::Failed];

    pub(super) fn outcome(self) -> Outcome {
        match self {
            Says::Right => Outcome::Verdict(Verdict::Accepted),
            Says::Wrong => Outcome::Verdict(Verdict::WrongAnswer),
            Says::Failed => Outcome::SystemError("failed".to_owned()),
        }
    }
}

/// How a POST ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Answer {
    Accepted,
    Ambiguous,
    Door,
    Refused,
}

/// What may happen next. Attempts and entries are named by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Event {
    /// An entry is handed out: for the first time, or again because nobody acked it.
    Delivered(usize),
    /// The publisher appended an intent a second time, and that copy is handed out.
    SecondCopy(usize),
    /// The sender records its POST and acks its entry.
    Recorded(usize, Answer),
    /// The sender dies: it will record nothing and ack nothing.
    SenderDies(usize),
    /// A finish of that attempt comes.
    Finished(usize, Says),
    /// A finish of the current generation comes for an attempt whose row was lost.
    FinishedUnknown(Says),
    /// A finish of a generation that nobody minted.
    FinishedFuture(Says),
    Rejudge,
    Cancel,
    Redrive,
    Park,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub generation: i32,
    pub state: AttemptState,
    pub is_rescue: bool,
    /// A shut door, or the death of its sender: its place in the budget is free again, or another attempt's.
    pub is_uncounted: bool,
    sender_lives: bool,
    entry: Option<usize>,
    finish: Option<Says>,
    pub system_errors: u8,
    /// Which grant of a budget it was begun under.
    pub grant: u8,
}

/// An intent's entry in the stream. Un-acked ones are handed out again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub generation: i32,
    pub is_acked: bool,
    was_delivered: bool,
    is_copy: bool,
    was_copied: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub state: State,
    pub generation: i32,
    pub attempts_used: i32,
    pub rescues_used: i32,
    pub attempts: Vec<Attempt>,
    pub entries: Vec<Entry>,
    pub has_letter: bool,
    pub verdict_generation: Option<i32>,
    pub verdict: Option<Verdict>,
    /// How many verdicts each generation, from 1 on, was given.
    pub verdicts_applied: Vec<u8>,
    /// Submits, accepts, eligible: what the counters hold of this submission.
    pub counters: [i64; 3],
    pub grant: u8,
}

impl World {
    pub(super) fn submitted() -> World {
        let mut world = World {
            state: State::Pending,
            generation: 1,
            attempts_used: 0,
            rescues_used: 0,
            attempts: Vec::new(),
            entries: Vec::new(),
            has_letter: false,
            verdict_generation: None,
            verdict: None,
            verdicts_applied: vec![0],
            counters: [0; 3],
            grant: 0,
        };
        world.intend();
        world
    }

    /// Everything that can happen now.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Rejudge];
        for (at, entry) in self.entries.iter().enumerate() {
            if !entry.is_acked {
                events.push(Event::Delivered(at));
            }
            if entry.was_delivered && !entry.is_copy && !entry.was_copied {
                events.push(Event::SecondCopy(at));
            }
        }
        for (at, attempt) in self.attempts.iter().enumerate() {
            if attempt.sender_lives {
                let answers = [Answer::Accepted, Answer::Ambiguous, Answer::Door, Answer::Refused];
                events.extend(answers.map(|answer| Event::Recorded(at, answer)));
                events.push(Event::SenderDies(at));
            }
            events.extend(Says::ALL.map(|says| Event::Finished(at, says)));
        }
        events.extend([Says::Right, Says::Failed].map(Event::FinishedUnknown));
        events.extend([Says::Right, Says::Failed].map(Event::FinishedFuture));
        match self.state {
            State::Pending | State::Judging => events.extend([Event::Cancel, Event::Park]),
            State::Parked => events.extend([Event::Cancel, Event::Redrive]),
            State::Judged | State::Cancelled => {}
        }
        events
    }

    pub(super) fn after(&self, event: Event, rules: &Rules) -> World {
        let mut world = self.clone();
        match event {
            Event::Delivered(entry) => world.delivered(entry, rules),
            Event::SecondCopy(entry) => {
                world.entries[entry].was_copied = true;
                let copy = Entry { is_copy: true, is_acked: false, ..world.entries[entry].clone() };
                world.entries.push(copy);
                world.delivered(world.entries.len() - 1, rules);
            }
            Event::Recorded(attempt, answer) => world.recorded(attempt, answer, rules),
            Event::SenderDies(attempt) => world.attempts[attempt].sender_lives = false,
            Event::Finished(attempt, says) => {
                world.finished(Some(attempt), world.attempts[attempt].generation, says, rules);
            }
            Event::FinishedUnknown(says) => world.finished(None, world.generation, says, rules),
            Event::FinishedFuture(says) => world.finished(None, world.generation + 1, says, rules),
            Event::Rejudge => world.rejudge(),
            Event::Cancel => world.leave(State::Cancelled),
            Event::Redrive => world.redrive(),
            Event::Park => world.park(),
        }
        world
    }

    pub(super) fn live(&self) -> impl Iterator<Item = (usize, &Attempt)> {
        self.attempts.iter().enumerate().filter(|(_, attempt)| attempt.state.is_live())
    }

    fn standing(&self) -> Standing {
        Standing {
            state: self.state,
            generation: Generation(self.generation),
            last_generation: Generation(self.generation),
            attempts_used: self.attempts_used.unsigned_abs(),
            rescues_used: self.rescues_used.unsigned_abs(),
        }
    }

    fn intend(&mut self) {
        let generation = self.generation;
        let entry = Entry { generation, is_acked: false, was_delivered: false, is_copy: false, was_copied: false };
        self.entries.push(entry);
    }

    fn close(&mut self, attempt: usize) {
        self.attempts[attempt].state = AttemptState::Closed;
    }

    fn close_live(&mut self) {
        let live: Vec<usize> = self.live().map(|(at, _)| at).collect();
        live.into_iter().for_each(|attempt| self.close(attempt));
    }

    fn delivered(&mut self, entry: usize, rules: &Rules) {
        self.entries[entry].was_delivered = true;
        let live = self.live().next().map(|(at, attempt)| (at, attempt.state, attempt.entry));
        let seen = live.map(|(at, state, begun_by)| LiveAttempt {
            judge_id: JudgeId(Uuid::from_u128(at as u128)),
            state,
            begun_by_this_entry: begun_by == Some(entry),
        });
        let generation = self.entries[entry].generation;
        match (rules.begin)(Some(&self.standing()), seen.as_ref(), Generation(generation), BUDGET) {
            Begin::Ack(_) => self.entries[entry].is_acked = true,
            Begin::Park(_) => {
                self.park();
                self.entries[entry].is_acked = true;
            }
            Begin::Attempt => self.send(entry, false),
            Begin::Rescue(judge_id) => {
                let rescued = judge_id.0.as_u128() as usize;
                self.close(rescued);
                self.attempts[rescued].is_uncounted = true;
                self.send(entry, true);
            }
        }
    }

    fn send(&mut self, entry: usize, is_rescue: bool) {
        let generation = self.entries[entry].generation;
        self.attempts.push(Attempt {
            generation,
            state: AttemptState::Sending,
            is_rescue,
            is_uncounted: false,
            sender_lives: true,
            entry: Some(entry),
            finish: None,
            system_errors: 0,
            grant: self.grant,
        });
        self.state = State::Judging;
        *(if is_rescue { &mut self.rescues_used } else { &mut self.attempts_used }) += 1;
    }

    fn recorded(&mut self, attempt: usize, answer: Answer, rules: &Rules) {
        self.attempts[attempt].sender_lives = false;
        if let Some(entry) = self.attempts[attempt].entry {
            self.entries[entry].is_acked = true;
        }
        let is_sending = self.attempts[attempt].state == AttemptState::Sending;
        match answer {
            Answer::Accepted if is_sending => self.attempts[attempt].state = AttemptState::Accepted,
            Answer::Ambiguous if is_sending => self.attempts[attempt].state = AttemptState::Ambiguous,
            Answer::Door if is_sending => {
                self.close(attempt);
                self.attempts[attempt].is_uncounted = true;
                if !self.state.is_open() {
                    return;
                }
                self.attempts_used -= 1;
                if self.state == State::Judging || !rules.door_needs_judging {
                    self.state = State::Pending;
                    self.intend();
                }
            }
            Answer::Refused => {
                if is_sending {
                    self.close(attempt);
                }
                if self.state.is_open() && self.attempts[attempt].generation == self.generation {
                    self.park();
                }
            }
            Answer::Accepted | Answer::Ambiguous | Answer::Door => {}
        }
    }

    fn finished(&mut self, attempt: Option<usize>, generation: i32, says: Says, rules: &Rules) {
        let known = attempt.map(|at| &self.attempts[at]);
        let finish = Finish {
            generation: Generation(generation),
            outcome: says.outcome(),
            attempt: known.map(|attempt| attempt.state),
            same_body_as_before: known.is_some_and(|attempt| attempt.finish == Some(says)),
        };
        let applied = (rules.finish)(Some(&self.standing()), &finish, BUDGET);
        if !applied.has_effect() {
            return;
        }
        let attempt = attempt.unwrap_or_else(|| self.lost_attempt(generation));
        self.attempts[attempt].finish = Some(says);
        match applied {
            Applied::Verdict(verdict) => self.judge(attempt, verdict, rules),
            Applied::Retry(_) => {
                self.fail(attempt);
                self.state = State::Pending;
                self.intend();
            }
            Applied::Park(_) => {
                self.fail(attempt);
                self.park();
            }
            Applied::Duplicate | Applied::Conflicting | Applied::Stale | Applied::Future | Applied::Unknown => {}
        }
    }

    /// The row that is created for an attempt which only a callback's URL knows.
    fn lost_attempt(&mut self, generation: i32) -> usize {
        self.attempts.push(Attempt {
            generation,
            state: AttemptState::Closed,
            is_rescue: false,
            is_uncounted: true,
            sender_lives: false,
            entry: None,
            finish: None,
            system_errors: 0,
            grant: u8::MAX,
        });
        self.attempts.len() - 1
    }

    fn fail(&mut self, attempt: usize) {
        self.close(attempt);
        self.attempts[attempt].system_errors += 1;
    }

    fn judge(&mut self, attempt: usize, verdict: Verdict, rules: &Rules) {
        self.close_live();
        self.attempts[attempt].state = AttemptState::Finished;
        let generation = self.attempts[attempt].generation;
        let deltas = (rules.deltas)(self.verdict, verdict);
        for (counter, delta) in self.counters.iter_mut().zip([deltas.submits, deltas.accepts.into(), deltas.eligible]) {
            *counter += delta;
        }
        self.verdicts_applied[usize::try_from(generation).unwrap() - 1] += 1;
        (self.state, self.verdict, self.verdict_generation) = (State::Judged, Some(verdict), Some(generation));
        self.has_letter = false;
    }

    fn leave(&mut self, state: State) {
        self.close_live();
        self.state = state;
        self.has_letter = false;
    }

    fn park(&mut self) {
        self.leave(State::Parked);
        self.has_letter = true;
    }

    fn redrive(&mut self) {
        self.leave(State::Pending);
        (self.attempts_used, self.rescues_used) = (0, 0);
        self.grant += 1;
        self.intend();
    }

    fn rejudge(&mut self) {
        self.generation += 1;
        self.verdicts_applied.push(0);
        self.redrive();
    }
}
