//! What the fake controller saw and did, for oracles to read; it decides nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::config::LedgerDetail;
use crate::protocol::CallbackKind;

/// Why a request was not carried out. The client is told less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The head is not HTTP.
    Malformed,
    /// The body is not JSON, or not an object or array (400).
    NotJson,
    /// The charset or the encoding is not supported (415).
    UnsupportedBody,
    /// The body is above the limit (413).
    BodyTooLarge,
    /// No such route (404).
    NoRoute,
    /// The access key is missing or unknown (500).
    UnknownKey,
    /// The timestamp is missing or off (403).
    Skew,
    /// The nonce is missing or was used before (403).
    Replay,
    /// The key's role does not allow it (403).
    Role,
    /// The signature is missing or wrong (403).
    Signature,
    /// A field of the body is wrong (400).
    Invalid,
    /// A switch said so.
    Switch,
}

/// What the creator of a job was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CreateAnswer {
    /// 201, at once or late.
    Created,
    /// 500.
    ServerError,
    /// Nothing: the connection was closed, reset or left hanging.
    Nothing,
}

/// How one attempt of a callback ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A final 2xx with a complete body.
    Delivered {
        /// The final status.
        status: u16,
        /// A redirect had turned the POST into a GET: the receiver never saw the body.
        swallowed: bool,
    },
    /// A final answer outside 2xx.
    Refused {
        /// The final status.
        status: u16,
    },
    /// No headers, or no further byte of the body, in time.
    TimedOut,
    /// Connection refused, reset or closed early; an answer that is not HTTP or is cut short; too many redirects.
    Broken,
    /// The fake closed the connection after sending.
    Aborted,
    /// The URL or the size of the body make sending impossible.
    Undeliverable,
    /// Not sent: the job is finished or forgotten.
    Dropped,
}

impl Outcome {
    /// Does the controller count it as delivered?
    pub fn is_delivered(self) -> bool {
        matches!(self, Outcome::Delivered { .. })
    }
}

/// One job that was created.
#[derive(Clone, Debug)]
pub struct JobRecord {
    /// The fake's own number of it, counted from 0.
    pub number: u64,
    /// Where its updates go, as text.
    pub update_url: String,
    /// Where its finish goes, as text.
    pub finish_url: String,
    /// Lower-case hex SHA-256 of the body as the controller re-serialises it.
    pub body_sha256: String,
    /// When it was created, by this machine's clock.
    pub created_at: SystemTime,
    /// The user's source, unless it is a URL.
    pub source: Option<Arc<str>>,
    /// What the creator was told.
    pub answer: CreateAnswer,
    /// It was written down and never queued.
    pub orphan: bool,
    /// It was, or will be, forgotten without a finish.
    pub lost: bool,
    /// How many times its judging began.
    pub runs: u32,
    /// Attempts of its updates.
    pub updates_tried: u32,
    /// Attempts of its finishes.
    pub finishes_tried: u32,
    /// Finishes that were acknowledged.
    pub finishes_delivered: u32,
}

/// One attempt of a callback.
#[derive(Clone, Debug)]
pub struct CallbackRecord {
    /// The job's number.
    pub job: u64,
    /// Update or finish.
    pub kind: CallbackKind,
    /// What was sent.
    pub body: Arc<str>,
    /// Which attempt of this callback, from 1.
    pub attempt: u32,
    /// When it ended, by this machine's clock.
    pub ended_at: SystemTime,
    /// How it ended.
    pub outcome: Outcome,
}

/// Totals since the start; restarts do not reset them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Requests read completely, those to `/_fake/` not counted.
    pub requests: u64,
    /// Jobs written down.
    pub created: u64,
    /// Answers to requests, by status.
    pub answers: BTreeMap<u16, u64>,
    /// Requests not carried out, by reason.
    pub refusals: BTreeMap<Refusal, u64>,
    /// Judgings begun.
    pub runs: u64,
    /// Attempts of updates, those dropped not counted.
    pub updates_tried: u64,
    /// Updates acknowledged.
    pub updates_delivered: u64,
    /// Attempts of finishes, those dropped not counted.
    pub finishes_tried: u64,
    /// Finishes acknowledged, duplicates included.
    pub finishes_delivered: u64,
    /// Of those, finishes whose body a redirect swallowed.
    pub finishes_swallowed: u64,
    /// Attempts of either kind that failed.
    pub callbacks_failed: u64,
    /// Callbacks dropped because their job is finished or forgotten.
    pub callbacks_dropped: u64,
    /// Restarts.
    pub restarts: u64,
}

