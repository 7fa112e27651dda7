//! Everything of the fake's behaviour that can be changed while it runs, each thing one that really happens to the real one.
//!
//! As JSON (PUT `/_fake/switches`) a switch is `{"when": W, "how": H}`, where W is `"never"`, `"always"`, `{"next": 3}` or
//! `{"chance": 0.1}`, and H may be left out where it says nothing; members that are left out stay as they are.

use serde::{Deserialize, Serialize};

use super::random::Random;

/// For which of the coming occasions a switch holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// For none.
    #[default]
    Never,
    /// For all.
    Always,
    /// For this many, then never.
    Next(u32),
    /// For each with this probability.
    Chance(f64),
}

impl When {
    /// A switch that does `how` on these occasions.
    pub fn with<How>(self, how: How) -> Switch<How> {
        Switch { when: self, how }
    }
}

/// One behaviour and the occasions it holds for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch<How = ()> {
    /// The occasions.
    pub when: When,
    /// The particulars.
    #[serde(default)]
    pub how: How,
}

impl<How: Default> From<When> for Switch<How> {
    fn from(when: When) -> Self {
        when.with(How::default())
    }
}

impl<How: Clone> Switch<How> {
    /// Asks for one occasion, and counts it.
    pub(super) fn take(&mut self, random: &mut Random) -> Option<How> {
        let holds = match &mut self.when {
            When::Never => false,
            When::Always => true,
            When::Next(0) => false,
            When::Next(left) => {
                *left -= 1;
                true
            }
            When::Chance(probability) => random.happens(*probability),
        };
        holds.then(|| self.how.clone())
    }
}

/// An answer from something in front of the controller, or from a controller in trouble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusAnswer {
    /// The status code.
    pub status: u16,
    /// The `Retry-After` header, in seconds.
    pub retry_after: Option<u32>,
    /// The `Location` header.
    pub location: Option<String>,
}

impl Default for StatusAnswer {
    fn default() -> Self {
        Self { status: 503, retry_after: None, location: None }
    }
}

/// How the answer to a created job gets lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoseAnswer {
    /// The connection is closed in order, without an answer.
    #[default]
    Close,
    /// The connection is reset.
    Reset,
    /// The 201 comes after this many seconds.
    AnswerAfter(f64),
    /// The connection stays open and silent for as long as the client leaves it open.
    Hang,
}

/// What the client hears about a job that will never run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrphanAnswer {
    /// 201, as if all were well.
    #[default]
    Created,
    /// The connection is reset.
    Reset,
}

/// A job that is judged several times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rejudge {
    /// How many runs in all; the last one reports.
    pub runs: u32,
    /// Does the last run come to another verdict than the first would have?
    pub differ: bool,
}

impl Default for Rejudge {
    fn default() -> Self {
        Self { runs: 2, differ: false }
    }
}

/// A second finish of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DuplicateFinish {
    /// Does the second one say something else?
    pub differ: bool,
    /// When it comes.
    pub after: DuplicateAfter,
}

/// After which answer a second finish comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DuplicateAfter {
    /// After the first was answered 2xx: two processes worked on it.
    #[default]
    Acknowledged,
    /// Right after the first was not answered 2xx; not at all when it was. One process is enough for that.
    Failed,
}

/// A callback body that the reference judger would not send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OddBody {
    /// A finish of `{}`.
    #[default]
    Empty,
    /// A finish of `{"result":null}`.
    NullResult,
    /// A finish of `{"result":{}}`.
    EmptyResult,
    /// A finish of `{"result":{"cases":[]}}`.
    NoCases,
    /// A finish with one case less than the job has.
    CaseMissing,
    /// A finish whose kinds nobody knows.
    UnknownKind,
    /// A finish with floats as numbers.
    Floats,
    /// A finish with negative numbers.
    Negative,
    /// A finish whose message contains U+0000.
    Nul,
    /// A finish with a body of this many bytes; above 10 MiB it is never sent.
    Huge(usize),
    /// Updates with a state that nobody knows.
    UnknownState,
    /// A finish of exactly this text.
    Text(String),
}

