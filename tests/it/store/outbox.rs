//! Leases: who gets which row, in which order, until when, and what a late holder may still write.

use std::collections::HashSet;
use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use judge_relay::protocol::Fence;
use judge_relay::store::outbox::{
    Leased, Published, Unpublished, claim_events, claim_lanes, mark_published, release, release_all,
};
use judge_relay::store::submissions::NewSubmission;
use uuid::Uuid;

use crate::harness::database::{TestDatabase, pool};
use crate::harness::seed::new_submission;

const LEASE: Duration = Duration::from_secs(30);
const ONE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

impl TestDatabase {
    async fn claim(&self, owner: Uuid, room: i32) -> Vec<Leased> {
        claim_lanes(&self.pool, owner, LEASE, &[("judge:default".to_owned(), room)]).await.unwrap()
    }

    async fn claim_events(&self, limit: i32) -> Vec<Leased> {
        claim_events(&self.pool, ONE, LEASE, limit).await.unwrap()
    }

    async fn user_of(&self, leased: &Leased) -> String {
        self.row(&format!("select user_id from submissions where id = '{}'", leased.aggregate_id)).await
    }

    /// An event of that aggregate, ready for consumers.
    async fn event(&self, aggregate: u128, sequence: i64) -> Uuid {
        let id = Uuid::now_v7();
        self.execute(&format!(
            "insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type, cause)
             values ('{id}', '{}', {sequence}, 1, 'events', 'SubmissionJudged', 'verdict')",
            Uuid::from_u128(aggregate)
        ))
        .await;
        id
    }
}

fn published(row: &Leased) -> Published {
    Published { event_id: row.event_id, fence: row.fence, stream_id: "1-1".to_owned() }
}

fn unpublished(row: &Leased, is_poison: bool) -> Unpublished {
    Unpublished { event_id: row.event_id, fence: row.fence, error: "no".to_owned(), is_poison }
}

fn places(rows: &[Leased]) -> Vec<(u128, i64)> {
    rows.iter().map(|row| (row.aggregate_id.as_u128(), row.aggregate_sequence)).collect()
}

fn of_user(user: &str, key: usize) -> NewSubmission {
    NewSubmission { user_id: user.to_owned(), ..new_submission(&format!("{user} {key}")) }
}

#[tokio::test]
async fn a_user_with_a_thousand_jobs_does_not_delay_anothers_one() {
    let database = TestDatabase::fresh().await;
    database.submit_all(&(0..1000).map(|n| of_user("many", n)).collect::<Vec<_>>()).await;
    database.submit_all(&[of_user("single", 0)]).await;
    let first = database.claim(ONE, 2).await;
    let mut users = [database.user_of(&first[0]).await, database.user_of(&first[1]).await];
    users.sort();
    assert_eq!(users, ["many", "single"]);

    // The clock has moved with what left: who comes now stands behind it, and before the thousand.
    database.claim(ONE, 100).await;
    database.submit_all(&[of_user("late", 0)]).await;
    let next = database.claim(ONE, 2).await;
    let mut users = [database.user_of(&next[0]).await, database.user_of(&next[1]).await];
    users.sort();
    assert_eq!(users, ["late", "many"]);
    assert_eq!(database.row("select virtual_tag from lane_clocks where lane = 'default'").await, "102");
}

#[tokio::test]
async fn one_users_jobs_leave_in_their_order_over_several_batches() {
    let database = TestDatabase::fresh().await;
    for batch in 0..3 {
        database.submit_all(&(0..3).map(|n| of_user("user", batch * 3 + n)).collect::<Vec<_>>()).await;
    }
    let order = database.rows("select aggregate_id from outbox_events order by event_id").await;
    let claimed: Vec<String> = database.claim(ONE, 9).await.iter().map(|row| row.aggregate_id.to_string()).collect();
    assert_eq!(claimed, order);
}

#[tokio::test]
async fn a_claim_takes_no_more_than_each_lanes_room() {
    let database = TestDatabase::fresh().await;
    database.submit(3).await;
    let contest = |n: usize| NewSubmission { lane: "contest".to_owned(), ..new_submission(&n.to_string()) };
    database.submit_all(&[contest(0), contest(1)]).await;
    let rooms = [("judge:default".to_owned(), 2), ("judge:contest".to_owned(), 0), ("judge:rejudge".to_owned(), 5)];
    let claimed = claim_lanes(&database.pool, ONE, LEASE, &rooms).await.unwrap();
    assert_eq!(claimed.iter().map(|row| &*row.destination).collect::<Vec<_>>(), ["judge:default"; 2]);
}

