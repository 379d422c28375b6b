//! A network in which each server has an address of its own, and any two can be cut off from each other.
//!
//! Each server has a network namespace of its own, and a cable to a bridge in that of this process. A cut is a route into a
//! black hole at both ends: what is sent is lost, connections stay open, and nobody is told. So two servers that are cut
//! off still reach all others.
//!
//! Linux only. It needs unshare(1), nsenter(1), ip(8), and a kernel that lets this user make namespaces.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::server::Server;

/// The bridge, in the namespace of this process.
const BRIDGE: &str = "lab";
/// The last number in the address of this process.
const OWN: u8 = 1;

/// What unshare(1) is to make for a process that starts a network.
const NAMESPACES: [&str; 4] = ["--user", "--map-root-user", "--net", "--mount"];

/// A network of this process and its servers.
#[derive(Debug)]
pub struct Network {
    /// The last number in the address of the last host.
    last: AtomicU8,
}

/// A place in a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    number: u8,
    /// `None` is this process.
    pid: Option<u32>,
}

impl Host {
    /// This process.
    pub const OWN: Host = Host { number: OWN, pid: None };

    /// Returns its IP address.
    pub fn ip(self) -> String {
        format!("10.77.0.{}", self.number)
    }

    /// Runs ip(8) in its namespace.
    fn run(self, words: &[&str]) -> io::Result<()> {
        let Some(pid) = self.pid.map(|pid| pid.to_string()) else {
            return run("ip", words);
        };
        run("nsenter", &[&["--target", &pid, "--net", "ip"][..], words].concat())
    }
}

impl Network {
    /// Returns the command that runs a program in namespaces of its own, in which a network can be started.
    ///
    /// # Errors
    ///
    /// If there are none on this machine, or not for this user.
    pub fn command() -> io::Result<Command> {
        run("unshare", &[&NAMESPACES[..], &["ip", "link", "set", "lo", "up"]].concat())?;
        let mut command = Command::new("unshare");
        command.args(NAMESPACES);
        Ok(command)
    }

    /// Starts a network, in a process that was started by [`Network::command`].
    ///
    /// # Errors
    ///
    /// If that is not possible here.
    pub fn start() -> io::Result<Network> {
        let own = format!("{}/24", Host::OWN.ip());
        for words in [
            &["link", "set", "lo", "up"][..],
            &["link", "add", BRIDGE, "type", "bridge"],
            &["address", "add", &own, "dev", BRIDGE],
            &["link", "set", BRIDGE, "up"],
        ] {
            run("ip", words)?;
        }
        Ok(Network { last: AtomicU8::new(OWN) })
    }

    /// Connects a server that is [apart](crate::ServerBuilder::apart).
    ///
    /// # Errors
    ///
    /// If that is not possible.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn join(&self, server: &Server) -> io::Result<Host> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.connect(Host { number, pid: Some(server.pid()) })
    }

    /// Connects a server that was restarted, at its address of before. No cut is left there.
    ///
    /// # Errors
    ///
    /// If that is not possible.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn join_again(&self, server: &Server, host: &mut Host) -> io::Result<()> {
        *host = self.connect(Host { pid: Some(server.pid()), ..*host })?;
        Ok(())
    }

    fn connect(&self, host: Host) -> io::Result<Host> {
        let (cable, address) = (format!("lab{}", host.number), format!("{}/24", host.ip()));
        let pid = host.pid.unwrap_or_default().to_string();
        // The kernel removes the cable of a process that has ended, a while later.
        let _ = run("ip", &["link", "delete", &cable]);
        // Of its own, so that the others find it again after a restart.
        let ether = format!("02:00:00:00:00:{:02x}", host.number);
        let add =
            ["link", "add", &cable, "type", "veth", "peer", "name", "eth0", "address", &ether];
        run("ip", &[&add[..], &["netns", &pid]].concat())?;
        run("ip", &["link", "set", &cable, "master", BRIDGE, "up"])?;
        for words in [
            &["link", "set", "lo", "up"][..],
            &["address", "add", &address, "dev", "eth0"],
            &["link", "set", "eth0", "up"],
        ] {
            host.run(words)?;
        }
        Ok(host)
    }

    /// Cuts two hosts off from each other.
    ///
    /// # Panics
    ///
    /// If that is not possible.
    pub fn cut(&self, one: Host, other: Host) {
        for (at, to) in [(one, other), (other, one)] {
            let to = to.ip();
            at.run(&["route", "add", "blackhole", &to]).expect("a route into a black hole");
        }
    }

    /// Mends that.
    ///
    /// # Panics
    ///
    /// If they were not cut off.
    pub fn heal(&self, one: Host, other: Host) {
        for (at, to) in [(one, other), (other, one)] {
            let to = to.ip();
            at.run(&["route", "delete", "blackhole", &to]).expect("the route was there");
        }
    }

    /// Cuts two hosts off from each other at these ports of theirs alone.
    ///
    /// # Panics
    ///
    /// If that is not possible.
    pub fn cut_ports(&self, one: (Host, u16), other: (Host, u16)) {
        change_ports("add", one, other);
    }

    /// Mends that.
    ///
    /// # Panics
    ///
    /// If they were not cut off.
    pub fn heal_ports(&self, one: (Host, u16), other: (Host, u16)) {
        change_ports("delete", one, other);
    }
}

/// What goes to the port of one, and what comes back from it.
fn change_ports(change: &str, one: (Host, u16), other: (Host, u16)) {
    for ((at, own), (to, port)) in [(one, other), (other, one)] {
        let (to, own, port) = (to.ip(), own.to_string(), port.to_string());
        for (end, port) in [("dport", port), ("sport", own)] {
            let rule = ["rule", change, "to", &to, "ipproto", "tcp", end, &port, "blackhole"];
            at.run(&rule).expect("a rule for a port");
        }
    }
}

fn run(program: &str, words: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(words).output().map_err(|error| {
        io::Error::new(error.kind(), format!("{program} does not run: {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{program} {}: {said}", words.join(" "))))
}
