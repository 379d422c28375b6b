//! Exit statuses, signals, the environment of the job, and the kinds of lock.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Output, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use leasehold::LockClient;
use leasehold_support::{
    Action, Direction, Fault, Injection, Proxy, Server, WallClock, fault::Operation,
    fault::network::SILENCE, skip,
};
use rustix::process::Signal;

use crate::common::{ask, children, run, send, wait, wait_until};

fn output(url: &str, arguments: &[&str]) -> Output {
    run(url).args(arguments).stdin(Stdio::null()).output().expect("the program")
}

fn status(url: &str, arguments: &[&str]) -> Option<i32> {
    output(url, arguments).status.code()
}

#[test]
fn grace_above_a_third_of_the_lease_is_refused() {
    let output =
        output("redis://127.0.0.1:1", &["--lease", "9s", "--grace", "3.1s", "x", "--", "true"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--grace"));
}

#[test]
fn time_too_short_for_a_job_is_refused() {
    for option in ["--lease", "--max-hold"] {
        let output = output("redis://127.0.0.1:1", &[option, "0s", "x", "--", "true"]);
        assert_eq!(output.status.code(), Some(64));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("{option} 0ns is too short")), "{said}");
    }
}

#[test]
fn json_of_a_run_is_refused() {
    assert_eq!(status("redis://127.0.0.1:1", &["--json", "x", "--", "true"]), Some(64));
}

#[test]
fn job_reads_what_follows_the_url() {
    let server = Server::start().expect("a server");
    let input = server.directory().join("input");
    std::fs::write(&input, format!("{}\nfirst\nsecond\n", server.url())).expect("a file");
    let mut command = run("redis://127.0.0.1:1");
    command.args(["--url-file", "-", "x", "--", "cat"]);
    let output = command.stdin(std::fs::File::open(input).expect("it")).output();
    assert_eq!(output.expect("the program").stdout, b"first\nsecond\n");
}

#[test]
fn unreachable_server_is_69() {
    assert_eq!(status("redis://127.0.0.1:1", &["x", "--", "true"]), Some(69));
}

/// Its /proc shows the processes of another system.
#[test]
fn processes_that_cannot_be_seen_are_70() {
    let inside = |program: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork"]).args(program).output()
    };
    if !inside(&["true"]).is_ok_and(|output| output.status.success()) {
        return skip("this user may not have processes of its own");
    }
    let server = Server::start().expect("a server");
    let program = env!("CARGO_BIN_EXE_leasehold");
    let output = inside(&[program, "run", "--url", &server.url(), "x", "--", "true"]);
    let output = output.expect("the program");
    assert_eq!(output.status.code(), Some(70), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/proc"), "{output:?}");
    assert_eq!(server.keys(), Vec::<Vec<u8>>::new(), "no lock was taken");
}

#[test]
fn wrong_password_is_77() {
    let server = Server::builder().tcp().start().expect("a server");
    let _: () = ask(&server, &["ACL", "SETUSER", "someone", "on", ">right", "~*", "&*", "+@all"]);
    let url = |password: &str| format!("redis://someone:{password}@{}", server.addr());
    assert_eq!(status(&url("wrong"), &["x", "--", "true"]), Some(77));
    assert_eq!(status(&url("right"), &["x", "--", "true"]), Some(0));
}

#[test]
fn acquire_without_a_reply_is_75() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&server).expect("a proxy");
    let lost = proxy.add(Fault::reply("", SILENCE).at(Operation::Acquire).sticky());
    let arguments = ["--timeout", "300ms", "-n", "x", "--", "true"];
    assert_eq!(status(&proxy.url(), &arguments), Some(75));
    assert!(lost.fired() > 0);
}

#[test]
fn other_kinds_of_keys_are_70() {
    let server = Server::start().expect("a server");
    let _: u32 = ask(&server, &["RPUSH", "x", "1"]);
    assert_eq!(status(&server.url(), &["x", "--", "true"]), Some(70));
    assert_eq!(status(&server.url(), &["-s", "x", "--", "true"]), Some(70));
}