#[tokio::test]
async fn a_late_holder_changes_nothing() {
    let database = TestDatabase::fresh().await;
    database.submit(1).await;
    let old = database.claim(ONE, 1).await;
    assert_eq!(database.claim(OTHER, 1).await, [], "leased");
    database.execute("update outbox_events set claim_until = clock_timestamp() - interval '1 second'").await;
    let new = database.claim(OTHER, 1).await;
    assert_eq!(new[0].event_id, old[0].event_id);
    assert_eq!(new[0].fence, Fence(old[0].fence.0 + 1));

    assert_eq!(mark_published(&database.pool, &[published(&old[0])]).await.unwrap(), 0);
    assert_eq!(release(&database.pool, &[unpublished(&old[0], true)], LEASE).await.unwrap(), 0);
    let row = "select claimed_by, published_at, quarantined_at, last_error, attempt_count from outbox_events";
    assert_eq!(database.row(row).await, format!("{OTHER} ∅ ∅ ∅ 2"));

    assert_eq!(mark_published(&database.pool, &[published(&new[0])]).await.unwrap(), 1);
    assert_eq!(mark_published(&database.pool, &[published(&new[0])]).await.unwrap(), 0, "once");
    assert_eq!(release(&database.pool, &[unpublished(&new[0], false)], LEASE).await.unwrap(), 0, "it is over");
    assert_eq!(database.row("select stream_id, claimed_by, claim_until from outbox_events").await, "1-1 ∅ ∅");
}

#[tokio::test]
async fn a_superseded_row_is_neither_claimed_nor_marked() {
    let database = TestDatabase::fresh().await;
    database.submit(2).await;
    let leased = database.claim(ONE, 1).await;
    database.execute("update outbox_events set superseded_at = now(), claimed_by = null, claim_until = null").await;
    assert_eq!(mark_published(&database.pool, &[published(&leased[0])]).await.unwrap(), 0);
    assert_eq!(database.claim(OTHER, 10).await, []);
}

#[tokio::test]
async fn leases_and_due_times_further_off_than_any_of_ours_count_as_due() {
    let database = TestDatabase::fresh().await;
    database.submit(4).await;
    database.claim(ONE, 4).await;
    let set = async |place: usize, change: &str| {
        database
            .execute(&format!(
                "update outbox_events set {change} where event_id =
                 (select event_id from outbox_events order by event_id offset {place} limit 1)"
            ))
            .await;
    };
    set(0, "claim_until = clock_timestamp() + interval '59 minutes'").await;
    set(1, "claim_until = clock_timestamp() + interval '2 hours'").await;
    set(2, "claim_until = null, claimed_by = null, available_at = clock_timestamp() + interval '23 hours'").await;
    set(3, "claim_until = null, claimed_by = null, available_at = clock_timestamp() + interval '2 days'").await;
    let due = database.rows("select event_id from outbox_events order by event_id").await;
    let claimed: Vec<String> = database.claim(OTHER, 9).await.iter().map(|row| row.event_id.to_string()).collect();
    assert_eq!(claimed, [due[1].clone(), due[3].clone()]);
}

#[tokio::test]
async fn two_claimers_never_get_the_same_row() {
    let database = TestDatabase::fresh().await;
    database.submit_all(&(0..200).map(|n| of_user(&format!("user {}", n % 7), n)).collect::<Vec<_>>()).await;
    let everything = async |owner| {
        let mut claimed = Vec::new();
        for _ in 0..20 {
            claimed.extend(database.claim(owner, 10).await);
        }
        claimed
    };
    let (one, other) = tokio::join!(everything(ONE), everything(OTHER));
    let mut all: Vec<Leased> = [one, other].concat();
    all.extend(database.claim(ONE, 200).await);
    let distinct: HashSet<Uuid> = all.iter().map(|row| row.event_id).collect();
    assert_eq!((all.len(), distinct.len()), (200, 200));
    assert!(all.iter().all(|row| row.fence == Fence(1)));
}

#[tokio::test]
async fn rows_that_another_claimer_has_locked_are_skipped_without_waiting() {
    let database = TestDatabase::fresh().await;
    database.submit(3).await;
    database.execute("begin; select 1 from outbox_events order by event_id limit 2 for update").await;
    let claimed = database.claim(ONE, 9).await;
    database.execute("rollback").await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(database.claim(ONE, 9).await.len(), 2);
}

#[tokio::test]
async fn a_released_row_is_due_again_after_its_delay_and_a_process_that_leaves_gives_all_up() {
    let database = TestDatabase::fresh().await;
    database.submit(2).await;
    let leased = database.claim(ONE, 2).await;
    let delay = Duration::from_secs(600);
    assert_eq!(release(&database.pool, &[unpublished(&leased[0], false)], delay).await.unwrap(), 1);
    let row = "select last_error, claimed_by, available_at > clock_timestamp() + interval '9 minutes', quarantined_at
               from outbox_events where last_error is not null";
    assert_eq!(database.row(row).await, "no ∅ t ∅");
    assert_eq!(database.claim(OTHER, 9).await, []);

    assert_eq!(release_all(&database.pool, OTHER).await.unwrap(), 0, "another's");
    assert_eq!(release_all(&database.pool, ONE).await.unwrap(), 1);
    assert_eq!(database.claim(OTHER, 9).await[0].event_id, leased[1].event_id);
}

