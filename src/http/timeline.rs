//! What happened to a submission, in order, from its rows alone.
//!
//! A pure function. A row remembers only its last lease and its newest progress, so the timeline has no more than those.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::whereabouts::cause_text;
use crate::protocol::JudgeId;
use crate::store::reports::{AttemptRow, IntentRow, Journey, LetterRow, ResultRow};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TimelineEvent {
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// What, as a stable word.
    pub event: Happened,
    /// What, in words.
    pub detail: String,
}

/// The kinds of things that happen to a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// It was committed with its first intent.
    Submitted,
    /// Another intent to have it judged was written.
    DueAgain,
    /// A process leased an intent.
    Claimed,
    /// An intent entered its lane's stream.
    Published,
    /// An intent became pointless before it left.
    Superseded,
    /// An intent was found to be unpublishable.
    Quarantined,
    /// An attempt was begun and its POST sent.
    Dispatched,
    /// The controller answered the POST, or was first heard of the attempt.
    Answered,
    /// The newest progress update of an attempt came.
    Progress,
    /// An attempt ended without a verdict of its own.
    AttemptClosed,
    /// A result came.
    Callback,
    /// A result became the verdict that stands.
    Applied,
    /// The judge's consumers were told.
    EventPublished,
    /// It could not go on by itself.
    Parked,
    /// Its dead letter was resolved.
    Resolved,
}

/// Everything that the rows remember, the oldest first.
pub fn timeline(journey: &Journey) -> Vec<TimelineEvent> {
    let submission = &journey.submission;
    let mut events = Events(Vec::new());
    events.add(submission.created_at, Happened::Submitted, format!("generation 1, lane {}", submission.lane));
    journey.intents.iter().for_each(|intent| events.of_intent(intent));
    journey.attempts.iter().for_each(|attempt| events.of_attempt(attempt));
    journey.results.iter().for_each(|result| events.of_result(result));
    journey.letters.iter().for_each(|letter| events.of_letter(letter));
    // Stable: what has the same time stays in the order of the journey.
    events.0.sort_by_key(|event| event.at);
    events.0
}

struct Events(Vec<TimelineEvent>);

impl Events {
    fn add(&mut self, at: DateTime<Utc>, event: Happened, detail: String) {
        self.0.push(TimelineEvent { at, event, detail });
    }

    fn of_intent(&mut self, intent: &IntentRow) {
        let entry = intent.stream_id.as_deref().unwrap_or_default();
        if intent.destination == "events" {
            if let Some(at) = intent.published_at {
                self.add(at, Happened::EventPublished, format!("{} as entry {entry} of events", intent.event_type));
            }
        } else {
            self.of_judge_intent(intent, entry);
        }
        if let Some(at) = intent.quarantined_at {
            let error = intent.last_error.as_deref().unwrap_or("no reason was recorded");
            self.add(at, Happened::Quarantined, format!("{}: {error}", intent.event_type));
        }
    }

    fn of_judge_intent(&mut self, intent: &IntentRow, entry: &str) {
        if intent.cause != "submit" {
            let due = at_text(intent.available_at);
            let detail = format!("generation {}, due at {due}: {}", intent.generation, cause_text(&intent.cause));
            self.add(intent.occurred_at, Happened::DueAgain, detail);
        }
        if let Some(at) = intent.claimed_at {
            let nth = intent.attempt_count;
            // A lease that is over is no longer on the row, so who held it is not known.
            let holder = match intent.claimed_by {
                Some(_) => format!(" by {}", host_text(intent.claimed_host.as_deref())),
                None => String::new(),
            };
            self.add(at, Happened::Claimed, format!("leased{holder}, for the {} time", ordinal(nth)));
        }
        if let Some(at) = intent.published_at {
            self.add(at, Happened::Published, format!("entry {entry} of {}", intent.destination));
        }
        if let Some(at) = intent.superseded_at {
            let detail = format!("its intent of generation {} was not needed any more", intent.generation);
            self.add(at, Happened::Superseded, detail);
        }
    }

