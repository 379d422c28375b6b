//! Distributed locks on Redis or Valkey, for threads.
//!
//! Plain blocking Rust: a pool of connections, guards that release on drop, leases that renew
//! themselves, and a fencing token with every hold. No async runtime.
//!
//! # The promise
//!
//! > A lock is held by at most one holder inside the holder's *validity window*, on one Redis that
//! > has lost no writes in a fail-over, a restart or a restored backup. The promise covers a
//! > fail-over or a slot migration that loses no write, if the clocks of the servers differ by at
//! > most `max_clock_skew`, or a tenth of the lease if that is less. The window is measured on the
//! > holder's own monotonic clock, from before the request was sent. An outcome that is not known is
//! > reported as not known. Across a fail-over that loses writes, FLUSHALL, a forced release, a clock
//! > jump on the server, or a pause longer than the lease, only a fencing token checked at the
//! > resource protects you, and every hold carries one.
//!
//! [`max_clock_skew`](LockClientBuilder::max_clock_skew) is a setting of the client.
//!
//! [Concepts](guide::concepts) explains the terms, [Limits](guide::limits) lists all cases that
//! break the promise, and [How it is proven](guide::proof) describes the evidence.
//!
//! # Quick start
//!
//! ```no_run
//! use leasehold::{LockClient, Result};
//! use std::time::Duration;
//!
//! fn main() -> Result<()> {
//!     // One client for each process. It connects, and says clearly why if it cannot.
//!     let client = LockClient::open("redis://127.0.0.1:6379")?;
//!     let lock = client.mutex("orders:42")?;
//!
//!     // Wait for the lock. Its lease is 30 s by default, and is renewed until the guard is dropped.
//!     let guard = lock.lock()?;
//!     println!("mine, with token {}", guard.fencing_token());
//!     // Dropping the guard also releases the lock, but `release` also reports a loss or an error.
//!     guard.release()?;
//!
//!     // Wait for two seconds at most. `None` means that somebody else has the lock.
//!     if let Some(_guard) = lock.try_lock_for(Duration::from_secs(2))? {
//!         println!("mine until the end of this block");
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The server is Redis 7.0 or later, or Valkey. A hold belongs to its thread, and that thread can
//! take the lock again. In async code [lock on a blocking
//! thread](guide::recipes#lock-in-async-code).
//!
//! # What is where
//!
//! | item | purpose |
//! | --- | --- |
//! | [`LockClient`] | locks on one server, behind [Sentinel](LockClientBuilder::sentinels), or in a [cluster](LockClientBuilder::cluster) |
//! | [`QuorumClient`] | locks that a majority of several independent servers grants (Redlock) |
//! | [`Mutex`] | the lock to use |
//! | [`ReentrantLock`] | the same in the layout of Redisson's plain lock, to share it with Java |
//! | [`Guard`], [`OwnedLease`], [`LeaseWatch`] | a hold of this thread; a hold on its way to another thread; a view of a hold from any thread |
//! | [`Semaphore`], [`Permit`] | at most N holders at a time, each with a number of its own |
//! | [`RwLock`], [`ReadGuard`], [`UpgradableReadGuard`], [`WriteGuard`] | many readers or one writer |
//! | [`Election`], [`Leadership`], [`Leader`], [`Observation`], [`Observed`] | one leader among many processes, and who it is |
//! | [`Once`], [`Period`], [`Missed`], [`Run`], [`Begun`], [`RunOutcome`], [`RunResult`], [`LastRun`], [`RunEnd`] | a job that runs [once in a period](LockClient::once) |
//! | [`MultiGuard`], [`Part`], [`PartGuard`] | the holds of [several locks](LockClient::lock_all) that were taken at once |
//! | [`LockOptions`], [`Lease`], [`Wait`], [`Release`] | how a lock is leased, waited for and released |
//! | [`FencingToken`] | a number that grows from hold to hold, so that a database can refuse a late writer |
//! | [`Inspection`], [`Holder`], [`WaitingProcess`], [`ServerInspection`] | the holders of a lock, since when, and who waits |
//! | [`Access`], [`PermitCount`] | how a holder has a read-write lock; how many permits a semaphore has |
//! | [`Loss`], [`LossCause`] | the lock that was lost, and the cause |
//! | [`Error`], [`ErrorKind`] | what went wrong, with one predicate for each kind of failure |
//! | [`Locks`], [`ListedLock`], [`Kind`] | the [locks in use](LockClient::locks), each with its kind |
//! | [`Credentials`] | a user and its password, for a [provider](LockClientBuilder::credentials) that rotates them |
//! | [`CloseReport`] | what happened to the locks of a client that was [closed](LockClient::close) |
//! | [`Observer`], [`observe`] | events about a client's locks while it works, for metrics and traces |
//! | [`DistributedLock`] | lock and unlock by key, as an object-safe trait |
//! | [`LocalLocks`] | that trait inside one process, without Redis |
//! | `ClientSettings` | the settings of a client, and the options of its locks, from a file; with the feature `serde` |
//! | `testing` | a Redis in memory for your tests, with scripted faults and time |
//!
//! # The guide
//!
//! [Choosing](guide::choosing) · [Concepts](guide::concepts) · [Recipes](guide::recipes) ·
//! [Testing](guide::testing) · [Options](guide::options) ·
//! [Waiting and fairness](guide::waiting) · [Errors by symptom](guide::errors) ·
//! [Operations](guide::operations) · [Topologies](guide::topologies) ·
//! [The command](guide::command) · [Limits](guide::limits) · [Moving here](guide::moving) ·
//! [Comparison](guide::comparison) · [Why it is built so](guide::design) ·
//! [How it is proven](guide::proof) · [Report](guide::report)
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | what it brings |
//! | --- | --- |
//! | `tls` | `rediss://` URLs, by rustls; it needs a C compiler |
//! | `metrics` | `observe::MetricsObserver`: [metrics](guide::operations#metrics) over the facade of the crate `metrics` |
//! | `tracing` | `observe::TracingObserver`: a span for each wait and each hold, and an event for each loss |
//! | `serde` | `ClientSettings` from a file; `Serialize` and `Deserialize` for [`FencingToken`], [`Holder`], [`Loss`], [`LossCause`], [`Lease`] and [`Access`], in [this form](guide::options#settings-from-a-file) |
//! | `testing` | `leasehold::testing`: a server in memory, whose faults and time a test scripts; it needs a C compiler |
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod base;
mod client;
mod engine;
#[cfg(any(doc, doctest))]
pub mod guide;
mod kind;
pub mod observe;
mod protocol;
#[cfg(any(test, feature = "testing"))]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;
#[cfg(test)]
mod tests;
mod topology;
mod wire;

