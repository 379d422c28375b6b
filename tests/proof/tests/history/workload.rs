//! What the threads of a round do, one turn after the other.

use std::thread;

use leasehold::{Lease, LockOptions, Once, Period};
use leasehold_proof::trial::Record;
use leasehold_support::history::now;

use crate::client::Client;
use crate::round::{ADDRESS, variable};
use crate::store::Store;
use crate::topology::Address;
use crate::worker::{LEASE, Worker};
use crate::{access, election, mutex, once, reentrant, semaphore, set};

/// The threads of a process.
pub(crate) const THREADS: u32 = 3;
/// An object is used for so long, so that its history stays short.
const AGE: u64 = 400_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    Mutex,
    Reentrant,
    Semaphore,
    Access,
    Election,
    Once,
    /// A set that is read, changed and written back under the lock.
    Set,
    /// The same, written by a transaction under the lock.
    Transaction,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Mutex => "mutex",
            Workload::Reentrant => "reentrant",
            Workload::Semaphore => "semaphore",
            Workload::Access => "rwlock",
            Workload::Election => "election",
            Workload::Once => "once",
            Workload::Set => "set",
            Workload::Transaction => "transaction",
        }
    }

    /// The kinds of object that its histories have.
    pub(crate) fn kinds(self) -> &'static [&'static str] {
        match self {
            Workload::Mutex => &["mutex", "tokens"],
            Workload::Reentrant => &["reentrant", "tokens"],
            Workload::Semaphore => &["semaphore", "tokens"],
            Workload::Access => &["rwlock", "tokens"],
            Workload::Election => &["election", "tokens"],
            Workload::Once => &["once", "period"],
            Workload::Set => &["mutex", "set", "tokens"],
            Workload::Transaction => &["mutex", "transaction", "tokens"],
        }
    }

    /// The locks that are in use at a moment.
    pub(crate) fn locks(self, at: u64) -> Vec<String> {
        let age = at / AGE;
        match self {
            Workload::Mutex => (0..2).map(|number| format!("mutex:{age}.{number}")).collect(),
            Workload::Set | Workload::Transaction => vec![format!("mutex:{age}")],
            Workload::Once => vec!["once:job".to_owned()],
            other => vec![format!("{}:{age}", other.name())],
        }
    }

    /// Works until the process ends. The store has what the locks protect.
    pub(crate) fn run(self, store: &str, record: &Record) {
        #[expect(clippy::disallowed_methods, reason = "to show that it may be wrong")]
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seconds = wall.expect("after 1970").as_secs();
        record.line(&format!("{} 0 clock wall - seconds={seconds}", now()));
        let address = Address::parse(&variable(ADDRESS));
        let client = Client::of(&address, THREADS);
        let job = (self == Workload::Once).then(|| job(&client));
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (address, client, job) = (&address, &client, job.as_ref());
                scope.spawn(move || {
                    let store = Store::open(store);
                    let mut worker = Worker::new(thread, address, client, store, record);
                    loop {
                        let locks = self.locks(now());
                        let object = &locks[worker.rng.usize(..locks.len())];
                        match self {
                            Workload::Mutex => mutex::turn(&mut worker, object),
                            Workload::Reentrant => reentrant::turn(&mut worker, object),
                            Workload::Semaphore => semaphore::turn(&mut worker, object),
                            Workload::Access => access::turn(&mut worker, object),
                            Workload::Election => election::turn(&mut worker, object),
                            Workload::Once => {
                                once::turn(&mut worker, job.expect("a job"), object);
                            }
                            Workload::Set => set::turn(&mut worker, object),
                            Workload::Transaction => set::transaction_turn(&mut worker, object),
                        }
                    }
                });
            }
        });
    }
}

fn job(client: &Client) -> Once {
    let options = LockOptions::new().lease(Lease::renewed(LEASE));
    let job = client.locks().once_with("once:job", Period::every(once::PERIOD), options);
    job.expect("valid settings")
}