#[test]
fn lock_of_another_program_keeps_a_run_out() {
    let server = Server::start().expect("a server");
    let _: () = ask(&server, &["SET", "x", "somebody", "NX", "PX", "60000"]);
    assert_eq!(status(&server.url(), &["-n", "x", "--", "true"]), Some(1));
    assert_eq!(status(&server.url(), &["-n", "-s", "x", "--", "true"]), Some(1));
}

#[test]
fn job_knows_its_lock_and_not_the_url() {
    let server = Server::start().expect("a server");
    let script = "echo $LEASEHOLD_NAME,$LEASEHOLD_LEASE_SECONDS,$LEASEHOLD_TOKEN,$LEASEHOLD_HOLDER,$REDIS_URL";
    let text = |options: &[&str]| {
        let arguments =
            [options, &["--lease", "1500ms", "night ly", "--", "sh", "-c", script]].concat();
        String::from_utf8(output(&server.url(), &arguments).stdout).expect("text")
    };
    let plain = text(&[]);
    let words: Vec<_> = plain.trim_end().split(',').collect();
    assert_eq!((words[0], words[1], words[4]), ("night ly", "1.5", ""));
    let first: u64 = words[2].parse().expect("a token");
    assert!(words[3].contains(':'), "{plain}");
    let kept = text(&["--keep-url"]);
    let words: Vec<_> = kept.trim_end().split(',').collect();
    assert_eq!(words[4], server.url());
    assert!(words[2].parse::<u64>().expect("a token") > first, "tokens grow");
}

/// The guardian takes the first place on a processor, where it may, and the job does not.
#[test]
fn job_has_the_rank_of_its_caller() {
    let server = Server::start().expect("a server");
    let rank = std::process::Command::new("nice").output().expect("nice(1)").stdout;
    assert_eq!(output(&server.url(), &["x", "--", "nice"]).stdout, rank);
}

#[test]
fn semaphore_admits_so_many_at_a_time() {
    let server = Server::start().expect("a server");
    let url = server.url();
    let nested = |inner: &[&str]| {
        let program = env!("CARGO_BIN_EXE_leasehold");
        let outer = ["--permits", "2", "--of", "3", "--keep-url", "x", "--", program, "run"];
        status(&url, &[&outer, inner].concat())
    };
    assert_eq!(nested(&["-n", "--of", "3", "x", "--", "true"]), Some(0));
    assert_eq!(nested(&["-n", "--of", "3", "--permits", "2", "x", "--", "true"]), Some(1));
    assert_eq!(status(&url, &["--permits", "4", "--of", "3", "x", "--", "true"]), Some(64));
}

#[test]
fn max_hold_ends_the_job_with_76() {
    let server = Server::start().expect("a server");
    let arguments = ["--lease", "600ms", "--max-hold", "1s", "x", "--", "sleep", "60"];
    assert_eq!(status(&server.url(), &arguments), Some(76));
}

/// And not as an outage of Redis, which would be looked for in vain.
#[test]
fn end_of_the_hold_is_told_as_such() {
    let server = Server::start().expect("a server");
    for hold in ["300ms", "1s"] {
        let output = output(&server.url(), &["--max-hold", hold, "x", "--", "sleep", "60"]);
        assert_eq!(output.status.code(), Some(76));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected =
            "the job has held its lock for as long as --max-hold allows; the job was ended\n";
        assert!(text.ends_with(expected) && !text.contains("no renewal"), "{text}");
    }
}

#[test]
fn only_the_variable_that_was_used_is_kept_from_the_job() {
    let server = Server::start().expect("a server");
    let url = server.url();
    let seen = |ours: Option<&str>, others: &str, options: &[&str]| {
        let mut command = run(others);
        command.args(options).args(["x", "--", "sh", "-c", "echo $LEASEHOLD_URL,$REDIS_URL"]);
        ours.map(|url| command.env("LEASEHOLD_URL", url));
        let output = command.stdin(Stdio::null()).output().expect("the program");
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    };
    // A backup with `redis-cli -u "$REDIS_URL"` has another server than the locks.
    let backup = "redis://backup";
    assert_eq!(seen(Some(&url), backup, &[]), format!(",{backup}"));
    assert_eq!(seen(None, backup, &["--url", &url]), format!(",{backup}"));
    assert_eq!(seen(None, &url, &[]), ",");
    assert_eq!(seen(Some(&url), backup, &["--keep-url"]), format!("{url},{backup}"));
}

