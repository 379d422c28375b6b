//! A job that this version of the library shares with the one before retries.
//!
//! `older.lua` and the functions here are what that version did with a record, word for word: it reads seven fields, and
//! writes them all. Of the later fields it knows nothing, and leaves them as they are.

use super::*;
use crate::base::time::millis;
use crate::kind::Guard;

const READ: &[u8] = include_bytes!("older.lua");
const HOUR_IN_MICROS: i64 = 3_600_000_000;

/// The fields of a record, as that version wanted them.
#[derive(Debug)]
struct Seen {
    now: i64,
    done: Option<i64>,
    end: String,
}

fn look(server: &Server) -> Option<Seen> {
    let Value::Array(parts) = call(server, &[b"EVAL", READ, b"1", RECORD]) else {
        panic!("no list")
    };
    let [Value::Int(now), Value::Int(fields), Value::Array(values)] = parts.as_slice() else {
        panic!("{parts:?}")
    };
    if *fields == 0 {
        return None;
    }
    let text = |value: &Value| match value {
        Value::Nil => None,
        Value::BulkString(text) => Some(String::from_utf8(text.clone()).unwrap()),
        other => panic!("{other:?}"),
    };
    let values: [Option<String>; 7] =
        values.iter().map(text).collect::<Vec<_>>().try_into().unwrap();
    let [form, done, done_by, run, run_by, end, reason] = values;
    // Else that version refused the record.
    assert_eq!(form.as_deref(), Some("1"));
    assert!(run_by.is_some() && reason.is_some() && done.is_some() == done_by.is_some());
    let number = |text: &str| {
        let words: Vec<i64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
        let [number, every, offset, _began, _token] = words[..] else { panic!("{text}") };
        assert_eq!((every, offset), (HOUR_IN_MICROS, 0));
        number
    };
    number(&run.unwrap());
    let end = end.unwrap();
    let (word, at) = end.split_once(' ').unwrap_or((&end, "0"));
    assert!(matches!(word, "running" | "succeeded" | "failed") && at.parse::<i64>().is_ok());
    let done = done.as_deref().map(number);
    Some(Seen { now: *now, done, end: word.to_owned() })
}

/// The number of the period for which that version found the job due.
fn due(server: &Server) -> Option<i64> {
    let Value::Array(time) = call(server, &[b"TIME"]) else { panic!("no time") };
    let Value::BulkString(seconds) = &time[0] else { panic!("{time:?}") };
    let seconds: i64 = String::from_utf8(seconds.clone()).unwrap().parse().unwrap();
    let current = seconds.div_euclid(3_600);
    match look(server) {
        Some(seen) => {
            assert_eq!(seen.now.div_euclid(HOUR_IN_MICROS), current);
            seen.done.is_none_or(|done| done < current).then_some(current)
        }
        None => Some(current),
    }
}

/// What that version wrote of a run.
fn write(guard: &Guard, number: i64, began: i64, end: &str, reason: &str) {
    let run = format!("{number} {HOUR_IN_MICROS} 0 {began} {}", guard.fencing_token());
    let replies = guard.transaction(|pipe| {
        let fields = pipe.cmd("HSET").arg(RECORD).arg("form").arg("1");
        fields.arg("run").arg(&run).arg("run_by").arg("1q:older");
        fields.arg("end").arg(end).arg("reason").arg(reason);
        if end.starts_with("succeeded") {
            fields.arg("done").arg(&run).arg("done_by").arg("1q:older");
        }
        pipe.cmd("PEXPIRE").arg(RECORD).arg(millis(HOUR * 2 + DAY * 7));
    });
    assert!(replies.unwrap().iter().all(|reply| matches!(reply, Value::Int(_))));
}

/// A run of that version, which ends like this.
fn run(server: &Server, client: &LockClient, end: &str) {
    let guard = client.mutex("job").unwrap().lock().unwrap();
    let number = due(server).expect("it is due");
    let now = now(server);
    write(&guard, number, now, "running", "");
    match end {
        "succeeded" => write(&guard, number, now, &format!("succeeded {now}"), ""),
        "failed" => write(&guard, number, now, &format!("failed {now}"), "no ink"),
        // It dies.
        _ => assert!(server.delete("job")),
    }
}

/// The server's time in microseconds.
fn now(server: &Server) -> i64 {
    i64::try_from((START + server.elapsed()).as_micros()).unwrap()
}

