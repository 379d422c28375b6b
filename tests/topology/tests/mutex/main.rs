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
//! | `tail` | leases with a tail: silent holders, and what others see of them |
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
mod tail;
mod take;
mod token;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use leasehold_support::child::role;
use leasehold_topology_test::{
    Cluster, ForwardedCluster, ForwardedSentinel, Quorum, Sentinel, Tls,
};

/// The tests, all of them for each of these topologies: there is no place for an exception.
macro_rules! suite {
    ($($test:ident of $area:ident,)*) => {
        suite! { @each
            tls Tls, sentinel Sentinel, cluster Cluster, quorum Quorum,
            forwarded_sentinel ForwardedSentinel, forwarded_cluster ForwardedCluster;
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
    try_lock_of_a_held_lock_returns_none of take,
    timed_wait_returns_none_at_its_end of take,
    threads_exclude_each_other of take,
    clients_exclude_each_other of take,
    with_releases_and_reports_a_loss_of_the_hold of take,
    repeated_attempts_do_not_break_a_short_hold of take,
    thread_reenters_its_own_hold of reentry,
    a_hold_belongs_to_its_thread of reentry,
    owned_lease_is_sent_to_another_thread of reentry,
    ending_thread_releases_its_holds of reentry,
    a_release_leaves_no_lock_behind of release,
    dropped_guard_releases of release,
    panic_releases_and_poisons_nothing of release,
    a_guard_outlives_its_lock_and_its_client of release,
    release_of_a_lost_lock_reports_the_loss of release,
    forced_release_frees_the_lock_and_its_holder_loses_it of release,
    release_lets_a_waiter_in of wait,
    clients_are_served_in_the_order_their_wait_promises of wait,
    threads_of_one_client_are_served_in_order of wait,
    a_wait_too_long_for_the_clock_has_no_end of wait,
    waiter_that_gave_up_delays_no_other of wait,
    waits_are_cancelled_from_another_thread of wait,
    expired_lease_lets_a_waiter_in_and_not_earlier of wait,
    a_lease_is_renewed_beyond_its_time_to_live of lease,
    validity_is_never_longer_than_the_lease of lease,
    expired_fixed_lease_is_reported_to_its_holder of lease,
    a_lease_is_made_longer_and_never_shorter of lease,
    renewals_end_at_max_hold of lease,
    renewals_end_after_max_renewals of lease,
    limit_of_a_lease_ends_a_hold_by_key of lease,
    kept_lock_outlasts_its_hold_and_no_more of lease,
    deleted_lock_is_reported_in_every_way of loss,
    stolen_lock_is_reported_as_taken of loss,
    check_asks_the_servers of loss,
    stopped_holder_comes_back_with_its_token of tail,
    lock_of_a_stopped_holder_is_free_to_others of tail,
    renewal_that_comes_late_is_left_to_those_who_wait of tail,
    holder_is_shown_by_label_host_and_process of holder,
    a_lock_is_inspected_with_its_token_and_age of holder,
    name_prefix_precedes_every_name of holder,
    any_bytes_are_a_name of holder,
    key_of_another_type_is_an_error_and_not_touched of holder,
    string_that_may_be_data_is_taken_by_its_name_only of holder,
    invalid_input_is_rejected_before_any_request of holder,
    tokens_grow_from_hold_to_hold of token,
    token_exceeds_that_of_an_expired_lease of token,
    locks_by_key_are_mutexes of client,
    shutdown_releases_holds_and_cancels_waits of client,
    closed_client_lets_holders_finish_and_takes_the_rest of client,
    processes_exclude_each_other of process,
    lock_of_a_killed_process_is_free_after_its_lease of process,
    outage_is_reported_in_time_and_ends of outage,
    wait_outlasts_a_short_outage of outage,
}

/// As the test harness itself lists them.
#[test]
fn every_topology_runs_every_test() {
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
