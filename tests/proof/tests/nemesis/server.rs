//! One server, and its disk.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use leasehold::{LockClient, LockOptions, Mutex, Result};
use leasehold_support::{Disk, Server, or_skip};

use crate::lab::{in_lab, patient, until};
use crate::work::{Verdict, Work, options};

/// For how long a fault lasts once it has shown, and for how long all is well before.
const WHILE: Duration = Duration::from_secs(4);

fn work_with(server: &Server, options: LockOptions) -> Work {
    let client = || {
        let builder = patient(LockClient::builder(server.url()));
        // A wait for the disk is a part of a command.
        let builder = match options == crate::work::options() {
            true => builder,
            false => builder.command_timeout(WHILE),
        };
        builder.build().expect("a client")
    };
    let (one, other) = (client(), client());
    let lock =
        |client: &LockClient, name: &str| -> Result<Mutex> { client.mutex_with(name, options) };
    Work::start_with(|name| lock(&one, name), |name| lock(&other, name))
}

fn info(server: &Server, section: &str) -> String {
    redis::cmd("INFO").arg(section).query(&mut server.connection()).unwrap_or_default()
}

#[test]
fn server_is_killed_and_comes_back_empty() {
    let server = Server::start().expect("a server");
    let work = work_with(&server, options());
    sleep(WHILE / 4);
    server.restart();
    work.end("one server: killed, comes back empty", Verdict::TheToken);
}

/// A server whose append-only file loses, in a crash of its machine, what was written after its last fsync.
fn crash(how: &str, options: LockOptions, what: &str, verdict: Verdict) {
    let disk = Disk::new().expect("a disk");
    let builder = Server::builder().since(7, 2).envs(disk.variables());
    let builder = builder.arg("--appendonly").arg("yes").arg("--appendfsync").arg(how);
    let Some(server) = or_skip(builder.start()) else { return };
    let work = work_with(&server, options);
    let mut lost = 0;
    for _ in 0..3 {
        // Not a multiple of the second after which it is synced.
        sleep(WHILE / 3);
        server.kill();
        lost += disk.lose(&server.directory().join("appendonlydir")).expect("a file");
        server.restart();
    }
    println!("| {what}: {lost} bytes were lost |");
    assert!(lost > 0 || how == "always", "all of it was synced");
    work.end(what, verdict);
}

#[test]
#[ignore = "long"]
fn file_is_cut_after_its_last_fsync() {
    let what = "one server: file cut after its last fsync, everysec";
    crash("everysec", options(), what, Verdict::TheToken);
}

#[test]
#[ignore = "long"]
fn file_that_is_synced_at_each_write_is_cut() {
    let what = "one server: file cut after its last fsync, always";
    crash("always", options(), what, Verdict::Always);
}

#[test]
#[ignore = "long"]
fn file_is_cut_and_grants_wait_for_the_disk() {
    let what = "one server: file cut after its last fsync, everysec and min_fsyncs";
    let options = options().min_fsyncs(true, 0, Duration::from_secs(2));
    crash("everysec", options, what, Verdict::Always);
}

/// A file system of a few megabytes, in the namespace of this process.
fn small_disk() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("lh-disk-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(&folder);
    assert!(mount.status().expect("mount(8)").success());
    folder
}

/// Writes until there is no room.
fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let mut file = fs::File::create(&path).expect("a file");
    for size in [1 << 16, 1 << 10, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    path
}

#[test]
#[ignore = "long"]
fn disk_is_full() {
    in_lab!();
    let folder = small_disk();
    let builder = Server::builder().arg("--dir").arg(&folder);
    let server = builder.arg("--appendonly").arg("yes").start().expect("a server");
    let work = work_with(&server, options());
    sleep(WHILE / 4);
    let filler = fill(&folder);
    until("the server cannot write its file", || {
        info(&server, "persistence").contains("aof_last_write_status:err")
    });
    sleep(WHILE);
    assert!(server.error_count("MISCONF") > 0);
    fs::remove_file(filler).expect("it is deleted");
    work.end("one server: disk full", Verdict::Always);
    drop(server);
    assert!(Command::new("umount").arg(&folder).status().expect("umount(8)").success());
    fs::remove_dir(folder).expect("it is empty");
}

/// Whether a new connection gets a reply.
fn is_open(server: &Server) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut connection = TcpStream::connect(server.addr())?;
        connection.set_read_timeout(Some(WHILE))?;
        connection.write_all(b"PING\r\n")?;
        let mut reply = [0; 5];
        connection.read_exact(&mut reply)?;
        Ok(reply == *b"+PONG")
    };
    ask().unwrap_or(false)
}

#[test]
#[ignore = "long"]
fn other_clients_take_all_connections() {
    let builder = Server::builder().tcp().arg("--maxclients").arg("40");
    let server = builder.start().expect("a server");
    let work = work_with(&server, options());
    sleep(WHILE / 4);
    let mut others = Vec::new();
    until("no connection is left", || {
        others.extend(TcpStream::connect(server.addr()));
        !is_open(&server)
    });
    // Those that the clients of the locks have stay theirs.
    sleep(WHILE);
    drop(others);
    until("there is room again", || is_open(&server));
    let stats = info(&server, "stats");
    let refused = stats.lines().find_map(|line| line.strip_prefix("rejected_connections:"));
    assert!(refused.is_some_and(|count| count.trim() != "0"), "{refused:?}");
    work.end("one server: maxclients reached", Verdict::Always);
}
