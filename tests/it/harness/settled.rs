//! The one oracle: is everything at its end, and was every promise kept on the way there?
//!
//! Written from the promises, it reads tables and streams directly. Nothing of the store, the actors or the protocol is used, so
//! that a mistake of theirs cannot be repeated here.

use tokio_postgres::Client;

use super::database::{connect, rows};

/// Everything that is wrong once nothing moves any more; empty when all is well.
///
/// With a Redis URL and the prefix of its keys, the work streams must be empty, too: every entry acked and deleted.
pub async fn settled(database_url: &str, redis: Option<(&str, &str)>) -> Vec<String> {
    let mut violations = violations(&connect(database_url).await).await;
    if let Some((url, prefix)) = redis {
        violations.extend(undelivered(url, prefix).await);
    }
    violations
}

/// What the tables say that they must not.
pub async fn violations(client: &Client) -> Vec<String> {
    let mut found = Vec::new();
    for rule in RULES.iter().chain(COUNTERS) {
        found.extend(rows(client, rule).await);
    }
    found
}

/// Each finds the rows that break one rule, and says so in a sentence.
const RULES: &[&str] = &[
    // No submitted job is lost.
    "select format('submission %s is still %s', id, state) from submissions
     where state not in ('judged', 'parked', 'cancelled')",
    "select format('submission %s has no request of its generation %s', id, generation) from submissions s
     where not exists (select 1 from judge_requests r where r.submission_id = s.id and r.generation = s.generation)",
    "select format('submission %s has no intent of its generation %s', id, generation) from submissions s
     where not exists (select 1 from outbox_events o where o.aggregate_id = s.id and o.generation = s.generation
                                                       and o.event_type = 'JudgeRequested')",
    // Whoever waits for a person is shown to one, and nobody else is.
    "select format('submission %s is parked without an open dead letter', id) from submissions s
     where state = 'parked' and not exists (
         select 1 from dead_letters d
         where d.submission_id = s.id and d.generation = s.generation and d.resolved_at is null)",
    "select format('submission %s is judged and has an open dead letter', s.id)
     from dead_letters d join submissions s on s.id = d.submission_id
     where d.resolved_at is null and d.stream is null and s.state = 'judged'",
    // A verdict takes effect once per generation: one result, one event, and one inbox row for every effect.
    "select format('generation %s of submission %s was judged %s times', generation, submission_id, count(*))
     from results where disposition = 'applied' group by submission_id, generation having count(*) > 1",
    "select format('generation %s of submission %s has %s verdict events for %s applied results',
                   generation, id, coalesce(events, 0), coalesce(applied, 0))
     from (select submission_id as id, generation, count(*) as applied from results
           where disposition = 'applied' group by 1, 2) r
     full join (select aggregate_id as id, generation, count(*) as events from outbox_events
                where event_type = 'SubmissionJudged' and replay = 0 group by 1, 2) e using (id, generation)
     where applied is distinct from events",
    "select format('%s effects have %s inbox rows', effects, inbox)
     from (select count(*) as effects from results where disposition in ('applied', 'system_error')) r,
          (select count(*) as inbox from processed_events where consumer_name = 'judge-relay') p
     where effects <> inbox",
    "select format('attempt %s had %s effects of one kind', judge_id, count(*)) from results
     where disposition in ('applied', 'system_error') group by judge_id, disposition having count(*) > 1",
    // What stands is the newest applied result, and it is the one that consumers were told.
    "select format('submission %s stands at generation %s, the newest applied one is %s',
                   s.id, coalesce(s.verdict_generation, 0), coalesce(newest, 0))
     from submissions s
     left join (select submission_id, max(generation) as newest from results where disposition = 'applied' group by 1) r
         on r.submission_id = s.id
     where s.verdict_generation is distinct from newest",
    "select format('submission %s stands by attempt %s, which was not applied', id, verdict_judge_id) from submissions s
     where verdict is not null and not exists (
         select 1 from results r where r.submission_id = s.id and r.generation = s.verdict_generation
                                   and r.disposition = 'applied' and r.judge_id = s.verdict_judge_id)",
    "select format('submission %s stands as %s, consumers were told %s', s.id, s.verdict, o.payload ->> 'verdict')
     from submissions s join outbox_events o on o.aggregate_id = s.id and o.generation = s.verdict_generation
     where o.event_type = 'SubmissionJudged' and o.payload ->> 'verdict' is distinct from s.verdict",
    "select format('the last event of submission %s is %s although it is %s', s.id, last.event_type, s.state)
     from submissions s join lateral (
         select event_type from outbox_events o where o.aggregate_id = s.id and o.destination = 'events' and o.replay = 0
         order by aggregate_sequence desc limit 1) last on true
     where (s.state, last.event_type) not in
           (('judged', 'SubmissionJudged'), ('parked', 'SubmissionParked'), ('cancelled', 'SubmissionCancelled'))",
    // Nothing waits to leave PostgreSQL, and nothing waits at the controller.
    "select format('event %s of submission %s has not left', event_id, aggregate_id) from outbox_events
     where published_at is null and superseded_at is null and quarantined_at is null",
    "select format('attempt %s of submission %s is still %s', judge_id, submission_id, state) from judge_attempts
     where state in ('sending', 'accepted', 'ambiguous')",
    "select format('generation %s of submission %s has %s finished attempts', generation, submission_id, count(*))
     from judge_attempts where state = 'finished' group by submission_id, generation having count(*) > 1",
    // Events are numbered without a gap and entered their stream in that order.
    "select format('submission %s has %s events numbered %s to %s, and says %s',
                   s.id, count(o), min(o.aggregate_sequence), max(o.aggregate_sequence), s.last_sequence)
     from submissions s left join outbox_events o on o.aggregate_id = s.id and o.replay = 0
     group by s.id having (count(o), min(o.aggregate_sequence), max(o.aggregate_sequence))
                          is distinct from (s.last_sequence, 1::bigint, s.last_sequence)",
    "select format('event %s tells of %s, which is not there', event_id, aggregate_id) from outbox_events o
     where not exists (select 1 from submissions s where s.id = o.aggregate_id)",
    "select format('event %s of submission %s entered its stream before event %s', later.aggregate_sequence,
                   later.aggregate_id, earlier.aggregate_sequence)
     from outbox_events earlier
     join outbox_events later on later.aggregate_id = earlier.aggregate_id
                             and later.aggregate_sequence > earlier.aggregate_sequence
     where earlier.destination = 'events' and later.destination = 'events' and earlier.replay = 0 and later.replay = 0
       and string_to_array(later.stream_id, '-')::bigint[] <= string_to_array(earlier.stream_id, '-')::bigint[]",
];

