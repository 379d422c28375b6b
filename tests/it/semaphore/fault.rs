//! Faults of the network. Those of each operation are in the registry of faults.

use leasehold_support::fault::Operation;
use leasehold_support::{Action, Fault};

use crate::common::{ask, behind_proxy, fixed, ms, open, open_at};

/// The validity is reckoned from before the request, and not from its reply.
#[test]
fn late_reply_makes_no_permit_valid_beyond_redis() {
    let (server, proxy) = behind_proxy();
    // The scripts are known by then, so that the first request is the one that is delayed.
    drop(open(&server).semaphore("warm", 2).unwrap().acquire().unwrap());
    let client = open_at(proxy.url());
    let late = Fault::reply("", Action::Delay(ms(450))).at(Operation::Acquire);
    let late = proxy.add(late);
    let permit = client.semaphore_with("gpu", 2, fixed(20_000)).unwrap().acquire().unwrap();
    let members: Vec<(String, f64)> =
        ask(&server, &["ZRANGE", "gpu", "1099511627776", "+inf", "BYSCORE", "WITHSCORES"]);
    let (seconds, micros): (u64, u64) = ask(&server, &["TIME"]);
    let remaining = permit.remaining();
    let left = members[0].1 as u64 - (seconds * 1_000_000 + micros);
    assert_eq!(late.fired(), 1);
    assert!(remaining.as_micros() <= left.into(), "{remaining:?} of {left} µs");
    permit.release().unwrap();
}
