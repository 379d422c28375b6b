//! What the scripts cost on a server.

use std::time::Instant;

use ::redis::Value;

use crate::lab::{Lab, TTL, permits, reader, upgradable, writer};
use crate::request::{ALL, Attempt, FENCE, LOCK, Mode, Reply, Request, Weight};

impl Lab {
    /// How many commands ran so far, those of scripts included.
    fn commands(&mut self) -> u64 {
        let Value::BulkString(text) = self.ask(&["INFO", "commandstats"]) else { panic!("a text") };
        let text = String::from_utf8(text).expect("a text");
        let calls = text.lines().filter_map(|line| line.split("calls=").nth(1)?.split(',').next());
        calls.map(|calls| calls.parse::<u64>().expect("a number")).sum()
    }

    /// The commands that a script runs besides itself.
    fn inner(&mut self, request: &Request) -> u64 {
        let words = request.words(&self.scripts);
        // Each asks once more, and publishes an end of messages each time.
        self.commands();
        let before = self.commands();
        let idle = self.commands() - before;
        let before = self.commands();
        self.command(&words).expect("no error");
        self.commands() - before - idle - 2
    }
}

/// The contract: 10 for a read-write lock, and 12 for a semaphore, which stays where nobody holds. One command of the
/// former, and two of the latter, look whether the key is a lock of the kind (rule 43).
#[test]
fn uncontended_pair_runs_few_commands() {
    // Also one that takes all there is.
    for (limit, attempt, most) in [
        (ALL, reader(0), 10),
        (ALL, upgradable(0), 10),
        (ALL, writer(0), 10),
        (4, permits(0, 1), 12),
        (4, permits(0, 4), 12),
    ] {
        let mut lab = Lab::real(limit);
        let acquire = lab.acquire_request(attempt, Mode::Join);
        let release = Request::Release { attempt, ttl: TTL, last_token: 0 };
        let first = [lab.inner(&acquire), lab.inner(&release)];
        let again = [lab.inner(&acquire), lab.inner(&release)];
        println!("{attempt:?}: {first:?} commands the first time, {again:?} after that");
        for [acquire, release] in [first, again] {
            let both = acquire + release;
            assert!(
                both <= most,
                "{attempt:?}: acquire.lua ran {acquire} commands and release.lua {release}: {both} of {most} at most"
            );
        }
    }
}

/// A refusal counts the holders besides (rule 24).
#[test]
fn refused_request_runs_few_commands() {
    for (limit, holder, waiter, most) in
        [(1, permits(0, 1), permits(1, 1), 8), (ALL, reader(0), writer(1), 8)]
    {
        let mut lab = Lab::real(limit);
        lab.take(holder);
        let [one, join, beat] =
            [Mode::Try, Mode::Join, Mode::Beat].map(|mode| lab.acquire_request(waiter, mode));
        let refused = lab.inner(&one);
        let joined = lab.inner(&join);
        println!(
            "{waiter:?}: {refused} commands, {joined} to line up, {} to stay",
            lab.inner(&beat)
        );
        assert!(
            refused <= most,
            "{waiter:?} is refused: acquire.lua ran {refused} commands of {most} at most"
        );
    }
}

/// The server's time of an acquire and its release, in µs.
fn pair(lab: &mut Lab, attempt: Attempt) -> f64 {
    let acquire = lab.acquire_request(attempt, Mode::Join);
    let release = Request::Release { attempt, ttl: TTL, last_token: 0 };
    server_time(lab, &[acquire, release])
}

