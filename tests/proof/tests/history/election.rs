//! An election: threads lead, say words while they do, and ask who leads.

use leasehold::{Leadership, Lease, LockOptions};
use leasehold_support::history::now;

use crate::worker::{LEASE, Worker, word};

pub(crate) fn turn(worker: &mut Worker<'_>, object: &str) {
    let options = LockOptions::new().lease(Lease::renewed(LEASE));
    let election = worker.client.locks().election_with(object, options).expect("valid settings");
    if worker.rng.u8(..4) > 0 {
        worker.call("leader", object, format_args!(""));
        let leader = election.leader();
        let at = now();
        return match leader {
            Ok(Some(leader)) => {
                let term = leader.term().expect("a term").get();
                let word = leader.value().map(|word| String::from_utf8_lossy(word).into_owned());
                let word = word.map_or(String::new(), |word| format!(" word={word}"));
                worker.line(at, "ok", "leader", object, format_args!(" term={term}{word}"));
            }
            Ok(None) => worker.line(at, "ok", "leader", object, format_args!(" term=none")),
            Err(error) => {
                let error = word(error.kind());
                worker.line(at, "no", "leader", object, format_args!(" error={error}"));
            }
        };
    }
    let wait = worker.wait();
    let take = || election.try_campaign_for(wait);
    let nothing = format_args!("");
    let Some(lead) = worker.acquire("campaign", object, nothing, take, |_| String::new()) else {
        return;
    };
    let term = lead.term().get();
    worker.change(object, term);
    for _ in 0..worker.rng.u8(..4) {
        say(worker, object, &lead, term);
        worker.pause(300);
    }
    worker.stay(object, &lead);
    worker.release("resign", object, lead);
}

fn say(worker: &mut Worker<'_>, object: &str, lead: &Leadership, term: u64) {
    let word = worker.value();
    worker.call("proclaim", object, format_args!(" token={term} word={word}"));
    match lead.proclaim(&word) {
        Ok(()) => worker.line(now(), "ok", "proclaim", object, format_args!("")),
        Err(error) => worker.failed("proclaim", object, &error),
    }
}
