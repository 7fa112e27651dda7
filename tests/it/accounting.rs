//! Counters: what each verdict moves, exactly once, on real PostgreSQL; checked against a recomputation from the submissions.
//! Not the decision which finish counts: that is enumerated in `protocol::submission`.

use std::task::Poll;

use futures_util::future::{join_all, poll_immediate};
use judge_relay::protocol::submission::Applied;
use judge_relay::protocol::{SubmissionId, Verdict};
use judge_relay::store::StoreError;
use judge_relay::store::attempts::ToSend;
use judge_relay::store::results;
use judge_relay::store::submissions::NewSubmission;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::harness::database::TestDatabase;
use crate::harness::seed::{CASES, finish, finish_body, incoming, new_submission, result_rules};
use crate::harness::settled::violations;

/// A submission in contest `contest` and course `course`.
fn scoped(key: &str) -> NewSubmission {
    let mut item = new_submission(key);
    (item.contest_id, item.course_id) = (Some("contest".to_owned()), Some("course".to_owned()));
    item
}

/// user, problem, contest and course, each as submits and accepts.
const VECTOR: &str = "
    select format('[%s,%s,%s,%s]', u, p, c, k) from
        (select coalesce(max(submits || ',' || accepts), '0,0') as u from user_stats where user_id = 'user') u,
        (select coalesce(max(submits || ',' || accepts), '0,0') as p from problem_stats where problem_id = 'problem') p,
        (select coalesce(max(submits || ',' || accepts), '0,0') as c from scope_user_stats
         where scope_id = 'contest' and user_id = 'user') c,
        (select coalesce(max(submits || ',' || accepts), '0,0') as k from scope_user_stats
         where scope_id = 'course' and user_id = 'user') k";

const SOLVED: &str = "select count(*) from first_accepts where scope_kind = 'contest' and accepted_count > 0";

impl TestDatabase {
    async fn vector(&self) -> String {
        self.row(VECTOR).await
    }

    async fn state(&self, submission: SubmissionId) -> String {
        self.row(&format!("select state from submissions where id = '{submission}'")).await
    }

    /// Only what is wrong with the counters: other work may be under way.
    async fn assert_counters_are_right(&self) {
        let wrong: Vec<String> = violations(&self.client)
            .await
            .into_iter()
            .filter(|line| line.contains(" counts (") || line.contains("accepted submissions of user"))
            .collect();
        assert_eq!(wrong, Vec::<String>::new());
    }
}