    fn of_attempt(&mut self, attempt: &AttemptRow) {
        let name = attempt_name(attempt.judge_id);
        let kind = match (attempt.purpose.as_str(), attempt.is_rescue) {
            ("live", false) => "attempt",
            ("live", true) => "rescue of an attempt whose sender died, attempt",
            _ => "shadow attempt",
        };
        let host = host_text(attempt.host.as_deref());
        let dispatched = format!("{kind} {name} of generation {} by {host}", attempt.generation);
        self.add(attempt.started_at, Happened::Dispatched, dispatched);
        if let Some(at) = attempt.answered_at {
            self.add(at, Happened::Answered, answer_text(attempt, &name));
        }
        if let (Some(at), Some(progress)) = (attempt.progress_at, &attempt.progress) {
            self.add(at, Happened::Progress, format!("attempt {name}: {progress}"));
        }
        if let (Some(at), Some(reason)) = (attempt.finished_at, &attempt.close_reason) {
            self.add(at, Happened::AttemptClosed, format!("attempt {name}: {reason}"));
        }
        if attempt.duplicate_count > 0 || attempt.conflict_count > 0 {
            let (same, other) = (attempt.duplicate_count, attempt.conflict_count);
            let at = attempt.finished_at.unwrap_or(attempt.started_at);
            let detail = format!("attempt {name}: its result came again, {same} times the same, {other} times another");
            self.add(at, Happened::Callback, detail);
        }
    }

    fn of_result(&mut self, result: &ResultRow) {
        let name = attempt_name(result.judge_id);
        let via = match result.via.as_str() {
            "stream" => "by callback, kept in Redis while PostgreSQL was silent",
            _ => "by callback",
        };
        let reason = result.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let received = format!("result of attempt {name} {via}, {}{reason}", result.disposition);
        self.add(result.received_at, Happened::Callback, received);
        if result.disposition == "applied" {
            let detail = format!("the result of attempt {name} stands for generation {}", result.generation);
            self.add(result.applied_at, Happened::Applied, detail);
        }
    }

    fn of_letter(&mut self, letter: &LetterRow) {
        let detail = format!("by {}: {}: {}", letter.boundary, letter.cause_class, letter.message);
        self.add(letter.created_at, Happened::Parked, detail);
        if let (Some(at), Some(who), Some(how)) = (letter.resolved_at, &letter.resolved_by, &letter.resolution) {
            self.add(at, Happened::Resolved, format!("by {who}: {how}"));
        }
    }
}

fn answer_text(attempt: &AttemptRow, name: &str) -> String {
    let status = attempt.http_status.map(|status| format!(" with status {status}")).unwrap_or_default();
    let took = attempt.answer_ms.map(|ms| format!(" after {ms} ms")).unwrap_or_default();
    let answer = attempt.answer.as_deref().map(|answer| format!(": {answer}")).unwrap_or_default();
    // The row's state is the newest one: an answer that once was ambiguous shows as what it turned out to be.
    format!("attempt {name}{status}{took}, now {}{answer}", attempt.state)
}

/// A time as it is written inside sentences.
pub(super) fn at_text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// An attempt's name as it is in its callback URLs.
pub(super) fn attempt_name(judge_id: Uuid) -> String {
    JudgeId(judge_id).to_string()
}

/// A process by its host.
pub(super) fn host_text(host: Option<&str>) -> String {
    host.map_or_else(|| "a process that has ended".to_owned(), |host| format!("the process on {host}"))
}

