//! Bugs planted in the scripts, each of which the test that is named for it must catch, and many of which the
//! exploration must find.

use std::panic::catch_unwind;

use crate::explore::scenario;
use crate::script::with_bug;
use crate::search::explore;
use crate::table::MUTATIONS;
use crate::{change, hold, kind, limit, line, memory, recount, refusal, slot};

struct Caught {
    bug: &'static str,
    /// The test as the mutation gate knows it.
    checker: &'static str,
    test: fn(),
}

macro_rules! caught {
    ($bug:literal, $module:ident::$test:ident) => {
        Caught {
            bug: $bug,
            checker: concat!("weighted::", stringify!($module), "::", stringify!($test)),
            test: $module::$test,
        }
    };
}

const ALL: &[Caught] = &[
    caught!("weighted-newcomer-takes-what-fits", line::small_request_does_not_overtake_a_large_one),
    caught!(
        "weighted-small-ones-pass-a-large-one",
        line::small_request_does_not_overtake_a_large_one
    ),
    caught!("weighted-renewal-makes-a-holder", hold::renewal_neither_makes_nor_revives_a_holder),
    caught!("weighted-renewal-revives-a-hold", hold::renewal_neither_makes_nor_revives_a_holder),
    caught!("weighted-release-subtracts-twice", hold::weight_of_an_ended_lease_comes_back_once),
    caught!("weighted-beat-serves-nobody", line::beat_takes_what_an_ended_lease_gives_back),
    caught!(
        "weighted-weights-come-back-all-at-once",
        hold::ended_lease_among_living_ones_gives_its_weight
    ),
    caught!("weighted-release-grants-one", line::release_grants_all_who_fit_side_by_side),
    caught!("weighted-slot-is-the-number-in-use", slot::lowest_free_slots_are_given),
    caught!(
        "weighted-repeat-has-other-slots",
        hold::repeated_request_has_the_same_slots_and_its_weight_once
    ),
    caught!(
        "grant-counts-those-beside-it",
        line::grants_count_those_who_wait_after_the_last_of_them
    ),
    caught!("refused-serve-tells-nobody", refusal::refused_script_takes_no_place_from_others),
    caught!(
        "weighted-grant-withdrawn-by-its-count",
        line::grant_in_a_cluster_stays_whoever_is_counted
    ),
    caught!("weighted-upgrade-lines-up", change::upgrade_waits_for_the_readers_before_everybody),
    caught!(
        "weighted-others-pass-an-upgrade",
        change::upgrade_waits_for_the_readers_before_everybody
    ),
    caught!("weighted-plain-reader-upgrades", change::plain_reader_does_not_upgrade),
    caught!(
        "weighted-upgrade-keeps-the-token",
        change::upgrade_without_readers_is_immediate_and_has_a_new_token
    ),
    caught!(
        "weighted-upgrade-outlives-its-holder",
        change::dead_upgrade_is_forgotten_with_its_holder
    ),
    caught!(
        "weighted-downgrade-without-number",
        change::doubled_downgrade_does_not_lower_a_later_writer
    ),
    caught!(
        "weighted-late-upgrade-after-its-cancel",
        change::late_upgrade_after_its_cancel_does_nothing
    ),
    caught!("weighted-downgrade-lets-nobody-in", change::downgrade_lets_the_readers_at_the_head_in),
    caught!(
        "weighted-waiter-above-the-limit-stays",
        limit::waiter_above_the_limit_is_told_and_taken_out
    ),
    caught!(
        "weighted-compared-with-the-limit-in-force",
        limit::requests_are_compared_with_what_was_declared
    ),
    caught!(
        "weighted-each-request-brings-its-limit",
        limit::another_declared_limit_is_refused_while_in_use
    ),
    caught!("weighted-resize-cuts-the-sum", limit::holder_above_a_smaller_limit_is_granted_again),
    caught!("resize-kept-as-long-as-a-fence", limit::limit_of_a_resize_is_kept_after_each_use),
    caught!("resize-forgotten-after-a-grant", limit::limit_of_a_resize_is_kept_after_each_use),
    caught!("resize-forgotten-after-a-release", limit::limit_of_a_resize_is_kept_after_each_use),
    caught!("resize-undone-while-asked-for", limit::limit_of_a_resize_is_kept_after_each_use),
    caught!("sum-never-counted-again", recount::refusal_counts_the_holders_again),
    caught!("upgrade-never-counts-again", recount::upgrade_counts_the_holders_again),
    caught!("recount-leaves-the-slots", recount::refusal_counts_the_holders_again),
    caught!("recount-of-what-was-asked-for", recount::weights_are_counted_as_they_were_changed),
    caught!("recount-of-the-first-ones", recount::sum_of_more_than_64_holders_stays),
    caught!("own-place-hides-other-waiters", line::waiter_behind_the_holders_own_client_tells_them),
    caught!("limit-told-to-the-first-holders", limit::each_client_is_told_of_a_lower_limit_once),
    caught!("weighted-over-the-limit-not-told", limit::smaller_limit_grants_nobody_until_it_fits),
    caught!(
        "weighted-full-lease-on-a-repeated-grant",
        hold::repeated_request_makes_the_lease_whole
    ),
    caught!("weighted-window-of-the-giver", line::window_is_the_waiters_own),
    caught!(
        "weighted-lock-ends-with-the-last-lease",
        hold::shorter_lease_shortens_no_key_of_a_longer_one
    ),
    caught!(
        "weighted-fence-ends-with-the-last-lease",
        hold::shorter_lease_shortens_no_key_of_a_longer_one
    ),
    caught!(
        "weighted-silent-waiter-not-passed-over",
        line::dead_waiter_is_passed_over_and_keeps_its_place
    ),
    caught!("weighted-no-request-deadline", hold::request_past_its_deadline_does_nothing),
    caught!("weighted-transaction-after-the-lease", hold::transaction_runs_for_a_holder_alone),
    caught!("weighted-release-deletes-the-others", hold::readers_share_and_a_writer_excludes_all),
    caught!(
        "weighted-late-try-holds-and-waits",
        line::late_try_of_a_waiter_does_not_make_it_hold_and_wait
    ),
    caught!(
        "weighted-leave-refused-when-full",
        memory::leave_that_passes_over_the_dead_works_when_memory_is_full
    ),
    caught!("weighted-renewal-refused-when-full", memory::renewal_works_when_memory_is_full),
    caught!("weighted-change-refused-when-full", memory::changes_work_when_memory_is_full),
    caught!("weighted-resize-refused-when-full", memory::resize_and_force_work_when_memory_is_full),
    caught!("weighted-beat-refused-when-full", memory::beat_is_served_when_memory_is_full),
    caught!("set-of-a-user-adopted", kind::set_of_a_user_is_an_error_and_not_touched),
    caught!("set-with-marks-and-more-adopted", kind::set_with_marks_and_more_is_data),
    caught!("set-without-holders-adopted", kind::set_with_a_sum_and_no_holder_is_data),
    caught!("set-without-an-end-adopted", kind::free_lock_without_an_end_is_data),
    caught!("marks-of-no-whole-numbers-adopted", kind::set_of_a_user_is_an_error_and_not_touched),
    caught!("held-semaphore-without-an-end-refused", kind::semaphore_is_known_in_all_its_states),
    caught!("held-read-write-lock-refused", kind::read_write_lock_is_known_in_all_its_states),
    caught!("weighted-kinds-not-told-apart", kind::each_kind_is_told_from_the_other),
    caught!("members-of-a-user-purged", kind::members_of_a_user_are_not_taken_out),
    caught!("refused-first-holder-stays", refusal::refused_attempt_leaves_nothing),
    caught!("refused-holder-stays", refusal::refused_attempt_leaves_nothing),
    caught!("refused-waiter-stays", refusal::refused_attempt_leaves_nothing),
    caught!("refused-upgrade-stays", refusal::refused_attempt_leaves_nothing),
];