#[tokio::test]
async fn events_of_one_submission_keep_their_order_while_an_earlier_one_is_leased() {
    let database = TestDatabase::fresh().await;
    for (aggregate, sequence) in [(7, 2), (7, 3), (8, 2)] {
        database.event(aggregate, sequence).await;
    }
    let first = database.claim_events(10).await;
    assert_eq!(places(&first), [(7, 2), (8, 2)]);
    assert_eq!(database.claim_events(10).await, [], "leased counts as unpublished");
    mark_published(&database.pool, &[published(&first[0])]).await.unwrap();
    assert_eq!(places(&database.claim_events(10).await), [(7, 3)]);
}

#[tokio::test]
async fn an_intent_that_waits_does_not_hold_up_events() {
    let database = TestDatabase::fresh().await;
    let attempt = database.judged(new_submission("1"), "Accepted").await;
    database.rejudge(attempt.submission).await;
    let claimed = database.claim_events(10).await;
    assert_eq!(claimed[0].event_type, "SubmissionJudged");
    assert_eq!(claimed[0].payload["sequence"], claimed[0].aggregate_sequence);
    assert_eq!(claimed[0].payload["verdict"], "accepted");
}

#[tokio::test]
async fn a_quarantined_event_holds_up_later_ones_of_its_submission_only() {
    let database = TestDatabase::fresh().await;
    for (aggregate, sequence) in [(7, 2), (7, 3), (8, 2), (8, 3)] {
        database.event(aggregate, sequence).await;
    }
    let first = database.claim_events(10).await;
    assert_eq!(places(&first), [(7, 2), (8, 2)]);
    release(&database.pool, &[unpublished(&first[0], true)], Duration::ZERO).await.unwrap();
    mark_published(&database.pool, &[published(&first[1])]).await.unwrap();
    assert_eq!(places(&database.claim_events(10).await), [(8, 3)]);

    database
        .execute("update outbox_events set quarantined_at = null, superseded_at = now() where last_error = 'no'")
        .await;
    assert_eq!(places(&database.claim_events(10).await), [(7, 3)], "given up by hand");
}

const HISTORY: &str = "
    insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type, cause,
                               fair_tag, published_at, stream_id)
    select gen_random_uuid(), gen_random_uuid(), 1, 1, case when n % 2 = 0 then 'events' else 'judge:default' end, 'x',
           'submit', n, now(), '1-1'
    from generate_series(1, 100000) n;
    insert into outbox_events (event_id, aggregate_id, aggregate_sequence, generation, destination, event_type, cause, fair_tag)
    select gen_random_uuid(), gen_random_uuid(), 1, 1, case when n % 2 = 0 then 'events' else 'judge:default' end, 'x',
           'submit', n
    from generate_series(1, 10000) n;
    analyze outbox_events";

/// The plan of a statement as this very connection keeps it prepared, for values that it does not know.
const PLAN: &str = "
    do $$
    declare name text; arguments text; line text; plan text := '';
    begin
        set local plan_cache_mode = force_generic_plan;
        for name, arguments in
            select p.name, (select string_agg(format('null::%s', t), ',') from unnest(p.parameter_types) t)
            from pg_prepared_statements p where statement like '%with claimed as%' and not from_sql
        loop
            for line in execute format('explain execute %I(%s)', name, arguments) loop
                plan := plan || line || chr(10);
            end loop;
        end loop;
        create table if not exists plans (plan text);
        insert into plans values (plan);
    end $$";

#[tokio::test]
async fn claims_read_the_index_of_due_rows_whatever_the_history_holds() {
    let database = TestDatabase::fresh().await;
    database.execute(HISTORY).await;
    // One connection, so that the prepared statements are found again.
    let single = pool(&database.stores.database_url, 1);
    claim_lanes(&single, ONE, LEASE, &[("judge:default".to_owned(), 10)]).await.unwrap();
    claim_events(&single, ONE, LEASE, 10).await.unwrap();
    single.get().await.unwrap().batch_execute(PLAN).await.unwrap();
    let plan = database.row("select plan from plans").await;
    assert_eq!(plan.matches("using outbox_events_due on outbox_events e").count(), 2, "{plan}");
    assert_eq!(plan.matches("Seq Scan on outbox_events").count(), 0, "{plan}");
}
