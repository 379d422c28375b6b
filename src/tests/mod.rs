//! Tests of the whole client over the server in memory.
//!
//! | module | what it tests |
//! | --- | --- |
//! | `model` | the engine against a reference model of locks, in random sequences of calls and faults |
//! | `double` | what the documentation of the server in memory says |
//! | `renewal` | renewals without replies |
//! | `tail` | leases that others may take, and whose holders may come back |
//! | `task_queue` | what the worker has to do while leases come and go |
//! | `owned` | holds that belong to no thread |
//! | `reentry` | holds that their thread may not take again |
//! | `inner_call` | what a call asks for by which a thread takes a lock once more |
//! | `crowd` | a bound on the threads that wait |
//! | `cancel` | waits that are cancelled while their last request is under way |
//! | `claim` | those of many locks that are free |
//! | `shared_channel` | two locks whose releases are published on one channel |
//! | `shutdown` | a shutdown that comes during a release |
//! | `close` | a client that is closed with a grace |
//! | `observe` | what observers are told, and what they may do |
//! | `keep` | leases that are kept beyond their hold, or made whole at once |
//! | `lock_all` | several locks at once |
//! | `lost_release` | releases without a reply, of locks that were lost or not |
//! | `once` | jobs that run once in a period |
//! | `locks` | what is announced and listed |
//! | `election` | leaders, their words, and those who observe them |
//! | `rw_lock` | changes of a read-write lock without replies |
//! | `semaphore` | how long a limit is remembered, and what refusals heal and ask for |
//! | `skew` | clocks of servers that may differ |
//! | `clock` | a server's clock that is set |
//! | `restart` | a server that closes all connections, and may have lost its memory |
//! | `outside` | bytes that come from outside |
//! | `schedule` | the schedules of the threads, explored under a model checker (`.ci/schedule`) |

mod cancel;
mod claim;
mod clock;
mod close;
mod crowd;
mod double;
mod election;
mod inner_call;
mod keep;
mod lock_all;
mod locks;
mod lost_release;
mod model;
mod observe;
mod once;
mod outside;
mod owned;
mod reentry;
mod renewal;
mod restart;
mod rw_lock;
#[cfg(leasehold_shuttle)]
mod schedule;
mod semaphore;
mod shared_channel;
mod shutdown;
mod skew;
mod tail;
mod task_queue;
mod waiter;
