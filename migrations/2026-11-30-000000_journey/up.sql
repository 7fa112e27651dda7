-- The whole truth of judge-relay. Redis holds nothing that is not also here.
--
-- Times are the database's clock_timestamp(). States are text with a CHECK: easy to read, easy to extend. Tables whose rows
-- are updated in place leave room on their pages (fillfactor), so that the updates stay off the indexes.

-- Lanes: which work goes first. Operators change weight, cap, reserve and paused; every replica reads them each second.
create table lanes (
    name text primary key check (name ~ '^[a-z][a-z0-9_-]{0,31}$'),
    -- Share of the dispatcher's permits while several lanes wait.
    weight integer not null check (weight between 1 and 1000),
    -- At most this many of the lane's submissions at the controller; null: only the global cap.
    in_flight_cap integer check (in_flight_cap > 0),
    -- This many of the global cap are kept free for the lane.
    reserve integer not null default 0 check (reserve >= 0),
    paused boolean not null default false,
    -- Reading order; live contests first.
    position integer not null unique,
    updated_at timestamptz not null default clock_timestamp()
);

-- Start-time fair queueing: the fair tag of the newest claimed row of a lane. A table of its own, because every submission
-- holds a key-share lock on its lane's row and the clock changes with every claim.
create table lane_clocks (
    lane text primary key references lanes (name),
    virtual_tag bigint not null default 0
) with (fillfactor = 25);

-- A lane without a clock would take no submissions.
create function add_lane_clock() returns trigger language plpgsql as $$
begin
    insert into lane_clocks (lane) values (new.name) on conflict do nothing;
    return null;
end
$$;

create trigger lanes_have_clocks after insert on lanes for each row execute function add_lane_clock();

insert into lanes (name, weight, position) values ('contest', 8, 1), ('default', 4, 2), ('rejudge', 1, 3);

create table submissions (
    -- Version 7, made by the service: ids sort by time.
    id uuid primary key,
    tenant text not null,
    -- The caller's name for this request; the same key with the same body is the same submission.
    idempotency_key text not null,
    body_hash bytea not null check (octet_length(body_hash) = 32),
    external_id text,
    user_id text not null,
    problem_id text not null,
    contest_id text,
    course_id text,
    lane text not null references lanes (name),
    -- Place in the lane, given at insert: the greater of the lane's clock and the user's last tag, plus one.
    fair_tag bigint not null default 0,
    -- pending: nothing at the controller. judging: an attempt is or may be there. judged, cancelled: over.
    -- parked: the budget is spent, a person must look; a usable late verdict still ends it.
    state text not null default 'pending'
        check (state in ('pending', 'judging', 'judged', 'parked', 'cancelled')),
    -- The work in hand; only a rejudge raises it.
    generation integer not null default 1 check (generation >= 1),
    -- The highest generation ever minted.
    last_generation integer not null default 1,
    -- What stands: readable until a newer generation's verdict replaces it.
    verdict_generation integer,
    verdict_judge_id uuid,
    verdict text,
    time_max_ms bigint,
    time_total_ms bigint,
    memory_max_bytes bigint,
    judged_at timestamptz,
    -- What the counters hold of this submission; the difference to a new verdict is what moves them.
    counted_verdict text,
    -- Sequence of this submission's newest outbox event, taken under this row's lock.
    last_sequence bigint not null default 1,
    -- Attempts of the current generation that count against its budget, and those repeated after a crash, which do not.
    attempts_used integer not null default 0 check (attempts_used >= 0),
    rescues_used integer not null default 0 check (rescues_used >= 0),
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    constraint submissions_idempotency unique (tenant, idempotency_key),
    constraint submissions_generations check (generation <= last_generation),
    constraint submissions_verdict_whole check (num_nonnulls(verdict_generation, verdict, judged_at) in (0, 3)),
    constraint submissions_verdict_not_newer check (verdict_generation <= generation),
    constraint submissions_judged_means_verdict
        check ((state = 'judged') = (verdict_generation is not distinct from generation)),
    constraint submissions_counted_is_standing check (counted_verdict is not distinct from verdict)
) with (fillfactor = 80);

-- Lists of a tenant, a user, a problem or a contest, newest first; the second also finds the user's last fair tag.
-- No index names `state`: changing it must not touch any index.
create index submissions_by_tenant on submissions (tenant, id desc);
create index submissions_by_user on submissions (tenant, user_id, id desc);
create index submissions_by_problem on submissions (tenant, problem_id, id desc);
create index submissions_by_contest on submissions (tenant, contest_id, id desc) where contest_id is not null;
create index submissions_by_external_id on submissions (tenant, external_id) where external_id is not null;

-- The exact compact text to be sent, without callback URLs. Text, not jsonb: jsonb changes numbers and refuses U+0000, and
-- the controller's signature covers every byte. The facts are read from it at intake; null for rows written by SQL.
create table judge_requests (
    submission_id uuid not null references submissions (id) on delete cascade,
    generation integer not null,
    body text not null,
    case_count integer check (case_count >= 0),
    cpu_time_ms integer,
    compile_time_ms integer,
    primary key (submission_id, generation)
);

