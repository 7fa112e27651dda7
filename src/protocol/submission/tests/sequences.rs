//! Every sequence of events up to a length, each step checked against the promises.
//!
//! A state of the world that was reached before is not walked from again: what follows depends on nothing else.

use std::collections::{HashMap, HashSet};

use super::super::{Applied, Begin, Finish, LiveAttempt, NoNeed, Standing, State, begin, deltas, finish};
use super::world::{BUDGET, Event, PRODUCTION, Rules, World};
use crate::protocol::submission::{Budget, Deltas, Outcome};
use crate::protocol::{Generation, Verdict};

const LENGTH: usize = 6;

/// What a state breaks by itself.
fn broken_state(world: &World) -> Option<&'static str> {
    let live = world.live().count();
    let live_is_current = world.live().all(|(_, attempt)| attempt.generation == world.generation);
    let has_entry = world.entries.iter().any(|entry| !entry.is_acked && entry.generation == world.generation);
    let judged_now = world.verdict_generation == Some(world.generation);
    let counted = [
        i64::from(world.verdict.is_some()),
        i64::from(world.verdict == Some(Verdict::Accepted)),
        i64::from(world.verdict.is_some_and(Verdict::is_eligible)),
    ];
    let granted = || world.attempts.iter().filter(|attempt| attempt.grant == world.grant);
    let used = granted().filter(|attempt| !attempt.is_uncounted).count();
    let rescues = granted().filter(|attempt| attempt.is_rescue).count();
    let is_budget_kept = used <= BUDGET.attempts_max as usize && rescues <= BUDGET.rescues_max as usize;
    let is_budget_right = world.attempts_used == used as i32 && world.rescues_used == rescues as i32;
    let rules = [
        (live > 1, "two attempts are live"),
        (!live_is_current, "an attempt of an older generation is live"),
        (!world.state.is_open() && live > 0, "it is over and an attempt is live"),
        (world.state.is_open() && live == 0 && !has_entry, "it is lost: open without a live attempt or an intent"),
        ((world.state == State::Judged) != judged_now, "it is not judged exactly when its generation's verdict stands"),
        ((world.state == State::Parked) != world.has_letter, "parked and an open dead letter do not go together"),
        (world.verdicts_applied.iter().any(|count| *count > 1), "a generation was given two verdicts"),
        (world.attempts.iter().any(|attempt| attempt.system_errors > 1), "an attempt failed twice"),
        (world.counters != counted, "the counters do not hold the standing verdict"),
        (!is_budget_kept, "a budget is exceeded"),
        (!is_budget_right, "what is used of a budget is counted wrongly"),
    ];
    rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, rule)| rule)
}

/// What a step breaks.
fn broken_step(before: &World, event: Event, after: &World) -> Option<&'static str> {
    let is_verdict = |says: super::world::Says| matches!(says.outcome(), Outcome::Verdict(_));
    let is_usable = match event {
        Event::Finished(at, says) => is_verdict(says) && before.attempts[at].generation == before.generation,
        Event::FinishedUnknown(says) => is_verdict(says),
        _ => false,
    };
    let waits = before.state.is_open() || before.state == State::Parked;
    let changed = (before.verdict, before.verdict_generation) != (after.verdict, after.verdict_generation);
    let rules = [
        (before.verdict_generation > after.verdict_generation, "a verdict went backwards"),
        (
            changed && before.verdict_generation == after.verdict_generation,
            "a standing verdict changed without a rejudge",
        ),
        (is_usable && waits && after.state != State::Judged, "a usable finish did not become the verdict"),
        (event == Event::Rejudge && changed, "a rejudge took the standing verdict away"),
        (event != Event::Rejudge && before.generation != after.generation, "something else raised the generation"),
    ];
    rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, rule)| rule)
}

/// What was walked: how many states there are, or the first sequence that breaks a promise.
fn walk(rules: &Rules, length: usize) -> Result<usize, (&'static str, Vec<Event>)> {
    let mut frontier: HashMap<World, Vec<Event>> = HashMap::from([(World::submitted(), Vec::new())]);
    let mut seen: HashSet<World> = frontier.keys().cloned().collect();
    for _ in 0..length {
        let mut next = HashMap::new();
        for (world, path) in &frontier {
            for event in world.events() {
                let after = world.after(event, rules);
                if let Some(rule) = broken_step(world, event, &after).or_else(|| broken_state(&after)) {
                    return Err((rule, [&path[..], &[event]].concat()));
                }
                if seen.insert(after.clone()) {
                    next.insert(after, [&path[..], &[event]].concat());
                }
            }
        }
        frontier = next;
    }
    Ok(seen.len())
}