fn ordinal(number: i32) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::store::reports::SubmissionRow;

    pub(in super::super) fn later(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).expect("a time")
    }

    pub(in super::super) fn journey(state: &str) -> Journey {
        let verdict = (state == "judged").then(|| "accepted".to_owned());
        let submission = SubmissionRow {
            id: Uuid::nil(),
            external_id: None,
            user_id: "u".to_owned(),
            problem_id: "p".to_owned(),
            contest_id: None,
            course_id: None,
            lane: "default".to_owned(),
            state: state.to_owned(),
            generation: 1,
            verdict_generation: verdict.as_ref().map(|_| 1),
            verdict,
            verdict_judge_id: None,
            time_max_ms: None,
            time_total_ms: None,
            memory_max_bytes: None,
            attempts_used: 0,
            created_at: later(-100),
            updated_at: later(-100),
            judged_at: (state == "judged").then(|| later(-1)),
        };
        let (intents, attempts, results, letters) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Journey { now: later(0), lane_paused: false, submission, intents, attempts, results, letters, report: None }
    }

    pub(in super::super) fn intent(destination: &str) -> IntentRow {
        IntentRow {
            generation: 1,
            destination: destination.to_owned(),
            event_type: if destination == "events" { "SubmissionJudged" } else { "JudgeRequested" }.to_owned(),
            cause: "submit".to_owned(),
            occurred_at: later(-100),
            available_at: later(-100),
            claimed_host: None,
            claimed_by: None,
            claimed_at: None,
            claim_until: None,
            published_at: None,
            stream_id: None,
            superseded_at: None,
            quarantined_at: None,
            attempt_count: 0,
            last_error: None,
        }
    }

    pub(in super::super) fn attempt(state: &str) -> AttemptRow {
        AttemptRow {
            judge_id: Uuid::from_u128(7),
            generation: 1,
            purpose: "live".to_owned(),
            state: state.to_owned(),
            close_reason: None,
            is_rescue: false,
            host: Some("pod-7".to_owned()),
            http_status: None,
            answer: None,
            started_at: later(-50),
            answered_at: None,
            answer_ms: None,
            progress: None,
            progress_at: None,
            finished_at: None,
            deadline_at: later(100),
            duplicate_count: 0,
            conflict_count: 0,
        }
    }

    pub(in super::super) fn letter() -> LetterRow {
        LetterRow {
            boundary: "JudgeDispatcher".to_owned(),
            cause_class: "refused_400".to_owned(),
            message: "test.cases should not be empty".to_owned(),
            created_at: later(-10),
            resolved_at: None,
            resolved_by: None,
            resolution: None,
        }
    }

    fn words(journey: &Journey) -> Vec<Happened> {
        timeline(journey).into_iter().map(|event| event.event).collect()
    }

    #[test]
    fn a_whole_journey_is_told_in_the_order_in_which_it_happened() {
        let mut journey = journey("judged");
        let mut request = intent("judge:default");
        (request.claimed_at, request.attempt_count) = (Some(later(-90)), 1);
        (request.published_at, request.stream_id) = (Some(later(-80)), Some("17-0".to_owned()));
        let mut told = intent("events");
        (told.published_at, told.stream_id) = (Some(later(-5)), Some("18-0".to_owned()));
        // The order of the rows must not matter.
        journey.intents.extend([told, request]);
        let mut sent = attempt("finished");
        (sent.answered_at, sent.answer_ms, sent.http_status) = (Some(later(-49)), Some(12), Some(201));
        (sent.progress, sent.progress_at) = (Some("judging".to_owned()), Some(later(-40)));
        sent.finished_at = Some(later(-20));
        journey.attempts.push(sent);
        journey.results.push(ResultRow {
            judge_id: Uuid::from_u128(7),
            generation: 1,
            disposition: "applied".to_owned(),
            reason: None,
            via: "stream".to_owned(),
            received_at: later(-30),
            applied_at: later(-20),
        });
        use Happened::*;
        let expected =
            [Submitted, Claimed, Published, Dispatched, Answered, Progress, Callback, Applied, EventPublished];
        assert_eq!(words(&journey), expected);
        let events = timeline(&journey);
        assert_eq!(
            events[4].detail,
            "attempt 00000000000000000000000000000007 with status 201 after 12 ms, now finished"
        );
        assert!(events[6].detail.contains("kept in Redis"));
    }

    #[test]
    fn every_further_intent_says_why_it_was_written() {
        let mut journey = journey("pending");
        journey.intents.push(IntentRow { superseded_at: Some(later(-1)), ..intent("judge:default") });
        journey.intents.push(IntentRow { cause: "loss".to_owned(), occurred_at: later(-2), ..intent("judge:default") });
        assert_eq!(words(&journey), [Happened::Submitted, Happened::DueAgain, Happened::Superseded]);
        assert!(timeline(&journey)[1].detail.contains("its stream entry was lost"));
    }

    #[test]
    fn parking_and_its_end_are_told_with_cause_and_person() {
        let mut journey = journey("parked");
        journey.attempts.push(AttemptRow {
            close_reason: Some("refused".to_owned()),
            finished_at: Some(later(-11)),
            conflict_count: 1,
            ..attempt("closed")
        });
        journey.letters.push(LetterRow {
            resolved_at: Some(later(-1)),
            resolved_by: Some("operator".to_owned()),
            resolution: Some("redriven".to_owned()),
            ..letter()
        });
        use Happened::*;
        assert_eq!(words(&journey), [Submitted, Dispatched, AttemptClosed, Callback, Parked, Resolved]);
        assert_eq!(timeline(&journey)[5].detail, "by operator: redriven");
    }

    #[test]
    fn ordinals_are_english() {
        let words: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 112].into_iter().map(ordinal).collect();
        assert_eq!(words, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"]);
    }
}
