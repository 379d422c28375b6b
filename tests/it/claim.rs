//! Those of many locks that are free, over a real server.

use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use crate::common::{SOON, ask, exists, heavy, open, open_at, renewed, server, until, warm};
use leasehold::{LockClient, LockOptions, Mutex, OwnedLease, Part};
use leasehold_support::child::{role, tell};
use leasehold_support::{Child, Server};

const IDS: usize = 1_000;
const AT_A_TIME: usize = 10;
const WORKERS: usize = 5;

fn jobs(client: &LockClient) -> Vec<Mutex> {
    (0..IDS).map(|id| client.mutex(format!("job:{id}")).unwrap()).collect()
}

fn ids(leases: &[OwnedLease]) -> Vec<String> {
    leases.iter().map(|lease| String::from_utf8_lossy(lease.name()).into_owned()).collect()
}

/// How many of these locks are held.
fn held(server: &Server) -> usize {
    server.keys().iter().filter(|key| key.starts_with(b"job:")).count()
}

/// The child process: five workers.
#[test]
fn roles() {
    if role().as_deref() == Some("claimers") {
        let var = |name: &str| std::env::var(name).unwrap();
        let rounds: usize = var("ROUNDS").parse().unwrap();
        let client = open_at(var("URL"));
        let claimed: usize = thread::scope(|scope| {
            let work = |worker| {
                let (client, url) = (client.clone(), var("URL"));
                scope.spawn(move || work(&client, &url, worker, rounds))
            };
            let workers: Vec<_> = (0..WORKERS).map(work).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        tell(&format!("claimed {claimed}"));
    }
}

/// KEYS  the last token of each id   ARGV  the tokens
/// Returns how many of the tokens are above the last one of their id.
const FENCE: &str = "
    local later = 0
    for i, key in ipairs(KEYS) do
      if tonumber(ARGV[i]) > tonumber(redis.call('GET', key) or '0') then
        later = later + 1
        redis.call('SET', key, ARGV[i])
      end
    end
    return later";

/// One worker. Returns how many ids it has worked on.
fn work(client: &LockClient, url: &str, worker: usize, rounds: usize) -> usize {
    let mut random = fastrand::Rng::with_seed(u64::from(std::process::id()) * 5 + worker as u64);
    let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
    let (jobs, fence) = (jobs(client), redis::Script::new(FENCE));
    let mut done = 0;
    for _ in 0..rounds {
        // Half of them all begin with the same id, as users will.
        let first = if worker.is_multiple_of(2) { 0 } else { random.usize(0..IDS) };
        let (before, after) = jobs.split_at(first);
        let claimed = client.claim(after.iter().chain(before), AT_A_TIME).unwrap();
        assert_eq!(claimed.len(), AT_A_TIME, "most are free");
        // Nobody else works on one of them.
        let busy: Vec<String> = ids(&claimed).iter().map(|id| format!("busy:{id}")).collect();
        let mut set = redis::cmd("MSETNX");
        busy.iter().for_each(|key| _ = set.arg(key).arg(worker));
        assert_eq!(set.query::<u32>(&mut redis).unwrap(), 1, "two work on one of {busy:?}");
        let mut call = fence.prepare_invoke();
        for (lease, id) in claimed.iter().zip(ids(&claimed)) {
            call.key(format!("seen:{id}")).arg(lease.fencing_token().get());
        }
        assert_eq!(call.invoke::<usize>(&mut redis).unwrap(), AT_A_TIME, "a token is not the last");
        let gone: usize = redis::cmd("DEL").arg(&busy).query(&mut redis).unwrap();
        assert_eq!(gone, AT_A_TIME);
        assert!(claimed.iter().all(OwnedLease::is_valid));
        done += claimed.len();
        client.release_all(claimed).unwrap();
    }
    done
}

#[test]
fn twenty_workers_of_four_processes_never_share_an_id() {
    let _turn = heavy();
    const ROUNDS: usize = 40;
    let server = server();
    warm(&server);
    let start = |_| {
        let child = Child::role("claimers").test("claim::roles").env("URL", server.url());
        child.env("ROUNDS", ROUNDS.to_string()).start().unwrap()
    };
    let mut children: Vec<Child> = (0..4).map(start).collect();
    let claimed = children.iter_mut().map(|child| {
        child
            .expect_line("claimed ", SOON * 10)
            .trim_start_matches("claimed ")
            .parse::<usize>()
            .unwrap()
    });
    let claimed: usize = claimed.sum();
    assert_eq!(claimed, 4 * WORKERS * ROUNDS * AT_A_TIME);
    let calls = server.command_calls(&["evalsha"]) as usize - 4 * WORKERS * ROUNDS;
    let each = calls as f64 / claimed as f64;
    writeln!(io::stderr(), "{claimed} ids claimed and released, {each:.2} commands each").unwrap();
    drop(children);
    until("all are free", || held(&server) == 0);
}

/// The server is killed between two pipelines of a claim, and comes back with what it has saved.
#[test]
fn server_that_dies_in_the_middle_leaves_nothing_claimed() {
    let server = Server::builder().tcp().arg("--appendonly").arg("yes");
    let server = server.arg("--appendfsync").arg("always").start().unwrap();
    let (client, other) = (open(&server), open(&server));
    let builder = LockClient::builder(server.url()).give_up_after(Duration::from_millis(500));
    let claiming = builder.build().unwrap();
    // Half of the first pipeline is taken, so there is a second one.
    let theirs = other.claim(jobs(&other).iter().take(5), 5).unwrap();
    let parts = jobs(&claiming).into_iter().enumerate().map(|(index, job)| {
        if index == AT_A_TIME {
            assert_eq!(held(&server), AT_A_TIME, "the first pipeline has been served");
            server.kill();
        }
        Part::from(&job)
    });
    let error = claiming.claim(parts, AT_A_TIME).unwrap_err();
    assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
    assert!(error.to_string().contains("not given back yet"), "{error}");
    server.restart();
    // Long before their leases of 30 s end.
    until("the client gives them back", || {
        (5..AT_A_TIME).all(|id| !exists(&server, &format!("job:{id}")))
    });
    drop(theirs);
    until("nothing is held", || held(&server) == 0);
    assert_eq!(client.claim(&jobs(&client), AT_A_TIME).unwrap().len(), AT_A_TIME);
}

/// Silence in the midst of a claim: the server goes on later, and grants what nobody has.
#[test]
fn stopped_server_leaves_nothing_claimed() {
    let server = server();
    warm(&server);
    let builder = LockClient::builder(server.url()).command_timeout(Duration::from_millis(500));
    let client = builder.max_wait(SOON).build().unwrap();
    let other = open(&server);
    let theirs = other.claim(jobs(&other).iter().take(5), 5).unwrap();
    let jobs = jobs(&client);
    let parts = jobs.iter().enumerate().map(|(index, job)| {
        if index == AT_A_TIME {
            server.pause();
        }
        Part::from(job)
    });
    let error = client.claim(parts, AT_A_TIME).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    server.resume();
    until("only theirs are left", || held(&server) == 5);
    other.release_all(theirs).unwrap();
    let claimed = client.claim(&jobs, AT_A_TIME).unwrap();
    assert_eq!(ids(&claimed), (0..AT_A_TIME).map(|id| format!("job:{id}")).collect::<Vec<_>>());
}

/// A plain lock costs as many commands as before, with these options and without.
#[test]
fn lock_costs_two_commands_whatever_its_options() {
    let server = server();
    warm(&server);
    let client = open(&server);
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    let all = [
        LockOptions::new(),
        LockOptions::new().reentrant(false).max_waiters(1),
        renewed(10_000).max_waiters(u32::MAX),
    ];
    for (number, options) in all.into_iter().enumerate() {
        let lock = client.mutex_with(format!("x{number}"), options).unwrap();
        server.reset_stats();
        lock.lock().unwrap().release().unwrap();
        assert_eq!(server.command_calls(&["evalsha", "eval"]), 2, "{options:?}");
        lock.lock_owned().unwrap().release().unwrap();
        assert_eq!(server.command_calls(&["evalsha", "eval"]), 4, "{options:?}");
        let claimed = client.claim([&lock], 1).unwrap();
        client.release_all(claimed).unwrap();
        assert_eq!(server.command_calls(&["evalsha", "eval"]), 6, "{options:?}");
    }
    assert_eq!(ask::<u64>(&server, &["EXISTS", "x0", "x1", "x2"]), 0);
}
