//! What is wrong before any server is asked.

use std::time::Duration;

use leasehold::{Error, Lease, LockClient, LockOptions, QuorumClient, Wait};

use super::row::{Row, row};
use crate::common::{fixed, ms, renewed};

fn url(url: &str) -> Error {
    LockClient::builder(url).build().unwrap_err()
}

fn tailed() -> LockOptions {
    LockOptions::new().lease(Lease::renewed(ms(3_000)).recoverable_for(ms(27_000)))
}

pub(crate) fn rows() -> Vec<Row> {
    let nowhere = LockClient::builder("redis://127.0.0.1:1").build().unwrap();
    let named = |name: &[u8]| nowhere.mutex(name).unwrap_err();
    let leased =
        |lease| nowhere.mutex_with("orders:42", LockOptions::new().lease(lease)).unwrap_err();
    let several = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"];
    let quorum = QuorumClient::builder(several).build().unwrap();
    let mut rows = vec![
        row("an empty URL", "write one", url("")),
        row(
            "URL without a scheme, `127.0.0.1:6379`",
            "begin it with redis://",
            url("127.0.0.1:6379"),
        ),
        row("`http://localhost`", "use redis://", url("http://localhost")),
        row("`redis://localhost:x`", "correct the port", url("redis://localhost:x")),
        row("`redis://localhost:99999`", "correct the port", url("redis://localhost:99999")),
        row("`redis://:6379`", "write the host", url("redis://:6379")),
        row("`redis://localhost/one`", "number the database", url("redis://localhost/one")),
        row("`redis://localhost?db=2`", "write /2", url("redis://localhost?db=2")),
        row(
            "`redis://localhost?timeout=5`",
            "use the builder's settings",
            url("redis://localhost?timeout=5"),
        ),
        row(
            "`redis://localhost?pass=s3cret`",
            "write it before the host",
            url("redis://localhost?pass=s3cret"),
        ),
        row(
            "`redis://localhost/#insecure`",
            "leave the fragment out",
            url("redis://localhost/#insecure"),
        ),
        row("`/` in a password", "write %2F", url("redis://:s3/cret@localhost")),
        row("`unix://relative/path`", "write an absolute path", url("unix://relative/path")),
        row("an empty name", "name the lock", named(b"")),
        row("a name of 70,000 bytes", "shorten it", named(&[b'n'; 70_000])),
        row("the name `{orders}:fence`", "choose another name", named(b"{orders}:fence")),
        row("the name `leasehold:x`", "choose another name", named(b"leasehold:x")),
        row("a lease of zero", "choose a lease", leased(Lease::fixed(Duration::ZERO))),
        row(
            "a lease of half a millisecond",
            "choose a longer lease",
            leased(Lease::fixed(Duration::from_micros(500))),
        ),
        row(
            "a lease of 60 days",
            "choose a shorter lease",
            leased(Lease::renewed(Duration::from_secs(60 * 86_400))),
        ),
        row(
            "`Wait::notify()` for a mutex",
            "use Wait::queue()",
            nowhere.mutex_with("orders:42", LockOptions::new().wait(Wait::notify())).unwrap_err(),
        ),
        row(
            "`min_replicas(1, 5 s)` with a command_timeout of 1 s",
            "wait for less",
            nowhere
                .mutex_with("orders:42", renewed(10_000).min_replicas(1, ms(5_000)))
                .unwrap_err(),
        ),
        row(
            "`recoverable_for` after a fixed lease",
            "have it renewed",
            leased(Lease::fixed(ms(3_000)).recoverable_for(ms(27_000))),
        ),
        row(
            "`recoverable_for` of a reentrant lock",
            "use a mutex, or a longer lease",
            nowhere.reentrant_with("orders:42", tailed()).unwrap_err(),
        ),
        row(
            "`recoverable_for` of a semaphore",
            "use a longer lease",
            nowhere.semaphore_with("orders:42", 2, tailed()).unwrap_err(),
        ),
        row(
            "`recoverable_for` in a quorum",
            "use a longer lease",
            quorum.mutex_with("orders:42", tailed()).unwrap_err(),
        ),
        row(
            "`max_waiters(0)`",
            "allow one, or call `try_lock`",
            nowhere.mutex_with("orders:42", LockOptions::new().max_waiters(0)).unwrap_err(),
        ),
        row(
            "`max_size(0)`",
            "allow a connection",
            LockClient::builder("redis://localhost").max_size(0).build().unwrap_err(),
        ),
        row(
            "`min_idle(20)` with `max_size(10)`",
            "make them agree",
            LockClient::builder("redis://localhost").max_size(10).min_idle(20).build().unwrap_err(),
        ),
        row(
            "`max_wait(0)`",
            "allow some time",
            LockClient::builder("redis://localhost").max_wait(ms(0)).build().unwrap_err(),
        ),
        row(
            "a database in the URL of a cluster",
            "leave it out",
            LockClient::builder("redis://localhost/2").cluster([""; 0]).build().unwrap_err(),
        ),
        row(
            "`.sentinels([])`",
            "name the sentinels",
            LockClient::builder("redis://mymaster").sentinels([""; 0]).build().unwrap_err(),
        ),
        row(
            "an address twice in a quorum",
            "name each server once",
            QuorumClient::builder(["redis://a", "redis://b", "redis://a/1"]).build().unwrap_err(),
        ),
        row(
            "`quorum(1)` of 3 servers",
            "ask for a majority",
            QuorumClient::builder(several).quorum(1).build().unwrap_err(),
        ),
        row(
            "a lease of 2 hours in a quorum",
            "raise max_lease or shorten the lease",
            quorum.mutex_with("orders:42", fixed(7_200_000)).unwrap_err(),
        ),
    ];
    rows.extend(tls());
    rows
}

#[cfg(not(feature = "tls"))]
fn tls() -> Vec<Row> {
    vec![row(
        "`rediss://` without leasehold's feature `tls`",
        "turn the feature on",
        url("rediss://localhost"),
    )]
}

#[cfg(feature = "tls")]
fn tls() -> Vec<Row> {
    let build = |url| LockClient::builder(url).ca_certificate("MIIB").build().unwrap_err();
    vec![
        row("`ca_certificate` with a `redis://` URL", "use rediss://", build("redis://localhost")),
        row(
            "`rediss://` and a certificate that is no PEM text",
            "give the PEM text",
            build("rediss://localhost"),
        ),
    ]
}
