drop table stream_marks, operator_actions, api_tokens, stream_losses, controller_state, instances, first_accepts, scope_user_stats,
    user_stats, problem_stats, dead_letters, results, processed_events, judge_attempts, outbox_events, judge_requests,
    submissions, lane_clocks, lanes;

drop function add_lane_clock;
