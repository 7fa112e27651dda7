//! The tables as diesel sees them. Generated from the migrations; change those, then run
//! `JUDGE_RELAY_UPDATE_SCHEMA=1 cargo test schema_matches_the_migrations`. Not a place for anything written by hand.

diesel::table! {
    api_tokens (token_hash) {
        token_hash -> Bytea,
        name -> Text,
        tenant -> Text,
        role -> Text,
        created_at -> Timestamptz,
        revoked_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    controller_state (only_row) {
        only_row -> Bool,
        last_heard_at -> Nullable<Timestamptz>,
        clock_offset_ms -> Nullable<Int8>,
    }
}

diesel::table! {
    dead_letters (id) {
        id -> Uuid,
        boundary -> Text,
        cause_class -> Text,
        message -> Text,
        submission_id -> Nullable<Uuid>,
        generation -> Nullable<Int4>,
        event_id -> Nullable<Uuid>,
        stream -> Nullable<Text>,
        stream_id -> Nullable<Text>,
        payload -> Nullable<Bytea>,
        created_at -> Timestamptz,
        resolved_at -> Nullable<Timestamptz>,
        resolved_by -> Nullable<Text>,
        resolution -> Nullable<Text>,
    }
}

diesel::table! {
    first_accepts (tenant, scope_kind, scope_id, user_id, problem_id) {
        tenant -> Text,
        scope_kind -> Text,
        scope_id -> Text,
        user_id -> Text,
        problem_id -> Text,
        accepted_count -> Int4,
        first_accepted_at -> Timestamptz,
    }
}

diesel::table! {
    instances (instance_id) {
        instance_id -> Uuid,
        hostname -> Text,
        version -> Text,
        started_at -> Timestamptz,
        heartbeat_at -> Timestamptz,
    }
}

diesel::table! {
    judge_attempts (judge_id) {
        judge_id -> Uuid,
        submission_id -> Uuid,
        generation -> Int4,
        purpose -> Text,
        event_id -> Nullable<Uuid>,
        stream_id -> Nullable<Text>,
        instance_id -> Nullable<Uuid>,
        state -> Text,
        close_reason -> Nullable<Text>,
        is_rescue -> Bool,
        http_status -> Nullable<Int4>,
        answer -> Nullable<Text>,
        started_at -> Timestamptz,
        answered_at -> Nullable<Timestamptz>,
        answer_ms -> Nullable<Int4>,
        progress -> Nullable<Text>,
        progress_at -> Nullable<Timestamptz>,
        finished_at -> Nullable<Timestamptz>,
        deadline_at -> Timestamptz,
        running_limit_ms -> Nullable<Int4>,
        finish_hash -> Nullable<Bytea>,
        duplicate_count -> Int4,
        conflict_count -> Int4,
    }
}

diesel::table! {
    judge_requests (submission_id, generation) {
        submission_id -> Uuid,
        generation -> Int4,
        body -> Text,
        case_count -> Nullable<Int4>,
        cpu_time_ms -> Nullable<Int4>,
        compile_time_ms -> Nullable<Int4>,
    }
}

diesel::table! {
    lane_clocks (lane) {
        lane -> Text,
        virtual_tag -> Int8,
    }
}

diesel::table! {
    lanes (name) {
        name -> Text,
        weight -> Int4,
        in_flight_cap -> Nullable<Int4>,
        reserve -> Int4,
        paused -> Bool,
        position -> Int4,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    operator_actions (id) {
        id -> Uuid,
        actor -> Text,
        action -> Text,
        target -> Text,
        outcome -> Text,
        details -> Jsonb,
        at -> Timestamptz,
    }
}

diesel::table! {
    outbox_events (event_id) {
        event_id -> Uuid,
        aggregate_type -> Text,
        aggregate_id -> Uuid,
        aggregate_sequence -> Int8,
        generation -> Int4,
        destination -> Text,
        event_type -> Text,
        schema_version -> Int2,
        cause -> Text,
        fair_tag -> Int8,
        payload -> Jsonb,
        headers -> Jsonb,
        occurred_at -> Timestamptz,
        available_at -> Timestamptz,
        claimed_by -> Nullable<Uuid>,
        claimed_at -> Nullable<Timestamptz>,
        claim_until -> Nullable<Timestamptz>,
        claim_fence -> Int8,
        published_at -> Nullable<Timestamptz>,
        stream_id -> Nullable<Text>,
        superseded_at -> Nullable<Timestamptz>,
        quarantined_at -> Nullable<Timestamptz>,
        attempt_count -> Int4,
        last_error -> Nullable<Text>,
        replay -> Int4,
    }
}

diesel::table! {
    problem_stats (tenant, problem_id) {
        tenant -> Text,
        problem_id -> Text,
        submits -> Int8,
        accepts -> Int8,
    }
}

diesel::table! {
    processed_events (consumer_name, event_id) {
        consumer_name -> Text,
        event_id -> Uuid,
        processed_at -> Timestamptz,
    }
}

diesel::table! {
    results (id) {
        id -> Uuid,
        judge_id -> Uuid,
        submission_id -> Uuid,
        generation -> Int4,
        disposition -> Text,
        reason -> Nullable<Text>,
        body -> Bytea,
        body_hash -> Bytea,
        report -> Nullable<Jsonb>,
        report_sanitised -> Bool,
        via -> Text,
        received_at -> Timestamptz,
        applied_at -> Timestamptz,
    }
}

diesel::table! {
    scope_user_stats (tenant, scope_kind, scope_id, user_id) {
        tenant -> Text,
        scope_kind -> Text,
        scope_id -> Text,
        user_id -> Text,
        submits -> Int8,
        accepts -> Int8,
    }
}

diesel::table! {
    stream_losses (id) {
        id -> Uuid,
        stream -> Text,
        what -> Text,
        found_at -> Timestamptz,
        recovered_at -> Nullable<Timestamptz>,
        due_again -> Nullable<Int4>,
    }
}

diesel::table! {
    stream_marks (destination) {
        destination -> Text,
        settled_until -> Timestamptz,
    }
}

diesel::table! {
    submissions (id) {
        id -> Uuid,
        tenant -> Text,
        idempotency_key -> Text,
        body_hash -> Bytea,
        external_id -> Nullable<Text>,
        user_id -> Text,
        problem_id -> Text,
        contest_id -> Nullable<Text>,
        course_id -> Nullable<Text>,
        lane -> Text,
        fair_tag -> Int8,
        state -> Text,
        generation -> Int4,
        last_generation -> Int4,
        verdict_generation -> Nullable<Int4>,
        verdict_judge_id -> Nullable<Uuid>,
        verdict -> Nullable<Text>,
        time_max_ms -> Nullable<Int8>,
        time_total_ms -> Nullable<Int8>,
        memory_max_bytes -> Nullable<Int8>,
        judged_at -> Nullable<Timestamptz>,
        counted_verdict -> Nullable<Text>,
        last_sequence -> Int8,
        attempts_used -> Int4,
        rescues_used -> Int4,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    user_stats (tenant, user_id) {
        tenant -> Text,
        user_id -> Text,
        submits -> Int8,
        accepts -> Int8,
    }
}

diesel::joinable!(judge_attempts -> submissions (submission_id));
diesel::joinable!(judge_requests -> submissions (submission_id));
diesel::joinable!(lane_clocks -> lanes (lane));
diesel::joinable!(submissions -> lanes (lane));

diesel::allow_tables_to_appear_in_same_query!(
    api_tokens,
    controller_state,
    dead_letters,
    first_accepts,
    instances,
    judge_attempts,
    judge_requests,
    lane_clocks,
    lanes,
    operator_actions,
    outbox_events,
    problem_stats,
    processed_events,
    results,
    scope_user_stats,
    stream_losses,
    stream_marks,
    submissions,
    user_stats,
);
