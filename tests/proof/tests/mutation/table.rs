//! The bugs, what each breaks, and the test that catches it.

/// One planted bug.
#[derive(Clone, Copy)]
pub(crate) struct Mutation {
    pub(crate) name: &'static str,
    pub(crate) breaks: &'static str,
    /// `<program of tests/, or leasehold for src/>::<modules>::<test>`
    pub(crate) checker: &'static str,
}

const fn bug(name: &'static str, breaks: &'static str, checker: &'static str) -> Mutation {
    Mutation { name, breaks, checker }
}

/// Bugs of the table below that recorded histories show, too: at least one for each model of the checker that is not ours
/// (`tests/history`). They need Go, and so are no part of a sample.
pub(crate) const HISTORIES: &[Mutation] = &[
    bug("validity-without-end", "fenced mutex", "history::mutex_is_legal"),
    bug("inner-release-ends-the-hold", "reentrant lock", "history::reentrant_lock_is_legal"),
    bug("weighted-slot-is-the-number-in-use", "semaphore", "history::semaphore_is_legal"),
    bug("weighted-upgrade-keeps-the-token", "read-write lock", "history::read_write_lock_is_legal"),
    bug("number-of-a-word-stands-still", "election", "history::election_is_legal"),
    bug("job-done-period-is-due", "period of a job", "history::job_is_legal"),
    bug(
        "inner-release-ends-the-hold",
        "lost updates",
        "history::set_changed_under_the_lock_loses_nothing",
    ),
    bug(
        "transaction-without-a-look",
        "lost updates by transactions",
        "history::set_changed_by_a_transaction_loses_nothing",
    ),
];