#[tokio::test]
async fn five_steps_of_deliveries_rejudges_and_a_rollback_count_exactly_once() {
    let database = TestDatabase::fresh().await;

    // One submission, delivered eight times at once.
    let first = database.submit_all(&[scoped("first")]).await[0];
    let first_attempt = database.accepted(first).await;
    let same = [finish(&first_attempt, "Accepted")];
    let answers = join_all((0..8).map(|_| database.apply(&same))).await.concat();
    assert_eq!(answers.iter().filter(|one| **one == Applied::Verdict(Verdict::Accepted)).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|one| **one == Applied::Duplicate).count(), 7, "{answers:?}");
    assert_eq!(database.vector().await, "[1,1,1,1,1,1,1,1]");
    assert_eq!(database.row("select duplicate_count from judge_attempts").await, "7");

    // Two more of the same user and problem are accepted at the same time.
    let others = database.submit_all(&[scoped("second"), scoped("third")]).await;
    let second_attempt = database.accepted(others[0]).await;
    let third_attempt = database.accepted(others[1]).await;
    let (second, third) = ([finish(&second_attempt, "Accepted")], [finish(&third_attempt, "Accepted")]);
    tokio::join!(database.apply(&second), database.apply(&third));
    assert_eq!(database.vector().await, "[3,1,3,3,3,1,3,1]");
    assert_eq!(database.row(SOLVED).await, "1");

    // All three are rejudged: the old attempt's verdict is ignored, the new one's is not.
    let mut rejudged: Vec<ToSend> = Vec::new();
    for (submission, old) in [(first, &first_attempt), (others[0], &second_attempt), (others[1], &third_attempt)] {
        database.rejudge(submission).await;
        assert_eq!(database.apply(&[finish(old, "Accepted")]).await, [Applied::Stale]);
        assert_eq!(database.state(submission).await, "pending");
        rejudged.push(database.accepted(submission).await);
    }
    assert_eq!(database.vector().await, "[3,1,3,3,3,1,3,1]", "a rejudge alone moves nothing");
    for attempt in &rejudged {
        database.apply(&[finish(attempt, "WrongAnswer")]).await;
    }
    assert_eq!(database.vector().await, "[3,0,3,0,3,0,3,0]");
    assert_eq!(database.row(SOLVED).await, "0");

    // The first one is accepted again.
    database.rejudge(first).await;
    let again = database.accepted(first).await;
    database.apply(&[finish(&again, "Accepted")]).await;
    assert_eq!(database.vector().await, "[3,1,3,1,3,1,3,1]");
    assert_eq!(database.row(SOLVED).await, "1");

    // A rollback leaves everything as it was.
    let fourth = database.submit_all(&[scoped("fourth")]).await[0];
    let fourth_attempt = database.accepted(fourth).await;
    database.execute("alter table user_stats add constraint broken check (submits < 4)").await;
    let refused = results::apply(&database.pool, &[finish(&fourth_attempt, "Accepted")], &result_rules(), 0.5).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(database.state(fourth).await, "judging", "not judged");
    assert_eq!(database.vector().await, "[3,1,3,1,3,1,3,1]");
    assert_eq!(database.row("select count(*) from processed_events").await, "7");

    database.execute("alter table user_stats drop constraint broken").await;
    database.apply(&[finish(&fourth_attempt, "Accepted")]).await;
    database.publish_the_rest().await;
    assert_eq!(database.vector().await, "[4,1,4,2,4,1,4,1]");
    assert_eq!(violations(&database.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn one_row_that_breaks_a_rule_takes_its_whole_batch_back() {
    let database = TestDatabase::fresh().await;
    let submissions = database.submit_all(&[scoped("good"), scoped("bad")]).await;
    let good = database.accepted(submissions[0]).await;
    let bad = database.accepted(submissions[1]).await;
    database
        .execute(&format!("alter table results add constraint broken check (submission_id <> '{}')", submissions[1]))
        .await;

    let batch = [finish(&good, "Accepted"), finish(&bad, "Accepted")];
    let refused = results::apply(&database.pool, &batch, &result_rules(), 0.5).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(database.vector().await, "[0,0,0,0,0,0,0,0]");
    assert_eq!(database.row("select count(*) from results").await, "0");

    database.apply(&batch[..1]).await;
    assert_eq!(database.vector().await, "[1,1,1,1,1,1,1,1]", "alone, the good one is applied");
}

/// Drops the transaction after `polls` polls, whatever it waits for then; true when it was over before.
async fn cut_after(polls: usize, transaction: impl Future<Output = ()>) -> bool {
    let mut transaction = std::pin::pin!(transaction);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        transaction.as_mut().poll(context).map(|()| true)
    })
    .await
}

#[tokio::test]
async fn a_transaction_cut_off_at_any_await_leaves_all_or_nothing() {
    let database = TestDatabase::fresh().await;
    let submission = database.submit_all(&[scoped("cut")]).await[0];
    let attempt = database.accepted(submission).await;
    let batch = [finish(&attempt, "Accepted")];
    let mut cuts = 0;
    loop {
        let done = cut_after(cuts, async {
            database.apply(&batch).await;
        })
        .await;
        // The dropped connection's transaction ends before a lock on its row is granted.
        database
            .execute(&format!("begin; select 1 from submissions where id = '{submission}' for update; commit"))
            .await;
        let judged = database.state(submission).await == "judged";
        let counted = if judged { "[1,1,1,1,1,1,1,1]" } else { "[0,0,0,0,0,0,0,0]" };
        assert_eq!(database.vector().await, counted, "after {cuts} polls");
        if judged {
            break;
        }
        assert!(!done, "it ended without an effect");
        cuts += 1;
    }
    assert!(cuts > 5, "the transaction was cut only {cuts} times");
    database.apply(&batch).await;
    assert_eq!(database.vector().await, "[1,1,1,1,1,1,1,1]");
    assert!(poll_immediate(database.pool.get()).await.is_some(), "the pool has recovered");
}

