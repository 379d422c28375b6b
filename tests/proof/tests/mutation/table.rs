//! The bugs, what each breaks, and the test that catches it.

/// One planted bug.
pub(crate) struct Mutation {
    pub(crate) name: &'static str,
    pub(crate) breaks: &'static str,
    /// `<program of tests/, or leasehold for src/>::<modules>::<test>`
    pub(crate) checker: &'static str,
}

const fn bug(name: &'static str, breaks: &'static str, checker: &'static str) -> Mutation {
    Mutation { name, breaks, checker }
}

/// All of them. Rules are those of the queue protocol.
pub(crate) const MUTATIONS: &[Mutation] = &[
    // Attempts and requests.
    bug(
        "beat-that-may-join",
        "rule 1",
        "it::queue::dead::a_waiter_that_was_forgotten_queues_up_anew",
    ),
    bug(
        "no-request-deadline",
        "rule 2",
        "it::queue::late::a_request_that_comes_too_late_neither_takes_nor_joins",
    ),
    bug(
        "request-without-a-deadline",
        "rule 2",
        "leasehold::wire::server_clock::tests::the_clock_of_the_server_before_a_move_dates_nothing_of_the_next",
    ),
    bug(
        "deadline-from-the-sending",
        "rule 2",
        "leasehold::wire::server_clock::tests::a_deadline_on_the_server_is_never_later_than_the_holders",
    ),
    bug(
        "unanswered-request-forgotten",
        "rules 2, 6",
        "it::queue::late::a_join_that_overtakes_its_leave_is_undone_in_the_end",
    ),
    bug(
        "full-ttl-on-a-repeated-grant",
        "rule 3",
        "it::fault::a_repeated_grant_has_the_first_ones_token_and_is_valid_no_longer_than_redis_says",
    ),
    bug("repeated-request-counts", "rule 3", "it::reentrant::a_repeated_request_counts_once"),
    bug(
        "validity-from-receipt",
        "rule 3",
        "it::fault::a_grant_is_valid_no_longer_than_redis_says_however_late_its_answer",
    ),
    bug(
        "validity-without-end",
        "validity",
        "it::fault::a_holder_stopped_past_its_lease_knows_before_any_io_and_is_fenced",
    ),
    bug("no-drift-allowance", "validity", "it::mutex::the_time_to_live_in_redis_is_the_lease"),
    bug(
        "grant-that-is-over",
        "validity",
        "it::fault::a_grant_that_took_longer_than_its_lease_is_refused_and_given_back",
    ),
    bug("newcomer-barges", "rule 4", "it::queue::order::nobody_takes_it_before_those_who_wait"),
    bug(
        "attempt-reused-after-leave",
        "rule 5",
        "it::queue::order::a_thread_that_gives_up_leaves_its_place_to_the_next_of_its_process",
    ),
    bug("one-value-per-client", "rule 5", "it::mutex::every_attempt_has_a_value_of_its_own"),
    bug(
        "leave-without-leaving",
        "rule 5",
        "it::queue::order::a_waiter_whose_time_is_over_leaves_nothing_and_is_handed_nothing",
    ),
    bug(
        "leave-sent-once",
        "rule 6",
        "it::queue::late::a_join_that_overtakes_its_leave_is_undone_in_the_end",
    ),
    bug(
        "no-reconciliation-after-release",
        "rule 6",
        "it::queue::late::a_request_that_comes_after_the_release_is_undone_in_the_end",
    ),
    bug(
        "helper-key-as-a-name",
        "no lock is a key of another",
        "it::input::a_name_that_is_another_locks_key_is_refused_before_any_io",
    ),
    // Hand-over and grants.
    bug(
        "releasers-ttl-for-the-next-owner",
        "rule 7",
        "it::queue::grant::a_claim_is_the_next_owners_and_its_first_renewal_makes_it_whole",
    ),
    bug("grant-of-another-attempt", "rule 7", "it::wake::nonsense_in_a_message_is_ignored"),
    bug(
        "silent-waiter-not-skipped",
        "rule 8",
        "it::queue::dead::a_stopped_waiter_has_its_place_again_when_it_comes_back",
    ),
    bug("no-heartbeat", "rule 8", "it::notify::a_missed_message_costs_a_heartbeat_and_not_a_lease"),
    bug(
        "fixed-lease-not-made-whole",
        "rule 9",
        "it::queue::grant::a_fixed_lease_that_was_handed_over_is_whole",
    ),
    bug(
        "grant-dated-by-its-receipt",
        "rule 10",
        "leasehold::wire::server_clock::tests::a_message_is_dated_no_later_than_it_was_sent",
    ),
    bug(
        "early-grant-not-kept",
        "rule 10",
        "it::wake::a_grant_that_comes_before_the_answer_to_its_join_is_kept",
    ),
    bug(
        "skipped-waiter-loses-its-place",
        "rule 11",
        "it::queue::dead::a_stopped_waiter_has_its_place_again_when_it_comes_back",
    ),
    bug(
        "newcomer-overtakes-the-skipped",
        "rule 11",
        "it::queue::script::newcomer_stands_behind_all_who_were_skipped",
    ),
    bug(
        "killed-waiter-not-skipped",
        "rule 12",
        "it::queue::dead::three_killed_waiters_are_skipped_together",
    ),
    bug(
        "grant-withdrawn-by-its-count",
        "rule 12",
        "it::queue::replica::uncounted_grant_is_kept_where_numsub_is_denied",
    ),
    bug(
        "reconnect-wakes-nobody",
        "rule 12",
        "it::wake::a_cut_wake_up_connection_comes_back_and_wakes_everybody",
    ),
    bug(
        "fence-of-the-giver",
        "the counter of tokens ends before the lease",
        "it::token::the_counter_outlives_a_lease_longer_than_the_givers",
    ),
    bug(
        "force-release-passes-nobody-on",
        "the queue stands still",
        "it::queue::order::a_forced_release_serves_the_first_who_waits",
    ),
    bug(
        "force-without-its-owner",
        "a forced release evicts the one it is aimed at",
        "it::force::stuck_force_leaves_a_later_holder_alone",
    ),
    bug("force-without-a-deadline", "rule 2", "it::force::force_past_its_deadline_evicts_nobody"),
    bug(
        "eviction-not-told",
        "who is evicted is told",
        "it::force::evicted_holder_that_listens_is_told_at_once",
    ),
    bug(
        "queue-without-an-end",
        "keys that never end",
        "it::queue::dead::all_keys_share_the_names_slot_and_end",
    ),
    // Renewal and release.
    bug(
        "renewal-that-shortens",
        "rule 14",
        "it::renewal::extend_makes_a_lease_longer_and_never_shorter",
    ),
    bug(
        "extension-that-shortens",
        "rule 14",
        "it::renewal::extend_makes_a_lease_longer_and_never_shorter",
    ),
    bug(
        "renewal-makes-the-key-again",
        "ownership",
        "it::renewal::a_deleted_key_is_a_loss_within_a_renewal_and_is_not_made_again",
    ),
    bug(
        "renewal-of-anothers-lock",
        "ownership",
        "it::renewal::a_key_that_another_has_is_a_loss_and_is_left_alone",
    ),
    bug("delete-without-a-look", "rule 15", "it::release::another_owners_key_is_not_touched"),
    bug(
        "reentrant-delete-without-a-look",
        "rule 15",
        "it::reentrant::another_owners_hash_is_not_touched",
    ),
    bug(
        "no-pause-for-listeners",
        "sharing with Redisson",
        "leasehold::engine::slot::pause::tests::released_lock_is_left_to_a_listener_for_a_while",
    ),
    bug(
        "holder-that-does-not-listen",
        "waiters",
        "it::holder::holder_that_never_waited_hears_of_waiters_elsewhere",
    ),
    bug(
        "transaction-without-watch",
        "WATCH",
        "it::release::release_by_watch_loses_the_race_for_a_key_that_changed_in_between",
    ),
    bug("transaction-without-a-look", "WATCH", "it::release::another_owners_key_is_not_touched"),
    bug(
        "renewed-after-release",
        "rule 15",
        "it::release::a_renewal_that_races_the_release_makes_no_key",
    ),
    bug(
        "late-release-as-done",
        "rule 15",
        "it::release::a_repeated_release_that_comes_after_the_lease_is_an_unknown_outcome",
    ),
    bug(
        "unknown-release-as-released",
        "outcomes",
        "it::release::a_release_that_does_not_get_through_says_so_and_is_finished_by_the_worker",
    ),
    bug(
        "repetition-speaks-for-both",
        "outcomes",
        "it::fault::what_was_lost_with_the_only_connection_is_an_unknown_outcome",
    ),
    bug(
        "failed-release-forgotten",
        "outcomes",
        "it::release::a_release_that_does_not_get_through_says_so_and_is_finished_by_the_worker",
    ),
    bug(
        "first-write-refused-when-full",
        "rule 16",
        "it::queue::dead::the_lock_is_handed_over_when_memory_is_full",
    ),
    bug(
        "unanswered-extension-forgotten",
        "an unknown outcome is cleaned up",
        "it::fault::what_an_unanswered_extension_has_left_is_given_back",
    ),
    bug(
        "lost-hold-leaves-a-ghost",
        "rules 6, 30",
        "it::queue::late::request_that_arrives_after_the_loss_leaves_no_ghost",
    ),
    bug(
        "late-reply-revives-a-hold",
        "rule 30",
        "leasehold::engine::lease::tests::reply_that_comes_after_the_end_revives_no_hold",
    ),
    bug(
        "renewal-moved-for-a-hold-that-is-over",
        "renewal",
        "leasehold::engine::lease::tests::renewal_confirmed_during_a_release_changes_nothing",
    ),
    bug(
        "retry-timed-by-the-whole-lease",
        "renewal",
        "leasehold::testing::renewal::silent_renewal_of_a_handed_over_lease_is_tried_again",
    ),
    bug(
        "short-lease-cuts-the-others",
        "renewal",
        "leasehold::testing::renewal::short_lease_does_not_cut_the_time_of_others",
    ),
    bug(
        "unanswered-renewal-forgotten",
        "an unknown outcome is cleaned up",
        "leasehold::testing::renewal::lease_of_unanswered_renewals_is_given_back_once_lost",
    ),
    // Inside the process.
    bug(
        "passed-on-unanswered",
        "rule 17",
        "it::handoff::a_lease_with_a_command_that_was_never_answered_is_not_passed_on",
    ),
    bug(
        "repeated-extension-forgotten",
        "rules 17, 31",
        "it::handoff::a_lease_with_a_command_that_was_never_answered_is_not_passed_on",
    ),
    bug(
        "passed-on-unsettled",
        "rule 17",
        "it::handoff::a_lease_with_a_command_that_was_never_answered_is_not_passed_on",
    ),
    bug("max-hold-ignored", "rule 17", "it::renewal::max_hold_ends_the_hold_and_its_renewal"),
    bug(
        "hand-off-bound-ignored",
        "fairness",
        "it::handoff::passing_on_is_bounded_while_another_process_waits",
    ),
    bug(
        "hand-off-time-ignored",
        "fairness",
        "it::handoff::passing_on_is_bounded_in_time_while_another_process_waits",
    ),
    bug("cut-lease-never-renewed", "rule 9", "it::handoff::nothing_is_passed_on_that_must_not_be"),
    bug(
        "linger-with-waiters",
        "rule 18",
        "it::linger::a_lease_that_somebody_waits_for_does_not_linger",
    ),
    bug(
        "pile-without-end",
        "the work that waits for the worker is bounded by live leases",
        "leasehold::testing::agenda::released_leases_leave_nothing_on_the_agenda",
    ),
    bug(
        "live-thrown-away",
        "what the worker must do is never thrown away",
        "leasehold::testing::agenda::a_lease_taken_again_is_renewed",
    ),
    bug(
        "relocks-starve-renewal",
        "the work that waits for the worker is bounded by live leases",
        "leasehold::testing::agenda::a_lease_taken_again_has_one_entry_on_the_agenda",
    ),
    bug(
        "turn-without-end",
        "a renewal that is due does not wait for what comes meanwhile",
        "leasehold::engine::worker::tests::a_turn_ends_whatever_falls_due_meanwhile",
    ),
    bug(
        "returns-starve-renewal",
        "a renewal that is due does not wait for all that is given back",
        "leasehold::engine::worker::tests::a_turn_takes_all_slots_but_only_some_returns",
    ),
    bug(
        "shutdown-overlooks-a-linger",
        "shutdown",
        "leasehold::testing::shutdown::the_end_of_a_linger_is_waited_for",
    ),
    bug("linger-not-revoked", "rule 18", "it::linger::a_waiter_of_another_process_ends_it_at_once"),
    bug(
        "reentry-after-loss",
        "validity",
        "it::hold::reentry_after_the_lease_was_lost_is_an_error_and_not_a_second_hold",
    ),
    bug(
        "inner-release-hides-the-loss",
        "validity",
        "it::hold::every_release_of_a_lost_lease_tells_of_the_loss",
    ),
    bug(
        "inner-release-ends-the-hold",
        "reentry",
        "it::hold::the_last_guard_dropped_gives_it_back_in_whatever_order",
    ),
    bug(
        "valid-after-the-loss",
        "invalid first, then the callback",
        "it::renewal::the_callback_runs_after_the_guard_is_invalid",
    ),
    // Tokens.
    bug(
        "tokens-ahead-of-the-clock",
        "rule 19",
        "it::handoff::a_token_that_redis_never_heard_of_is_given_to_nobody_else",
    ),
    bug(
        "tokens-never-waited-for",
        "rule 19",
        "leasehold::engine::slot::tests::a_token_that_is_a_microsecond_ahead_is_waited_for",
    ),
    bug(
        "token-not-written-back-by-watch",
        "rule 19",
        "it::handoff::a_release_by_watch_writes_the_last_token_back",
    ),
    bug(
        "token-not-written-back",
        "rule 19",
        "it::handoff::a_token_that_was_written_back_is_respected_by_the_next_process",
    ),
    bug(
        "short-counter-ttl",
        "rule 19",
        "it::token::tokens_grow_while_the_counter_is_ahead_of_the_servers_clock",
    ),
    bug("counter-not-renewed", "rule 19", "it::token::the_counter_outlives_a_lock_that_is_renewed"),
    bug(
        "token-of-the-clock-alone",
        "rule 19",
        "it::token::tokens_grow_while_the_counter_is_ahead_of_the_servers_clock",
    ),
    bug(
        "token-with-an-exponent",
        "rule 20",
        "it::token::tokens_grow_while_the_counter_is_ahead_of_the_servers_clock",
    ),
    // What a listener hears.
    bug(
        "one-waiter-of-a-shared-channel",
        "rule 12",
        "leasehold::testing::shared_channel::a_shared_channel_wakes_the_waiters_of_both_locks",
    ),
    // Replicas.
    bug(
        "demotion-leaves-the-listener",
        "rule 12",
        "it::demotion::a_refused_script_moves_the_listener",
    ),
    bug(
        "replica-not-noticed-by-the-listener",
        "rule 12",
        "it::demotion::a_new_connection_makes_a_silent_listener_ask_soon",
    ),
    bug(
        "clock-of-another-server",
        "rule 10",
        "leasehold::wire::server_clock::tests::the_clock_of_the_server_before_a_move_dates_nothing_of_the_next",
    ),
    bug(
        "too-few-replicas",
        "fail-over",
        "it::replica::without_enough_replicas_the_lock_is_given_back_and_the_error_says_so",
    ),
    bug(
        "master-not-followed",
        "fail-over",
        "it::failover::a_demoted_master_that_wakes_is_sent_nothing_once_the_switch_was_told",
    ),
    bug(
        "promoted-not-looked-for",
        "fail-over",
        "it::sentinel::a_replica_that_was_chosen_is_used_as_soon_as_it_says_itself_that_it_is_the_master",
    ),
    bug("role-not-verified", "fail-over", "registry::group::kinds::sentinel_lies_at_connect"),
    bug(
        "own-disk-not-looked-at",
        "crash of the server",
        "it::replica::without_enough_disks_the_lock_is_given_back_and_the_error_says_so",
    ),
    bug(
        "replicas-of-nothing",
        "fail-over",
        "it::replica::a_replica_that_has_only_what_came_before_the_hand_over_does_not_count",
    ),
    bug(
        "replicas-of-anothers-lock",
        "fail-over",
        "it::replica::what_is_passed_on_in_the_process_does_not_count_where_the_master_has_it_no_longer",
    ),
    // A majority of several servers.
    bug(
        "majority-of-those-that-answered",
        "majority of all",
        "torture::two_minorities_of_the_servers_are_no_majority",
    ),
    bug(
        "no-probation",
        "servers that forgot",
        "it::quorum::a_server_that_restarted_empty_does_not_count_before_its_longest_lease_is_over",
    ),
    bug(
        "second-look-admits-a-restarted-server",
        "servers that forgot",
        "it::quorum::restarted_server_has_no_vote_however_often_it_is_met",
    ),
    bug(
        "replies-show-no-life",
        "servers that forgot",
        "leasehold::topology::several::scatter::tests::restarted_server_is_no_older_than_the_last_reply",
    ),
    bug(
        "withdrawn-attempt-kept",
        "nothing is left",
        "leasehold::topology::quorum::tests::contended_attempts_leave_nothing_in_the_table",
    ),
    bug(
        "first-sending-forgotten",
        "nothing is left",
        "it::quorum::first_sending_of_a_refused_repetition_leaves_no_vote",
    ),
    bug(
        "half-a-release-as-not-sent",
        "outcomes",
        "leasehold::topology::quorum::tests::outcome_is_unknown_where_any_server_ran_a_request",
    ),
    bug(
        "unanswered-force-as-not-sent",
        "outcomes",
        "it::quorum::force_that_two_servers_may_yet_do_is_an_unknown_outcome",
    ),
    bug(
        "withdrawn-attempt-asked-again",
        "rule 5",
        "it::quorum::what_a_failed_attempt_takes_back_late_is_not_the_next_ones",
    ),
    bug(
        "two-votes-of-one-server",
        "majority of all",
        "it::quorum::two_addresses_of_one_server_are_refused_where_it_can_be_told",
    ),
    bug(
        "validity-from-the-last-vote",
        "validity",
        "it::quorum::a_grant_that_took_longer_than_its_lease_is_refused_and_given_back",
    ),
    bug(
        "renewed-by-a-minority",
        "validity",
        "it::quorum::a_lease_is_renewed_by_a_majority_and_lost_without_one",
    ),
    bug(
        "renewal-under-way-forgotten",
        "nothing is left",
        "leasehold::engine::lease::tests::lost_hold_whose_renewal_is_under_way_is_given_back",
    ),
    bug(
        "cut-look-forgotten",
        "renewal",
        "leasehold::engine::worker::tests::look_that_a_panic_cut_short_is_made_again",
    ),
    bug(
        "votes-of-a-lost-hold-kept",
        "nothing is left",
        "it::quorum::lost_hold_that_is_dropped_leaves_no_vote",
    ),
    bug(
        "failed-attempt-not-taken-back",
        "nothing is left",
        "it::quorum::redlock_py_6_without_a_majority_of_all_there_is_an_error_in_time_and_nothing_is_left",
    ),
    bug(
        "unanswered-vote-not-taken-back",
        "nothing is left",
        "it::quorum::what_was_given_without_an_answer_is_taken_back",
    ),
    bug(
        "vote-taken-back-from-another",
        "ownership",
        "it::quorum::a_late_release_leaves_the_next_holders_votes_alone",
    ),
    bug(
        "vote-after-its-deadline",
        "rule 2",
        "it::quorum::a_request_that_was_stuck_in_a_paused_server_does_nothing",
    ),
    bug(
        "token-below-the-clocks",
        "tokens of a quorum",
        "it::quorum::tokens_grow_also_where_all_servers_have_forgotten_them",
    ),
    bug(
        "any-token-accepted",
        "tokens of a quorum",
        "it::quorum::a_token_is_above_the_last_one_of_each_server_of_its_majority",
    ),
    bug(
        "fence-shorter-than-its-lead",
        "tokens of a quorum",
        "it::quorum::a_token_is_above_the_last_one_of_each_server_of_its_majority",
    ),
    bug(
        "servers-asked-one-by-one",
        "one round trip",
        "it::quorum::lock_and_unlock_take_one_round_as_on_one_server",
    ),
    bug(
        "silent-server-waited-for-again",
        "one time-out",
        "it::quorum::two_of_five_that_are_dead_or_silent_cost_one_time_out_at_most",
    ),
    bug(
        "release-told-to-nobody",
        "wake-ups of a quorum",
        "it::quorum_wait::a_waiter_is_told_of_a_release_long_before_it_would_ask_again",
    ),
    bug(
        "failed-attempt-wakes-others",
        "wake-ups of a quorum",
        "it::quorum_wait::waiters_do_not_wake_each_other",
    ),
    bug(
        "split-votes-as-a-holder",
        "wake-ups of a quorum",
        "it::quorum_wait::split_votes_are_not_waited_for_like_a_holder",
    ),
    // What is told.
    bug(
        "unknown-outcome-as-busy",
        "outcomes",
        "it::fault::a_request_that_never_arrives_is_an_unknown_outcome_in_time_and_leaves_no_key",
    ),
    bug(
        "unsent-request-as-outage",
        "outcomes",
        "leasehold::testing::scenario::who_was_kept_from_its_last_request_has_not_got_the_lock_and_that_is_all",
    ),
    bug("wrong-type-as-no-loss", "outcomes", "it::release::a_key_of_another_type_is_not_touched"),
    bug(
        "outage-as-busy",
        "outcomes",
        "it::slot::a_timed_wait_that_ends_in_an_outage_is_an_error_and_not_none",
    ),
    bug(
        "late-request-as-outage",
        "outcomes",
        "leasehold::testing::scenario::whose_last_request_came_too_late_has_not_got_the_lock_and_that_is_all",
    ),
    bug(
        "long-silence-as-busy",
        "outcomes",
        "leasehold::testing::scenario::whose_last_request_was_not_answered_in_a_usual_time_knows_nothing",
    ),
    bug(
        "told-at-any-time",
        "outcomes",
        "leasehold::testing::scenario::whose_last_request_brings_no_answer_after_a_suspend_knows_nothing",
    ),
    bug(
        "holder-before-a-grant",
        "outcomes",
        "leasehold::testing::scenario::who_was_granted_the_lock_and_cannot_make_sure_knows_nothing",
    ),
    bug(
        "grant-that-is-forgotten",
        "outcomes",
        "leasehold::testing::scenario::who_was_granted_the_lock_and_asks_too_late_to_make_sure_knows_nothing",
    ),
    bug(
        "grant-of-the-last-moment-not-taken",
        "outcomes",
        "leasehold::testing::scenario::who_was_granted_the_lock_during_a_last_request_that_failed_takes_it",
    ),
    bug(
        "grant-of-the-last-moment-as-busy",
        "outcomes",
        "leasehold::testing::scenario::who_was_granted_a_part_of_its_lease_during_a_brief_last_request_knows_nothing",
    ),
    bug(
        "hold-that-is-over",
        "outcomes",
        "leasehold::testing::scenario::a_grant_that_is_told_when_its_hold_is_over_is_given_back",
    ),
    bug(
        "untold-listener-ends-the-wait",
        "outcomes",
        "it::notify::a_listener_that_could_not_be_told_of_a_channel_ends_no_wait",
    ),
    bug(
        "heartbeat-as-long-ago",
        "outcomes",
        "leasehold::testing::scenario::whose_wait_ends_with_a_heartbeat_that_came_too_late_has_not_got_the_lock_and_that_is_all",
    ),
    bug(
        "failing-delegates-as-a-holder",
        "outcomes",
        "it::slot::threads_that_fail_one_after_the_other_are_told_so_and_not_of_a_holder",
    ),
    bug(
        "wrong-type-as-busy",
        "outcomes",
        "it::wire::a_key_of_another_type_is_an_error_and_never_busy",
    ),
    bug(
        "refusal-speaks-for-all",
        "an unknown outcome is told as unknown",
        "it::fault::a_refusal_after_a_request_without_an_answer_leaves_the_outcome_open",
    ),
    bug(
        "ordered-into-the-void",
        "a broken connection is replaced at once",
        "leasehold::wire::pool::adapter::tests::a_connection_that_is_late_to_the_pool_keeps_no_other_from_being_made",
    ),
    bug(
        "small-pools-of-a-quorum-as-outage",
        "what a caller is told",
        "leasehold::topology::quorum::tests::quorum_is_exhausted_where_its_pools_are_why",
    ),
    bug(
        "silent-server-as-a-small-pool",
        "what a caller is told",
        "it::error_text::silent_server_does_not_look_like_a_small_pool",
    ),
    bug(
        "refused-sign-in-repeated",
        "a refused password is not sent again unasked",
        "it::connecting::refused_password_is_not_sent_again_unasked",
    ),
    bug(
        "refusing-sentinel-asked-again",
        "a refused password is not sent again unasked",
        "it::connecting::refused_password_is_not_repeated_at_sentinels",
    ),
    bug(
        "refusing-server-listened-to-again",
        "a refused password is not sent again unasked",
        "it::connecting::refusing_node_is_not_listened_to_unasked",
    ),
    bug(
        "reply-that-arrived-not-read",
        "a late thread is not taken for a silent server",
        "leasehold::wire::connection::tests::replies_that_arrived_are_read_after_the_deadline",
    ),
    bug(
        "excused-silence-counts",
        "the wait for replicas is not taken for a silent server",
        "leasehold::wire::connection::tests::excused_silence_outdates_nothing",
    ),
    bug(
        "wait-outlasts-its-lease",
        "the wait for replicas ends before the lease does",
        "it::replica::lease_shorter_than_the_wait_is_not_replicated",
    ),
    bug(
        "refusal-lasts-for-ever",
        "a server that is mended is listened to again",
        "leasehold::topology::sentinel::follower::tests::mended_sentinel_is_heard_though_nobody_connects",
    ),
    bug(
        "order-waits-behind-a-refused-one",
        "a pool waits for no order of another",
        "leasehold::wire::pool::adapter::tests::order_does_not_wait_behind_those_of_a_refused_pool",
    ),
    bug(
        "silence-outdates-nothing",
        "one silent connection speaks for those that were idle",
        "it::silence::dead_idle_connections_cost_one_time_out_in_all",
    ),
    bug(
        "silence-outdates-what-replied-since",
        "one silent connection speaks for those that were idle",
        "it::silence::connection_that_replied_since_is_used_on",
    ),
    bug(
        "silent-request-not-repeated",
        "one silent connection speaks for those that were idle",
        "it::silence::release_on_a_dead_idle_connection_succeeds",
    ),
    bug(
        "connection-without-time-outs-kept",
        "every wait has a deadline",
        "leasehold::wire::connection::tests::connection_without_its_time_outs_is_poisoned",
    ),
    bug(
        "wait-and-reply-share-their-time",
        "each time-out bounds what its name says",
        "it::connecting::free_connection_is_waited_for_by_max_wait",
    ),
    bug(
        "panic-in-connecting-goes-on",
        "a connection is made after a panic",
        "leasehold::wire::pool::adapter::tests::panic_in_connecting_is_an_error",
    ),
    bug(
        "script-sent-again-before-a-late-reply",
        "a late answer read by the next",
        "leasehold::wire::connection::tests::late_reply_is_not_taken_for_that_to_a_repeated_script",
    ),
    bug(
        "poisoned-connection-kept",
        "a late answer read by the next",
        "leasehold::wire::connection::tests::excused_silence_outdates_nothing",
    ),
    bug(
        "any-number-is-a-grant",
        "a late answer read by the next",
        "it::queue::late::a_number_out_of_place_is_not_a_grant",
    ),
    bug(
        "odd-answer-spoils-nothing",
        "a late answer read by the next",
        "it::fault::an_answer_too_many_ends_its_connection_once_it_is_seen",
    ),
    bug("password-in-an-error", "secrets", "it::input::a_password_is_never_shown"),
    // Several nodes of a cluster.
    bug(
        "cluster-count-of-listeners-believed",
        "rule 12",
        "it::cluster::waiter_that_is_heard_elsewhere_is_handed_the_lock",
    ),
    bug(
        "cluster-grant-dated-by-its-receipt",
        "rule 10",
        "it::cluster::a_grant_that_comes_late_is_not_dated_by_its_coming",
    ),
    bug(
        "cluster-script-stops-half-way",
        "rule 7",
        "it::cluster::a_hand_over_from_a_slot_on_its_way_is_done_wholly_or_not_at_all",
    ),
    bug(
        "cluster-renewal-with-all-keys",
        "renewal",
        "it::cluster::a_lock_whose_slot_is_on_its_way_is_renewed_and_given_back_at_the_end",
    ),
    bug(
        "cluster-one-master-listened-to",
        "wake-ups of a cluster",
        "it::cluster::clients_listen_at_every_master_and_to_a_name_where_it_is",
    ),
    bug(
        "cluster-name-listened-to-everywhere",
        "wake-ups of a cluster",
        "it::cluster::clients_listen_at_every_master_and_to_a_name_where_it_is",
    ),
    bug(
        "cluster-new-master-not-listened-to",
        "wake-ups of a cluster",
        "it::cluster::a_promoted_master_is_listened_to",
    ),
    bug(
        "cluster-echo-told",
        "wake-ups of a cluster",
        "it::cluster::a_request_to_let_go_is_told_as_often_as_it_was_made",
    ),
    bug(
        "cluster-gone-master-not-believed",
        "wake-ups of a cluster",
        "leasehold::engine::listener::tests::what_a_server_said_before_it_went_is_believed",
    ),
    bug(
        "cluster-return-wakes-nobody",
        "rule 12",
        "it::cluster::who_waits_asks_again_when_the_master_of_its_name_is_heard_again",
    ),
    // The weighted lock.
    bug(
        "weighted-newcomer-takes-what-fits",
        "rule 27",
        "weighted::line::small_request_does_not_overtake_a_large_one",
    ),
    bug(
        "weighted-small-ones-pass-a-large-one",
        "rule 27",
        "weighted::line::small_request_does_not_overtake_a_large_one",
    ),
    bug(
        "weighted-renewal-makes-a-holder",
        "rule 25",
        "weighted::hold::renewal_neither_makes_nor_revives_a_holder",
    ),
    bug(
        "weighted-renewal-revives-a-hold",
        "rule 30",
        "weighted::hold::renewal_neither_makes_nor_revives_a_holder",
    ),
    bug(
        "weighted-release-subtracts-twice",
        "rule 23",
        "weighted::hold::weight_of_an_ended_lease_comes_back_once",
    ),
    bug(
        "weighted-beat-serves-nobody",
        "rule 24",
        "weighted::line::beat_takes_what_an_ended_lease_gives_back",
    ),
    bug(
        "weighted-weights-come-back-all-at-once",
        "rule 24",
        "weighted::hold::ended_lease_among_living_ones_gives_its_weight",
    ),
    bug(
        "weighted-release-grants-one",
        "rule 27",
        "weighted::line::release_grants_all_who_fit_side_by_side",
    ),
    bug(
        "weighted-slot-is-the-number-in-use",
        "rule 29",
        "weighted::slot::lowest_free_slots_are_given",
    ),
    bug(
        "weighted-repeat-has-other-slots",
        "rule 29",
        "weighted::hold::repeated_request_has_the_same_slots_and_its_weight_once",
    ),
    bug(
        "weighted-grant-withdrawn-by-its-count",
        "rule 28",
        "weighted::line::grant_in_a_cluster_stays_whoever_is_counted",
    ),
    bug(
        "weighted-upgrade-lines-up",
        "rule 37",
        "weighted::change::upgrade_waits_for_the_readers_before_everybody",
    ),
    bug(
        "weighted-others-pass-an-upgrade",
        "rule 37",
        "weighted::change::upgrade_waits_for_the_readers_before_everybody",
    ),
    bug(
        "weighted-plain-reader-upgrades",
        "rule 37",
        "weighted::change::plain_reader_does_not_upgrade",
    ),
    bug(
        "weighted-upgrade-keeps-the-token",
        "rule 32",
        "weighted::change::upgrade_without_readers_is_immediate_and_has_a_new_token",
    ),
    bug(
        "weighted-upgrade-outlives-its-holder",
        "rule 37",
        "weighted::change::dead_upgrade_is_forgotten_with_its_holder",
    ),
    bug(
        "weighted-downgrade-without-number",
        "rule 35",
        "weighted::change::doubled_downgrade_does_not_lower_a_later_writer",
    ),
    bug(
        "weighted-late-upgrade-after-its-cancel",
        "rule 35",
        "weighted::change::late_upgrade_after_its_cancel_does_nothing",
    ),
    bug(
        "weighted-downgrade-lets-nobody-in",
        "rule 24",
        "weighted::change::downgrade_lets_the_readers_at_the_head_in",
    ),
    bug(
        "weighted-waiter-above-the-limit-stays",
        "rule 33",
        "weighted::limit::waiter_above_the_limit_is_told_and_taken_out",
    ),
    bug(
        "weighted-compared-with-the-limit-in-force",
        "rule 33",
        "weighted::limit::requests_are_compared_with_what_was_declared",
    ),
    bug(
        "weighted-each-request-brings-its-limit",
        "rule 33",
        "weighted::limit::another_declared_limit_is_refused_while_in_use",
    ),
    bug(
        "weighted-resize-cuts-the-sum",
        "rule 33",
        "weighted::limit::holder_above_a_smaller_limit_is_granted_again",
    ),
    bug(
        "weighted-over-the-limit-not-told",
        "rule 34",
        "weighted::limit::smaller_limit_grants_nobody_until_it_fits",
    ),
    bug(
        "weighted-full-lease-on-a-repeated-grant",
        "rule 3",
        "weighted::hold::repeated_request_makes_the_lease_whole",
    ),
    bug("weighted-window-of-the-giver", "rule 7", "weighted::line::window_is_the_waiters_own"),
    bug(
        "weighted-lock-ends-with-the-last-lease",
        "rule 26",
        "weighted::hold::shorter_lease_shortens_no_key_of_a_longer_one",
    ),
    bug(
        "weighted-fence-ends-with-the-last-lease",
        "rule 26",
        "weighted::hold::shorter_lease_shortens_no_key_of_a_longer_one",
    ),
    bug(
        "weighted-silent-waiter-not-passed-over",
        "rule 40",
        "weighted::line::dead_waiter_is_passed_over_and_keeps_its_place",
    ),
    bug(
        "weighted-no-request-deadline",
        "rule 2",
        "weighted::hold::request_past_its_deadline_does_nothing",
    ),
    bug(
        "weighted-transaction-after-the-lease",
        "rule 42",
        "weighted::hold::transaction_runs_for_a_holder_alone",
    ),
    bug(
        "weighted-release-deletes-the-others",
        "rule 23",
        "weighted::hold::readers_share_and_a_writer_excludes_all",
    ),
    bug(
        "weighted-late-try-holds-and-waits",
        "rule 1",
        "weighted::line::late_try_of_a_waiter_does_not_make_it_hold_and_wait",
    ),
    bug(
        "weighted-leave-refused-when-full",
        "rule 41",
        "weighted::memory::leave_that_passes_over_the_dead_works_when_memory_is_full",
    ),
    bug(
        "weighted-renewal-refused-when-full",
        "rule 41",
        "weighted::memory::renewal_works_when_memory_is_full",
    ),
    bug(
        "weighted-change-refused-when-full",
        "rule 41",
        "weighted::memory::changes_work_when_memory_is_full",
    ),
    bug(
        "weighted-resize-refused-when-full",
        "rule 41",
        "weighted::memory::resize_and_force_work_when_memory_is_full",
    ),
    bug(
        "weighted-beat-refused-when-full",
        "rule 16",
        "weighted::memory::beat_is_served_when_memory_is_full",
    ),
];
