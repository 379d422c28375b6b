//! One suite of tests of the mutex, and the topologies over which it runs: each test is one of its
//! topology's module, by which the output names it.
//!
//! | module | what its tests are about |
//! | --- | --- |
//! | `take` | who gets a lock, and who does not |
//! | `reentry` | a thread that takes again what it holds |
//! | `release` | giving back: by release, by drop, by force |
//! | `wait` | waiting for a lock that another has |
//! | `lease` | leases: renewed, fixed, made longer, ended |
//! | `loss` | how the loss of a lock is told |
//! | `holder` | who holds a lock, under which name, and in what key |
//! | `token` | fencing tokens |
//! | `client` | locks by key, and the end of a client |
//! | `process` | several processes |
//! | `outage` | servers that hang, or are dead |
//!
//! The tests of one topology share its servers, but those of `outage`, which harm them. The servers end
//! with this process.

mod client;
mod holder;
mod lease;
mod loss;
mod outage;
mod process;
mod reentry;
mod release;
mod take;
mod token;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use leasehold_support::child::role;
use leasehold_topology_test::{Cluster, OneServer, Quorum, Sentinel, Tls, UnixSocket};

/// The tests, all of them for each of these topologies: there is no place for an exception.
macro_rules! suite {
    ($($test:ident of $area:ident,)*) => {
        suite! { @each
            server OneServer, unix_socket UnixSocket, tls Tls, sentinel Sentinel,
            cluster Cluster, quorum Quorum;
            { $($area $test,)* }
        }

        /// How many tests there are for each topology.
        const TESTS: usize = [$(stringify!($test)),*].len();
    };
    (@each $($module:ident $topology:ident),*; $tests:tt) => {
        $(suite! { @topology $module $topology $tests })*

        /// The topologies, as the output names them.
        const TOPOLOGIES: &[&str] = &[$(stringify!($module)),*];

        /// What the children of this file run; nothing in the process that people started.
        #[test]
        fn roles() {
            match role().as_deref() {
                $(Some(role) if role == std::any::type_name::<$topology>() => {
                    process::play::<$topology>()
                })*
                Some(other) => panic!("unknown role {other}"),
                None => {}
            }
        }
    };
    (@topology $module:ident $topology:ident { $($area:ident $test:ident,)* }) => {
        mod $module {
            use std::sync::LazyLock;

            use leasehold_topology_test::{$topology, Topology};

            use leasehold_topology_test::scene::Scene;

            static SHARED: LazyLock<$topology> = LazyLock::new($topology::start);

            $(#[test]
            fn $test() {
                crate::$area::$test(&Scene::new(&*SHARED, stringify!($test)));
            })*
        }
    };
}

suite! {
    one_holder_at_a_time of take,
    names_are_independent of take,
    whoever_does_not_wait_is_told_none of take,
    a_wait_that_ends_is_told_none_and_not_before of take,
    threads_exclude_each_other of take,
    clients_exclude_each_other of take,
    the_closure_form_gives_back_and_tells_of_a_loss of take,
    a_short_hold_excludes_also_while_it_is_asked_for_again_and_again of take,
    a_thread_takes_again_what_it_holds of reentry,
    a_hold_belongs_to_its_thread of reentry,
    a_lease_is_sent_to_another_thread of reentry,
    what_a_thread_still_holds_at_its_end_is_given_back of reentry,
    a_release_leaves_no_lock_behind of release,
    a_drop_gives_back of release,
    a_panic_gives_back_and_poisons_nothing of release,
    a_guard_outlives_its_lock_and_its_client of release,
    a_release_reports_that_the_lock_had_been_lost of release,
    a_forced_release_frees_it_and_its_holder_finds_out of release,
    a_release_lets_a_waiter_in of wait,
    clients_are_served_as_their_way_of_waiting_promises of wait,
    threads_of_one_client_are_served_as_they_came of wait,
    a_wait_too_long_for_the_clock_has_no_end of wait,
    whoever_gave_up_holds_up_nobody of wait,
    waits_are_called_off_from_another_thread of wait,
    a_lease_that_runs_out_lets_a_waiter_in_and_not_before of wait,
    a_lease_is_renewed_beyond_its_time_to_live of lease,
    validity_is_never_longer_than_the_lease of lease,
    a_fixed_lease_runs_out_and_its_holder_is_told of lease,
    a_lease_is_made_longer_and_never_shorter of lease,
    renewals_end_with_the_longest_hold of lease,
    renewals_end_with_the_last_one_allowed of lease,
    a_deleted_lock_is_told_in_all_ways of loss,
    a_lock_that_another_has_is_told_as_taken of loss,
    check_asks_the_servers of loss,
    the_holder_is_told_by_label_host_and_process of holder,
    a_lock_is_inspected_with_its_token_and_age of holder,
    a_prefix_stands_before_every_name of holder,
    any_bytes_are_a_name of holder,
    a_key_of_another_type_is_told_and_left_alone of holder,
    what_is_not_allowed_is_told_before_anything_is_asked of holder,
    tokens_grow_from_hold_to_hold of token,
    a_token_is_above_that_of_a_lease_that_ran_out of token,
    locks_by_key_are_mutexes of client,
    a_shutdown_gives_back_what_is_held_and_calls_off_what_waits of client,
    processes_exclude_each_other of process,
    a_lock_of_a_killed_process_is_free_when_its_lease_is_over of process,
    an_outage_is_told_as_one_in_time_and_ends of outage,
    a_short_outage_is_ridden_out of outage,
}

/// As the test harness itself lists them.
#[test]
fn every_topology_has_the_same_tests_and_none_is_left_out() {
    let list = |arguments: &[&str]| {
        let output = Command::new(std::env::current_exe().unwrap()).args(arguments).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let mut tests: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in list(&["--list", "--format", "terse"]).lines() {
        if let Some((topology, test)) = line.trim_end_matches(": test").split_once("::") {
            tests.entry(topology.to_owned()).or_default().insert(test.to_owned());
        }
    }
    assert!(tests.keys().map(String::as_str).eq({
        let mut topologies = TOPOLOGIES.to_vec();
        topologies.sort_unstable();
        topologies
    }));
    let first = tests.values().next().unwrap();
    assert_eq!(first.len(), TESTS);
    assert!(tests.values().all(|tests| tests == first), "{tests:?}");
    assert_eq!(list(&["--list", "--format", "terse", "--ignored"]), "");
}