/// The grace is ten seconds otherwise.
#[test]
fn job_with_a_short_hold_runs() {
    let server = Server::start().expect("a server");
    let arguments = ["--max-hold", "5s", "x", "--", "sh", "-c", "exit 3"];
    assert_eq!(status(&server.url(), &arguments), Some(3));
}

#[test]
fn grace_above_a_third_of_the_hold_is_refused() {
    let spans = ["--max-hold", "3s", "--grace", "1.1s", "x", "--", "true"];
    let output = output("redis://127.0.0.1:1", &spans);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--max-hold"));
    let spans = ["--max-hold", "20ms", "x", "--", "true"];
    assert_eq!(status("redis://127.0.0.1:1", &spans), Some(64));
}

#[test]
fn job_that_is_killed_without_a_grace_is_76() {
    let server = Server::start().expect("a server");
    let arguments =
        ["--lease", "600ms", "--max-hold", "1s", "--grace", "0s", "x", "--", "sleep", "60"];
    assert_eq!(status(&server.url(), &arguments), Some(76));
}

#[test]
fn job_outlives_many_renewals() {
    let server = Server::start().expect("a server");
    let arguments = ["--lease", "900ms", "x", "--", "sleep", "2"];
    assert_eq!(status(&server.url(), &arguments), Some(0));
}

#[test]
fn signal_to_the_wrapper_reaches_the_job_once() {
    let server = Server::start().expect("a server");
    let script = "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut command = run(&server.url());
    command.args(["x", "--", "sh", "-c", script]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    let mut lines =
        BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    send(child.id(), Signal::USR1);
    assert_eq!(lines.next().as_deref(), Some("usr1"));
    send(child.id(), Signal::TERM);
    assert_eq!(lines.collect::<Vec<_>>(), ["term"]);
    assert_eq!(wait(&mut child).code(), Some(5));
}

/// It signals its child, and then the group in which the job is.
#[test]
#[cfg(target_os = "linux")]
fn signal_of_timeout_reaches_the_job_once() {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt as _;
    let server = Server::start().expect("a server");
    // What timeout(1) does, at a moment of our choice.
    let timeout = server.directory().join("timeout");
    let script = "#!/bin/sh\ntrap : USR1\n\"$@\" <&3 & read line\nkill -USR1 $! && kill -USR1 0\n\
                  while ! wait $!; do kill -0 $! || break; done\n";
    std::fs::write(&timeout, script).expect("a file");
    std::fs::set_permissions(&timeout, PermissionsExt::from_mode(0o700)).expect("a program");
    // Its shell acts on a signal at once, and so twice on two of them.
    let job = "trap 'echo usr1' USR1; trap 'echo term; exit' TERM; (trap '' USR1; exec sleep 60) & \
               echo up; while :; do wait; done";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "exec 3< /dev/null; exec \"$@\"", "sh"]).arg(timeout);
    command.args([env!("CARGO_BIN_EXE_leasehold"), "run", "x", "--", "sh", "-c", job]);
    command.env("REDIS_URL", server.url()).env_remove("LEASEHOLD_URL").process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it");
    let mut lines =
        BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    lines.next().expect("it has begun");
    let wrapper = children(child.id())[0];
    // The wrapper knows by now that the job has begun: it is in another group.
    wait_until("it stands back", || {
        let pid = i32::try_from(wrapper).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::getpgid(pid).is_ok_and(|group| {
            group.as_raw_nonzero().get() != i32::try_from(child.id()).expect("a number")
        })
    });
    child.stdin.take().expect("piped").write_all(b"now\n").expect("a line");
    assert_eq!(lines.next().as_deref(), Some("usr1"));
    // It comes after what is still on its way.
    send(wrapper, Signal::TERM);
    assert_eq!(lines.collect::<Vec<_>>(), ["term"]);
    wait(&mut child);
}

