//! What two sides do with one lock, and what must hold.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_support::Server;
use leasehold_support::stat::{median, percentile};

use leasehold_interop::language::{self, LEASE_MILLIS};
use leasehold_interop::{Peer, Result};
use serde_json::Value;

/// How many turns both have together when one of them dies.
const DEATH_TURNS: u64 = 4_000;
/// How many turns each has alone, before anything is measured.
const WARM_UP: u64 = 500;
/// How many times each way a wake-up is measured.
const WAKES: usize = 200;

/// This library on one side, another on the other.
pub(crate) struct Scene<'a, F> {
    server: &'a Server,
    kind: &'static str,
    other: F,
}

impl<'a, F: Fn(&str) -> Result<Peer>> Scene<'a, F> {
    pub(crate) fn new(server: &'a Server, kind: &'static str, other: F) -> Scene<'a, F> {
        Scene { server, kind, other }
    }

    /// Both sides, ours first.
    fn pair(&self) -> Result<[Peer; 2]> {
        let url = self.server.tcp_url();
        let mut pair = [language::rust(&url, self.kind)?, (self.other)(&url)?];
        // Connected, and compiled where that happens while a program runs.
        for peer in &mut pair {
            peer.say(&format!("contend alone:{} 1 {WARM_UP} 0", peer.process()))?;
            peer.hear("done")?;
        }
        Ok(pair)
    }

    /// Lets both contend for a name. Returns how often each had it.
    fn contend(&self, name: &str, threads: usize, turns: u64, hold: u64) -> Result<[u64; 2]> {
        let mut pair = self.pair()?;
        let begun = Instant::now();
        for peer in &mut pair {
            peer.say(&format!("contend {name} {threads} {turns} {hold}"))?;
        }
        let had: Vec<u64> =
            pair.iter().map(|peer| Ok(peer.hear("done")?.parse()?)).collect::<Result<_>>()?;
        let mut redis = self.server.connection();
        let inside = format!("inside:{name}");
        let counts: (u64, Option<u64>) =
            redis::cmd("HMGET").arg(&inside).arg("turns").arg("overlaps").query(&mut redis)?;
        println!(
            "{} × {}, {threads} threads each, hold {hold} µs: {} and {} turns in {:.1} s, {} overlaps",
            pair[0].name(),
            pair[1].name(),
            had[0],
            had[1],
            begun.elapsed().as_secs_f64(),
            counts.1.unwrap_or(0),
        );
        if counts.1.is_some() || counts.0 != had[0] + had[1] {
            return Err(format!("two holders overlapped: {counts:?} {had:?}").into());
        }
        Ok([had[0], had[1]])
    }

    /// No two holders at a time, over many turns.
    pub(crate) fn exclusion(&self, turns: u64, threads: usize) -> Result<()> {
        self.contend(&format!("exclusion:{}", self.kind), threads, turns, 0)?;
        Ok(())
    }

    /// With holds of a millisecond each side gets at least a quarter.
    pub(crate) fn share(&self, turns: u64) -> Result<()> {
        let had = self.contend("share", 4, turns, 1_000)?;
        if had.iter().any(|side| side * 4 < had.iter().sum()) {
            return Err(format!("one side got less than a quarter: {had:?}").into());
        }
        Ok(())
    }

    /// How long after a release the other side has the lock.
    pub(crate) fn wakes(&self) -> Result<()> {
        let mut redis = redis::Client::open(self.server.tcp_url())?.get_connection()?;
        let trips: Vec<f64> = (0..WAKES * 5)
            .map(|_| {
                let begun = Instant::now();
                redis::cmd("PING").query::<()>(&mut redis)?;
                Ok(begun.elapsed().as_secs_f64())
            })
            .collect::<Result<_>>()?;
        let trip = median(&trips);
        let [mut ours, mut theirs] = self.pair()?;
        for way in 0..2 {
            let (from, to) =
                if way == 0 { (&mut ours, &mut theirs) } else { (&mut theirs, &mut ours) };
            let mut waits = Vec::new();
            for _ in 0..WAKES {
                from.lock("wake")?;
                to.say("lock wake")?;
                // Long enough to be asleep on its subscription.
                std::thread::sleep(Duration::from_millis(10));
                let begun = from.unlock("wake")?;
                let woken: i64 = to.hear("locked")?.parse()?;
                to.unlock("wake")?;
                waits.push((woken - begun) as f64 / 1e9);
            }
            println!(
                "{} wakes {}: median {:.1} round trips of {:.0} µs, p99 {:.1}",
                from.name(),
                to.name(),
                median(&waits) / trip,
                trip * 1e6,
                percentile(&waits, 99.0) / trip,
            );
        }
        Ok(())
    }

    /// Each side sees how often the other has the lock.
    pub(crate) fn reentry(&self) -> Result<()> {
        let [mut ours, mut theirs] = self.pair()?;
        for times in 1..=3 {
            ours.lock("reentry")?;
            // The count in Redis follows the thread's own shortly after.
            let mut seen = theirs.count("reentry")?;
            let begun = Instant::now();
            while seen != format!("[{times}]") {
                if begun.elapsed() > Duration::from_secs(10) {
                    return Err(format!("the count is wrong: {seen}").into());
                }
                seen = theirs.count("reentry")?;
            }
            println!("held {times} × by {}; {} sees {seen}", ours.name(), theirs.name());
        }
        for _ in 0..3 {
            ours.unlock("reentry")?;
        }
        for times in 1..=3 {
            theirs.lock("reentry")?;
            let mut redis = self.server.connection();
            let counts: Vec<u64> = redis::cmd("HVALS").arg("reentry").query(&mut redis)?;
            let seen = ours.count("reentry")?;
            println!("held {times} × by {}; {} sees {seen}", theirs.name(), ours.name());
            if counts != [times] || seen.contains("free") {
                return Err(format!("the count is wrong: {counts:?}").into());
            }
        }
        Ok(())
    }

    /// `leasehold show` names the holder of either side as far as what it wrote tells: ours by its process, the other
    /// by the very value.
    pub(crate) fn names(&self, command: &Path) -> Result<()> {
        let mut redis = self.server.connection();
        for mut holder in self.pair()? {
            let name = format!("named:{}:{}", self.kind, holder.name());
            holder.lock(&name)?;
            let written: String = if self.kind == "mutex" {
                redis::cmd("GET").arg(&name).query(&mut redis)?
            } else {
                redis::cmd("HKEYS").arg(&name).query::<[String; 1]>(&mut redis)?[0].clone()
            };
            let mut show = Command::new(command);
            show.args(["show", "--json", &name]).env("REDIS_URL", self.server.tcp_url());
            let output = show.output()?;
            let document: Value = serde_json::from_slice(&output.stdout)?;
            let lock = &document["locks"][0];
            let seen = &lock["holders"][0];
            println!(
                "held by {}; leasehold show: {} {}, host {}, pid {}",
                holder.name(),
                lock["kind"],
                seen["owner"],
                seen["host"],
                seen["pid"],
            );
            // Redisson's layout has no room for a process.
            let is_named = match (holder.name(), self.kind) {
                ("leasehold", "mutex") => seen["pid"] == holder.process(),
                _ => seen["owner"] == written.as_str(),
            };
            if lock["kind"] != self.kind || !is_named {
                return Err(format!("it is not named: {document}").into());
            }
            holder.unlock(&name)?;
        }
        Ok(())
    }

    /// The death of a process stops the other side for a lease and not for longer, and they do not overlap.
    pub(crate) fn death(&self) -> Result<()> {
        let mut redis = self.server.connection();
        for way in 0..2 {
            let mut pair = self.pair()?;
            pair.rotate_left(way);
            let (name, [mut victim, mut other]) = (format!("death:{}:{way}", self.kind), pair);
            for peer in [&mut victim, &mut other] {
                peer.say(&format!("contend {name} 4 {DEATH_TURNS} 1000"))?;
            }
            let inside = format!("inside:{name}");
            // The victim is killed while it holds the lock.
            let prefix = format!("{}:", victim.process());
            loop {
                let (holder, turns): (Option<String>, Option<u64>) = redis::cmd("HMGET")
                    .arg(&inside)
                    .arg("inside")
                    .arg("turns")
                    .query(&mut redis)?;
                let enough = turns.is_some_and(|turns| turns > DEATH_TURNS / 10);
                if enough && holder.is_some_and(|holder| holder.starts_with(&prefix)) {
                    break;
                }
            }
            let killed = victim.name();
            let process = victim.kill()?;
            redis::cmd("SADD").arg("dead").arg(process).query::<()>(&mut redis)?;
            let begun = Instant::now();
            let at_death = self.turns(&inside)?;
            let mut returned = None;
            while returned.is_none() && begun.elapsed() < Duration::from_secs(60) {
                returned = (self.turns(&inside)? > at_death).then(|| begun.elapsed());
            }
            let returned = returned.ok_or("a dead holder was in the way for a minute")?;
            other.hear("done")?;
            let overlaps: Option<u64> =
                redis::cmd("HGET").arg(&inside).arg("overlaps").query(&mut redis)?;
            println!(
                "{killed} is killed in turn {at_death}; {} has the lock {:.2} s later, {} overlaps",
                other.name(),
                returned.as_secs_f64(),
                overlaps.unwrap_or(0),
            );
            if overlaps.is_some() {
                return Err("two holders overlapped".into());
            }
            // A lease, once more if it was renewed just before the kill and the other side looks late.
            if returned > Duration::from_millis(2 * LEASE_MILLIS) {
                return Err(format!("a dead holder was in the way for {returned:?}").into());
            }
        }
        Ok(())
    }

    fn turns(&self, inside: &str) -> Result<u64> {
        let mut redis = self.server.connection();
        Ok(redis::cmd("HGET").arg(inside).arg("turns").query(&mut redis)?)
    }
}
