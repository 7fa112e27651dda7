//! Where a submission is now, who holds it, what happens next and when: said in words, from its rows alone.
//!
//! A pure function; what happened before is the timeline's business.

#[cfg(test)]
mod tests;

use chrono::{DateTime, Duration, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::timeline::{at_text, attempt_name, host_text};
use crate::store::reports::{AttemptRow, IntentRow, Journey};

/// A lease that ends later than this is one from before a jump of the clock, and counts as over.
const LEASE_HOURS_MAX: i64 = 1;

/// A due time later than this is one from before a jump of the clock, and counts as come.
const DUE_DAYS_MAX: i64 = 1;

/// Where a submission is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Whereabouts {
    /// The place on its way, as a stable word.
    pub stage: Stage,
    /// Who holds it, and since when.
    pub holder: String,
    /// What happens next, and what a person can do if nothing happens by itself.
    pub next: String,
    /// When that happens at the latest, if that is known; by the database's clock.
    pub next_at: Option<DateTime<Utc>>,
}

/// The places on the way of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Its intent waits in the outbox.
    WaitingInOutbox,
    /// Its next attempt is due later.
    WaitingForRetry,
    /// A process is publishing its intent.
    BeingPublished,
    /// Its intent cannot be published as it is.
    Quarantined,
    /// Its entry waits in the lane's stream.
    InStream,
    /// A process is sending it to the controller.
    BeingSent,
    /// The controller has it.
    AtController,
    /// It was sent, and whether the controller has it is not known.
    AnswerAmbiguous,
    /// Nothing holds it; the reconciler looks for such submissions.
    Unheld,
    /// It cannot go on by itself.
    Parked,
    /// Its verdict stands.
    Judged,
    /// It was withdrawn.
    Cancelled,
}

/// Where the submission is, by its rows of one moment.
pub fn whereabouts(journey: &Journey) -> Whereabouts {
    match journey.submission.state.as_str() {
        "judged" => judged(journey),
        "parked" => parked(journey),
        "cancelled" => Whereabouts {
            stage: Stage::Cancelled,
            holder: format!("nobody: it was cancelled at {}", at_text(journey.submission.updated_at)),
            next: "Nothing. An operator can have it judged after all by a rejudge.".to_owned(),
            next_at: None,
        },
        _ => match live_attempt(journey) {
            Some(attempt) => at_attempt(journey, attempt),
            None => pending(journey),
        },
    }
}

fn live_attempt(journey: &Journey) -> Option<&AttemptRow> {
    let is_live = |attempt: &&AttemptRow| {
        attempt.purpose == "live" && matches!(attempt.state.as_str(), "sending" | "accepted" | "ambiguous")
    };
    journey.attempts.iter().rfind(is_live)
}

fn judged(journey: &Journey) -> Whereabouts {
    let submission = &journey.submission;
    let verdict = submission.verdict.as_deref().unwrap_or("unknown");
    let since = submission.judged_at.map(|at| format!(" since {}", at_text(at))).unwrap_or_default();
    let waiting = journey.intents.iter().find(|intent| intent.destination == "events" && is_open(intent));
    let next = match waiting {
        Some(event) if event.quarantined_at.is_some() => {
            "The event for the judge's consumers cannot be published as it is; an operator must look at the outbox row."
        }
        Some(_) => "The event for the judge's consumers is published to the stream.",
        None => "Nothing. Only a rejudge changes what stands.",
    };
    let generation = submission.generation;
    Whereabouts {
        stage: Stage::Judged,
        holder: format!("PostgreSQL: {verdict} stands for generation {generation}{since}"),
        next: next.to_owned(),
        next_at: None,
    }
}

fn parked(journey: &Journey) -> Whereabouts {
    let letter = journey.letters.iter().rfind(|letter| letter.resolved_at.is_none());
    let holder = match letter {
        Some(letter) => format!(
            "a dead letter of {} since {}: {}: {}",
            letter.boundary,
            at_text(letter.created_at),
            letter.cause_class,
            letter.message
        ),
        None => format!("nobody since {}; its dead letter was resolved", at_text(journey.submission.updated_at)),
    };
    Whereabouts {
        stage: Stage::Parked,
        holder,
        next: "Nothing by itself, except that a late verdict of this generation still counts. After the cause is removed, \
               an operator can redrive it (same generation, fresh budget) or rejudge it (new generation)."
            .to_owned(),
        next_at: None,
    }
}

fn at_attempt(journey: &Journey, attempt: &AttemptRow) -> Whereabouts {
    let name = attempt_name(attempt.judge_id);
    let since = at_text(attempt.answered_at.unwrap_or(attempt.started_at));
    let deadline = at_text(attempt.deadline_at);
    match attempt.state.as_str() {
        "sending" => Whereabouts {
            stage: Stage::BeingSent,
            holder: format!("{}, which is sending it as attempt {name} since {since}", host_text(attempt.host.as_deref())),
            next: "The controller answers. If the sending process dies first, another one closes this attempt and sends a \
                   new one."
                .to_owned(),
            next_at: None,
        },
        "ambiguous" => {
            let answer = attempt.answer.as_deref().unwrap_or("no answer");
            Whereabouts {
                stage: Stage::AnswerAmbiguous,
                holder: format!("perhaps the controller, as attempt {name} since {since}; its answer was: {answer}"),
                next: overdue_or(journey, attempt, format!(
                    "The controller calls back if it has it; without a callback until {deadline} it is sent again."
                )),
                next_at: Some(attempt.deadline_at),
            }
        }
        _ => {
            let progress = attempt.progress.as_deref().map(|word| format!(", last heard: {word}")).unwrap_or_default();
            Whereabouts {
                stage: Stage::AtController,
                holder: format!("the controller, as attempt {name} since {since}{progress}"),
                next: overdue_or(journey, attempt, format!(
                    "The controller calls back with the result; without a callback until {deadline} it is sent again."
                )),
                next_at: Some(attempt.deadline_at),
            }
        }
    }
}