#[test]
fn signal_ends_a_run_that_waits_and_leaves_no_process() {
    use std::os::unix::process::ExitStatusExt as _;
    let server = Server::start().expect("a server");
    let _: () = ask(&server, &["SET", "x", "somebody", "NX", "PX", "60000"]);
    let mut child = run(&server.url()).args(["x", "--", "true"]).spawn().expect("the program");
    let mut guardian = Vec::new();
    wait_until("a guardian", || {
        guardian = children(child.id());
        !guardian.is_empty()
    });
    // It waits in the queue.
    wait_until("a waiter", || server.keys().iter().any(|key| key != b"x"));
    send(child.id(), Signal::TERM);
    assert_eq!(wait(&mut child).signal(), Some(15));
    assert!(!std::path::Path::new(&format!("/proc/{}", guardian[0])).exists(), "no zombie");
}

/// `LEASEHOLD_RUNS` of them, 100 by default, at moments that go through the whole beginning of a run.
#[test]
#[expect(clippy::print_stdout, reason = "the figures are for people")]
fn signal_early_in_a_run_leaves_no_lock() {
    const AT_ONCE: usize = 8;
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let runs = number("LEASEHOLD_RUNS").unwrap_or(100_usize);
    let server = Server::start().expect("a server");
    let left: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|worker| {
                let server = &server;
                scope.spawn(move || {
                    let numbers = (worker..runs).step_by(AT_ONCE);
                    let names = numbers.filter_map(|number| {
                        let name = format!("x-{number}");
                        let mut child = run(&server.url())
                            .args([&name, "--", "sleep", "60"])
                            .spawn()
                            .expect("it");
                        std::thread::sleep(Duration::from_micros(number as u64 * 7_919 % 60_000));
                        send(child.id(), Signal::TERM);
                        wait(&mut child);
                        (ask::<u32>(server, &["EXISTS", &name]) > 0).then_some(name)
                    });
                    names.collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    println!("an early signal: {runs} runs, the lock left by {}", left.len());
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn signal_that_the_caller_ignores_does_not_end_a_run() {
    let server = Server::start().expect("a server");
    let _: () = ask(&server, &["SET", "x", "somebody", "NX", "PX", "60000"]);
    let program = env!("CARGO_BIN_EXE_leasehold");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", program, "run", "x", "--"]);
    command.args(["sh", "-c", "kill -HUP $$; exit 4"]);
    command.env("REDIS_URL", server.url()).env_remove("LEASEHOLD_URL");
    let mut child = command.spawn().expect("the program");
    wait_until("a waiter", || server.keys().iter().any(|key| key != b"x"));
    send(child.id(), Signal::HUP);
    let _: u32 = ask(&server, &["DEL", "x"]);
    assert_eq!(wait(&mut child).code(), Some(4), "the job ignores it too");
}

#[test]
fn wait_of_zero_tries_once() {
    let server = Server::start().expect("a server");
    let begin = std::time::Instant::now();
    let _: () = ask(&server, &["SET", "x", "somebody", "NX", "PX", "60000"]);
    assert_eq!(status(&server.url(), &["-w", "0", "x", "--", "true"]), Some(1));
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn job_runs_once_successfully_in_a_period() {
    let server = Server::start().expect("a server");
    let url = server.url();
    let once = |options: &[&str], job: &str| {
        // A period that does not end during the test.
        let period = ["--once-per", "365d", "nightly", "--", "sh", "-c", job];
        output(&url, &[options, &period].concat())
    };
    assert_eq!(once(&[], "exit 3").status.code(), Some(3), "a failure is tried again");
    let first = once(&["--offset", "1h"], "echo ran");
    assert_eq!((first.status.code(), first.stdout), (Some(0), b"ran\n".to_vec()));
    let second = once(&["--offset", "1h"], "echo ran");
    assert_eq!((second.status.code(), second.stdout), (Some(0), Vec::new()));
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    let words: Vec<&str> = text.split(' ').collect();
    let ["leasehold:", "skipped:", "ran", _, "ago", time, "UTC)", "on", host, "took", _] =
        words[..]
    else {
        panic!("{text}")
    };
    assert!(time.len() == "(02:00:03".len() && host.ends_with(','), "{text}");
    let quiet = once(&["--offset", "1h", "--quiet"], "echo ran");
    assert_eq!((quiet.status.code(), quiet.stdout, quiet.stderr), (Some(0), vec![], vec![]));
    let third = once(&["--offset", "1h", "--skipped-status", "5"], "echo ran");
    assert_eq!((third.status.code(), third.stdout), (Some(5), Vec::new()));
}

/// Cron starts it on all machines at the same moment, and it fails.
#[test]
fn of_twenty_machines_that_wait_for_a_job_that_fails_one_runs_it() {
    let server = Server::start().expect("a server");
    let begun = server.directory().join("begun");
    // It fails when all the others wait for it.
    let job = "echo run >> \"$1\"; while [ \"$(wc -l < \"$1\")\" -gt 0 ] && [ ! -e \"$1.go\" ]; do sleep 0.05; done; exit 3";
    let start = || {
        let mut command = run(&server.url());
        command.args(["--once-per", "365d", "--retry-after", "1m", "nightly", "--"]);
        command.args(["sh", "-c", job, "sh"]).arg(&begun);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program")
    };
    let machines: Vec<_> = (0..20).map(|_| start()).collect();
    wait_until("the others wait", || {
        ask::<usize>(&server, &["ZCARD", "{nightly}:queue"]) == machines.len() - 1
    });
    std::fs::write(begun.with_extension("go"), "").expect("a file");
    let mut ended: Vec<Output> =
        machines.into_iter().map(|child| child.wait_with_output().expect("the program")).collect();
    ended.sort_by_key(|output| output.status.code());
    let (failing, ran) = ended.split_at(19);
    assert_eq!(ran[0].status.code(), Some(3));
    for output in failing {
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let begin = "leasehold: not due yet: failed ";
        assert!(
            text.starts_with(begin) && text.contains(": exit status 3; 1 try, due in "),
            "{text}"
        );
    }
    assert_eq!(std::fs::read_to_string(begun).expect("runs"), "run\n");
    // What is asked for later, too, and in silence.
    let later =
        ["-E", "6", "-q", "--once-per", "365d", "--retry-after", "1m", "nightly", "--", "true"];
    let later = output(&server.url(), &later);
    assert_eq!((later.status.code(), later.stderr), (Some(6), Vec::new()));
}

#[test]
fn tries_of_a_job_are_bounded() {
    let server = Server::start().expect("a server");
    let once = |job: &str| {
        let words = ["--once-per", "365d", "--max-tries", "2", "nightly", "--", "sh", "-c", job];
        status(&server.url(), &words)
    };
    assert_eq!([once("exit 3"), once("exit 4"), once("exit 5")], [Some(3), Some(4), Some(1)]);
    let zero = ["--once-per", "365d", "--max-tries", "0", "nightly", "--", "true"];
    assert_eq!(status(&server.url(), &zero), Some(64));
    let alone = ["--retry-after", "1m", "nightly", "--", "true"];
    assert_eq!(status(&server.url(), &alone), Some(64), "it is about --once-per");
}

#[test]
fn missed_periods_are_caught_up() {
    let clock = WallClock::new().expect("a clock");
    let server = Server::builder().envs(clock.variables()).start().expect("a server");
    let once = || {
        let words = ["--once-per", "1h", "--catch-up", "2", "nightly", "--", "echo", "ran"];
        !output(&server.url(), &words).stdout.is_empty()
    };
    assert_eq!([once(), once()], [true, false]);
    // The fleet was down for a month.
    let month = i64::try_from(Duration::from_secs(30 * 86_400).as_micros()).expect("a number");
    clock.set(month).expect("a clock");
    let begin = ask::<(i64, i64)>(&server, &["TIME"]).0;
    wait_until("the server sees it", || {
        // The server looks at its clock now and then.
        let (now, _): (i64, i64) = ask(&server, &["TIME"]);
        let record: Vec<String> = ask(&server, &["HMGET", "{nightly}:record", "done"]);
        let done: i64 = record[0].split(' ').next().expect("a number").parse().expect("a number");
        assert!(now >= begin);
        now / 3_600 - done > 24 * 29
    });
    assert_eq!([once(), once(), once(), once()], [true, true, true, false]);
}

/// A run that waits, and a record that cannot be read, outlast a blink of Redis.
#[test]
fn outage_before_a_run_is_ridden_out() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&server).expect("a proxy");
    let once = |job: &str| {
        let mut command = run(&proxy.url());
        command.args(["--once-per", "365d", "nightly", "--", "sh", "-c", job]);
        command.stdin(Stdio::null()).spawn().expect("the program")
    };
    let cut = proxy.add(Fault::request(":record", Action::Cut).sticky());
    let mut child = once("exit 3");
    wait_until("some looks fail", || cut.fired() >= 4);
    cut.remove();
    assert_eq!(wait(&mut child).code(), Some(3));

    // A lease that comes from the queue is made whole before the job begins: by renewals, or by another request if the
    // message came too late.
    let client = LockClient::open(server.url()).expect("a client");
    let guard = client.mutex("nightly").and_then(|lock| lock.lock()).expect("a lock");
    let mut child = once("exit 4");
    wait_until("it waits", || ask::<usize>(&server, &["ZCARD", "{nightly}:queue"]) == 1);
    // Those of a job that has begun, such as that for its record, do not count.
    let cuts = [Operation::Renew, Operation::Acquire, Operation::Beat]
        .map(|it| proxy.add(Fault::request("nightly", Action::Cut).at(it).sticky()));
    guard.release().expect("a release");
    wait_until("some requests fail", || cuts.iter().map(|cut| cut.fired()).sum::<u64>() >= 4);
    cuts.iter().for_each(Injection::remove);
    assert_eq!(wait(&mut child).code(), Some(4));
}

/// The status of a job that succeeds after this is done to its server.
fn status_of_success_after(url: &str, options: &[&str], done: impl FnOnce()) -> Option<i32> {
    let mut command = run(url);
    command
        .args(["--timeout", "300ms", "--once-per", "365d"])
        .args(options)
        .args(["nightly", "--"]);
    command.args(["sh", "-c", "echo ready; read line; exit 0"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    done();
    drop(child.stdin.take());
    wait(&mut child).code()
}

#[test]
fn success_that_cannot_be_recorded_is_75() {
    let server = Server::start().expect("a server");
    let deny = || {
        let _: () = ask(&server, &["ACL", "SETUSER", "default", "-multi"]);
    };
    assert_eq!(status_of_success_after(&server.url(), &[], deny), Some(75));
}

#[test]
fn success_that_outlives_its_lease_unrecorded_is_76() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&server).expect("a proxy");
    assert_eq!(
        status_of_success_after(&proxy.url(), &["--lease", "3s"], || proxy.black_hole()),
        Some(76)
    );
}

/// The job has ended by itself, and nobody else has had its lock: the outage costs nothing.
#[test]
fn success_within_the_tail_of_its_lease_is_recorded() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&server).expect("a proxy");
    let is_overdue = || {
        // The tail is 60 s, and the lease, of which nothing is left, 3 s.
        ask::<i64>(&server, &["PTTL", "nightly"]) < 59_500
    };
    std::thread::scope(|scope| {
        let options = ["--lease", "3s", "--recoverable", "60s"];
        let outage = || {
            proxy.black_hole();
            scope.spawn(|| {
                wait_until("its lease is over", is_overdue);
                proxy.heal();
            });
        };
        assert_eq!(status_of_success_after(&proxy.url(), &options, outage), Some(0));
    });
    let text = String::from_utf8(
        output(&server.url(), &["--once-per", "365d", "nightly", "--", "true"]).stderr,
    )
    .expect("UTF-8");
    assert!(text.contains("skipped: ran"), "{text}");
}

/// No renewal is confirmed, and nobody else wants the lock. The job is ended all the same, with its status.
#[test]
fn tail_does_not_keep_a_job_alive() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&server).expect("a proxy");
    let mut command = run(&proxy.url());
    command.args(["--timeout", "300ms", "--lease", "3s", "--recoverable", "60s", "x", "--"]);
    command.args(["sh", "-c", "echo ready; exec sleep 600"]).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the program");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    proxy.black_hole();
    // At the end of the last process that has it: before that of the lease, which is before that of the tail.
    lines.read_line(&mut line).expect("an end");
    assert_eq!(line, "ready\n");
    assert!(ask::<i64>(&server, &["PTTL", "x"]) > 0, "its tail is not over");
    proxy.heal();
    let status = wait(&mut child).code();
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("UTF-8");
    assert_eq!(status, Some(76), "{said}");
    assert!(said.contains("no renewal was confirmed in time; the job was ended"), "{said}");
    // Its lease, and no more, keeps out others.
    let next = LockClient::open(server.url()).and_then(|client| client.mutex("x")).expect("a lock");
    wait_until("it is free to others", || next.try_lock().expect("a reply").is_some());
}

