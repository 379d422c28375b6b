//! The bugs, what each breaks, and the test that catches it.

/// One planted bug.
pub(crate) struct Mutation {
    pub(crate) name: &'static str,
    pub(crate) breaks: &'static str,
    /// `<file of tests/, or leasehold for src/>::<test>`
    pub(crate) checker: &'static str,
}

const fn bug(name: &'static str, breaks: &'static str, checker: &'static str) -> Mutation {
    Mutation { name, breaks, checker }
}

/// All of them. Rules are those of the queue protocol.
pub(crate) const MUTATIONS: &[Mutation] = &[
    // Attempts and requests.
    bug("beat-that-may-join", "rule 1", "queue::a_waiter_that_was_forgotten_queues_up_anew"),
    bug(
        "no-request-deadline",
        "rule 2",
        "queue::a_request_that_comes_too_late_neither_takes_nor_joins",
    ),
    bug(
        "deadline-from-the-sending",
        "rule 2",
        "leasehold::wire::server_clock::tests::a_deadline_on_the_server_is_never_later_than_the_holders",
    ),
    bug(
        "unanswered-request-forgotten",
        "rules 2, 6",
        "queue::a_join_that_overtakes_its_leave_is_undone_in_the_end",
    ),
    bug(
        "full-ttl-on-a-repeated-grant",
        "rule 3",
        "fault::a_repeated_grant_has_the_first_ones_token_and_is_valid_no_longer_than_redis_says",
    ),
    bug("repeated-request-counts", "rule 3", "reentrant::a_repeated_request_counts_once"),
    bug(
        "validity-from-receipt",
        "rule 3",
        "fault::a_grant_is_valid_no_longer_than_redis_says_however_late_its_answer",
    ),
    bug(
        "validity-without-end",
        "validity",
        "fault::a_holder_stopped_past_its_lease_knows_before_any_io_and_is_fenced",
    ),
    bug("no-drift-allowance", "validity", "mutex::the_time_to_live_in_redis_is_the_lease"),
    bug(
        "grant-that-is-over",
        "validity",
        "fault::a_grant_that_took_longer_than_its_lease_is_refused_and_given_back",
    ),
    bug("newcomer-barges", "rule 4", "queue::nobody_takes_it_before_those_who_wait"),
    bug(
        "attempt-reused-after-leave",
        "rule 5",
        "queue::a_thread_that_gives_up_leaves_its_place_to_the_next_of_its_process",
    ),
    bug("one-value-per-client", "rule 5", "mutex::every_attempt_has_a_value_of_its_own"),
    bug(
        "leave-without-leaving",
        "rule 5",
        "queue::a_waiter_whose_time_is_over_leaves_nothing_and_is_handed_nothing",
    ),
    bug("leave-sent-once", "rule 6", "queue::a_join_that_overtakes_its_leave_is_undone_in_the_end"),
    bug(
        "no-reconciliation-after-release",
        "rule 6",
        "queue::a_request_that_comes_after_the_release_is_undone_in_the_end",
    ),
    // Hand-over and grants.
    bug(
        "releasers-ttl-for-the-next-owner",
        "rule 7",
        "queue::a_claim_is_the_next_owners_and_its_first_renewal_makes_it_whole",
    ),
    bug("grant-of-another-attempt", "rule 7", "wake::nonsense_in_a_message_is_ignored"),
    bug(
        "silent-waiter-not-skipped",
        "rule 8",
        "queue::a_stopped_waiter_has_its_place_again_when_it_comes_back",
    ),
    bug("no-heartbeat", "rule 8", "notify::a_missed_message_costs_a_heartbeat_and_not_a_lease"),
    bug(
        "fixed-lease-not-made-whole",
        "rule 9",
        "queue::a_fixed_lease_that_was_handed_over_is_whole",
    ),
    bug(
        "grant-dated-by-its-receipt",
        "rule 10",
        "leasehold::wire::server_clock::tests::a_message_is_dated_no_later_than_it_was_sent",
    ),
    bug(
        "early-grant-not-kept",
        "rule 10",
        "wake::a_grant_that_comes_before_the_answer_to_its_join_is_kept",
    ),
    bug(
        "skipped-waiter-loses-its-place",
        "rule 11",
        "queue::a_stopped_waiter_has_its_place_again_when_it_comes_back",
    ),
    bug("killed-waiter-not-skipped", "rule 12", "queue::three_killed_waiters_are_skipped_together"),
    bug(
        "reconnect-wakes-nobody",
        "rule 12",
        "wake::a_cut_wake_up_connection_comes_back_and_wakes_everybody",
    ),
    bug(
        "force-release-passes-nobody-on",
        "the queue stands still",
        "queue::a_forced_release_serves_the_first_who_waits",
    ),
    bug(
        "queue-without-an-end",
        "keys that never end",
        "queue::all_keys_share_the_names_slot_and_end",
    ),
    // Renewal and release.
    bug(
        "renewal-that-shortens",
        "rule 14",
        "renewal::extend_makes_a_lease_longer_and_never_shorter",
    ),
    bug(
        "extension-that-shortens",
        "rule 14",
        "renewal::extend_makes_a_lease_longer_and_never_shorter",
    ),
    bug(
        "renewal-makes-the-key-again",
        "ownership",
        "renewal::a_deleted_key_is_a_loss_within_a_renewal_and_is_not_made_again",
    ),
    bug(
        "renewal-of-anothers-lock",
        "ownership",
        "renewal::a_key_that_another_has_is_a_loss_and_is_left_alone",
    ),
    bug("delete-without-a-look", "rule 15", "release::another_owners_key_is_not_touched"),
    bug(
        "reentrant-delete-without-a-look",
        "rule 15",
        "reentrant::another_owners_hash_is_not_touched",
    ),
    bug(
        "transaction-without-watch",
        "WATCH",
        "release::release_by_watch_loses_the_race_for_a_key_that_changed_in_between",
    ),
    bug("transaction-without-a-look", "WATCH", "release::another_owners_key_is_not_touched"),
    bug(
        "renewed-after-release",
        "rule 15",
        "release::a_renewal_that_races_the_release_makes_no_key",
    ),
    bug(
        "late-release-as-done",
        "rule 15",
        "release::a_repeated_release_that_comes_after_the_lease_is_an_unknown_outcome",
    ),
    bug(
        "unknown-release-as-released",
        "outcomes",
        "release::a_release_that_does_not_get_through_says_so_and_is_finished_by_the_worker",
    ),
    bug(
        "failed-release-forgotten",
        "outcomes",
        "release::a_release_that_does_not_get_through_says_so_and_is_finished_by_the_worker",
    ),
    bug(
        "first-write-refused-when-full",
        "rule 16",
        "queue::the_lock_is_handed_over_when_memory_is_full",
    ),
    // Inside the process.
    bug(
        "passed-on-unanswered",
        "rule 17",
        "handoff::a_lease_with_a_command_that_was_never_answered_is_not_passed_on",
    ),
    bug(
        "passed-on-unsettled",
        "rule 17",
        "handoff::a_lease_with_a_command_that_was_never_answered_is_not_passed_on",
    ),
    bug("max-hold-ignored", "rule 17", "renewal::max_hold_ends_the_hold_and_its_renewal"),
    bug(
        "hand-off-bound-ignored",
        "fairness",
        "handoff::passing_on_is_bounded_while_another_process_waits",
    ),
    bug(
        "linger-with-waiters",
        "rule 18",
        "linger::a_lease_that_somebody_waits_for_does_not_linger",
    ),
    bug("linger-not-revoked", "rule 18", "linger::a_waiter_of_another_process_ends_it_at_once"),
    bug(
        "reentry-after-loss",
        "validity",
        "hold::reentry_after_the_lease_was_lost_is_an_error_and_not_a_second_hold",
    ),
    bug(
        "inner-release-ends-the-hold",
        "reentry",
        "hold::the_last_guard_dropped_gives_it_back_in_whatever_order",
    ),
    bug(
        "valid-after-the-loss",
        "invalid first, then the callback",
        "renewal::the_callback_runs_after_the_guard_is_invalid",
    ),
    // Tokens.
    bug(
        "tokens-ahead-of-the-clock",
        "rule 19",
        "handoff::a_token_that_redis_never_heard_of_is_given_to_nobody_else",
    ),
    bug(
        "token-not-written-back",
        "rule 19",
        "handoff::a_token_that_was_written_back_is_respected_by_the_next_process",
    ),
    bug(
        "short-counter-ttl",
        "rule 19",
        "token::tokens_grow_while_the_counter_is_ahead_of_the_servers_clock",
    ),
    bug("counter-not-renewed", "rule 19", "token::the_counter_outlives_a_lock_that_is_renewed"),
    bug(
        "token-of-the-clock-alone",
        "rule 19",
        "token::tokens_grow_while_the_counter_is_ahead_of_the_servers_clock",
    ),
    bug(
        "token-with-an-exponent",
        "rule 20",
        "token::tokens_grow_while_the_counter_is_ahead_of_the_servers_clock",
    ),
    // Replicas.
    bug(
        "too-few-replicas",
        "fail-over",
        "replica::without_enough_replicas_the_lock_is_given_back_and_the_error_says_so",
    ),
    bug(
        "replicas-of-nothing",
        "fail-over",
        "replica::a_replica_that_has_only_what_came_before_the_hand_over_does_not_count",
    ),
    // What is told.
    bug(
        "unknown-outcome-as-busy",
        "outcomes",
        "fault::a_request_that_never_arrives_is_an_unknown_outcome_in_time_and_leaves_no_key",
    ),
    bug("wrong-type-as-busy", "outcomes", "wire::a_key_of_another_type_is_an_error_and_never_busy"),
    bug(
        "poisoned-connection-kept",
        "a late answer read by the next",
        "fault::an_answer_that_never_comes_spoils_only_its_own_command",
    ),
    bug(
        "any-number-is-a-grant",
        "a late answer read by the next",
        "queue::a_number_out_of_place_is_not_a_grant",
    ),
    bug(
        "odd-answer-spoils-nothing",
        "a late answer read by the next",
        "fault::an_answer_too_many_ends_its_connection_once_it_is_seen",
    ),
    bug("password-in-an-error", "secrets", "input::a_password_is_never_shown"),
];