/// All switches and settings. Times are in seconds and are not scaled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switches {
    /// Answer this status before anything is looked at; nothing is created.
    #[serde(rename = "create.status")]
    pub create_status: Switch<StatusAnswer>,
    /// Look at the request only after this many seconds.
    #[serde(rename = "create.delay")]
    pub create_delay: Switch<f64>,
    /// Create the job and lose the answer.
    #[serde(rename = "create.lose_answer")]
    pub create_lose_answer: Switch<LoseAnswer>,
    /// Create the job and answer 500.
    #[serde(rename = "create.500_created")]
    pub create_500_created: Switch,
    /// Answer 500 and create nothing.
    #[serde(rename = "create.500_not_created")]
    pub create_500_not_created: Switch,
    /// Write the job down but never queue it.
    #[serde(rename = "create.orphan")]
    pub create_orphan: Switch<OrphanAnswer>,
    /// Reset a connection, unread, when it is used for another request.
    #[serde(rename = "create.reset_reused")]
    pub create_reset_reused: Switch,

    /// How many seconds the controller's own clock is ahead; its `Date` header shows it.
    #[serde(rename = "auth.skew")]
    pub auth_skew: f64,
    /// Know no key: 500.
    #[serde(rename = "auth.forget_keys")]
    pub auth_forget_keys: Switch,

    /// How many jobs are judged at the same time.
    #[serde(rename = "judge.parallel")]
    pub judge_parallel: usize,
    /// How long judging takes, besides what a directive in the source adds; scaled as the judging is.
    #[serde(rename = "judge.seconds")]
    pub judge_seconds: f64,
    /// Are the states sent as updates?
    #[serde(rename = "judge.updates")]
    pub judge_updates: bool,

    /// Send the states and never a finish.
    #[serde(rename = "job.lost")]
    pub job_lost: Switch,
    /// Judge several times, one after the other.
    #[serde(rename = "job.rejudge")]
    pub job_rejudge: Switch<Rejudge>,
    /// Judge twice at the same time; the second finish is dropped once the first was acknowledged.
    #[serde(rename = "job.twice_at_once")]
    pub job_twice_at_once: Switch,

    /// Wait with the 201 until the first callback of the job was tried.
    #[serde(rename = "cb.before_201")]
    pub cb_before_201: Switch,
    /// Send a second finish.
    #[serde(rename = "cb.dup_finish")]
    pub cb_dup_finish: Switch<DuplicateFinish>,
    /// Send the state `judging` again after the first attempt of the finish, however that one ended.
    #[serde(rename = "cb.late_update")]
    pub cb_late_update: Switch,
    /// Are failed callbacks sent again?
    #[serde(rename = "cb.retry")]
    pub cb_retry: bool,
    /// How many callbacks are under way at the same time. 1, a single process, is head-of-line blocking.
    #[serde(rename = "cb.workers")]
    pub cb_workers: usize,
    /// Close the connection right after a callback was sent; it is sent again later.
    #[serde(rename = "cb.abort_after_send")]
    pub cb_abort_after_send: Switch,
    /// Instead of the configured limit, wait this many seconds for an answer to a callback.
    #[serde(rename = "cb.timeout")]
    pub cb_timeout: Option<f64>,
    /// Are redirects followed? They are.
    #[serde(rename = "cb.follow_redirects")]
    pub cb_follow_redirects: bool,
    /// Send odd bodies.
    #[serde(rename = "cb.odd_body")]
    pub cb_odd_body: Switch<OddBody>,
}

impl Default for Switches {
    /// Nothing goes wrong, judging is instant and unlimited, one callback at a time.
    fn default() -> Self {
        Self {
            create_status: Switch::default(),
            create_delay: Switch::default(),
            create_lose_answer: Switch::default(),
            create_500_created: Switch::default(),
            create_500_not_created: Switch::default(),
            create_orphan: Switch::default(),
            create_reset_reused: Switch::default(),
            auth_skew: 0.0,
            auth_forget_keys: Switch::default(),
            judge_parallel: 1024,
            judge_seconds: 0.0,
            judge_updates: true,
            job_lost: Switch::default(),
            job_rejudge: Switch::default(),
            job_twice_at_once: Switch::default(),
            cb_before_201: Switch::default(),
            cb_dup_finish: Switch::default(),
            cb_late_update: Switch::default(),
            cb_retry: true,
            cb_workers: 1,
            cb_abort_after_send: Switch::default(),
            cb_timeout: None,
            cb_follow_redirects: true,
            cb_odd_body: Switch::default(),
        }
    }
}

impl Switches {
    /// These switches with the members of a JSON object changed.
    ///
    /// # Errors
    /// What is wrong with the object, for the person who wrote it.
    pub fn changed_by(&self, patch: &serde_json::Value) -> Result<Self, String> {
        let patch = patch.as_object().ok_or("expected an object of switches")?;
        let mut all = serde_json::to_value(self).map_err(|error| error.to_string())?;
        if let Some(members) = all.as_object_mut() {
            members.extend(patch.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        serde_json::from_value(all).map_err(|error| error.to_string())
    }
}