#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use base::certificates::Certificates;
pub use base::close_report::CloseReport;
pub use base::credentials::Credentials;
pub use base::error::{Error, ErrorKind, Result};
pub use base::inspection::{Holder, Inspection, PermitCount, ServerInspection, WaitingProcess};
pub use base::kind::Kind;
pub use base::loss::{Loss, LossCause};
pub use base::option::{Lease, LockOptions, Release, Wait};
pub use base::share::Access;
pub use base::token::FencingToken;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use client::ClientSettings;
pub use client::{
    DistributedLock, ListedLock, LocalLocks, LockClient, LockClientBuilder, Locks, QuorumClient,
    QuorumClientBuilder,
};
pub use kind::{
    Begun, Election, Guard, LastRun, Leader, Leadership, LeaseWatch, Missed, MultiGuard, Mutex,
    Observation, Observed, Once, OwnedLease, Part, PartGuard, Period, Permit, ReadGuard,
    ReentrantLock, Run, RunEnd, RunOutcome, RunResult, RwLock, Semaphore, UpgradableReadGuard,
    WriteGuard,
};
pub use observe::Observer;
pub use redis;

/// The code of the README, compiled with the documentation's tests. It shows the test double too.
#[cfg(doctest)]
#[cfg_attr(feature = "testing", doc = include_str!("../README.md"))]
struct Readme;