#[tokio::test]
async fn compile_errors_count_as_submits_but_not_in_standings() {
    let database = TestDatabase::fresh().await;
    let attempt = database.judged(scoped("compiled"), "CompileError").await;
    assert_eq!(database.vector().await, "[1,0,1,0,0,0,0,0]");
    let steps = [
        ("WrongAnswer", "[1,0,1,0,1,0,1,0]"),
        ("CompileTimeLimitExceeded", "[1,0,1,0,0,0,0,0]"),
        ("Accepted", "[1,1,1,1,1,1,1,1]"),
        ("CompileMemoryLimitExceed", "[1,0,1,0,0,0,0,0]"),
        ("TimeLimitExceeded", "[1,0,1,0,1,0,1,0]"),
    ];
    for (kind, expected) in steps {
        database.rejudge(attempt.submission).await;
        let again = database.accepted(attempt.submission).await;
        database.apply(&[finish(&again, kind)]).await;
        assert_eq!(database.vector().await, expected, "{kind}");
    }
    database.publish_the_rest().await;
    assert_eq!(violations(&database.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn system_errors_move_no_counter_and_keep_what_stands() {
    let database = TestDatabase::fresh().await;
    let judged = database.judged(scoped("stands"), "Accepted").await;
    database.rejudge(judged.submission).await;
    for _ in 0..2 {
        let attempt = database.accepted(judged.submission).await;
        assert!(matches!(database.apply(&[finish(&attempt, "SystemError")]).await[0], Applied::Retry(_)));
    }
    let last = database.accepted(judged.submission).await;
    assert!(matches!(database.apply(&[finish(&last, "SystemError")]).await[0], Applied::Park(_)));
    assert_eq!(database.state(judged.submission).await, "parked");
    assert_eq!(database.vector().await, "[1,1,1,1,1,1,1,1]");
    assert_eq!(database.row("select verdict, verdict_generation from submissions").await, "accepted 1");
    database.publish_the_rest().await;
    assert_eq!(violations(&database.client).await, Vec::<String>::new());

    let late = database.apply(&[incoming(&last, &finish_body(&["WrongAnswer"; CASES]))]).await;
    assert_eq!(late, [Applied::Verdict(Verdict::WrongAnswer)]);
    assert_eq!(database.vector().await, "[1,0,1,0,1,0,1,0]");
    database.publish_the_rest().await;
    assert_eq!(violations(&database.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_first_accepted_time_survives_a_rejudge_there_and_back() {
    let database = TestDatabase::fresh().await;
    let attempt = database.judged(scoped("balloon"), "Accepted").await;
    let times = "select string_agg(first_accepted_at::text, ' ' order by scope_kind) from first_accepts";
    let before = database.row(times).await;
    for kind in ["WrongAnswer", "Accepted"] {
        database.rejudge(attempt.submission).await;
        let again = database.accepted(attempt.submission).await;
        database.apply(&[finish(&again, kind)]).await;
        assert_eq!(database.row(times).await, before, "{kind}");
    }
    assert_eq!(
        database.row("select count(*), min(accepted_count), max(accepted_count) from first_accepts").await,
        "3 1 1"
    );
}

#[tokio::test]
async fn contests_courses_tenants_and_problems_are_counted_apart() {
    let database = TestDatabase::fresh().await;
    let item = |key: &str, contest: Option<&str>, course: Option<&str>, problem: &str| NewSubmission {
        contest_id: contest.map(str::to_owned),
        course_id: course.map(str::to_owned),
        problem_id: problem.to_owned(),
        ..new_submission(key)
    };
    database.judged(item("1", Some("same name"), None, "problem"), "Accepted").await;
    database.judged(item("2", Some("second"), None, "problem"), "Accepted").await;
    database.judged(item("3", None, Some("same name"), "problem"), "Accepted").await;
    database.judged(item("4", None, None, "problem"), "Accepted").await;
    database.judged(item("5", Some("second"), None, "harder"), "Accepted").await;
    let scopes = "select scope_kind, scope_id, submits, accepts from scope_user_stats order by 1, 2";
    assert_eq!(database.rows(scopes).await, ["contest same name 1 1", "contest second 2 2", "course same name 1 1"]);
    assert_eq!(database.row("select submits, accepts from user_stats").await, "5 2");
    database.assert_counters_are_right().await;
}

#[tokio::test]
async fn a_batch_with_several_verdicts_of_one_user_and_problem_counts_each_once() {
    let database = TestDatabase::fresh().await;
    let submissions = database.submit_all(&["1", "2", "3", "4"].map(scoped)).await;
    let mut attempts = Vec::new();
    for submission in &submissions {
        attempts.push(database.accepted(*submission).await);
    }
    let kinds = ["Accepted", "Accepted", "WrongAnswer", "CompileError"];
    let batch: Vec<_> = attempts.iter().zip(kinds).map(|(attempt, kind)| finish(attempt, kind)).collect();
    let doubled = [&batch[..], &batch[..2]].concat();
    let applied = database.apply(&doubled).await;
    assert_eq!(applied[4..], [Applied::Duplicate, Applied::Duplicate]);
    assert_eq!(database.vector().await, "[4,1,4,2,3,1,3,1]");

    // One leaves "accepted" in the same batch in which another one enters it: the problem stays solved.
    let mut again = Vec::new();
    for submission in [submissions[0], submissions[1], submissions[2]] {
        database.rejudge(submission).await;
        again.push(database.accepted(submission).await);
    }
    let swapped = [finish(&again[0], "WrongAnswer"), finish(&again[1], "RuntimeError"), finish(&again[2], "Accepted")];
    database.apply(&swapped).await;
    assert_eq!(database.vector().await, "[4,1,4,1,3,1,3,1]");
    database.publish_the_rest().await;
    assert_eq!(violations(&database.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn many_verdicts_of_one_user_at_once_neither_deadlock_nor_lose_a_count() {
    let database = TestDatabase::fresh().await;
    let item = |n: usize| NewSubmission {
        problem_id: format!("problem {}", n % 3),
        user_id: format!("user {}", n % 2),
        ..scoped(&n.to_string())
    };
    let submissions = database.submit_all(&(0..24).map(item).collect::<Vec<_>>()).await;
    let mut finishes = Vec::new();
    for (n, submission) in submissions.iter().enumerate() {
        let kind = if n % 4 == 3 { "WrongAnswer" } else { "Accepted" };
        finishes.push(finish(&database.accepted(*submission).await, kind));
    }
    // Every batch holds every user and problem, each in another order.
    let batches: Vec<Vec<_>> = (0..6)
        .map(|k| {
            let mut batch: Vec<_> = finishes.iter().skip(k).step_by(6).cloned().collect();
            batch.rotate_left(k % 4);
            batch.extend(finishes.iter().skip((k + 1) % 6).step_by(6).cloned());
            batch
        })
        .collect();
    join_all(batches.iter().map(|batch| database.apply(batch))).await;
    database.publish_the_rest().await;
    assert_eq!(violations(&database.client).await, Vec::<String>::new());
    assert_eq!(database.row("select sum(submits) from user_stats").await, "24");
}

/// Who submits what where, and how it ends each time that it is judged.
type Story = Vec<(u8, u8, bool, Vec<u8>)>;

const KINDS: [&str; 4] = ["Accepted", "WrongAnswer", "CompileError", "SystemError"];

async fn play(database: &TestDatabase, story: &Story) {
    let items: Vec<NewSubmission> = story
        .iter()
        .enumerate()
        .map(|(n, (user, problem, in_contest, _))| NewSubmission {
            user_id: format!("user {user}"),
            problem_id: format!("problem {problem}"),
            contest_id: in_contest.then(|| "contest".to_owned()),
            ..new_submission(&n.to_string())
        })
        .collect();
    let submissions = database.submit_all(&items).await;
    let rounds = story.iter().map(|(.., endings)| endings.len()).max().unwrap_or_default();
    for round in 0..rounds {
        let mut batch = Vec::new();
        for (submission, (.., endings)) in submissions.iter().zip(story) {
            let Some(ending) = endings.get(round) else { continue };
            if round > 0 {
                database.rejudge(*submission).await;
            }
            let attempt = database.accepted(*submission).await;
            batch.push(finish(&attempt, KINDS[usize::from(*ending)]));
            // Some come twice.
            if ending % 2 == 0 {
                batch.push(finish(&attempt, KINDS[usize::from(*ending)]));
            }
        }
        database.apply(&batch).await;
        database.assert_counters_are_right().await;
    }
}

#[test]
fn any_story_of_verdicts_and_rejudges_leaves_the_counters_of_a_recount() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner =
        TestRunner::new(Config { cases: 12, max_shrink_iters: 40, failure_persistence: None, ..Config::default() });
    let submission = (0..2_u8, 0..2_u8, any::<bool>(), proptest::collection::vec(0..4_u8, 1..4));
    let stories = proptest::collection::vec(submission, 1..6);
    runner
        .run(&stories, |story| {
            runtime.block_on(async {
                let database = TestDatabase::fresh().await;
                play(&database, &story).await;
            });
            Ok(())
        })
        .unwrap();
}
