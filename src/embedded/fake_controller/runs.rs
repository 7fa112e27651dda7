//! Judging as it goes through the queue: capacity, states, repetitions. What is found is the judge's business.

use std::sync::Arc;
use std::time::Duration;

use super::callbacks::Callback;
use super::clock::seconds;
use super::judge::{self, Judge};
use super::switches::{DuplicateAfter, OddBody};
use super::world::{Job, Shared, World};
use crate::protocol::CallbackKind;

/// One judging of a job.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) job: Arc<Job>,
    /// Which judging of this job, from 0.
    pub(super) turn: u32,
}

/// A judging that has begun.
struct Begun {
    number: u64,
    run: Run,
    duration: Duration,
}

/// Begins as many judgings as there is capacity for. Those that take no time are over when this returns.
pub(super) fn start(shared: &Arc<Shared>) {
    for begun in shared.with(World::begin_runs) {
        shared.work.start(judge_slowly(shared.clone(), begun));
    }
}

/// Queues judgings that a dead process held.
pub(super) async fn resume_held(shared: Arc<Shared>, runs: Vec<Run>, after: Duration) {
    tokio::time::sleep(after).await;
    shared.with(|world| world.queue.extend(runs));
    start(&shared);
}

async fn judge_slowly(shared: Arc<Shared>, begun: Begun) {
    // Preparing is the smaller part of it.
    let preparing = begun.duration.mul_f64(0.2);
    tokio::time::sleep(preparing).await;
    shared.change(|world| world.tell_state(&begun.run.job, "judging"));
    tokio::time::sleep(begun.duration - preparing).await;
    shared.change(|world| {
        // A flush may have taken it away in the meantime.
        if world.held.remove(&begun.number).is_some() {
            world.conclude(&begun.run);
        }
    });
    start(&shared);
}

impl World {
    /// Queues the judging of a new job.
    pub(super) fn enqueue(&mut self, job: Arc<Job>) {
        self.queue.push_back(Run { job, turn: 0 });
    }

    fn begin_runs(&mut self) -> Vec<Begun> {
        let mut slow = Vec::new();
        while self.held.len() < self.switches.judge_parallel.max(1) {
            let Some(run) = self.queue.pop_front() else { break };
            self.ledger.run_began(run.job.number);
            let directed = run.job.task.directive.slow;
            let duration = seconds(self.switches.judge_seconds).saturating_add(directed);
            let duration = duration.mul_f64(self.config.timing.judging_scale);
            self.tell_state(&run.job, "preparing");
            if duration.is_zero() {
                self.tell_state(&run.job, "judging");
                self.conclude(&run);
            } else {
                let number = self.number();
                self.held.insert(number, run.clone());
                slow.push(Begun { number, run, duration });
            }
        }
        slow
    }

    fn tell_state(&mut self, job: &Arc<Job>, state: &str) {
        if !self.switches.judge_updates {
            return;
        }
        let state = match job.faults.odd_body {
            Some(OddBody::UnknownState) => "bogus",
            _ => state,
        };
        let body: Arc<str> = format!("{{\"state\":\"{state}\"}}").into();
        // Two judgers at once tell every state twice.
        for _ in 0..1 + u32::from(job.faults.twice_at_once) {
            self.push_callback(Callback::new(job.clone(), CallbackKind::Update, body.clone()));
        }
    }

    /// A judging is over: it reports, starts over, or falls silent.
    fn conclude(&mut self, run: &Run) {
        let Run { job, turn } = run;
        if job.faults.lost || job.task.directive.never {
            let number = job.number;
            self.ledger.change_job(number, |record| record.lost = true);
            return;
        }
        let rejudge = job.faults.rejudge.unwrap_or_default();
        if job.faults.rejudge.is_some() && turn + 1 < rejudge.runs {
            self.queue.push_back(Run { job: job.clone(), turn: turn + 1 });
            return;
        }
        let (body, other) = self.finish_bodies(job, rejudge.differ);
        let mut finish = Callback::new(job.clone(), CallbackKind::Finish, body.clone());
        let twin = job.faults.twice_at_once.then(|| Callback::new(job.clone(), CallbackKind::Finish, body.clone()));
        let second = match job.faults.duplicate {
            Some(duplicate) if duplicate.after == DuplicateAfter::Acknowledged => {
                finish.second = Some(other);
                None
            }
            Some(_) => Some(Callback::new(job.clone(), CallbackKind::Finish, other)),
            None => None,
        };
        for callback in [Some(finish), twin, second].into_iter().flatten() {
            self.push_callback(callback);
        }
    }

    /// What the finish says, and what a second one would say.
    fn finish_bodies(&mut self, job: &Job, contradicts: bool) -> (Arc<str>, Arc<str>) {
        let config = self.config.clone();
        let judge = Judge { weights: &config.weights, measurements: config.measurements };
        let mut ruling = judge.rule(&job.task, &mut self.random);
        if contradicts {
            ruling = judge::another(ruling);
        }
        let odd = job.faults.odd_body.as_ref().and_then(|odd| judge::odd_finish(odd, &job.task));
        let body = odd.unwrap_or_else(|| judge.finish(&job.task, ruling, &mut self.random));
        let other = match job.faults.duplicate {
            Some(duplicate) if duplicate.differ => judge.finish(&job.task, judge::another(ruling), &mut self.random),
            _ => body.clone(),
        };
        (body, other)
    }
}