/// All of them. Rules are those of the queue protocol.
pub(crate) const MUTATIONS: &[Mutation] = &[
    // Attempts and requests.
    bug("beat-that-may-join", "rule 1", "it::queue::dead::forgotten_waiter_queues_up_anew"),
    bug("no-request-deadline", "rule 2", "it::queue::late::late_request_neither_takes_nor_joins"),
    bug(
        "request-without-a-deadline",
        "rule 2",
        "leasehold::wire::server_clock::tests::clock_of_the_old_server_dates_nothing_after_a_move",
    ),
    bug(
        "deadline-from-the-sending",
        "rule 2",
        "leasehold::wire::server_clock::tests::server_deadline_is_never_later_than_the_callers",
    ),
    bug(
        "unanswered-request-forgotten",
        "rules 2, 6",
        "it::queue::late::join_that_overtakes_its_leave_is_undone",
    ),
    bug(
        "full-ttl-on-a-repeated-grant",
        "rule 3",
        "it::fault::repeated_grant_keeps_its_token_and_its_time_to_live",
    ),
    bug("repeated-request-counts", "rule 3", "it::reentrant::a_repeated_request_counts_once"),
    bug(
        "validity-from-receipt",
        "rule 3",
        "it::fault::late_reply_makes_no_grant_valid_beyond_redis",
    ),
    bug(
        "validity-without-end",
        "validity",
        "it::fault::stopped_holder_knows_its_loss_before_io_and_is_fenced",
    ),
    bug("no-drift-allowance", "validity", "it::mutex::the_time_to_live_in_redis_is_the_lease"),
    bug(
        "no-clock-skew",
        "rule 54",
        "leasehold::tests::skew::validity_ends_earlier_by_the_skew_or_a_tenth_of_the_lease",
    ),
    bug(
        "skew-not-bounded-by-the-lease",
        "rule 54",
        "leasehold::tests::skew::validity_ends_earlier_by_the_skew_or_a_tenth_of_the_lease",
    ),
    bug(
        "skew-of-the-window",
        "rules 8, 54",
        "leasehold::tests::skew::claim_has_the_skew_of_its_lease_and_a_longer_window",
    ),
    bug(
        "claim-window-without-skew",
        "rules 8, 54",
        "leasehold::tests::skew::claim_has_the_skew_of_its_lease_and_a_longer_window",
    ),
    bug(
        "kept-lease-without-skew",
        "rule 54",
        "leasehold::tests::skew::kept_lock_lasts_at_a_server_whose_clock_is_ahead",
    ),
    bug(
        "given-back-as-if-clocks-agreed",
        "rule 54",
        "leasehold::tests::skew::worker_gives_back_what_a_server_behind_still_has",
    ),
    bug(
        "servers-of-one-clock",
        "rule 54",
        "leasehold::tests::skew::default_depends_on_whether_a_lock_can_move",
    ),
    bug(
        "grant-that-is-over",
        "validity",
        "it::fault::grant_slower_than_its_lease_is_refused_and_released",
    ),
    bug("newcomer-barges", "rule 4", "it::queue::order::newcomers_do_not_overtake_waiters"),
    bug(
        "attempt-reused-after-leave",
        "rule 5",
        "it::queue::order::thread_that_gives_up_leaves_its_place_to_its_process",
    ),
    bug("one-value-per-client", "rule 5", "it::mutex::every_attempt_has_a_value_of_its_own"),
    bug(
        "leave-without-leaving",
        "rule 5",
        "it::queue::order::timed_out_waiter_leaves_nothing_and_gets_nothing",
    ),
    bug("leave-sent-once", "rule 6", "it::queue::late::join_that_overtakes_its_leave_is_undone"),
    bug(
        "no-reconciliation-after-release",
        "rule 6",
        "it::queue::late::request_that_arrives_after_the_release_is_undone",
    ),
    bug(
        "helper-key-as-a-name",
        "no lock is a key of another",
        "it::input::name_equal_to_a_side_key_is_rejected_before_any_io",
    ),
    // Hand-over and grants.
    bug(
        "releasers-ttl-for-the-next-owner",
        "rule 7",
        "it::queue::grant::first_renewal_makes_the_next_owners_claim_whole",
    ),
    bug("grant-of-another-attempt", "rule 7", "it::wake::nonsense_in_a_message_is_ignored"),
    bug(
        "silent-waiter-not-skipped",
        "rule 8",
        "it::queue::dead::resumed_waiter_has_its_place_again",
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
        "leasehold::wire::server_clock::tests::message_is_dated_no_later_than_its_sending",
    ),
    bug(
        "early-grant-not-kept",
        "rule 10",
        "it::wake::grant_received_before_its_join_reply_is_kept",
    ),
    bug(
        "skipped-waiter-loses-its-place",
        "rule 11",
        "it::queue::dead::resumed_waiter_has_its_place_again",
    ),
    bug(
        "newcomer-overtakes-the-skipped",
        "rule 11",
        "it::queue::script::newcomer_queues_behind_all_skipped_waiters",
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
        "cluster-holder-hears-for-waiters",
        "rule 12",
        "leasehold::engine::listener::tests::holder_listens_where_its_locks_are_and_waiter_everywhere",
    ),
    bug(
        "reconnect-wakes-nobody",
        "rule 12",
        "it::wake::cut_wake_up_connection_returns_and_wakes_all",
    ),
    bug(
        "fence-of-the-giver",
        "the counter of tokens ends before the lease",
        "it::token::the_counter_outlives_a_lease_longer_than_the_givers",
    ),
    bug(
        "force-release-passes-nobody-on",
        "the queue stands still",
        "it::queue::order::forced_release_serves_the_first_waiter",
    ),
    bug(
        "force-without-its-owner",
        "a forced release evicts the one it is aimed at",
        "it::force::stuck_force_leaves_a_later_holder_alone",
    ),
    bug(
        "hash-of-data-forced",
        "a hash of data is left alone",
        "it::data::hash_of_data_is_neither_waited_for_nor_deleted",
    ),
    bug(
        "owner-with-any-value",
        "the value of an owner is a whole number",
        "it::data::hash_of_data_is_neither_waited_for_nor_deleted",
    ),
    bug(
        "wait-for-a-hash-of-data",
        "nobody waits for data",
        "it::data::hash_of_data_is_neither_waited_for_nor_deleted",
    ),
    bug(
        "wait-for-a-huge-hash-of-data",
        "a hash of many fields that has no end is data",
        "it::data::large_hash_without_an_end_is_data",
    ),
    bug(
        "string-of-data-forced",
        "a string that may be data is left alone",
        "it::data::string_without_an_end_is_a_lock_only_if_the_caller_says_so",
    ),
    bug(
        "string-without-an-end-found",
        "a string that may be data is not listed",
        "it::data::string_without_an_end_is_a_lock_only_if_the_caller_says_so",
    ),
    bug(
        "every-reader-forced",
        "the others of Redisson's read-write lock keep theirs",
        "it::data::one_reader_is_evicted_and_the_others_stay",
    ),
    bug(
        "lease-of-the-evicted-reader",
        "the lock lives as long as the readers who are left",
        "it::data::one_reader_is_evicted_and_the_others_stay",
    ),
    bug("force-without-a-deadline", "rule 2", "it::force::force_past_its_deadline_evicts_nobody"),
    bug(
        "eviction-not-told",
        "who is evicted is told",
        "it::force::evicted_holder_that_listens_learns_it_at_once",
    ),
    bug(
        "queue-without-an-end",
        "keys that never end",
        "it::queue::dead::all_keys_share_the_names_slot_and_expire",
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
        "it::renewal::deleted_key_is_a_loss_within_a_renewal_and_stays_away",
    ),
    bug(
        "renewal-of-anothers-lock",
        "ownership",
        "it::renewal::key_of_another_owner_is_a_loss_and_is_not_touched",
    ),
    bug(
        "delete-without-a-look",
        "rule 15",
        "it::release::release_does_not_touch_another_owners_key",
    ),
    bug(
        "reentrant-delete-without-a-look",
        "rule 15",
        "it::reentrant::release_does_not_touch_another_owners_hash",
    ),
    bug(
        "no-pause-for-listeners",
        "sharing with Redisson",
        "leasehold::engine::slot::pause::tests::released_lock_is_left_to_listeners_for_a_pause",
    ),
    bug(
        "taken-lease-counts-as-a-wait",
        "close counts the waits that it ends",
        "leasehold::engine::slot::state::tests::overlap::passed_lease_is_a_hold_while_the_client_closes",
    ),
    bug(
        "turn-with-the-first-release",
        "turns of a reentrant lock",
        "leasehold::engine::slot::fairness::tests::processes_have_equal_turns_in_whatever_order_they_hear",
    ),
    bug(
        "turn-forgotten-after-a-request",
        "turns of a reentrant lock",
        "leasehold::engine::slot::pause::tests::waiter_whose_pause_was_too_short_pauses_again_at_the_release",
    ),
    bug(
        "holder-that-does-not-listen",
        "waiters",
        "it::holder::holder_that_never_waited_learns_of_waiters_elsewhere",
    ),
    bug(
        "transaction-without-watch",
        "WATCH",
        "it::release::release_by_watch_of_a_key_changed_meanwhile_is_a_loss",
    ),
    bug(
        "transaction-without-a-look",
        "WATCH",
        "it::release::release_does_not_touch_another_owners_key",
    ),
    bug(
        "transaction-with-an-unknown-word",
        "all or nothing",
        "leasehold::tests::double::permits_transaction_takes_commands_of_one_word_that_need_no_more",
    ),
    bug(
        "renewed-after-release",
        "rule 15",
        "leasehold::engine::lease::tests::renewal_confirmed_after_the_release_changes_nothing",
    ),
    bug(
        "late-release-as-done",
        "rule 15",
        "it::release::repeated_release_after_the_lease_is_unknown",
    ),
    bug(
        "unknown-release-as-released",
        "outcomes",
        "it::release::failed_release_is_reported_and_the_worker_finishes_it",
    ),
    bug(
        "repetition-speaks-for-both",
        "outcomes",
        "it::fault::request_lost_with_the_only_connection_is_unknown",
    ),
    bug(
        "failed-release-forgotten",
        "outcomes",
        "it::release::failed_release_is_reported_and_the_worker_finishes_it",
    ),
    bug(
        "each-dropped-guard-waits",
        "the time of a caller",
        "leasehold::tests::double::guards_dropped_while_the_server_is_silent_wait_for_one_timeout",
    ),
    bug(
        "first-write-refused-when-full",
        "rule 16",
        "it::queue::dead::the_lock_is_handed_over_when_memory_is_full",
    ),
    bug(
        "unanswered-extension-forgotten",
        "an unknown outcome is cleaned up",
        "it::fault::lease_left_by_an_unanswered_extension_is_released",
    ),
    bug(
        "lost-hold-leaves-a-ghost",
        "rules 6, 30",
        "it::queue::late::request_that_arrives_after_the_loss_leaves_no_owner",
    ),
    bug(
        "late-reply-revives-a-hold",
        "rule 30",
        "leasehold::engine::lease::tests::late_renewal_reply_revives_no_hold",
    ),
    bug(
        "renewal-moved-for-a-hold-that-is-over",
        "renewal",
        "leasehold::engine::lease::tests::renewal_confirmed_after_the_release_changes_nothing",
    ),
    bug(
        "retry-timed-by-the-whole-lease",
        "renewal",
        "leasehold::tests::renewal::silent_renewal_of_a_handed_over_lease_is_tried_again",
    ),
    bug(
        "short-lease-cuts-the-others",
        "renewal",
        "leasehold::tests::renewal::short_lease_does_not_cut_the_timeout_of_others",
    ),
    bug(
        "unanswered-renewal-forgotten",
        "an unknown outcome is cleaned up",
        "leasehold::tests::renewal::lost_lease_with_unanswered_renewals_is_released",
    ),
    // Inside the process.
    bug(
        "passed-on-unanswered",
        "rule 17",
        "it::handoff::lease_with_an_unanswered_command_is_not_passed_on",
    ),
    bug(
        "repeated-extension-forgotten",
        "rules 17, 31",
        "it::handoff::lease_with_an_unanswered_command_is_not_passed_on",
    ),
    bug(
        "passed-on-unsettled",
        "rule 17",
        "it::handoff::lease_with_an_unanswered_command_is_not_passed_on",
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
    bug(
        "cut-lease-never-renewed",
        "rule 9",
        "it::handoff::lease_is_passed_on_only_to_compatible_options",
    ),
    bug("linger-with-waiters", "rule 18", "it::linger::lease_with_a_waiter_does_not_linger"),
    bug(
        "pile-without-end",
        "the work that waits for the worker is bounded by live leases",
        "leasehold::tests::task_queue::released_leases_leave_nothing_on_the_task_queue",
    ),
    bug(
        "live-thrown-away",
        "what the worker must do is never thrown away",
        "leasehold::tests::task_queue::a_lease_taken_again_is_renewed",
    ),
    bug(
        "relocks-starve-renewal",
        "the work that waits for the worker is bounded by live leases",
        "leasehold::tests::task_queue::a_lease_taken_again_has_one_entry_on_the_task_queue",
    ),
    bug(
        "worker-sleeps-past-a-check",
        "the worker wakes for the first check, whatever it was woken for",
        "leasehold::engine::worker::tests::a_lock_taken_over_and_over_wakes_the_worker_once",
    ),
    bug(
        "worker-woken-by-each-lock",
        "a lock taken over and over does not wake the worker each time",
        "leasehold::engine::worker::tests::a_lock_taken_over_and_over_wakes_the_worker_once",
    ),
    bug(
        "turn-without-end",
        "a renewal that is due does not wait for what comes meanwhile",
        "leasehold::engine::worker::tests::a_turn_ends_although_more_falls_due_meanwhile",
    ),
    bug(
        "returns-starve-renewal",
        "a renewal that is due does not wait for all that is given back",
        "leasehold::engine::worker::tests::a_turn_takes_all_leases_and_some_pending_releases",
    ),
    bug(
        "shutdown-overlooks-a-linger",
        "shutdown",
        "leasehold::tests::shutdown::shutdown_waits_for_a_linger_the_listener_ends",
    ),
    bug(
        "lock-while-closing",
        "close",
        "leasehold::tests::close::waits_end_at_once_and_later_ones_are_refused",
    ),
    bug(
        "close-without-its-grace",
        "close",
        "leasehold::tests::close::holder_goes_on_until_the_grace_is_over",
    ),
    bug(
        "release-ends-no-grace",
        "close",
        "leasehold::engine::shutdown::tests::release_wakes_the_thread_that_closes",
    ),
    bug(
        "grant-kept-while-closing",
        "close",
        "leasehold::tests::close::grant_that_arrives_while_closing_is_given_back_untold",
    ),
    bug(
        "passed-on-while-closing",
        "close",
        "leasehold::engine::slot::state::tests::lease_is_not_passed_on_once_the_client_closes",
    ),
    bug(
        "lost-lock-kept",
        "a kept lock",
        "leasehold::tests::keep::keep_that_came_too_late_keeps_nothing",
    ),
    bug(
        "linger-while-closing",
        "close",
        "leasehold::tests::close::released_hold_does_not_linger_while_closing",
    ),
    bug(
        "kept-lock-passed-on",
        "a kept lock",
        "leasehold::tests::keep::kept_lock_is_neither_passed_on_nor_lingers",
    ),
    bug(
        "kept-lock-released",
        "a kept lock",
        "leasehold::tests::keep::kept_lock_is_nobodys_until_its_time_is_over",
    ),
    bug(
        "kept-lease-not-made-longer",
        "a kept lock",
        "leasehold::tests::keep::kept_lock_outlasts_its_process_and_ends_with_its_lease",
    ),
    bug(
        "shutdown-releases-a-kept-lock",
        "a kept lock",
        "leasehold::tests::keep::closed_client_neither_waits_for_a_kept_lock_nor_ends_it",
    ),
    bug(
        "shutdown-waits-for-a-kept-lock",
        "a kept lock",
        "leasehold::engine::worker::tests::kept_value_is_owed_when_its_time_is_over_and_not_before",
    ),
    bug(
        "claim-confirmed-in-name-only",
        "rule 9",
        "leasehold::tests::keep::confirmed_claim_is_whole_at_once",
    ),
    bug(
        "linger-not-revoked",
        "rule 18",
        "it::linger::waiter_of_another_process_ends_a_linger_at_once",
    ),
    bug("reentry-after-loss", "validity", "it::hold::reentry_after_a_loss_is_an_error"),
    bug(
        "inner-release-hides-the-loss",
        "validity",
        "it::hold::every_release_of_a_lost_lease_reports_the_loss",
    ),
    bug(
        "inner-release-ends-the-hold",
        "reentry",
        "it::hold::last_guard_dropped_releases_in_any_order",
    ),
    bug(
        "unconfirmed-linger-taken-again",
        "a hold that another may have",
        "leasehold::engine::slot::state::tests::linger_is_taken_again_within_a_heartbeat_of_its_confirmation_only",
    ),
    bug(
        "claim-renewed-at-a-third",
        "rule 9",
        "leasehold::tests::renewal::handed_over_lease_is_whole_soon_and_outlives_a_stall",
    ),
    bug(
        "lines-written-by-the-worker",
        "renewals wait for no logger",
        "it::blocked_logger::logger_that_blocks_keeps_no_lease_from_renewal_and_no_loss_from_its_callback",
    ),
    bug(
        "valid-after-the-loss",
        "invalid first, then the callback",
        "it::shutdown::shutdown_releases_everything_before_it_returns",
    ),
    // Tokens.
    bug(
        "tokens-ahead-of-the-clock",
        "rule 19",
        "it::handoff::token_unknown_to_redis_is_not_given_again",
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
        "it::handoff::next_process_respects_a_written_back_token",
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
    // Listeners.
    bug(
        "one-waiter-of-a-shared-channel",
        "rule 12",
        "leasehold::tests::shared_channel::a_shared_channel_wakes_the_waiters_of_both_locks",
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
        "it::demotion::new_connection_makes_an_idle_listener_ask_soon",
    ),
    bug("renewal-tells-no-time", "rule 57", "it::clock::renewal_tells_the_time"),
    bug(
        "clock-fault-not-told",
        "rule 57",
        "it::clock::lease_that_a_step_has_ended_is_found_by_another_reply",
    ),
    bug("clock-fault-raises-no-doubt", "rule 57", "it::clock::renewal_tells_the_time"),
    bug("stepped-reading-kept", "rule 57", "it::clock::step_costs_neither_a_lock_nor_a_connection"),
    bug(
        "step-is-an-odd-answer",
        "rule 57",
        "it::clock::step_costs_neither_a_lock_nor_a_connection",
    ),
    bug(
        "clock-of-the-next-server-unchecked",
        "rule 58",
        "leasehold::wire::server_clock::tests::server_that_takes_over_is_compared_with_the_one_before",
    ),
    bug(
        "clocks-not-compared",
        "rule 58",
        "leasehold::wire::server_clock::tests::clocks_that_differ_are_told_once",
    ),
    bug(
        "message-of-another-run-believed",
        "rule 10",
        "it::clock::grant_by_message_is_not_believed_after_a_step",
    ),
    bug(
        "message-of-another-node-believed",
        "rule 10",
        "leasehold::wire::server_clock::tests::message_is_confirmed_by_the_clock_of_its_run",
    ),
    bug(
        "clock-of-another-server",
        "rule 10",
        "leasehold::wire::server_clock::tests::clock_of_the_old_server_dates_nothing_after_a_move",
    ),
    bug(
        "too-few-replicas",
        "fail-over",
        "it::replica::lock_without_enough_replicas_is_released_with_an_error",
    ),
    bug(
        "master-not-followed",
        "fail-over",
        "it::failover::woken_demoted_master_is_sent_nothing_after_the_switch",
    ),
    bug(
        "promoted-not-looked-for",
        "fail-over",
        "it::sentinel::chosen_replica_is_used_once_its_role_is_master",
    ),
    bug(
        "silent-sentinel-waited-for",
        "a start with one thing wrong",
        "it::start::one_silent_sentinel_of_three_keeps_no_client_from_starting",
    ),
    bug(
        "doubted-master-refused",
        "a start with one thing wrong",
        "leasehold::topology::sentinel::finding::tests::highest_rank_decides_and_a_master_that_most_consider_down_is_not_tried",
    ),
    bug(
        "down-master-tried",
        "fail-over",
        "leasehold::topology::sentinel::finding::tests::highest_rank_decides_and_a_master_that_most_consider_down_is_not_tried",
    ),
    bug(
        "address-not-mapped",
        "a start behind a NAT",
        "it::map_address::master_is_reached_at_the_mapped_address_and_errors_name_both",
    ),
    bug(
        "connection-to-a-sentinel-not-kept",
        "load of an idle client",
        "it::sentinel::idle_client_keeps_its_connections_to_sentinels",
    ),
    bug(
        "each-caller-connects-in-an-outage",
        "load in an outage",
        "leasehold::wire::connect_attempts::tests::callers_share_attempts_in_a_long_outage",
    ),
    bug(
        "patience-of-one-server",
        "fail-over",
        "leasehold::tests::skew::default_outage_outlasts_a_fail_over",
    ),
    bug(
        "outbid-by-itself-as-contention",
        "outcomes",
        "it::quorum::two_addresses_of_one_server_are_refused_or_one_vote",
    ),
    bug(
        "dead-address-waited-for",
        "a start with one thing wrong",
        "leasehold::wire::raw_connection::tests::host_whose_first_address_is_dead_is_connected_to",
    ),
    bug(
        "server-version-not-looked-at",
        "a server that is too old",
        "it::start::server_that_is_too_old_is_refused_at_the_first_connection",
    ),
    bug("role-not-verified", "fail-over", "registry::group::kinds::sentinel_lies_at_connect"),
    bug(
        "own-disk-not-looked-at",
        "crash of the server",
        "it::replica::lock_without_enough_disks_is_released_with_an_error",
    ),
    bug(
        "replicas-of-nothing",
        "fail-over",
        "it::replica::replica_without_the_hand_over_does_not_count",
    ),
    bug(
        "replicas-of-anothers-lock",
        "fail-over",
        "it::replica::passed_on_lease_missing_at_the_master_is_a_loss",
    ),
    // A majority of several servers.
    bug(
        "majority-of-those-that-answered",
        "majority of all",
        "torture::two_minorities_make_no_majority",
    ),
    bug(
        "no-quarantine",
        "servers that forgot",
        "it::quorum::empty_restarted_server_has_no_vote_for_its_longest_lease",
    ),
    bug(
        "second-look-admits-a-restarted-server",
        "servers that forgot",
        "it::quorum::repeated_contact_gives_a_restarted_server_no_vote",
    ),
    bug(
        "replies-show-no-life",
        "servers that forgot",
        "leasehold::topology::multi_node::scatter::tests::restarted_server_is_no_older_than_the_last_reply",
    ),
    bug(
        "withdrawn-attempt-kept",
        "nothing is left",
        "leasehold::topology::quorum::tests::contended_attempts_leave_no_ballots",
    ),
    bug(
        "first-sending-forgotten",
        "nothing is left",
        "it::quorum::unanswered_request_with_a_refused_repeat_leaves_no_vote",
    ),
    bug(
        "half-a-release-as-not-sent",
        "outcomes",
        "leasehold::topology::quorum::tests::outcome_is_unknown_where_any_server_ran_a_request",
    ),
    bug(
        "unanswered-force-as-not-sent",
        "outcomes",
        "it::quorum::force_pending_on_two_servers_is_an_unknown_outcome",
    ),
    bug(
        "withdrawn-attempt-asked-again",
        "rule 5",
        "it::quorum::late_release_of_a_failed_attempt_spares_the_next_one",
    ),
    bug(
        "two-votes-of-one-server",
        "majority of all",
        "it::quorum::two_addresses_of_one_server_are_refused_or_one_vote",
    ),
    bug(
        "validity-from-the-last-vote",
        "validity",
        "it::quorum::grant_slower_than_its_lease_is_refused_and_released",
    ),
    bug(
        "renewed-by-a-minority",
        "validity",
        "it::quorum::a_lease_is_renewed_by_a_majority_and_lost_without_one",
    ),
    bug(
        "renewal-under-way-forgotten",
        "nothing is left",
        "leasehold::engine::lease::tests::hold_lost_during_its_renewal_is_released",
    ),
    bug(
        "cut-look-forgotten",
        "renewal",
        "leasehold::engine::worker::tests::look_cut_short_by_a_panic_is_repeated",
    ),
    bug(
        "votes-of-a-lost-hold-kept",
        "nothing is left",
        "it::quorum::dropped_lost_hold_leaves_no_vote",
    ),
    bug(
        "failed-attempt-not-taken-back",
        "nothing is left",
        "it::quorum::redlock_py_6_no_majority_is_an_error_and_leaves_nothing",
    ),
    bug(
        "unanswered-vote-not-taken-back",
        "nothing is left",
        "it::quorum::votes_given_without_a_reply_are_taken_back",
    ),
    bug(
        "vote-taken-back-from-another",
        "ownership",
        "it::quorum::a_late_release_leaves_the_next_holders_votes_alone",
    ),
    bug(
        "vote-after-its-deadline",
        "rule 2",
        "it::quorum::request_delayed_in_a_paused_server_does_nothing",
    ),
    bug(
        "token-below-the-clocks",
        "tokens of a quorum",
        "it::quorum::tokens_grow_after_all_servers_lost_them",
    ),
    bug(
        "any-token-accepted",
        "tokens of a quorum",
        "it::quorum::token_exceeds_the_last_one_of_each_server_in_its_majority",
    ),
    bug(
        "fence-shorter-than-its-lead",
        "tokens of a quorum",
        "it::quorum::token_exceeds_the_last_one_of_each_server_in_its_majority",
    ),
    bug(
        "servers-asked-one-by-one",
        "one round trip",
        "it::quorum::lock_and_unlock_take_one_round_as_on_one_server",
    ),
    bug(
        "silent-server-waited-for-again",
        "one time-out",
        "it::quorum::two_dead_or_silent_of_five_cost_one_timeout_at_most",
    ),
    bug(
        "release-told-to-nobody",
        "wake-ups of a quorum",
        "it::quorum_wait::waiter_learns_of_a_release_long_before_its_heartbeat",
    ),
    bug(
        "failed-attempt-wakes-others",
        "wake-ups of a quorum",
        "it::quorum_wait::waiters_do_not_wake_each_other",
    ),
    bug(
        "quorum-release-counts-nobody",
        "fairness of a quorum",
        "leasehold::topology::quorum::tests::release_returns_the_largest_count_of_listeners",
    ),
    bug(
        "listeners-of-a-quorum-thrown-away",
        "fairness of a quorum",
        "leasehold::topology::quorum::tests::release_returns_the_largest_count_of_listeners",
    ),
    bug(
        "own-releases-of-a-quorum-due",
        "fairness of a quorum",
        "leasehold::engine::slot::fairness::tests::release_that_is_not_heard_here_is_not_due",
    ),
    bug(
        "announced-release-as-a-holder",
        "fairness of a quorum",
        "leasehold::topology::quorum::tests::announced_release_is_no_holder",
    ),
    bug(
        "split-votes-as-a-holder",
        "wake-ups of a quorum",
        "it::quorum_wait::split_votes_are_retried_sooner_than_a_holder",
    ),
    // Reports to users.
    bug(
        "unknown-outcome-as-busy",
        "outcomes",
        "it::fault::dropped_request_is_unknown_in_time_and_leaves_no_key",
    ),
    bug(
        "unsent-request-as-outage",
        "outcomes",
        "leasehold::tests::double::wait_whose_last_request_was_never_sent_returns_none",
    ),
    bug(
        "wrong-type-as-no-loss",
        "outcomes",
        "it::release::release_does_not_touch_a_key_of_another_type",
    ),
    bug("outage-as-busy", "outcomes", "it::slot::timed_wait_that_ends_in_an_outage_is_an_error"),
    bug(
        "late-request-as-outage",
        "outcomes",
        "leasehold::tests::double::late_last_request_of_a_wait_returns_none",
    ),
    bug(
        "long-silence-as-busy",
        "outcomes",
        "leasehold::tests::double::slow_final_reply_is_an_unknown_outcome",
    ),
    bug(
        "told-at-any-time",
        "outcomes",
        "leasehold::tests::double::silent_final_request_after_a_suspend_is_unknown",
    ),
    bug(
        "holder-before-a-grant",
        "outcomes",
        "leasehold::tests::double::unconfirmed_grant_at_the_end_of_a_wait_is_unknown",
    ),
    bug(
        "grant-that-is-forgotten",
        "outcomes",
        "leasehold::tests::double::grant_with_a_late_confirmation_request_is_unknown",
    ),
    bug(
        "grant-of-the-last-moment-not-taken",
        "outcomes",
        "leasehold::tests::double::grant_received_while_the_last_request_fails_is_taken",
    ),
    bug(
        "grant-of-the-last-moment-as-busy",
        "outcomes",
        "leasehold::tests::double::partial_grant_during_a_brief_last_request_is_unknown",
    ),
    bug(
        "hold-that-is-over",
        "outcomes",
        "leasehold::tests::double::grant_received_after_max_hold_is_released",
    ),
    bug(
        "untold-listener-ends-the-wait",
        "outcomes",
        "it::notify::listener_unaware_of_a_channel_ends_no_wait",
    ),
    bug(
        "heartbeat-as-long-ago",
        "outcomes",
        "leasehold::tests::double::late_last_heartbeat_of_a_wait_returns_none",
    ),
    bug(
        "failing-acquirers-as-a-holder",
        "outcomes",
        "it::slot::threads_that_fail_in_turn_get_errors_and_never_none",
    ),
    bug(
        "tries-one-after-the-other",
        "waits",
        "leasehold::tests::semaphore::threads_that_come_together_share_round_trips",
    ),
    bug(
        "permit-of-a-thread-that-left-kept",
        "rule 6",
        "leasehold::tests::semaphore::permit_of_a_thread_that_left_is_given_back",
    ),
    bug(
        "reply-to-others-as-silence",
        "outcomes",
        "leasehold::tests::semaphore::wait_that_ends_before_its_thread_could_ask_is_a_timeout",
    ),
    bug(
        "brief-silence-as-a-holder",
        "outcomes",
        "it::wait_end::wait_behind_a_thread_that_came_in_the_outage_is_an_error_too",
    ),
    bug(
        "wrong-type-as-busy",
        "outcomes",
        "it::wire::a_key_of_another_type_is_an_error_and_never_busy",
    ),
    bug(
        "refusal-speaks-for-all",
        "an unknown outcome is told as unknown",
        "it::fault::refusal_after_an_unanswered_request_is_unknown",
    ),
    bug(
        "ordered-into-the-void",
        "a broken connection is replaced at once",
        "leasehold::wire::pool::adapter::tests::late_connection_does_not_prevent_another",
    ),
    bug(
        "renewals-without-callers-connections",
        "renewals use what connections the client has",
        "leasehold::wire::lane::tests::worker_uses_a_connection_of_callers_while_it_can_have_none",
    ),
    bug(
        "callers-before-the-worker",
        "renewals use what connections the client has",
        "leasehold::wire::lane::tests::connection_that_is_returned_is_left_to_the_worker",
    ),
    bug(
        "unanswered-renewal-on-another-connection",
        "rule 31",
        "leasehold::wire::lane::tests::request_without_a_reply_is_not_sent_over_another_connection",
    ),
    bug(
        "successor-made-after-closing",
        "the worker's connection is closed once it has a successor",
        "leasehold::wire::worker_connection::tests::old_connection_stays_until_its_successor_is_there",
    ),
    bug(
        "worker-connects-when-a-renewal-is-due",
        "the worker's connection is there before the first renewal is due",
        "it::lane::workers_connection_is_made_between_the_lock_and_its_first_renewal",
    ),
    bug(
        "small-pools-of-a-quorum-as-outage",
        "what a caller is told",
        "leasehold::topology::quorum::tests::exhausted_pools_make_the_quorum_pool_exhausted",
    ),
    bug(
        "silent-server-as-a-small-pool",
        "what a caller is told",
        "it::error_text::silent_server_does_not_look_like_a_small_pool",
    ),
    bug(
        "refused-sign-in-repeated",
        "a refused password is not sent again unasked",
        "it::connecting::refused_password_is_not_sent_again_unprompted",
    ),
    bug(
        "refusing-sentinel-asked-again",
        "a refused password is not sent again unasked",
        "it::connecting::refused_password_is_not_repeated_at_sentinels",
    ),
    bug(
        "refusing-server-listened-to-again",
        "a refused password is not sent again unasked",
        "it::connecting::refusing_node_is_not_subscribed_to_unprompted",
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
        "leasehold::topology::sentinel::follower::tests::repaired_sentinel_is_followed_without_any_connection",
    ),
    bug(
        "resizer-takes-again-over-its-limit",
        "a process that lowers the limit takes nothing again over it",
        "leasehold::tests::semaphore::process_takes_nothing_again_that_came_while_it_lowered_the_limit",
    ),
    bug(
        "resizer-takes-again-before-the-reply",
        "a process that lowers the limit takes nothing again over it",
        "leasehold::tests::semaphore::process_takes_nothing_again_while_it_lowers_the_limit",
    ),
    bug(
        "limit-told-to-one-attempt",
        "rule 34",
        "leasehold::tests::semaphore::lower_limit_ends_all_lingers_of_another_process",
    ),
    bug(
        "linger-told-of-by-its-number-alone",
        "rule 34",
        "leasehold::tests::semaphore::lower_limit_ends_all_lingers_of_another_process",
    ),
    bug(
        "waiter-that-gave-up-counts-for-ever",
        "rule 18",
        "leasehold::engine::slot::state::tests::overlap::count_of_waiters_ends_without_a_heartbeat",
    ),
    bug(
        "sleeping-leader-uncounted",
        "no wake-up of a batch is lost",
        "leasehold::wire::batcher::tests::sleepers_are_counted_by_what_they_wait_for",
    ),
    bug(
        "sleeping-follower-uncounted",
        "no wake-up of a batch is lost",
        "leasehold::wire::batcher::tests::sleepers_are_counted_by_what_they_wait_for",
    ),
    bug(
        "crowd-has-a-place-each",
        "places of batches",
        "leasehold::wire::batcher::tests::few_callers_have_a_place_each_and_a_crowd_shares_fewer",
    ),
    bug(
        "order-waits-behind-a-refused-one",
        "a pool waits for no order of another",
        "leasehold::wire::pool::adapter::tests::order_is_not_delayed_by_those_of_a_refused_pool",
    ),
    bug(
        "silence-outdates-nothing",
        "one silent connection speaks for those that were idle",
        "it::silence::dead_idle_connections_cost_one_timeout_in_all",
    ),
    bug(
        "silence-outdates-what-replied-since",
        "one silent connection speaks for those that were idle",
        "it::silence::connection_that_replied_since_stays_in_use",
    ),
    bug(
        "silent-request-not-repeated",
        "one silent connection speaks for those that were idle",
        "it::silence::release_on_a_dead_idle_connection_succeeds",
    ),
    bug(
        "connection-without-time-outs-kept",
        "every wait has a deadline",
        "leasehold::wire::connection::tests::connection_without_its_timeouts_is_poisoned",
    ),
    bug(
        "wait-and-reply-share-their-time",
        "each time-out bounds what its name says",
        "it::connecting::wait_for_a_free_connection_lasts_max_wait",
    ),
    bug(
        "panic-in-connecting-goes-on",
        "a connection is made after a panic",
        "leasehold::wire::pool::adapter::tests::panic_in_connecting_is_an_error",
    ),
    bug(
        "dead-idle-connection-used",
        "a doubt that need not be",
        "it::wire::every_call_works_after_all_connections_were_killed",
    ),
    bug(
        "workers-dead-connection-used",
        "a doubt that need not be",
        "leasehold::wire::worker_connection::tests::connection_that_died_while_it_was_idle_is_not_used",
    ),
    bug(
        "transaction-in-doubt-before-it-was-sent",
        "a doubt that need not be",
        "it::wire::transaction_is_repeated_where_its_watch_had_no_reply",
    ),
    bug(
        "source-with-each-call",
        "load after a restart",
        "it::lock_all::many_locks_bring_a_forgotten_script_along_once",
    ),
    bug(
        "script-sent-again-before-a-late-reply",
        "a late answer read by the next",
        "leasehold::wire::connection::tests::late_reply_is_not_taken_for_a_repeated_scripts",
    ),
    bug(
        "poisoned-connection-kept",
        "a late answer read by the next",
        "leasehold::wire::connection::tests::excused_silence_outdates_nothing",
    ),
    bug(
        "any-number-is-a-grant",
        "a late answer read by the next",
        "it::queue::late::misplaced_number_is_not_a_grant",
    ),
    bug(
        "odd-answer-spoils-nothing",
        "a late answer read by the next",
        "it::fault::surplus_reply_ends_its_connection",
    ),
    bug("password-in-an-error", "secrets", "it::input::a_password_is_never_shown"),
    bug(
        "provided-password-shown",
        "secrets",
        "it::credentials::provided_password_is_in_no_log_line_error_or_debug",
    ),
    bug(
        "credentials-asked-for-once",
        "a rotated password",
        "it::credentials::lease_survives_a_rotation_of_the_password",
    ),
    bug(
        "insecure-tls-accepted",
        "secrets",
        "leasehold::wire::endpoint::info::tests::bad_info_error_names_field_value_and_what_is_allowed",
    ),
    // Several nodes of a cluster.
    bug(
        "cluster-count-of-listeners-believed",
        "rule 12",
        "it::cluster::waiter_subscribed_only_elsewhere_is_handed_the_lock",
    ),
    bug(
        "cluster-grant-dated-by-its-receipt",
        "rule 10",
        "it::cluster::late_grant_is_not_dated_by_its_receipt",
    ),
    bug(
        "cluster-script-stops-half-way",
        "rule 7",
        "it::cluster::hand_over_in_a_migrating_slot_is_whole_or_none",
    ),
    bug(
        "cluster-renewal-with-all-keys",
        "renewal",
        "it::cluster::lock_in_a_migrating_slot_is_renewed_and_released",
    ),
    bug(
        "cluster-one-master-listened-to",
        "wake-ups of a cluster",
        "it::cluster::client_subscribes_at_every_master_and_at_the_names",
    ),
    bug(
        "cluster-name-listened-to-everywhere",
        "wake-ups of a cluster",
        "it::cluster::client_subscribes_at_every_master_and_at_the_names",
    ),
    bug(
        "cluster-new-master-not-listened-to",
        "wake-ups of a cluster",
        "it::cluster::client_subscribes_at_a_promoted_master",
    ),
    bug(
        "cluster-duplicate-told",
        "wake-ups of a cluster",
        "it::cluster::release_request_is_delivered_once_each_time",
    ),
    bug(
        "cluster-gone-master-not-believed",
        "wake-ups of a cluster",
        "leasehold::engine::listener::tests::messages_of_a_departed_server_still_count",
    ),
    bug(
        "cluster-return-wakes-nobody",
        "rule 12",
        "it::cluster::waiter_asks_again_after_resubscription_at_its_master",
    ),
    bug(
        "foreign-holder-has-a-token",
        "inspection",
        "it::inspect::plain_key_shows_its_value_and_its_ttl_alone",
    ),
    bug(
        "future-token-tells-a-time",
        "inspection",
        "it::inspect::token_ahead_of_the_clock_tells_no_time",
    ),
    bug(
        "any-version-is-ours",
        "inspection",
        "it::inspect::value_of_another_version_or_shape_is_a_foreign_holder",
    ),
    bug(
        "place-that-tells-no-time",
        "inspection",
        "it::inspect::mutex_shows_its_holder_and_three_waiters_in_order",
    ),
    bug(
        "passed-over-waiter-is-shown",
        "inspection",
        "it::inspect::waiter_that_is_passed_over_has_no_place",
    ),
    bug("denied-queue-is-empty", "inspection", "it::acl::inspection_needs_what_is_added"),
    bug(
        "slow-wait-logged-again",
        "slow waits",
        "it::blocker::slow_wait_is_logged_whatever_it_waits_by",
    ),
    bug(
        "blocker-of-an-earlier-call",
        "blockers",
        "it::blocker::refused_call_tells_who_was_in_the_way_in_another_process",
    ),
    bug(
        "name-as-it-is",
        "connection names",
        "it::connection_name::every_connection_of_a_client_has_its_name",
    ),
    bug(
        "name-is-the-next-reply",
        "connection names",
        "it::connection_name::refused_name_leaves_the_connection_usable",
    ),
    // The weighted lock.
    bug(
        "weighted-newcomer-takes-what-fits",
        "rule 27",
        "weighted::line::small_request_does_not_overtake_a_large_one",
    ),
    // Leases with a tail.
    bug(
        "silent-holder-yields-for-ever",
        "rule 50",
        "leasehold::tests::tail::silent_holder_yields_to_a_dead_waiter_for_a_while",
    ),
    bug(
        "late-renewal-comes-before-those-who-wait",
        "rule 50",
        "leasehold::tests::tail::renewal_that_was_stuck_is_left_behind_those_who_wait",
    ),
    bug(
        "tail-taken-a-tick-early",
        "rule 47",
        "leasehold::tests::tail::single_attempt_takes_the_lock_of_a_silent_holder",
    ),
    bug(
        "tail-taken-never",
        "rule 47",
        "leasehold::tests::tail::single_attempt_takes_the_lock_of_a_silent_holder",
    ),
    bug(
        "reply-tells-the-end-of-the-key",
        "rule 48",
        "leasehold::tests::tail::waiter_has_the_lock_of_a_silent_holder_when_its_lease_is_over",
    ),
    bug(
        "dead-waiter-hides-the-others",
        "rule 18",
        "leasehold::tests::waiter::waiters_behind_a_dead_one_are_told_of",
    ),
    bug(
        "upgrade-counts-as-another-process",
        "rule 18",
        "leasehold::engine::slot::state::tests::overlap::upgrade_of_this_process_is_not_counted",
    ),
    bug(
        "linger-outlives-its-client",
        "rule 18",
        "leasehold::tests::close::what_lingers_ends_with_the_last_client_and_lock",
    ),
    bug(
        "guard-without-a-client-lingers",
        "rule 18",
        "leasehold::tests::close::what_lingers_ends_with_the_last_client_and_lock",
    ),
    bug(
        "tail-used-up-by-a-migration",
        "rule 50",
        "it::cluster::hold_comes_back_in_a_migrating_slot",
    ),
    bug(
        "renewal-without-the-tail",
        "rule 46",
        "leasehold::tests::tail::hold_comes_back_with_its_token_when_redis_does",
    ),
    bug(
        "window-without-its-tail",
        "rule 49",
        "leasehold::kind::owner_value::tests::value_with_a_tail_has_it_in_its_window",
    ),
    bug("claim-with-its-tail", "rule 49", "leasehold::tests::tail::handed_over_key_has_its_tail"),
    bug(
        "tail-taken-for-the-lease",
        "rule 46",
        "leasehold::protocol::reply::tests::tail_is_no_part_of_what_is_granted",
    ),
    bug(
        "silent-hold-lost-at-once",
        "rule 50",
        "leasehold::tests::tail::hold_comes_back_with_its_token_when_redis_does",
    ),
    bug("silent-for-ever", "rule 50", "leasehold::tests::tail::hold_is_lost_when_its_tail_is_over"),
    bug(
        "unsettled-hold-comes-back",
        "rules 30, 50",
        "leasehold::tests::tail::unsettled_hold_does_not_come_back",
    ),
    bug(
        "used-up-lease-comes-back",
        "rule 51",
        "leasehold::tests::tail::limits_of_a_hold_end_it_also_in_its_tail",
    ),
    bug(
        "max-hold-ignored-in-the-tail",
        "rule 51",
        "leasehold::tests::tail::limits_of_a_hold_end_it_also_in_its_tail",
    ),
    bug(
        "silent-hold-not-asked-about",
        "rule 51",
        "leasehold::tests::tail::calls_of_a_silent_holder_ask_redis",
    ),
    bug(
        "taken-told-as-expired",
        "rule 51",
        "leasehold::tests::tail::waiter_has_the_lock_of_a_silent_holder_when_its_lease_is_over",
    ),
    bug(
        "left-lock-told-as-expired",
        "rule 51",
        "leasehold::tests::tail::hold_that_was_left_to_a_waiter_is_lost_to_it_also_if_that_has_released_it",
    ),
    bug(
        "check-of-an-overdue-lease-leaves-it",
        "rule 50",
        "leasehold::tests::tail::check_makes_a_lease_as_long_as_its_holder_believes",
    ),
    bug(
        "hold-comes-back-without-renewals",
        "a lease is renewed while it is held",
        "leasehold::tests::tail::hold_that_a_call_brings_back_is_renewed",
    ),
    bug(
        "renewal-in-a-cluster-yields-to-nobody",
        "rule 50",
        "leasehold::protocol::target::tests::renewal_of_a_valid_lease_names_no_key_of_a_cluster_that_may_be_missing",
    ),
    bug(
        "renewal-in-a-cluster-names-its-line",
        "rule 50",
        "leasehold::protocol::target::tests::renewal_of_a_valid_lease_names_no_key_of_a_cluster_that_may_be_missing",
    ),
    bug(
        "overdue-leader-leads",
        "rule 47",
        "leasehold::tests::tail::leadership_comes_back_or_goes_to_a_candidate",
    ),
    bug(
        "tail-for-any-kind",
        "a tail needs one owner",
        "leasehold::tests::tail::lock_of_several_holders_refuses_a_tail",
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
        "grant-counts-those-beside-it",
        "rules 18, 39",
        "weighted::line::grants_count_those_who_wait_after_the_last_of_them",
    ),
    bug(
        "refused-serve-tells-nobody",
        "rule 56",
        "weighted::refusal::refused_script_takes_no_place_from_others",
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
        "resize-kept-as-long-as-a-fence",
        "rule 33",
        "weighted::limit::limit_of_a_resize_is_kept_after_each_use",
    ),
    bug(
        "resize-forgotten-after-a-grant",
        "rule 33",
        "weighted::limit::limit_of_a_resize_is_kept_after_each_use",
    ),
    bug(
        "resize-forgotten-after-a-release",
        "rule 33",
        "weighted::limit::limit_of_a_resize_is_kept_after_each_use",
    ),
    bug(
        "resize-undone-while-asked-for",
        "rule 33",
        "weighted::limit::limit_of_a_resize_is_kept_after_each_use",
    ),
    bug(
        "sum-never-counted-again",
        "rule 24",
        "weighted::recount::refusal_counts_the_holders_again",
    ),
    bug(
        "upgrade-never-counts-again",
        "rule 24",
        "weighted::recount::upgrade_counts_the_holders_again",
    ),
    bug(
        "recount-leaves-the-slots",
        "rule 29",
        "weighted::recount::refusal_counts_the_holders_again",
    ),
    bug(
        "recount-of-what-was-asked-for",
        "rule 24",
        "weighted::recount::weights_are_counted_as_they_were_changed",
    ),
    bug(
        "recount-of-the-first-ones",
        "rule 45",
        "weighted::recount::sum_of_more_than_64_holders_stays",
    ),
    bug(
        "own-place-hides-other-waiters",
        "rule 18",
        "weighted::line::waiter_behind_the_holders_own_client_tells_them",
    ),
    bug(
        "limit-told-to-the-first-holders",
        "rule 34",
        "weighted::limit::each_client_is_told_of_a_lower_limit_once",
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
    // Permits in the process.
    bug(
        "permits-passed-past-the-limit",
        "rule 34",
        "it::semaphore::limit::permits_over_the_limit_are_not_passed_on",
    ),
    bug(
        "places-before-its-own-overlooked",
        "rule 18",
        "leasehold::engine::slot::state::tests::overlap::reply_tells_of_those_who_stand_before_the_acquirer",
    ),
    bug(
        "lingers-keep-their-own-process-out",
        "what no thread has is no holder",
        "leasehold::tests::semaphore::permits_that_linger_do_not_keep_their_own_process_out",
    ),
    bug(
        "lingers-refuse-a-single-attempt",
        "what no thread has is no holder",
        "leasehold::tests::semaphore::single_attempt_is_not_refused_for_permits_that_linger",
    ),
    bug(
        "reply-asks-at-once",
        "waiters spare the server",
        "leasehold::tests::semaphore::no_reply_makes_a_waiter_ask_within_ten_milliseconds",
    ),
    bug(
        "permits-passed-past-those-elsewhere",
        "rule 18",
        "leasehold::engine::slot::state::tests::overlap::lease_is_not_passed_on_past_those_who_wait_elsewhere",
    ),
    bug(
        "permits-passed-past-those-counted",
        "rule 34",
        "leasehold::engine::slot::state::tests::overlap::lease_is_not_passed_on_past_those_who_wait_elsewhere",
    ),
    bug(
        "permits-kept-back-by-its-own-place",
        "permits pass at no command",
        "leasehold::engine::slot::state::tests::overlap::lease_is_not_passed_on_past_those_who_wait_elsewhere",
    ),
    bug(
        "permits-passed-on-by-a-deaf-client",
        "rule 18",
        "leasehold::engine::slot::state::tests::overlap::deaf_client_passes_no_permits_on",
    ),
    bug(
        "permits-passed-in-an-exchange",
        "each lease has a holder",
        "leasehold::engine::slot::state::tests::overlap::waiter_in_an_exchange_gets_no_lease",
    ),
    bug(
        "permits-passed-to-a-cancelled-wait",
        "each lease has a holder",
        "leasehold::engine::slot::state::tests::overlap::cancelled_waiter_gets_no_lease",
    ),
    bug(
        "permits-place-not-handed-on",
        "rule 4",
        "leasehold::engine::slot::state::tests::overlap::place_goes_to_the_next_thread_for_the_rest_of_a_heartbeat",
    ),
    bug(
        "permits-attempt-told-of-a-larger",
        "a single attempt asks for what it wants",
        "leasehold::engine::slot::state::tests::overlap::smaller_single_attempt_gets_its_own_request",
    ),
    bug(
        "permits-limit-taken-for-busy",
        "rule 33",
        "it::semaphore::another_limit_is_an_error_that_names_both",
    ),
    bug(
        "permits-valid-from-receipt",
        "rule 3",
        "it::semaphore::fault::late_reply_makes_no_permit_valid_beyond_redis",
    ),
    bug(
        "renewal-needs-its-slot",
        "a renewal locks no slot",
        "leasehold::engine::worker::tests::slot_that_is_locked_keeps_no_lease_from_renewal",
    ),
    bug(
        "retaken-lease-not-renewed",
        "a lease that is taken over and over is renewed",
        "leasehold::engine::lease::tests::lingering_lease_is_renewed_only_if_it_was_taken_again",
    ),
    bug(
        "idle-linger-renewed",
        "a lease that only lingers is not renewed",
        "leasehold::engine::lease::tests::lingering_lease_is_renewed_only_if_it_was_taken_again",
    ),
    bug(
        "relocks-ask-for-looks",
        "threads that take a lease over and over do not lock the task queue",
        "leasehold::engine::worker::tests::lease_that_is_taken_over_and_over_keeps_its_timer",
    ),
    bug(
        "retaken-leases-wake-the-worker-each",
        "the worker comes to leases that are taken over and over in common turns",
        "leasehold::engine::lease::tests::leases_that_are_taken_over_and_over_share_the_turns_of_the_worker",
    ),
    bug(
        "reader-shares-what-is-given-back",
        "rule 39",
        "leasehold::engine::slot::tests::entry_that_is_being_given_back_is_not_shared",
    ),
    bug(
        "busy-slot-forgotten",
        "renewals",
        "leasehold::engine::worker::tests::slot_that_is_locked_keeps_no_lease_from_renewal",
    ),
    // The index of the locks in use.
    bug(
        "short-hold-announced",
        "announcements",
        "leasehold::tests::locks::nothing_is_announced_while_nothing_lasts_a_second",
    ),
    bug(
        "hold-announced-once",
        "announcements",
        "leasehold::tests::locks::entries_outlast_a_long_hold_and_not_by_more_than_a_minute",
    ),
    bug(
        "relocks-checked-to-announce",
        "announcements",
        "leasehold::engine::slot::state::tests::relocked_lease_is_announced_with_its_slot",
    ),
    bug(
        "ended-wait-announced",
        "announcements",
        "leasehold::engine::slot::state::tests::waits_that_end_within_a_second_are_not_announced",
    ),
    bug(
        "announcements-without-bound",
        "announcements",
        "leasehold::tests::locks::many_locks_are_announced_by_one_command_a_second",
    ),
    bug(
        "denied-announcement-repeated",
        "announcements",
        "it::locks::denied_announcement_is_warned_about_once",
    ),
    bug(
        "announced-entry-never-dropped",
        "announcements",
        "leasehold::tests::locks::entries_outlast_a_long_hold_and_not_by_more_than_a_minute",
    ),
    bug(
        "announcements-unfair",
        "announcements",
        "leasehold::engine::worker::tests::none_of_very_many_locks_is_never_announced",
    ),
    bug(
        "announcements-without-a-rest",
        "announcements",
        "leasehold::tests::locks::announcement_without_a_reply_is_followed_by_a_rest",
    ),
    bug(
        "announcement-is-not-excused",
        "announcements",
        "it::locks::announcement_without_reply_costs_callers_no_connection",
    ),
    bug(
        "future-entry-kept",
        "announcements",
        "leasehold::tests::locks::entries_of_a_clock_that_was_set_back_are_dropped",
    ),
    bug(
        "scan-without-bound",
        "the list of locks in use",
        "it::locks::scan_that_finds_nothing_returns_in_the_time_of_a_command",
    ),
    bug(
        "query-sent-again",
        "commands of the user",
        "it::query::query_without_a_reply_is_not_sent_again",
    ),
    bug(
        "changed-cluster-scanned-on",
        "the list of locks in use",
        "leasehold::protocol::index::tests::scan_fails_when_its_server_goes",
    ),
    bug(
        "whole-owner-read",
        "bounds on foreign values",
        "it::locks::foreign_values_are_read_within_bounds",
    ),
    bug(
        "huge-hash-listed",
        "bounds on foreign values",
        "it::locks::foreign_values_are_read_within_bounds",
    ),
    bug(
        "huge-hash-named",
        "bounds on foreign values",
        "it::locks::foreign_values_are_read_within_bounds",
    ),
    bug(
        "announced-lock-listed-though-free",
        "the list of locks in use",
        "leasehold::tests::locks::hold_is_announced_after_a_second_and_not_before",
    ),
    // Several locks at once.
    bug(
        "pipeline-of-joins",
        "rule 44",
        "leasehold::tests::lock_all::no_queue_is_joined_behind_a_lock_that_is_not_free",
    ),
    bug(
        "later-grants-kept",
        "rule 44",
        "leasehold::tests::lock_all::wait_for_one_lock_holds_only_what_comes_before",
    ),
    bug(
        "parts-in-the-order-of-the-call",
        "rule 44",
        "leasehold::tests::lock_all::free_locks_take_one_exchange_there_and_one_back",
    ),
    bug(
        "lock-named-twice",
        "rule 44",
        "leasehold::tests::lock_all::locks_that_cannot_be_taken_together_are_refused_before_io",
    ),
    bug(
        "broken-pipeline-not-repeated",
        "rule 31",
        "leasehold::tests::lock_all::lost_reply_is_asked_for_again_under_the_same_values",
    ),
    bug(
        "pipelined-release-forgets-the-first",
        "rule 15",
        "leasehold::tests::lock_all::lost_reply_is_asked_for_again_under_the_same_values",
    ),
    bug(
        "later-part-not-cancelled",
        "cancelled waits",
        "leasehold::tests::lock_all::cancelled_wait_for_a_later_lock_ends_the_call",
    ),
    bug(
        "part-lost-while-waiting",
        "losses",
        "leasehold::tests::lock_all::lock_lost_while_another_is_waited_for_ends_the_call",
    ),
    bug(
        "valid-while-one-is",
        "validity",
        "leasehold::tests::lock_all::loss_of_one_is_the_loss_of_all_and_reported_once",
    ),
    bug(
        "transaction-looks-at-one-lock",
        "transactions",
        "leasehold::tests::lock_all::transaction_applies_only_while_all_are_held",
    ),
    // The read-write lock.
    bug(
        "door-open-to-those-who-pass-a-writer",
        "rule 39",
        "leasehold::tests::rw_lock::message_of_a_writer_shuts_the_door",
    ),
    bug(
        "door-open-from-the-receipt",
        "rule 39",
        "leasehold::tests::rw_lock::door_is_open_from_the_sending_of_a_slow_request",
    ),
    bug(
        "door-never-asks",
        "rule 39",
        "leasehold::tests::rw_lock::door_of_a_process_that_hears_nothing_is_shut_by_a_renewal",
    ),
    bug(
        "door-open-past-a-thread-that-waits",
        "rule 39",
        "leasehold::tests::rw_lock::thread_that_waits_to_write_shuts_the_door",
    ),
    bug(
        "first-reader-gives-the-entry-back",
        "rule 39",
        "leasehold::tests::rw_lock::readers_of_a_process_share_one_entry",
    ),
    bug(
        "renewals-end-with-the-first-reader",
        "rule 39",
        "leasehold::tests::rw_lock::readers_of_a_process_share_one_entry",
    ),
    bug(
        "entry-lost-for-one",
        "rule 39",
        "leasehold::engine::slot::tests::loss_of_an_entry_ends_each_reader",
    ),
    bug(
        "downgrade-sent-before-it-is-local",
        "rule 36",
        "leasehold::tests::rw_lock::nobody_is_the_writer_while_the_downgrade_is_on_its_way",
    ),
    bug(
        "downgrade-sent-once",
        "rule 35",
        "leasehold::tests::rw_lock::downgrade_without_a_reply_is_sent_until_there_is_one",
    ),
    bug(
        "change-with-a-stale-number",
        "rule 35",
        "leasehold::engine::lease::change::tests::change_takes_the_next_number_and_its_access_at_once",
    ),
    bug(
        "upgrade-without-an-end",
        "rule 37",
        "it::rw_lock::upgrade_whose_time_is_over_lets_readers_in_again",
    ),
    bug(
        "changed-hold-lingers",
        "rule 36",
        "leasehold::tests::rw_lock::hold_that_was_changed_does_not_linger",
    ),
    bug(
        "thread-waits-for-itself",
        "rule 38",
        "it::rw_lock::thread_that_would_wait_for_itself_gets_an_error",
    ),
    // Jobs that run once in a period.
    bug(
        "job-period-of-the-clients-clock",
        "jobs: the server's clock decides",
        "leasehold::tests::once::period_begins_at_its_edge_and_not_before",
    ),
    bug(
        "job-offset-ignored",
        "jobs: the server's clock decides",
        "leasehold::tests::once::offset_moves_the_edges",
    ),
    bug(
        "job-done-period-is-due",
        "jobs: one success in a period",
        "leasehold::tests::once::job_runs_once_in_a_period_and_again_in_the_next",
    ),
    bug(
        "job-no-look-under-the-lock",
        "jobs: one success in a period",
        "leasehold::tests::once::call_waits_for_a_run_that_is_under_way",
    ),
    bug(
        "job-success-of-a-lost-lock",
        "jobs: only a holder records",
        "leasehold::tests::once::run_that_lost_its_lock_records_no_success",
    ),
    bug(
        "silent-run-begins-another",
        "jobs: one success in a period",
        "leasehold::tests::once::tail::thread_with_a_silent_run_begins_no_other",
    ),
    bug(
        "job-outage-ridden-out-for-the-lease",
        "jobs: a run outlasts an outage for as long as its lock may come back",
        "leasehold::tests::once::tail::success_in_an_outage_waits_for_its_end",
    ),
    bug(
        "job-that-runs-itself",
        "jobs: one success in a period",
        "leasehold::tests::once::job_that_runs_itself_is_refused",
    ),
    bug(
        "job-done-period-compared-by-time",
        "jobs: a clock that is set back",
        "leasehold::tests::once::done_period_stays_done_when_the_clock_is_set_back",
    ),
    bug(
        "job-failure-counts-as-done",
        "jobs: a failed run is tried again",
        "leasehold::tests::once::failed_job_is_tried_again_in_its_period",
    ),
    bug(
        "job-run-counts-as-done",
        "jobs: a dead run is tried again",
        "leasehold::tests::once::died_run_is_tried_again_after_its_lease",
    ),
    bug(
        "job-outage-not-ridden-out",
        "jobs: an outage is ridden out",
        "leasehold::tests::once::outage::outage_at_any_step_of_a_call_is_ridden_out",
    ),
    bug(
        "read-of-an-unknown-outcome",
        "a read leaves no doubt",
        "leasehold::tests::once::outage::look_without_a_reply_is_no_unknown_outcome",
    ),
    bug(
        "job-loss-hides-the-record",
        "jobs: a success is recorded",
        "leasehold::tests::once::outage::loss_after_a_success_without_a_reply_is_an_unknown_outcome",
    ),
    bug(
        "job-forgotten-while-it-was-down",
        "jobs: what was missed",
        "leasehold::tests::once::missed_periods_are_caught_up_after_an_outage_of_a_month",
    ),
    bug(
        "job-failure-tried-at-once",
        "jobs: a failure is not tried at once",
        "leasehold::tests::once::retry::of_twenty_machines_that_wait_for_a_job_that_fails_one_runs_it_in_a_minute",
    ),
    bug(
        "job-tried-without-a-bound",
        "jobs: a failure is not tried without a bound",
        "leasehold::tests::once::retry::tries_of_a_period_are_counted_and_bounded",
    ),
    bug(
        "job-death-is-no-failure",
        "jobs: a failure is not tried at once",
        "leasehold::tests::once::retry::run_that_dies_counts_as_one_that_fails",
    ),
    bug(
        "job-note-of-another-death",
        "jobs: a run under way is waited for",
        "leasehold::tests::once::retry::run_that_dies_counts_as_one_that_fails",
    ),
    bug(
        "job-earlier-count-believed",
        "jobs: versions at one job",
        "leasehold::tests::once::older::older_run_between_two_of_this_version_counts",
    ),
    bug(
        "job-success-before-the-replicas",
        "jobs: a success is recorded",
        "it::replica::replica_has_the_success_of_a_job_before_it_returns",
    ),
    bug(
        "job-record-without-an-end",
        "jobs: no key stays for ever",
        "leasehold::tests::once::record_ends_some_time_after_its_last_run",
    ),
    bug(
        "job-catch-up-without-a-bound",
        "jobs: what was missed",
        "leasehold::tests::once::missed_periods_are_caught_up_oldest_first_within_a_bound",
    ),
    bug(
        "job-foreign-record-written-over",
        "jobs: what others wrote stays",
        "leasehold::tests::once::record_that_cannot_be_read_is_an_error_and_stays",
    ),
    // What observers are told.
    bug(
        "observed-release-missing",
        "a hold ends once",
        "leasehold::tests::observe::free_lock_of_each_kind_is_told_of_three_times",
    ),
    bug(
        "observed-wait-ends-twice",
        "a call ends once",
        "leasehold::tests::observe::free_lock_of_each_kind_is_told_of_three_times",
    ),
    bug(
        "observed-loss-missing",
        "a hold ends once",
        "leasehold::tests::observe::lost_hold_ends_once_and_its_release_tells_nothing",
    ),
    bug(
        "observer-before-the-hold",
        "observers may lock",
        "leasehold::tests::observe::reenter::observer_that_takes_the_lock_of_the_event_ends",
    ),
    bug(
        "exchange-told-in-its-call",
        "observers may lock",
        "leasehold::tests::observe::reenter::observer_that_takes_the_lock_of_the_event_ends",
    ),
    bug(
        "observer-under-the-lock-of-a-slot",
        "nothing is locked",
        "leasehold::tests::observe::reenter::observer_that_tries_a_held_lock_ends_in_each_thread",
    ),
    bug(
        "panic-of-an-observer-goes-on",
        "panics of observers",
        "leasehold::tests::observe::reenter::panic_of_an_observer_leaves_locks_and_others_as_they_are",
    ),
    bug(
        "blocker-of-a-local-wait-unknown",
        "waits carry the blocker",
        "leasehold::tests::observe::local_hand_off_names_the_thread_that_had_the_lock",
    ),
    bug(
        "hand-off-taken-for-a-linger",
        "how a hold came",
        "leasehold::tests::observe::local_hand_off_names_the_thread_that_had_the_lock",
    ),
    bug(
        "gauge-of-holds-only-grows",
        "gauges return to zero",
        "leasehold::tests::observe::feature::metrics_count_what_locks_do_and_gauges_return_to_zero",
    ),
    bug(
        "doubt-of-a-reader-put-off",
        "rule 39",
        "leasehold::engine::slot::tests::eviction_of_an_entry_is_asked_for_while_a_reader_lives",
    ),
    bug(
        "upgrade-outlasts-its-caller",
        "rule 37",
        "leasehold::tests::rw_lock::upgrade_in_an_outage_ends_with_the_callers_time",
    ),
    bug(
        "passed-lease-left-by-a-panic",
        "leases passed on",
        "leasehold::engine::acquire::tests::lease_passed_to_an_acquirer_that_panics_is_released",
    ),
    bug(
        "reader-that-comes-keeps-a-lost-entry",
        "rule 39",
        "leasehold::engine::slot::tests::loss_of_an_entry_ends_each_reader",
    ),
    bug(
        "upgrade-ends-the-next-one",
        "rule 37",
        "leasehold::engine::slot::state::tests::overlap::end_of_a_lost_upgrade_leaves_the_next_one_waiting",
    ),
    bug(
        "door-open-past-an-upgrade",
        "rule 37",
        "leasehold::engine::slot::state::tests::overlap::no_reader_passes_an_upgrade_of_its_process",
    ),
    bug(
        "passed-on-past-an-upgrade",
        "rule 37",
        "leasehold::engine::slot::state::tests::overlap::no_reader_passes_an_upgrade_of_its_process",
    ),
    bug(
        "upgraded-part-has-the-old-token",
        "rule 32",
        "leasehold::tests::rw_lock::part_has_the_token_of_the_upgrade",
    ),
    bug(
        "watch-of-what-the-lease-is",
        "validity",
        "leasehold::tests::rw_lock::watch_of_a_reader_outlives_the_write_around_it",
    ),
    bug(
        "other-read-forgotten",
        "rule 38",
        "it::rw_lock::read_that_came_as_an_owned_lease_is_known_when_the_other_ends",
    ),
    bug(
        "upgrade-beside-another-read",
        "rule 38",
        "leasehold::tests::rw_lock::upgrade_beside_an_owned_read_of_its_thread_is_an_error",
    ),
    bug(
        "reader-that-asks-takes-its-time",
        "the time of a caller",
        "leasehold::tests::rw_lock::thread_that_asks_at_the_door_waits_no_longer_than_it_may",
    ),
    bug(
        "set-of-a-user-adopted",
        "rule 43",
        "weighted::kind::set_of_a_user_is_an_error_and_not_touched",
    ),
    bug(
        "set-with-marks-and-more-adopted",
        "rule 43",
        "weighted::kind::set_with_marks_and_more_is_data",
    ),
    bug(
        "set-without-holders-adopted",
        "rule 43",
        "weighted::kind::set_with_a_sum_and_no_holder_is_data",
    ),
    bug(
        "set-without-an-end-adopted",
        "rule 43",
        "weighted::kind::free_lock_without_an_end_is_data",
    ),
    bug(
        "marks-of-no-whole-numbers-adopted",
        "rule 43",
        "weighted::kind::set_of_a_user_is_an_error_and_not_touched",
    ),
    bug(
        "held-semaphore-without-an-end-refused",
        "rule 43",
        "weighted::kind::semaphore_is_known_in_all_its_states",
    ),
    bug(
        "held-read-write-lock-refused",
        "rule 43",
        "weighted::kind::read_write_lock_is_known_in_all_its_states",
    ),
    bug(
        "weighted-kinds-not-told-apart",
        "rule 43",
        "weighted::kind::each_kind_is_told_from_the_other",
    ),
    bug(
        "members-of-a-user-purged",
        "rule 43",
        "weighted::kind::members_of_a_user_are_not_taken_out",
    ),
    bug(
        "refused-first-holder-stays",
        "rule 56",
        "weighted::refusal::refused_attempt_leaves_nothing",
    ),
    bug("refused-holder-stays", "rule 56", "weighted::refusal::refused_attempt_leaves_nothing"),
    bug("refused-waiter-stays", "rule 56", "weighted::refusal::refused_attempt_leaves_nothing"),
    bug("refused-mutex-stays", "rule 56", "it::acl::refused_request_leaves_nothing"),
    bug("refused-reentrant-lock-stays", "rule 56", "it::acl::refused_request_leaves_nothing"),
    bug("refused-upgrade-stays", "rule 56", "weighted::refusal::refused_attempt_leaves_nothing"),
    bug(
        "refused-attempt-not-removed",
        "rule 56",
        "it::acl::attempt_of_a_refused_request_is_removed_later",
    ),
    bug(
        "events-without-a-bound",
        "memory of observers",
        "leasehold::observe::observers::tests::observer_that_does_not_return_costs_one_thread",
    ),
    bug(
        "thread-for-each-event",
        "threads of observers",
        "leasehold::observe::observers::tests::observer_that_does_not_return_costs_one_thread",
    ),
    bug(
        "end-inside-an-observer-not-told",
        "a hold ends once",
        "leasehold::tests::observe::end::hold_that_ends_inside_an_observer_ends_for_observers",
    ),
    bug(
        "part-after-a-failed-one-kept",
        "several locks",
        "leasehold::tests::observe::end::part_after_one_that_came_too_late_is_given_back_as_itself",
    ),
    // Owned leases, reentry by choice, a bound on waiters, claims.
    bug(
        "owned-lease-is-a-reentry",
        "an owned lease is never a re-entry",
        "leasehold::tests::owned::guard_of_the_thread_is_in_the_way_at_once",
    ),
    bug(
        "owned-waits-for-its-thread",
        "rule 38",
        "leasehold::tests::owned::guard_of_the_thread_is_in_the_way_at_once",
    ),
    bug(
        "owned-readers-exclude-each-other",
        "readers beside each other",
        "leasehold::tests::owned::readers_own_leases_beside_each_other",
    ),
    bug(
        "hold-entered-against-its-option",
        "reentrant(false)",
        "leasehold::tests::reentry::hold_is_entered_through_no_handle",
    ),
    bug(
        "handle-enters-against-its-option",
        "reentrant(false)",
        "leasehold::tests::reentry::hold_is_entered_through_no_handle",
    ),
    bug(
        "not-reentrant-and-waits-for-itself",
        "rule 38",
        "leasehold::tests::reentry::hold_is_entered_through_no_handle",
    ),
    bug(
        "readers-once-per-thread",
        "readers are inside together",
        "leasehold::tests::reentry::readers_read_once_more",
    ),
    bug(
        "passed-hold-keeps-the-options-before",
        "reentrant(false), rule 17",
        "leasehold::tests::reentry::lease_that_is_passed_on_has_the_options_of_the_next_thread",
    ),
    bug(
        "attempt-taken-over-keeps-its-options",
        "limits of a hold, rule 17",
        "leasehold::engine::acquire::tests::hold_of_an_attempt_taken_over_follows_the_options_of_its_own_handle",
    ),
    bug(
        "several-wait-for-their-thread",
        "rule 38",
        "leasehold::tests::reentry::several_locks_are_none_while_the_thread_has_one",
    ),
    bug(
        "keys-are-always-reentrant",
        "reentrant_by_key(false)",
        "leasehold::tests::reentry::locks_by_key_follow_the_client",
    ),
    bug(
        "acquirer-does-not-count",
        "max_waiters",
        "leasehold::tests::crowd::one_more_than_allowed_is_told_at_once_who_has_the_lock_elsewhere",
    ),
    bug(
        "upgrade-does-not-count",
        "max_waiters",
        "leasehold::tests::crowd::upgrade_counts_and_is_not_refused",
    ),
    bug(
        "single-attempts-count",
        "max_waiters",
        "leasehold::tests::crowd::single_attempts_that_wait_for_a_reply_do_not_count",
    ),
    bug(
        "crowd-is-not-told-the-holder",
        "max_waiters",
        "leasehold::tests::crowd::crowd_is_turned_away_and_the_others_are_served",
    ),
    bug(
        "crowd-told-of-an-earlier-holder",
        "max_waiters; nobody is named in an outage",
        "leasehold::tests::crowd::holder_of_before_an_outage_is_not_named",
    ),
    bug(
        "crowd-without-a-holder-as-busy",
        "max_waiters; none only if a holder is known",
        "leasehold::tests::crowd::bound_holds_while_the_first_reply_is_awaited",
    ),
    bug(
        "claim-keeps-what-is-beyond",
        "a claim takes no more than it was asked for",
        "leasehold::tests::claim::locks_beyond_what_was_asked_for_are_given_back_at_once",
    ),
    bug(
        "claim-passes-an-error-over",
        "after an error nothing is kept",
        "leasehold::tests::claim::wrong_type_gives_everything_back",
    ),
    bug(
        "claim-tries-one-by-one",
        "a claim is one pipeline",
        "leasehold::tests::claim::free_locks_take_one_exchange_there_and_one_back",
    ),
    bug(
        "claim-kept-after-an-error",
        "after an error nothing is kept",
        "leasehold::tests::claim::error_of_a_later_pipeline_names_what_was_given_back",
    ),
    bug(
        "claim-counts-each-pipeline-alone",
        "a claim takes no more than it was asked for",
        "leasehold::tests::claim::taken_locks_are_passed_over_in_pipelines_that_grow",
    ),
    bug(
        "leases-released-one-by-one",
        "release_all is one pipeline",
        "leasehold::tests::claim::free_locks_take_one_exchange_there_and_one_back",
    ),
    // Elections.
    bug(
        "word-of-another-term",
        "rule 59",
        "leasehold::tests::election::a_word_counts_in_its_term_alone_and_the_latest_stays",
    ),
    bug(
        "term-begins-without-its-word",
        "rule 60",
        "leasehold::tests::election::observers_hear_of_each_change_while_the_clock_stands_still",
    ),
    bug(
        "word-shorter-than-a-repeated-grant",
        "rule 59",
        "leasehold::tests::election::word_of_a_leader_that_asks_again_lives_as_long_as_its_longer_lease",
    ),
    bug(
        "free-resign-not-told",
        "rule 60",
        "leasehold::tests::election::observers_hear_of_each_change_while_the_clock_stands_still",
    ),
    bug(
        "new-term-not-told",
        "rule 60",
        "leasehold::tests::election::observers_hear_of_each_change_while_the_clock_stands_still",
    ),
    bug(
        "late-word-replaces-a-later-one",
        "rule 59",
        "leasehold::tests::election::a_word_that_was_stuck_on_its_way_does_not_replace_a_later_one",
    ),
    bug(
        "word-of-an-evicted-leader",
        "rule 59",
        "leasehold::tests::election::leadership_that_was_taken_is_lost_and_says_nothing",
    ),
    bug(
        "word-refused-when-memory-is-full",
        "rule 16",
        "leasehold::tests::election::word_and_term_survive_a_full_memory_and_a_lost_fence",
    ),
    bug(
        "lost-fence-stays-lost",
        "the term of a leader is known",
        "leasehold::tests::election::word_and_term_survive_a_full_memory_and_a_lost_fence",
    ),
    bug(
        "word-not-renewed",
        "a word lives for as long as its leader",
        "leasehold::tests::election::keys_of_an_election_end_by_themselves_and_its_word_lives_as_long_as_it",
    ),
    bug("denied-word-keeps-the-lead", "rule 56", "it::acl::refused_request_leaves_nothing"),
    bug(
        "mutex-is-taken-for-a-leader",
        "rule 43",
        "leasehold::tests::election::a_name_is_of_one_kind",
    ),
    bug(
        "leader-is-taken-for-the-holder-of-a-mutex",
        "rules 43, 55",
        "leasehold::tests::election::a_name_is_of_one_kind",
    ),
    bug(
        "lead-handed-on-in-its-process",
        "each term is in Redis",
        "leasehold::tests::election::threads_of_one_client_lead_one_after_the_other_and_each_term_is_in_redis",
    ),
    bug(
        "lead-that-lingers",
        "nobody leads after the end of a leadership",
        "leasehold::tests::election::threads_of_one_client_lead_one_after_the_other_and_each_term_is_in_redis",
    ),
    bug(
        "number-of-a-word-stands-still",
        "rule 59",
        "leasehold::tests::election::a_word_counts_in_its_term_alone_and_the_latest_stays",
    ),
    bug(
        "observer-that-only-listens",
        "rule 60",
        "leasehold::tests::election::observer_without_messages_looks_once_a_second_and_at_the_end_of_the_lease",
    ),
    bug(
        "end-of-a-lease-not-looked-for",
        "rule 60",
        "leasehold::tests::election::observer_without_messages_looks_once_a_second_and_at_the_end_of_the_lease",
    ),
    bug(
        "change-told-twice",
        "rule 60",
        "leasehold::tests::election::observers_hear_of_each_change_while_the_clock_stands_still",
    ),
    bug(
        "observers-outlive-the-client",
        "close ends all waits",
        "leasehold::tests::election::close_ends_campaigns_and_observations",
    ),
    // What operations cost.
    bug("ping-before-each-command", "commands sent", "cost::commands_are_those_of_the_table"),
    bug("look-before-each-grant", "commands of a script", "cost::commands_are_those_of_the_table"),
    bug(
        "command-copied",
        "allocations",
        "cost::system_calls_wake_ups_and_allocations_are_those_of_the_table",
    ),
    bug(
        "connection-looked-at-each-time",
        "system calls",
        "cost::system_calls_wake_ups_and_allocations_are_those_of_the_table",
    ),
    bug(
        "worker-woken-for-each-lock",
        "wake-ups",
        "cost::system_calls_wake_ups_and_allocations_are_those_of_the_table",
    ),
];