/// The counters, computed anew from what is counted of every submission. A missing row is as good as one of zeros.
const COUNTERS: &[&str] = &[
    "select format('problem %s counts (%s) for (%s)', problem_id, kept, anew) from (
         select tenant, problem_id, format('%s %s', coalesce(k.submits, 0), coalesce(k.accepts, 0)) as kept,
                format('%s %s', coalesce(a.submits, 0), coalesce(a.accepts, 0)) as anew
         from problem_stats k full join (
             select tenant, problem_id, count(*) as submits, count(*) filter (where counted_verdict = 'accepted') as accepts
             from submissions where counted_verdict is not null group by 1, 2) a using (tenant, problem_id)) c
     where kept <> anew",
    "select format('user %s counts (%s) for (%s)', user_id, kept, anew) from (
         select tenant, user_id, format('%s %s', coalesce(k.submits, 0), coalesce(k.accepts, 0)) as kept,
                format('%s %s', coalesce(a.submits, 0), coalesce(a.accepts, 0)) as anew
         from user_stats k full join (
             select tenant, user_id, count(*) as submits,
                    count(distinct problem_id) filter (where counted_verdict = 'accepted') as accepts
             from submissions where counted_verdict is not null group by 1, 2) a using (tenant, user_id)) c
     where kept <> anew",
    "with scoped as (
         select tenant, 'contest' as scope_kind, contest_id as scope_id, user_id, problem_id, counted_verdict from submissions
         union all
         select tenant, 'course', course_id, user_id, problem_id, counted_verdict from submissions)
     select format('user %s counts (%s) for (%s) in %s %s', user_id, kept, anew, scope_kind, scope_id) from (
         select tenant, scope_kind, scope_id, user_id,
                format('%s %s', coalesce(k.submits, 0), coalesce(k.accepts, 0)) as kept,
                format('%s %s', coalesce(a.submits, 0), coalesce(a.accepts, 0)) as anew
         from scope_user_stats k full join (
             select tenant, scope_kind, scope_id, user_id,
                    count(*) filter (where counted_verdict not like 'compile\\_%') as submits,
                    count(distinct problem_id) filter (where counted_verdict = 'accepted') as accepts
             from scoped where scope_id is not null and counted_verdict is not null group by 1, 2, 3, 4) a
         using (tenant, scope_kind, scope_id, user_id)) c
     where kept <> anew",
    "with scoped as (
         select tenant, 'all' as scope_kind, '' as scope_id, user_id, problem_id, counted_verdict from submissions
         union all
         select tenant, 'contest', contest_id, user_id, problem_id, counted_verdict from submissions
         union all
         select tenant, 'course', course_id, user_id, problem_id, counted_verdict from submissions)
     select format('problem %s has %s accepted submissions of user %s in %s %s, not %s',
                   problem_id, coalesce(anew, 0), user_id, scope_kind, scope_id, coalesce(accepted_count, 0))
     from first_accepts full join (
         select tenant, scope_kind, scope_id, user_id, problem_id, count(*) as anew
         from scoped where scope_id is not null and counted_verdict = 'accepted' group by 1, 2, 3, 4, 5) a
     using (tenant, scope_kind, scope_id, user_id, problem_id)
     where coalesce(anew, 0) <> coalesce(accepted_count, 0)",
];

/// Work streams that still hold entries, and groups that still wait for an ack. The stream `events` is for others to read.
async fn undelivered(url: &str, prefix: &str) -> Vec<String> {
    let mut connection = redis::Client::open(url)
        .expect("a Redis URL")
        .get_multiplexed_async_connection()
        .await
        .expect("Redis is there");
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(format!("{prefix}*")).query_async(&mut connection).await.expect("keys");
    let mut found = Vec::new();
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut connection).await.expect("a type");
        if kind != "stream" || key.ends_with(":events") {
            continue;
        }
        let length: u64 = redis::cmd("XLEN").arg(&key).query_async(&mut connection).await.expect("a length");
        if length > 0 {
            found.push(format!("stream {key} still holds {length} entries"));
        }
        let groups: redis::streams::StreamInfoGroupsReply =
            redis::cmd("XINFO").arg("GROUPS").arg(&key).query_async(&mut connection).await.expect("groups");
        for group in groups.groups.iter().filter(|group| group.pending > 0) {
            found.push(format!("group {} of stream {key} still waits for {} acks", group.name, group.pending));
        }
    }
    found
}
