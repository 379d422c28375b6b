//! The records of jobs, and the index of the locks in use.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_support::fuzz::Target;

use super::{is_error, is_shown, variant};
use crate::kind::{Begun, Missed, Once, Period};
use crate::testing::Server;

const FIELDS: [&str; 10] =
    ["form", "done", "done_by", "run", "run_by", "end", "reason", "tries", "over", "policy"];
const HOUR: Duration = Duration::from_secs(3_600);
const RECORD: &[u8] = b"{job}:record";
const WORDS: &[&str] = &[
    "\n",
    " ",
    "running",
    "succeeded ",
    "failed ",
    "1\n",
    "472500 3600000000 0 1701000000000000 1701000000000000",
    "3600000000",
    "1701000000000000",
    " - -",
    "-",
    "1q:1f:1:9:7:host:label",
];

/// Reads the record in all the ways there are. Returns the shape of what was read.
fn read(server: &Server, job: &Once) -> String {
    let last = match job.last_run() {
        Ok(Some(last)) => {
            is_shown(&last.to_string());
            is_shown(&format!("{last:#}"));
            is_shown(&format!("{last:?}"));
            format!("{} {} {}", variant(last.end()), last.due_at().is_some(), last.tries().min(2))
        }
        Ok(None) => "none".to_owned(),
        Err(error) => is_error(&error),
    };
    let begun = match job.begin() {
        Ok(Begun::Run(run)) => {
            let _ = run.period();
            run.fail("it was only asked").unwrap();
            "run".to_owned()
        }
        Ok(skipped) => {
            is_shown(&format!("{skipped:?}"));
            variant(&skipped)
        }
        Err(error) => is_error(&error),
    };
    server.inner().call(&[b"DEL", RECORD]).unwrap();
    format!("{last}, {begun}")
}

/// An input is the values of the fields, one a line; an empty line is a field that is missing.
#[test]
fn record_of_any_fields_is_read_or_refused() {
    let server = Server::standing_still();
    let client = server.client();
    let plain = client.once("job", Period::every(HOUR)).unwrap();
    let careful = client.once("job", Period::every(HOUR).offset(HOUR / 7)).unwrap();
    let careful =
        careful.missed(Missed::CatchUp { at_most: u32::MAX }).retry_after(HOUR).max_tries(2);
    Target::new("record").words(WORDS).run(|input| {
        let write = || {
            for (field, value) in FIELDS.iter().zip(input.split(|&byte| byte == b'\n')) {
                if !value.is_empty() {
                    server.inner().call(&[b"HSET", RECORD, field.as_bytes(), value]).unwrap();
                }
            }
        };
        [&plain, &careful]
            .map(|job| {
                write();
                read(&server, job)
            })
            .join("; ")
    });
}

/// An input is the entries, one a line, each of which is also the name of a lock that is held.
#[test]
fn index_of_any_entries_is_listed() {
    let server = Server::standing_still();
    let client = server.client();
    let words = ["mutex:", "reentrant:", "semaphore:", "rw_lock:", "election:", "\n", "{x}:queue"];
    Target::new("index").words(&words).run(|input| {
        for entry in input.split(|&byte| byte == b'\n') {
            // An earlier entry may have put a string in the place of the index.
            let _ = server.inner().call(&[b"ZADD", b"leasehold:index", b"1", entry]);
            let name = entry.splitn(2, |&byte| byte == b':').last().unwrap_or_default();
            if !name.is_empty() {
                server.inner().call(&[b"SET", name, entry, b"PX", b"60000"]).unwrap();
            }
        }
        let mut shapes = BTreeSet::new();
        let locks = client.locks("*").map(|locks| locks.with_scan().collect());
        for lock in locks.unwrap_or_else(|error| vec![Err(error)]) {
            match lock {
                Ok(lock) => {
                    is_shown(&lock.inspection().to_string());
                    shapes.insert(lock.kind().to_owned());
                }
                Err(error) => _ = shapes.insert(is_error(&error)),
            }
        }
        server.flush();
        format!("{shapes:?}")
    });
}