/// The server's time of these requests, one after the other, in µs.
fn server_time(lab: &mut Lab, requests: &[Request]) -> f64 {
    const ROUNDS: u32 = 2_000;
    let by_digest = requests.iter().map(|request| {
        let mut words = request.words(&lab.scripts);
        let load = [b"SCRIPT".to_vec(), b"LOAD".to_vec(), words[1].clone()];
        let Ok(Value::BulkString(digest)) = lab.command(&load) else { panic!("a digest") };
        (words[0], words[1]) = (b"EVALSHA".to_vec(), digest);
        words
    });
    let by_digest: Vec<_> = by_digest.collect();
    let rounds = (0..5).map(|_| {
        lab.ask(&["CONFIG", "RESETSTAT"]);
        for _ in 0..ROUNDS {
            for words in &by_digest {
                lab.command(words).expect("no error");
            }
        }
        let Value::BulkString(text) = lab.ask(&["INFO", "commandstats"]) else { panic!("a text") };
        let text = String::from_utf8(text).expect("a text");
        let line = text.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
        let spent = line.and_then(|line| line.split("usec=").nth(1)?.split(',').next());
        spent.expect("a time").parse::<f64>().expect("a number") / f64::from(ROUNDS)
    });
    // The machine may be busy.
    rounds.fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "measures"]
fn server_time_of_a_pair() {
    for (limit, attempt) in [(ALL, reader(0)), (4, permits(0, 1))] {
        println!("{attempt:?}: {:.1} µs", pair(&mut Lab::real(limit), attempt));
    }
    for holders in [1_000, 100_000] {
        let mut lab = Lab::real(1 << 30);
        fill(&mut lab, holders);
        println!("with {holders} holders and a gap: {:.1} µs", pair(&mut lab, permits(0, 1)));
    }
}

/// With the bug `sum-never-counted-again`, that of a refusal that does not count the holders.
#[test]
#[ignore = "measures"]
fn server_time_of_a_refusal() {
    for holders in [2, 8, 64, 65, 1_000] {
        let mut lab = Lab::real(u64::from(holders));
        fill(&mut lab, holders + 1);
        let request = lab.acquire_request(permits(1, 1), Mode::Try);
        println!("refused by {holders}: {:.1} µs", server_time(&mut lab, &[request]));
    }
}

/// Takes single permits, and gives one in the middle back.
fn fill(lab: &mut Lab, holders: u32) {
    let begin = Instant::now();
    let source = "
        local t = redis.call('TIME')
        local ends = string.format('%.0f', (t[1] + 3600) * 1e6)
        redis.call('ZADD', KEYS[1], ARGV[2], 'declared', ARGV[2], 'limit', ARGV[1] - 1, 'used')
        for i = 0, ARGV[1] - 1 do
          if i ~= math.floor(ARGV[1] / 2) then
            local attempt = string.format('1q:9:%x:1000:1:1:host:label', i)
            redis.call('ZADD', KEYS[1], 4294967296 + i, '1/' .. attempt, ends, attempt)
          end
        end
        redis.call('PEXPIRE', KEYS[1], 3600000)
        redis.call('SET', KEYS[2], 1, 'PX', 3600000)";
    let limit = lab.limit.to_string();
    let words = ["EVAL", source, "2", LOCK, FENCE, &holders.to_string(), &limit];
    lab.ask(&words);
    println!("{holders} holders were made in {:?}", begin.elapsed());
}

/// Rule 29: the cost of a grant does not grow with the number of holders but for the look for a gap.
#[test]
fn grant_among_many_holders_looks_at_few_of_them() {
    let mut lab = Lab::real(1 << 30);
    fill(&mut lab, 10_000);
    let mut take = |attempt| {
        let request = lab.acquire_request(attempt, Mode::Join);
        let commands = lab.inner(&request);
        let again = request.words(&lab.scripts);
        match Reply::read(&request, lab.command(&again)) {
            Reply::Granted { slots, .. } => (commands, slots),
            other => panic!("{other:?}"),
        }
    };
    let (commands, slots) = take(permits(0, 1));
    // Seven as always, one for the fence of the others, one to see that there is a gap, and the search.
    let most = 7 + 1 + 1 + 14;
    assert!(commands <= most, "in a gap: acquire.lua ran {commands} commands of {most} at most");
    assert_eq!(slots, [5_000]);
    let (commands, slots) = take(Attempt { weight: Weight::Permits(2), ..permits(1, 1) });
    let most = 7 + 1 + 1;
    assert!(commands <= most, "above all: acquire.lua ran {commands} commands of {most} at most");
    assert_eq!(slots, [10_000, 10_001]);
}