/// What is under way at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// Jobs written down and not finished, orphans and lost ones included.
    pub jobs: usize,
    /// Judgings waiting for a judger.
    pub runs_queued: usize,
    /// Judgings under way.
    pub runs_held: usize,
    /// Callbacks waiting for a worker.
    pub callbacks_queued: usize,
    /// Callbacks under way, or failed and waiting to be sent again.
    pub callbacks_held: usize,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Totals.
    pub counters: Counters,
    /// What was under way when this was looked at.
    pub pending: Pending,
    max: usize,
    first_job: u64,
    jobs: VecDeque<JobRecord>,
    callbacks: VecDeque<CallbackRecord>,
}

impl Ledger {
    pub(super) fn new(detail: LedgerDetail) -> Self {
        let max = match detail {
            LedgerDetail::Counters => 0,
            LedgerDetail::Records { max } => max,
        };
        let (counters, pending) = Default::default();
        Self { counters, pending, max, first_job: 0, jobs: VecDeque::new(), callbacks: VecDeque::new() }
    }

    /// The kept jobs, oldest first.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = &JobRecord> + ExactSizeIterator {
        self.jobs.iter()
    }

    /// The kept attempts of callbacks, in the order they ended.
    pub fn callbacks(&self) -> impl DoubleEndedIterator<Item = &CallbackRecord> + ExactSizeIterator {
        self.callbacks.iter()
    }

    /// A kept job by its number.
    pub fn job(&self, number: u64) -> Option<&JobRecord> {
        let index = number.checked_sub(self.first_job)?;
        self.jobs.get(usize::try_from(index).ok()?)
    }

    /// The attempts of one job's callbacks, in the order they ended.
    pub fn callbacks_of(&self, job: u64) -> impl Iterator<Item = &CallbackRecord> {
        self.callbacks.iter().filter(move |record| record.job == job)
    }

    /// Is there no work left: nothing queued, nothing judged, no callback under way or to be repeated?
    pub fn is_quiet(&self) -> bool {
        let Pending { jobs: _, runs_queued, runs_held, callbacks_queued, callbacks_held } = self.pending;
        runs_queued + runs_held + callbacks_queued + callbacks_held == 0
    }

    pub(super) fn is_detailed(&self) -> bool {
        self.max > 0
    }

    pub(super) fn answered(&mut self, status: u16) {
        *self.counters.answers.entry(status).or_default() += 1;
    }

    pub(super) fn refused(&mut self, refusal: Refusal) {
        *self.counters.refusals.entry(refusal).or_default() += 1;
    }

    pub(super) fn created(&mut self, record: JobRecord) {
        self.counters.created += 1;
        if self.max == 0 {
            return;
        }
        if self.jobs.len() == self.max {
            self.jobs.pop_front();
            self.first_job += 1;
        }
        self.jobs.push_back(record);
    }

    pub(super) fn change_job(&mut self, number: u64, change: impl FnOnce(&mut JobRecord)) {
        let index = number.checked_sub(self.first_job).and_then(|index| usize::try_from(index).ok());
        if let Some(record) = index.and_then(|index| self.jobs.get_mut(index)) {
            change(record);
        }
    }

    pub(super) fn run_began(&mut self, job: u64) {
        self.counters.runs += 1;
        self.change_job(job, |record| record.runs += 1);
    }

    pub(super) fn tried(&mut self, record: CallbackRecord) {
        self.count(record.kind, record.outcome);
        self.change_job(record.job, |job| match (record.kind, record.outcome) {
            (_, Outcome::Dropped) => {}
            (CallbackKind::Update, _) => job.updates_tried += 1,
            (CallbackKind::Finish, outcome) => {
                job.finishes_tried += 1;
                job.finishes_delivered += u32::from(outcome.is_delivered());
            }
        });
        if self.max == 0 {
            return;
        }
        if self.callbacks.len() == self.max {
            self.callbacks.pop_front();
        }
        self.callbacks.push_back(record);
    }

    fn count(&mut self, kind: CallbackKind, outcome: Outcome) {
        let counters = &mut self.counters;
        if outcome == Outcome::Dropped {
            counters.callbacks_dropped += 1;
            return;
        }
        let delivered = u64::from(outcome.is_delivered());
        counters.callbacks_failed += 1 - delivered;
        match kind {
            CallbackKind::Update => {
                counters.updates_tried += 1;
                counters.updates_delivered += delivered;
            }
            CallbackKind::Finish => {
                counters.finishes_tried += 1;
                counters.finishes_delivered += delivered;
                counters.finishes_swallowed += u64::from(matches!(outcome, Outcome::Delivered { swallowed: true, .. }));
            }
        }
    }
}