fn overdue_or(journey: &Journey, attempt: &AttemptRow, next: String) -> String {
    if attempt.deadline_at > journey.now {
        return next;
    }
    "Its deadline has passed: the reconciler sends it again, unless the whole controller is silent; then look whether the \
     judgers are up and whether callbacks reach BASE_URL."
        .to_owned()
}

/// Neither published nor superseded.
fn is_open(intent: &IntentRow) -> bool {
    intent.published_at.is_none() && intent.superseded_at.is_none()
}

fn pending(journey: &Journey) -> Whereabouts {
    let wanted = |intent: &&IntentRow| {
        intent.destination != "events"
            && intent.generation == journey.submission.generation
            && intent.superseded_at.is_none()
    };
    let Some(intent) = journey.intents.iter().rfind(wanted) else { return unheld(journey) };
    if let (Some(published), Some(entry)) = (intent.published_at, &intent.stream_id) {
        // A submission whose entry was consumed has an attempt that ended: then only the reconciler helps.
        return if journey.submission.state == "judging" {
            unheld(journey)
        } else {
            in_stream(journey, intent, published, entry)
        };
    }
    if let Some(quarantined) = intent.quarantined_at {
        return quarantine(intent, quarantined);
    }
    let now = journey.now;
    let lease = intent.claim_until.filter(|end| *end > now && *end <= now + Duration::hours(LEASE_HOURS_MAX));
    if let Some(end) = lease {
        return Whereabouts {
            stage: Stage::BeingPublished,
            holder: format!(
                "{}, which leased its intent until {}",
                host_text(intent.claimed_host.as_deref()),
                at_text(end)
            ),
            next:
                "It is published to its lane's stream; if that has not happened when the lease ends, another process \
                   does it."
                    .to_owned(),
            next_at: Some(end),
        };
    }
    if intent.available_at > now && intent.available_at <= now + Duration::days(DUE_DAYS_MAX) {
        return Whereabouts {
            stage: Stage::WaitingForRetry,
            holder: format!(
                "the outbox in PostgreSQL since {} ({})",
                at_text(intent.occurred_at),
                cause_text(&intent.cause)
            ),
            next: paused_or(journey, "It is due again after its back-off.".to_owned()),
            next_at: Some(intent.available_at),
        };
    }
    waiting(journey, intent)
}

fn waiting(journey: &Journey, intent: &IntentRow) -> Whereabouts {
    let cause = if intent.cause == "submit" { String::new() } else { format!(" ({})", cause_text(&intent.cause)) };
    let error = intent.last_error.as_deref().map(|error| format!("; the last try failed: {error}")).unwrap_or_default();
    let lane = &journey.submission.lane;
    Whereabouts {
        stage: Stage::WaitingInOutbox,
        holder: format!("the outbox in PostgreSQL since {}{cause}{error}", at_text(intent.occurred_at)),
        next: paused_or(
            journey,
            format!("It is published when lane {lane} has room in its window and its turn comes; users take turns."),
        ),
        next_at: None,
    }
}

fn paused_or(journey: &Journey, next: String) -> String {
    let lane = &journey.submission.lane;
    if journey.lane_paused { format!("Lane {lane} is paused: nothing, until an operator resumes it.") } else { next }
}

fn in_stream(journey: &Journey, intent: &IntentRow, published: DateTime<Utc>, entry: &str) -> Whereabouts {
    Whereabouts {
        stage: Stage::InStream,
        holder: format!("entry {entry} of the Redis stream {} since {}", intent.destination, at_text(published)),
        next: paused_or(
            journey,
            "A dispatcher reads it when the controller has room for it. If the entry is lost, the reconciler makes it due \
             again."
                .to_owned(),
        ),
        next_at: None,
    }
}

fn quarantine(intent: &IntentRow, since: DateTime<Utc>) -> Whereabouts {
    let error = intent.last_error.as_deref().unwrap_or("no reason was recorded");
    Whereabouts {
        stage: Stage::Quarantined,
        holder: format!("the outbox in PostgreSQL, quarantined since {}: {error}", at_text(since)),
        next: "Nothing by itself. After the cause is removed, an operator can redrive it.".to_owned(),
        next_at: None,
    }
}

fn unheld(journey: &Journey) -> Whereabouts {
    Whereabouts {
        stage: Stage::Unheld,
        holder: format!("nobody since {}", at_text(journey.submission.updated_at)),
        next: paused_or(journey, "The reconciler finds it and makes it due again.".to_owned()),
        next_at: None,
    }
}

/// Why an intent was written, in words.
pub(super) fn cause_text(cause: &str) -> &str {
    match cause {
        "submit" => "submitted",
        "deadline" => "the attempt before it passed its deadline",
        "system_error" => "the judge failed on the attempt before it",
        "door" => "the controller's door was shut",
        "redrive" => "an operator redrove it",
        "rejudge" => "an operator had it rejudged",
        "loss" => "its stream entry was lost",
        other => other,
    }
}
