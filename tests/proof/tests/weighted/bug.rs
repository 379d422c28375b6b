//! Bugs planted in the scripts, each of which the test that is named for it must catch, and many of which the
//! exploration must find.

use std::panic::catch_unwind;

use crate::explore::scenario;
use crate::script::with_bug;
use crate::search::explore;
use crate::table::{MUTATIONS, Mutation};
use crate::{change, hold, kind, limit, line, memory, recount, refusal, slot};

macro_rules! tests {
    ($($module:ident::$test:ident),* $(,)?) => {
        &[$((concat!("weighted::", stringify!($module), "::", stringify!($test)), $module::$test)),*]
    };
}

/// The tests that catch bugs, as the mutation gate knows them.
const TESTS: &[(&str, fn())] = tests![
    line::small_request_does_not_overtake_a_large_one,
    line::holders_are_told_that_somebody_waits,
    hold::renewal_neither_makes_nor_revives_a_holder,
    hold::weight_of_an_ended_lease_comes_back_once,
    line::beat_takes_what_an_ended_lease_gives_back,
    hold::ended_lease_among_living_ones_gives_its_weight,
    line::release_grants_all_who_fit_side_by_side,
    slot::lowest_free_slots_are_given,
    hold::repeated_request_has_the_same_slots_and_its_weight_once,
    line::grants_count_those_who_wait_after_the_last_of_them,
    refusal::refused_script_takes_no_place_from_others,
    line::grant_in_a_cluster_stays_whoever_is_counted,
    change::upgrade_waits_for_the_readers_before_everybody,
    change::plain_reader_does_not_upgrade,
    change::upgrade_without_readers_is_immediate_and_has_a_new_token,
    change::dead_upgrade_is_forgotten_with_its_holder,
    change::doubled_downgrade_does_not_lower_a_later_writer,
    change::late_upgrade_after_its_cancel_does_nothing,
    change::downgrade_lets_the_readers_at_the_head_in,
    limit::waiter_above_the_limit_is_told_and_taken_out,
    limit::requests_are_compared_with_what_was_declared,
    limit::another_declared_limit_is_refused_while_in_use,
    limit::holder_above_a_smaller_limit_is_granted_again,
    limit::limit_of_a_resize_is_kept_after_each_use,
    recount::refusal_counts_the_holders_again,
    recount::upgrade_counts_the_holders_again,
    recount::weights_are_counted_as_they_were_changed,
    recount::sum_of_more_than_64_holders_stays,
    line::waiter_behind_the_holders_own_client_tells_them,
    limit::each_client_is_told_of_a_lower_limit_once,
    limit::smaller_limit_grants_nobody_until_it_fits,
    hold::repeated_request_makes_the_lease_whole,
    line::window_is_the_waiters_own,
    hold::shorter_lease_shortens_no_key_of_a_longer_one,
    line::dead_waiter_is_passed_over_and_keeps_its_place,
    hold::request_past_its_deadline_does_nothing,
    hold::transaction_runs_for_a_holder_alone,
    hold::readers_share_and_a_writer_excludes_all,
    line::late_try_of_a_waiter_does_not_make_it_hold_and_wait,
    memory::leave_that_passes_over_the_dead_works_when_memory_is_full,
    memory::renewal_works_when_memory_is_full,
    memory::changes_work_when_memory_is_full,
    memory::resize_and_force_work_when_memory_is_full,
    memory::transaction_is_whole_when_memory_is_full,
    memory::beat_is_served_when_memory_is_full,
    kind::set_of_a_user_is_an_error_and_not_touched,
    kind::set_with_marks_and_more_is_data,
    kind::set_with_a_sum_and_no_holder_is_data,
    kind::free_lock_without_an_end_is_data,
    kind::semaphore_is_known_in_all_its_states,
    kind::read_write_lock_is_known_in_all_its_states,
    kind::each_kind_is_told_from_the_other,
    kind::members_of_a_user_are_not_taken_out,
    refusal::refused_attempt_leaves_nothing,
];

fn bugs() -> impl Iterator<Item = &'static Mutation> {
    MUTATIONS.iter().filter(|bug| bug.checker.starts_with("weighted::"))
}

/// A checker that has never failed proves nothing.
#[test]
fn every_planted_bug_is_caught_by_its_test() {
    let mut missed = Vec::new();
    for bug in bugs() {
        let named = TESTS.iter().find(|(name, _)| *name == bug.checker);
        let (_, test) = named.unwrap_or_else(|| panic!("{} is not in TESTS", bug.checker));
        match with_bug(bug.name, || catch_unwind(test)) {
            Ok(()) => missed.push(bug.name),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map_or("", String::as_str);
                println!("{:42} {}", bug.name, text.lines().next().unwrap_or_default());
            }
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn every_test_here_catches_a_bug() {
    let idle = TESTS.iter().filter(|(name, _)| bugs().all(|bug| bug.checker != *name));
    assert_eq!(idle.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0]);
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