#[test]
fn tail_is_for_runs_that_are_alone() {
    let nowhere = "redis://127.0.0.1:1";
    for other in [&["-s"][..], &["--of", "2"]] {
        let arguments = [&["--recoverable", "27s"], other, &["x", "--", "true"]].concat();
        let output = output(nowhere, &arguments);
        assert_eq!(output.status.code(), Some(64));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("--recoverable") && said.contains("cannot be used"), "{said}");
    }
    // Beside readers, a run that is alone is the writer, whose lease has no tail.
    let server = Server::start().expect("a server");
    let client = LockClient::open(server.url()).expect("a client");
    let reader = client.rw_lock("x").and_then(|lock| lock.read()).expect("a lock");
    let arguments = ["--recoverable", "27s", "-n", "-E", "6", "x", "--", "true"];
    assert_eq!(status(&server.url(), &arguments), Some(6));
    reader.release().expect("a release");
    assert_eq!(status(&server.url(), &arguments), Some(0));
}

/// As under steady runs that are alone: whenever the lock is free, the next of them is faster.
#[test]
fn reader_goes_on_waiting_among_runs_that_are_alone() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&server).expect("a proxy");
    let _: () = ask(&server, &["SET", "x", "somebody", "NX", "PX", "100"]);
    let (left, socket) = (std::sync::atomic::AtomicU32::new(8), server.unix_url());
    proxy.watch(move |seen| {
        let is_release = seen.direction == Direction::Reply && seen.operation == Operation::Release;
        let is_given_back = is_release && seen.message == b":1\r\n";
        let one_less = |left: u32| left.checked_sub(1);
        if is_given_back && left.fetch_update(SeqCst, SeqCst, one_less).is_ok() {
            let client = redis::Client::open(socket.as_str()).expect("a client");
            let mut connection = client.get_connection().expect("a connection");
            let mut taken = redis::cmd("SET");
            taken.arg(&["x", "somebody", "NX", "PX", "100"]);
            let _: Option<String> = taken.query(&mut connection).expect("a reply");
        }
    });
    assert_eq!(status(&proxy.url(), &["-s", "x", "--", "sh", "-c", "exit 3"]), Some(3));
}

#[test]
fn job_that_runs_elsewhere_is_not_begun() {
    let server = Server::start().expect("a server");
    let arguments = ["-n", "-E", "6", "--once-per", "365d", "nightly", "--"];
    let program = env!("CARGO_BIN_EXE_leasehold");
    let nested = [
        &["--once-per", "365d", "--keep-url", "nightly", "--", program, "run"],
        &arguments[..],
        &["true"],
    ];
    assert_eq!(status(&server.url(), &nested.concat()), Some(6));
}