-- Intents that must leave PostgreSQL. Every deliberate re-send of a judging is a new row, so history stays in the table and
-- no deduplication key can swallow it.
create table outbox_events (
    event_id uuid primary key,
    aggregate_type text not null default 'submission',
    aggregate_id uuid not null,
    -- Consecutive per aggregate, taken under the aggregate's row lock.
    aggregate_sequence bigint not null,
    generation integer not null,
    -- judge:<lane> or events.
    destination text not null,
    event_type text not null,
    schema_version smallint not null default 1,
    cause text not null
        check (cause in ('submit', 'deadline', 'system_error', 'door', 'redrive', 'rejudge', 'loss', 'verdict', 'parked', 'cancelled')),
    fair_tag bigint not null default 0,
    -- Ids and verdicts, never a source.
    payload jsonb not null default '{}',
    headers jsonb not null default '{}',
    occurred_at timestamptz not null default clock_timestamp(),
    available_at timestamptz not null default clock_timestamp(),
    -- The lease: who may publish until when. The fence only grows; every write-back names the one it was given.
    claimed_by uuid,
    claimed_at timestamptz,
    claim_until timestamptz,
    claim_fence bigint not null default 0,
    published_at timestamptz,
    stream_id text,
    -- A newer generation made this intent pointless before it left.
    superseded_at timestamptz,
    -- Can never be published as it is: a person must look. Later events of the same aggregate and destination wait.
    quarantined_at timestamptz,
    attempt_count integer not null default 0,
    last_error text,
    -- 0: the first sending; above: sent again on purpose.
    replay integer not null default 0,
    constraint outbox_events_sequence unique (aggregate_id, aggregate_sequence, replay),
    constraint outbox_events_published_where check ((published_at is null) = (stream_id is null)),
    constraint outbox_events_one_end check (num_nonnulls(published_at, superseded_at) <= 1),
    constraint outbox_events_lease_whole check (num_nonnulls(claimed_by, claim_until) in (0, 2)),
    constraint outbox_events_no_lease_after_end check (published_at is null or claim_until is null)
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- What is due, in fair order. The claim walks this index from its start; leased rows stay in it until they are marked.
create index outbox_events_due on outbox_events (destination, fair_tag, event_id)
    where published_at is null and superseded_at is null and quarantined_at is null;
create index outbox_events_quarantined on outbox_events (quarantined_at) where quarantined_at is not null;
-- Published judgings in their order, for those whose stream entry is looked up because no attempt has begun.
create index outbox_events_published on outbox_events (destination, published_at)
    where published_at is not null and destination <> 'events';

-- Everything that was published to a destination before this has begun an attempt or needs none any more.
create table stream_marks (
    destination text primary key,
    settled_until timestamptz not null
) with (fillfactor = 50);

create table judge_attempts (
    -- The name of the attempt in its callback URLs.
    judge_id uuid primary key,
    submission_id uuid not null references submissions (id) on delete cascade,
    generation integer not null,
    purpose text not null default 'live' check (purpose in ('live', 'shadow')),
    -- The intent and the stream entry that asked for it, and the process that sends it: a second delivery of the same entry
    -- means that its first holder died, a second entry means that the publisher appended twice.
    event_id uuid,
    stream_id text,
    instance_id uuid,
    -- sending: the POST may be under way. accepted: the controller has it. ambiguous: sent, the answer is unknown.
    -- finished: its verdict was applied. closed: over without one, with the reason.
    state text not null default 'sending' check (state in ('sending', 'accepted', 'ambiguous', 'finished', 'closed')),
    close_reason text,
    is_rescue boolean not null default false,
    http_status integer,
    -- Beginning of the controller's answer when it was not 201.
    answer text,
    started_at timestamptz not null default clock_timestamp(),
    answered_at timestamptz,
    answer_ms integer,
    -- The newest progress update.
    progress text,
    progress_at timestamptz,
    finished_at timestamptz,
    deadline_at timestamptz not null,
    -- Once judging has begun it may take this long; the deadline before that allows for the controller's queue, too.
    running_limit_ms integer,
    -- SHA-256 of the finish that ended it, and how often it came again, the same and different.
    finish_hash bytea,
    duplicate_count integer not null default 0,
    conflict_count integer not null default 0,
    constraint judge_attempts_closed_why check ((state = 'closed') = (close_reason is not null)),
    constraint judge_attempts_finished_when check (state not in ('sending', 'accepted', 'ambiguous') or finished_at is null)
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- At most one live attempt, whatever races: a constraint, not a check in the code.
create unique index judge_attempts_one_live on judge_attempts (submission_id, purpose)
    where state in ('sending', 'accepted', 'ambiguous');
create index judge_attempts_by_submission on judge_attempts (submission_id, started_at);

-- The inbox: what a consumer has applied.
create table processed_events (
    consumer_name text not null,
    event_id uuid not null,
    processed_at timestamptz not null default clock_timestamp(),
    primary key (consumer_name, event_id)
);

-- Rows lie in the order of their time; the sweeper finds the oldest by a handful of pages.
create index processed_events_by_time on processed_events using brin (processed_at);

-- Every finish callback worth keeping: the bytes as they came and a copy that jsonb can hold.
create table results (
    id uuid primary key,
    judge_id uuid not null,
    submission_id uuid not null,
    generation integer not null,
    disposition text not null
        check (disposition in ('applied', 'system_error', 'duplicate', 'conflicting', 'stale', 'future', 'unknown')),
    reason text,
    body bytea not null,
    body_hash bytea not null,
    report jsonb,
    -- The report differs from the body: characters or numbers that jsonb refuses were replaced.
    report_sanitised boolean not null default false,
    -- callback: answered after this row was committed. stream: PostgreSQL was silent, it waited in Redis.
    via text not null check (via in ('callback', 'stream')),
    received_at timestamptz not null,
    applied_at timestamptz not null default clock_timestamp()
);

create index results_by_judge on results (judge_id);
create index results_by_submission on results (submission_id);

-- Rows that a person must look at. The message is kept whole before its stream entry is deleted.
create table dead_letters (
    id uuid primary key,
    -- The actor whose boundary it failed at.
    boundary text not null,
    cause_class text not null,
    message text not null,
    submission_id uuid,
    generation integer,
    event_id uuid,
    stream text,
    stream_id text,
    payload bytea,
    created_at timestamptz not null default clock_timestamp(),
    resolved_at timestamptz,
    resolved_by text,
    resolution text,
    constraint dead_letters_resolved_whole check (num_nonnulls(resolved_at, resolved_by, resolution) in (0, 3))
);

create index dead_letters_open on dead_letters (cause_class, created_at) where resolved_at is null;
create index dead_letters_by_submission on dead_letters (submission_id) where submission_id is not null;
-- One stream entry is one dead letter, however often it is met.
create unique index dead_letters_entry on dead_letters (stream, stream_id) where stream is not null;

-- Counters. Each moves by the difference between a submission's counted verdict and its new one, in the verdict's own
-- transaction: submits once per submission, accepts with every accepted submission of a problem, once per problem of a user.
create table problem_stats (
    tenant text not null,
    problem_id text not null,
    submits bigint not null default 0,
    accepts bigint not null default 0,
    primary key (tenant, problem_id)
) with (fillfactor = 50);

create table user_stats (
    tenant text not null,
    user_id text not null,
    submits bigint not null default 0,
    -- Problems solved.
    accepts bigint not null default 0,
    primary key (tenant, user_id)
) with (fillfactor = 50);

create table scope_user_stats (
    tenant text not null,
    scope_kind text not null check (scope_kind in ('contest', 'course')),
    scope_id text not null,
    user_id text not null,
    -- Submissions whose program ran: compile errors do not count here.
    submits bigint not null default 0,
    accepts bigint not null default 0,
    primary key (tenant, scope_kind, scope_id, user_id)
) with (fillfactor = 50);

-- Who solved what, and when first. accepted_count is how many accepted submissions stand: "solved" begins when it leaves 0 and
-- ends when it returns there, while first_accepted_at survives, so a rejudge there and back sends no second balloon.
create table first_accepts (
    tenant text not null,
    scope_kind text not null check (scope_kind in ('all', 'contest', 'course')),
    scope_id text not null,
    user_id text not null,
    problem_id text not null,
    accepted_count integer not null check (accepted_count >= 0),
    first_accepted_at timestamptz not null default clock_timestamp(),
    primary key (tenant, scope_kind, scope_id, user_id, problem_id)
) with (fillfactor = 70);

-- One row per running process, refreshed every two seconds.
create table instances (
    instance_id uuid primary key,
    hostname text not null,
    version text not null,
    started_at timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- What is known of the controller, one row: when anything authentic last came from it.
create table controller_state (
    only_row boolean primary key default true check (only_row),
    last_heard_at timestamptz,
    clock_offset_ms bigint
) with (fillfactor = 25);

insert into controller_state default values;

-- A stream or group that was found missing, recorded before it was created again.
create table stream_losses (
    id uuid primary key,
    stream text not null,
    what text not null,
    found_at timestamptz not null default clock_timestamp(),
    recovered_at timestamptz,
    due_again integer
);

-- Bearer tokens, hashed; the token itself is shown once.
create table api_tokens (
    token_hash bytea primary key check (octet_length(token_hash) = 32),
    name text not null,
    tenant text not null,
    role text not null check (role in ('client', 'viewer', 'operator', 'admin')),
    created_at timestamptz not null default clock_timestamp(),
    revoked_at timestamptz
);

create unique index api_tokens_name on api_tokens (name) where revoked_at is null;

-- Who did what by hand.
create table operator_actions (
    id uuid primary key,
    actor text not null,
    action text not null,
    target text not null,
    outcome text not null,
    details jsonb not null default '{}',
    at timestamptz not null default clock_timestamp()
);

create index operator_actions_by_time on operator_actions (at);