#[test]
fn every_sequence_keeps_the_promises() {
    match walk(&PRODUCTION, LENGTH) {
        Ok(states) => assert!(states > 10_000, "only {states} states were reached"),
        Err((rule, path)) => panic!("{rule}: {path:#?}"),
    }
}

/// The rule that a mutation breaks; the shortest sequence that breaks it is found first.
fn broken_by(rules: Rules) -> &'static str {
    walk(&rules, LENGTH).expect_err("the mutation is not noticed").0
}

#[test]
fn a_finish_that_ignores_generations_is_noticed() {
    fn mutant(standing: Option<&Standing>, one: &Finish, budget: Budget) -> Applied {
        let generation = standing.map_or(one.generation, |standing| standing.generation.min(one.generation));
        let standing = standing.map(|standing| Standing { generation, ..*standing });
        finish(standing.as_ref(), one, budget)
    }
    let rule = broken_by(Rules { finish: mutant, ..PRODUCTION });
    assert_eq!(rule, "it is not judged exactly when its generation's verdict stands");
}

#[test]
fn a_finish_that_judges_again_is_noticed() {
    fn mutant(standing: Option<&Standing>, one: &Finish, budget: Budget) -> Applied {
        match (standing, &one.outcome) {
            (Some(standing), Outcome::Verdict(verdict)) if one.generation == standing.generation => {
                Applied::Verdict(*verdict)
            }
            _ => finish(standing, one, budget),
        }
    }
    broken_by(Rules { finish: mutant, ..PRODUCTION });
}

#[test]
fn a_finish_that_counts_a_late_system_error_again_is_noticed() {
    fn mutant(standing: Option<&Standing>, one: &Finish, budget: Budget) -> Applied {
        let attempt = one.attempt.map(|_| super::super::AttemptState::Accepted);
        finish(standing, &Finish { attempt, ..one.clone() }, budget)
    }
    assert_eq!(broken_by(Rules { finish: mutant, ..PRODUCTION }), "an attempt failed twice");
}

#[test]
fn a_begin_that_ignores_the_live_attempt_is_noticed() {
    fn mutant(standing: Option<&Standing>, _: Option<&LiveAttempt>, generation: Generation, budget: Budget) -> Begin {
        begin(standing, None, generation, budget)
    }
    assert_eq!(broken_by(Rules { begin: mutant, ..PRODUCTION }), "two attempts are live");
}

#[test]
fn a_begin_that_rescues_without_end_is_noticed() {
    fn mutant(standing: Option<&Standing>, live: Option<&LiveAttempt>, generation: Generation, _: Budget) -> Begin {
        begin(standing, live, generation, Budget { attempts_max: 2, rescues_max: 9 })
    }
    assert_eq!(broken_by(Rules { begin: mutant, ..PRODUCTION }), "a budget is exceeded");
}

#[test]
fn a_begin_that_acks_what_must_be_tried_again_is_noticed() {
    fn mutant(
        standing: Option<&Standing>,
        live: Option<&LiveAttempt>,
        generation: Generation,
        budget: Budget,
    ) -> Begin {
        match begin(standing, live, generation, budget) {
            Begin::Attempt if standing.is_some_and(|standing| standing.attempts_used > 0) => {
                Begin::Ack(NoNeed::LiveElsewhere)
            }
            decision => decision,
        }
    }
    let rule = broken_by(Rules { begin: mutant, ..PRODUCTION });
    assert_eq!(rule, "it is lost: open without a live attempt or an intent");
}

#[test]
fn deltas_that_forget_what_is_counted_are_noticed() {
    fn mutant(_: Option<Verdict>, new: Verdict) -> Deltas {
        deltas(None, new)
    }
    let rule = broken_by(Rules { deltas: mutant, ..PRODUCTION });
    assert_eq!(rule, "the counters do not hold the standing verdict");
}

/// A system error of an attempt whose row was lost makes the submission pending while another attempt is being sent.
#[test]
fn a_door_that_makes_only_judging_submissions_due_again_is_noticed() {
    let rule = broken_by(Rules { door_needs_judging: true, ..PRODUCTION });
    assert_eq!(rule, "it is lost: open without a live attempt or an intent");
}