#[test]
fn older_version_reads_what_this_one_writes() {
    let server = Server::standing_still();
    let (client, other) = (server.client(), server.client());
    let [job, elsewhere] = [&client, &other].map(|client| {
        job(client).missed(Missed::CatchUp { at_most: 3 }).retry_after(MINUTE).max_tries(3)
    });
    assert!(due(&server).is_some());
    let run = begun(&job);
    assert_eq!((due(&server).is_some(), look(&server).unwrap().end), (true, "running".to_owned()));
    run.fail("no paper").unwrap();
    // It knows of no pause.
    assert_eq!((due(&server).is_some(), look(&server).unwrap().end), (true, "failed".to_owned()));
    server.advance(MINUTE);
    let run = begun(&job);
    assert!(server.delete("job"));
    assert!(matches!(elsewhere.begin().unwrap(), Begun::Failing { .. }));
    drop(run);
    // A death that this version has noted is a run without an end to the older one.
    assert_eq!((due(&server).is_some(), look(&server).unwrap().end), (true, "running".to_owned()));
    server.advance(MINUTE);
    begun(&job).succeed().unwrap();
    assert_eq!((due(&server), look(&server).unwrap().end), (None, "succeeded".to_owned()));
    server.advance(HOUR);
    assert!(due(&server).is_some());
}

#[test]
fn this_version_reads_what_the_older_one_writes() {
    let server = Server::standing_still();
    let (client, older) = (server.client(), server.client());
    let job = job(&client);
    run(&server, &older, "failed");
    let last = job.last_run().unwrap().unwrap();
    assert_eq!((last.end(), last.tries()), (&RunEnd::Failed("no ink".to_owned()), 1));
    let careful = job.clone().retry_after(MINUTE).max_tries(2);
    assert!(matches!(careful.begin().unwrap(), Begun::Failing { tries: 1, .. }));
    server.advance(MINUTE);
    run(&server, &older, "died");
    let last = job.last_run().unwrap().unwrap();
    assert_eq!((last.end(), last.due_at()), (&RunEnd::Died, None));
    run(&server, &older, "succeeded");
    assert!(!is_due(&careful) && !is_due(&job));
    assert_eq!(job.last_run().unwrap().unwrap().due_at(), Some(at(HOUR)));
    server.advance(HOUR);
    assert_eq!(hour_of_run(&job), Some(1));
}

/// The later fields of a record are about an earlier run then.
#[test]
fn older_run_between_two_of_this_version_counts() {
    let server = Server::standing_still();
    let [client, other, older] = [(); 3].map(|()| server.client());
    let [job, elsewhere] =
        [&client, &other].map(|client| job(client).retry_after(MINUTE).max_tries(4));
    let tries = || match elsewhere.begin().unwrap() {
        Begun::Failing { tries, next_at, .. } => (tries, next_at),
        other => panic!("{other:?}"),
    };
    for _ in 0..2 {
        begun(&job).fail("no paper").unwrap();
        server.advance(MINUTE);
    }
    run(&server, &older, "failed");
    assert_eq!(tries(), (3, at(MINUTE * 3)), "its end begins the pause");
    server.advance(MINUTE);
    // The note on a death names the run that died, and says nothing about a later one.
    let died = begun(&job);
    assert!(server.delete("job"));
    assert_eq!(tries(), (4, at(HOUR)));
    drop(died);
    run(&server, &older, "died");
    assert_eq!(tries().1, at(HOUR));
    run(&server, &older, "succeeded");
    server.advance(HOUR);
    run(&server, &older, "failed");
    assert_eq!(tries(), (1, at(HOUR + MINUTE * 4)), "a success came between");
}

/// Both at one job at the same time: what a run of one of them has done, no run of the other does again.
#[test]
fn period_that_one_version_did_is_done_for_the_other() {
    let server = Server::standing_still();
    let (client, older) = (server.client(), server.client());
    let job = job(&client).retry_after(MINUTE).max_tries(2);
    for hour in 0..6 {
        if hour % 2 == 0 {
            assert_eq!(hour_of_run(&job), Some(hour));
        } else {
            run(&server, &older, "succeeded");
        }
        assert!(due(&server).is_none() && !is_due(&job), "hour {hour}");
        server.advance(HOUR);
    }
}