/// A checker that has never failed proves nothing.
#[test]
fn every_planted_bug_is_caught_by_its_test() {
    let mut missed = Vec::new();
    for Caught { bug, test, .. } in ALL {
        let outcome = with_bug(bug, || catch_unwind(test));
        match outcome {
            Ok(()) => missed.push(bug),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map_or("", String::as_str);
                println!("{bug:42} {}", text.lines().next().unwrap_or_default());
            }
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn gate_knows_the_same_bugs_and_tests() {
    let gate = MUTATIONS.iter().map(|bug| (bug.name, bug.checker));
    let gate: Vec<_> = gate.filter(|(_, checker)| checker.starts_with("weighted::")).collect();
    let here: Vec<_> = ALL.iter().map(|bug| (bug.bug, bug.checker)).collect();
    assert_eq!(gate, here);
}

/// A bug, and the scenario in which the exploration finds it.
const EXPLORED: &[(&str, &str)] = &[
    ("weighted-newcomer-takes-what-fits", "1 2, loss"),
    ("weighted-small-ones-pass-a-large-one", "1 2, loss"),
    ("weighted-renewal-makes-a-holder", "1 2, loss, renewed"),
    ("weighted-release-subtracts-twice", "1 2, loss"),
    ("weighted-beat-serves-nobody", "1 2, loss"),
    ("weighted-weights-come-back-all-at-once", "u>w r, crash and give up"),
    ("weighted-slot-is-the-number-in-use", "1 1 1, loss"),
    ("weighted-repeat-has-other-slots", "1 2, loss"),
    ("weighted-upgrade-lines-up", "u>w r, crash and give up"),
    ("weighted-others-pass-an-upgrade", "u>w r, crash and give up"),
    ("weighted-upgrade-keeps-the-token", "u>w r, crash and give up"),
    ("weighted-downgrade-without-number", "w>u>w r, doubled"),
    ("weighted-late-upgrade-after-its-cancel", "u>w r, crash and give up"),
    ("weighted-compared-with-the-limit-in-force", "1 2 1, resized to 1 and 3"),
    ("weighted-each-request-brings-its-limit", "1 2 1, resized to 1 and 3"),
    ("weighted-resize-cuts-the-sum", "1 2 1, resized to 1 and 3"),
    ("weighted-full-lease-on-a-repeated-grant", "1 2, loss"),
    ("weighted-window-of-the-giver", "1 2 1, resized to 1 and 3"),
    ("weighted-lock-ends-with-the-last-lease", "1 1, leases of 2 and 4, loss and crash"),
    ("weighted-fence-ends-with-the-last-lease", "1 1, leases of 2 and 4, loss and crash"),
    ("weighted-release-deletes-the-others", "u>w r, crash and give up"),
    ("weighted-leave-refused-when-full", "1 2, loss"),
    ("weighted-renewal-refused-when-full", "1 2, loss, renewed"),
    ("weighted-change-refused-when-full", "u>w r, memory is full"),
    ("weighted-beat-refused-when-full", "1 2 1, memory is full"),
];

#[test]
fn exploration_finds_most_of_the_planted_bugs() {
    let mut missed = Vec::new();
    for (bug, name) in EXPLORED {
        let outcome = with_bug(bug, || explore(&scenario(name)));
        match outcome.found {
            None => missed.push(bug),
            Some((violation, way)) => {
                println!("{bug:42} {name:40} {:>8} {:>3} {violation}", outcome.states, way.len());
            }
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
