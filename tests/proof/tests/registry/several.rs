//! Faults of the network in the middle of a pipeline, which acquires or releases several locks.

use leasehold::{LockClient, Part};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Fault};

use crate::common::{exists, renewed, until};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial};

kinds! {
    reply_cut_in_a_pipeline_of_acquires "reply-cut@several-acquires" "A,S"
        = acquired_again(Fault::reply("", Action::Cut));
    reply_half_in_a_pipeline_of_acquires "reply-half@several-acquires" "A,S"
        = acquired_again(Fault::reply("", Action::CutHalf));
    request_cut_in_a_pipeline_of_acquires "request-cut@several-acquires" "A,S"
        = acquired_again(Fault::request("", Action::Cut));
    silent_in_a_pipeline_of_acquires "silent@several-acquires" "E,A,S";
    reply_cut_in_a_pipeline_of_claims "reply-cut@claim" "A,S"
        = claimed_again(Fault::reply("", Action::Cut));
    request_cut_in_a_pipeline_of_claims "request-cut@claim" "A,S"
        = claimed_again(Fault::request("", Action::Cut));
    silent_in_a_pipeline_of_claims "silent@claim" "E,A,S";
    silent_while_a_claim_gives_back "silent@claim-surplus" "A,L";
    reply_cut_in_a_pipeline_of_releases "reply-cut@several-releases" "A,S";
    silent_in_a_pipeline_of_releases "silent@several-releases" "E,A";
}

/// The lock of the trial is the one in the middle.
const NAMES: [&str; 5] = ["a", "b", KEY, "y", "z"];
/// The message at which the fault begins: as many pass as there are names before that lock.
const NTH: u64 = 3;

fn parts(client: &LockClient) -> Vec<Part> {
    let part = |name| Part::from(&client.mutex_with(name, renewed(LEASE)).unwrap());
    NAMES.map(part).into()
}

fn is_any_left(trial: &Trial) -> bool {
    NAMES.iter().any(|name| exists(&trial.server, name))
}

/// Half of the pipeline has its replies. The rest is sent again under the same values, so that what was done
/// already is recognised: in one attempt the locks would seem to be another's.
fn acquired_again(trial: &Trial, fault: Fault) {
    let client = trial.client();
    let fault = trial.proxy.add(fault.at(Operation::Acquire).nth(NTH));
    let guard = trial.timed(COMMAND, || client.try_lock_all(parts(&client))).unwrap();
    let guard = guard.expect("nobody else has them");
    trial.witnessed(1, fault.fired(), "the proxy");
    guard.check().unwrap();
    assert!(guard.is_valid() && trial.rival().try_lock().unwrap().is_none());
    guard.release().unwrap();
    until("all are released", || !is_any_left(trial));
    trial.stays_away();
}

/// The outcome of the middle one is unknown. What was granted before it is given back, and what may have been
/// granted is removed.
fn silent_in_a_pipeline_of_acquires(trial: &Trial) {
    let client = trial.client();
    let fault = trial.proxy.add(Fault::reply("", Action::Hold).at(Operation::Acquire).nth(NTH));
    let error = trial.timed(COMMAND, || client.try_lock_all(parts(&client))).unwrap_err();
    trial.witnessed(1, fault.fired(), "the proxy");
    assert!(error.is_unknown_outcome(), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("lock \"{KEY}\": ")), "{text}");
    assert!(text.contains("given back: \"a\", \"b\""), "{text}");
    until("all are given back", || !is_any_left(trial));
    trial.given_back();
}

/// The same for a claim: a lock whose reply was lost is its own, and not taken.
fn claimed_again(trial: &Trial, fault: Fault) {
    let client = trial.client();
    let fault = trial.proxy.add(fault.at(Operation::Acquire).nth(NTH));
    let leases = trial.timed(COMMAND, || client.claim(parts(&client), NAMES.len())).unwrap();
    trial.witnessed(1, fault.fired(), "the proxy");
    let names: Vec<_> = leases.iter().map(|lease| lease.name().to_vec()).collect();
    assert_eq!(names, NAMES.map(|name| name.as_bytes().to_vec()));
    for lease in &leases {
        lease.check().unwrap();
    }
    assert!(trial.rival().try_lock().unwrap().is_none());
    client.release_all(leases).unwrap();
    until("all are released", || !is_any_left(trial));
    trial.stays_away();
}

/// The outcome of the middle one is unknown: nothing is kept, and what may have been granted is removed.
fn silent_in_a_pipeline_of_claims(trial: &Trial) {
    let client = trial.client();
    let fault = trial.proxy.add(Fault::reply("", Action::Hold).at(Operation::Acquire).nth(NTH));
    let error = trial.timed(COMMAND, || client.claim(parts(&client), NAMES.len())).unwrap_err();
    trial.witnessed(1, fault.fired(), "the proxy");
    assert!(error.is_unknown_outcome(), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("lock \"{KEY}\": ")), "{text}");
    assert!(text.contains("given back: \"a\", \"b\""), "{text}");
    until("all are given back", || !is_any_left(trial));
    trial.given_back();
}

/// A claim of two has one after the first two tries, and tries two more. It gives one of them back, and that has no reply:
/// the claim has its two all the same.
fn silent_while_a_claim_gives_back(trial: &Trial) {
    let client = trial.client();
    let owner = LockClient::open(trial.server.url()).unwrap();
    let taken = owner.claim(parts(&owner).into_iter().take(1), 1).unwrap();
    let fault = trial.proxy.add(Fault::reply("", Action::Hold).at(Operation::Release).nth(1));
    let leases = trial.timed(COMMAND * 2, || client.claim(parts(&client), 2)).unwrap();
    trial.witnessed(1, fault.fired(), "the proxy");
    assert_eq!(leases.iter().map(|lease| lease.name()).collect::<Vec<_>>(), [b"b", KEY.as_bytes()]);
    until("what it did not need is given back", || !exists(&trial.server, "y"));
    drop(taken);
    client.release_all(leases).unwrap();
    trial.stays_away();
}

/// The releases without a reply are sent again, and none of them is taken for a loss.
fn reply_cut_in_a_pipeline_of_releases(trial: &Trial) {
    let client = trial.client();
    let guard = client.lock_all(parts(&client)).unwrap();
    let fault = trial.proxy.add(Fault::reply("", Action::Cut).at(Operation::Release).nth(NTH));
    trial.released(trial.timed(COMMAND, || guard.release()));
    trial.witnessed(1, fault.fired(), "the proxy");
    assert!(!is_any_left(trial));
    trial.stays_away();
}

/// As for a release alone, those without a reply are sent once more, over another connection.
fn silent_in_a_pipeline_of_releases(trial: &Trial) {
    let client = trial.client();
    let guard = client.lock_all(parts(&client)).unwrap();
    let fault = trial.proxy.add(Fault::reply("", Action::Hold).at(Operation::Release).nth(NTH));
    trial.released(trial.timed(COMMAND * 2, || guard.release()));
    trial.witnessed(1, fault.fired(), "the proxy");
    assert!(!is_any_left(trial));
    trial.stays_away();
}
