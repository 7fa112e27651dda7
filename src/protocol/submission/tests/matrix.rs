//! Every state against every event, as one text to read.

use uuid::Uuid;

use super::super::*;

const BUDGET: Budget = Budget { attempts_max: 3, rescues_max: 2 };

fn standing(state: State, attempts_used: u32, rescues_used: u32) -> Standing {
    let (generation, last_generation) = (Generation(2), Generation(2));
    Standing { state, generation, last_generation, attempts_used, rescues_used }
}

fn begun(standing: Option<&Standing>, live: Option<(AttemptState, bool)>, generation: i32) -> String {
    let live = live.map(|(state, begun_by_this_entry)| LiveAttempt {
        judge_id: JudgeId(Uuid::nil()),
        state,
        begun_by_this_entry,
    });
    match begin(standing, live.as_ref(), Generation(generation), BUDGET) {
        Begin::Attempt => "attempt".to_owned(),
        Begin::Rescue(_) => "rescue".to_owned(),
        Begin::Park(_) => "park".to_owned(),
        Begin::Ack(why) => format!("ack: {}", why.as_str()),
    }
}

/// A name, what the lock shows, and the live attempt: where it is, and whether this entry began it.
type EntryRow = (&'static str, Option<Standing>, Option<(AttemptState, bool)>);

fn entries() -> String {
    let rows: [EntryRow; 14] = [
        ("no such submission", None, None),
        ("pending", Some(standing(State::Pending, 1, 0)), None),
        ("pending, own attempt sending", Some(standing(State::Pending, 1, 0)), Some((AttemptState::Sending, true))),
        ("judging, own attempt sending", Some(standing(State::Judging, 1, 0)), Some((AttemptState::Sending, true))),
        ("  and attempts spent", Some(standing(State::Judging, 3, 1)), Some((AttemptState::Sending, true))),
        ("  and rescues spent", Some(standing(State::Judging, 1, 2)), Some((AttemptState::Sending, true))),
        ("judging, own attempt accepted", Some(standing(State::Judging, 1, 0)), Some((AttemptState::Accepted, true))),
        ("judging, own attempt ambiguous", Some(standing(State::Judging, 1, 0)), Some((AttemptState::Ambiguous, true))),
        ("judging, other's sending", Some(standing(State::Judging, 1, 2)), Some((AttemptState::Sending, false))),
        ("judging, other's accepted", Some(standing(State::Judging, 1, 0)), Some((AttemptState::Accepted, false))),
        ("judging, nothing live", Some(standing(State::Judging, 1, 0)), None),
        ("judged", Some(standing(State::Judged, 1, 0)), None),
        ("parked", Some(standing(State::Parked, 3, 0)), None),
        ("cancelled", Some(standing(State::Cancelled, 1, 0)), None),
    ];
    let mut text = format!("{:32}{:18}{:22}{}\n", "an entry comes of", "generation 1", "generation 2", "generation 3");
    for (name, standing, live) in rows {
        let cell = |generation| begun(standing.as_ref(), live, generation);
        text += &format!("{name:32}{:18}{:22}{}\n", cell(1), cell(2), cell(3));
    }
    text
}

fn applied(standing: Option<&Standing>, attempt: Option<AttemptState>, says: Outcome, same: bool) -> String {
    let one = Finish { generation: Generation(2), outcome: says, attempt, same_body_as_before: same };
    match finish(standing, &one, BUDGET) {
        Applied::Retry(_) => "retry".to_owned(),
        Applied::Park(_) => "park".to_owned(),
        Applied::Verdict(_) => "verdict".to_owned(),
        other => other.disposition().to_owned(),
    }
}

fn finishes() -> String {
    let rows: [(&str, Option<Standing>); 8] = [
        ("no such submission", None),
        ("pending", Some(standing(State::Pending, 1, 0))),
        ("judging", Some(standing(State::Judging, 2, 0))),
        ("judging, the last attempt", Some(standing(State::Judging, 3, 0))),
        ("judged", Some(standing(State::Judged, 1, 0))),
        ("parked", Some(standing(State::Parked, 3, 0))),
        ("cancelled", Some(standing(State::Cancelled, 1, 0))),
        (
            "judging generation 3",
            Some(Standing {
                generation: Generation(3),
                last_generation: Generation(3),
                ..standing(State::Judging, 1, 0)
            }),
        ),
    ];
    let attempts = [
        ("live", Some(AttemptState::Ambiguous), false),
        ("row lost", None, false),
        ("closed", Some(AttemptState::Closed), false),
        ("same again", Some(AttemptState::Closed), true),
    ];
    let mut text = String::new();
    for (says, outcome) in [
        ("a verdict", Outcome::Verdict(Verdict::WrongAnswer)),
        ("a system error", Outcome::SystemError("x".to_owned())),
    ] {
        text += &format!("{says:32}");
        text += &attempts.map(|(name, ..)| format!("{name:14}")).concat();
        text = text.trim_end().to_owned() + "\n";
        for (name, standing) in &rows {
            let cell = |(_, state, same)| format!("{:14}", applied(standing.as_ref(), state, outcome.clone(), same));
            text += format!("{name:32}{}", attempts.map(cell).concat()).trim_end();
            text.push('\n');
        }
    }
    text
}

const ENTRIES: &str = "\
an entry comes of               generation 1      generation 2          generation 3
no such submission              ack: unknown      ack: unknown          ack: unknown
pending                         ack: superseded   attempt               ack: future
pending, own attempt sending    ack: superseded   rescue                ack: future
judging, own attempt sending    ack: superseded   rescue                ack: future
  and attempts spent            ack: superseded   rescue                ack: future
  and rescues spent             ack: superseded   park                  ack: future
judging, own attempt accepted   ack: superseded   ack: live_elsewhere   ack: future
judging, own attempt ambiguous  ack: superseded   ack: live_elsewhere   ack: future
judging, other's sending        ack: superseded   ack: live_elsewhere   ack: future
judging, other's accepted       ack: superseded   ack: live_elsewhere   ack: future
judging, nothing live           ack: superseded   attempt               ack: future
judged                          ack: superseded   ack: over             ack: future
parked                          ack: superseded   ack: over             ack: future
cancelled                       ack: superseded   ack: over             ack: future
";
const FINISHES: &str = "\
a verdict                       live          row lost      closed        same again
no such submission              unknown       unknown       unknown       unknown
pending                         verdict       verdict       verdict       verdict
judging                         verdict       verdict       verdict       verdict
judging, the last attempt       verdict       verdict       verdict       verdict
judged                          conflicting   conflicting   conflicting   duplicate
parked                          verdict       verdict       verdict       verdict
cancelled                       stale         stale         stale         stale
judging generation 3            stale         stale         stale         stale
a system error                  live          row lost      closed        same again
no such submission              unknown       unknown       unknown       unknown
pending                         retry         retry         conflicting   duplicate
judging                         retry         retry         conflicting   duplicate
judging, the last attempt       park          park          conflicting   duplicate
judged                          conflicting   conflicting   conflicting   duplicate
parked                          conflicting   conflicting   conflicting   duplicate
cancelled                       stale         stale         stale         stale
judging generation 3            stale         stale         stale         stale
";

#[test]
fn what_an_entry_begins_in_each_state() {
    assert_eq!(entries(), ENTRIES, "\n{}", entries());
}

#[test]
fn what_a_finish_does_in_each_state() {
    assert_eq!(finishes(), FINISHES, "\n{}", finishes());
}

#[test]
fn a_finish_of_a_generation_that_was_never_minted_is_kept_for_later() {
    let one = Finish {
        generation: Generation(3),
        outcome: Outcome::Verdict(Verdict::Accepted),
        attempt: None,
        same_body_as_before: false,
    };
    for state in State::ALL {
        assert_eq!(finish(Some(&standing(state, 0, 0)), &one, BUDGET), Applied::Future, "{state}");
    }
}

#[test]
fn deltas_are_the_difference_to_what_is_counted() {
    let counted = |verdict: Option<Verdict>| {
        let is = |holds: bool| i64::from(holds);
        [
            is(verdict.is_some()),
            is(verdict == Some(Verdict::Accepted)),
            is(verdict.is_some_and(|one| !one.as_str().starts_with("compile_"))),
        ]
    };
    for before in [None].into_iter().chain(Verdict::ALL.map(Some)) {
        for new in Verdict::ALL {
            let moved = deltas(before, new);
            let after = counted(Some(new));
            let expected: [i64; 3] = std::array::from_fn(|at| after[at] - counted(before)[at]);
            assert_eq!([moved.submits, moved.accepts.into(), moved.eligible], expected, "{before:?} to {new}");
        }
    }
}

#[test]
fn words_are_read_as_they_are_written() {
    for state in State::ALL {
        assert_eq!(state.as_str().parse(), Ok(state));
    }
    for state in AttemptState::ALL {
        assert_eq!(state.as_str().parse(), Ok(state));
    }
    assert_eq!("Pending".parse::<State>(), Err(NotAState));
    assert_eq!("".parse::<AttemptState>(), Err(NotAState));
}
