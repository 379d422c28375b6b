//! A demo: several processes with several threads each sell a limited stock that is kept in
//! Redis, by reading what is left and writing one less.
//!
//! ```sh
//! cargo run --package leasehold-inventory
//! ```
//!
//! Three rounds go through the same code, [`sell_one`], which is also the part to copy:
//!
//! 1. Without a lock. Two sellers read the same number and both sell that piece: it oversells.
//! 2. With the lock. Exactly the stock is sold.
//! 3. With the lock, while somebody takes stock for longer than the lease lasts, which is renewed
//!    meanwhile, and is then killed with SIGKILL. The lock is not given back, so the others wait
//!    until its lease has run out, and go on.
//!
//! It uses the Redis that `REDIS_URL` names, under keys of its own that it deletes in the end, or
//! else a private server. It fails if a round does not end as promised.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to people")]

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use leasehold::{Guard, Lease, LockClient, LockOptions, Mutex};
use leasehold_support::child::{self, hear, tell};
use leasehold_support::{Child, Server};
use redis::Connection;
use uuid::Uuid;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PROCESSES: u64 = 3;
const THREADS: u64 = 4;
/// Without a lock each piece is sold several times over: less of them last as long.
const UNLOCKED_STOCK: i64 = 10_000;
const LOCKED_STOCK: i64 = 30_000;
/// How often a round is repeated, each time with twice the stock, if by chance it shows nothing.
const REPEATS: u32 = 4;
/// The lease of the one who is killed: short, because the others wait for its end.
const SHORT_LEASE: Duration = Duration::from_secs(2);
/// How long taking stock lasts: longer than that lease.
const STOCK_TAKING: Duration = Duration::from_secs(3);
/// What a round may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How much later than its lease a dead worker's lock may be taken, even if messages are lost.
const LATE: Duration = Duration::from_secs(5);
/// How finely Redis tells a time to live, with some room for clocks that differ.
const TICK: Duration = Duration::from_millis(20);
/// How often a sale is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// An interrupted run leaves its stock behind for this long.
const KEPT_SECONDS: u64 = 600;
/// What to try next.
const NEXT: &str = "
What to try next:
  examples/inventory/main.rs     `sell_one` is the part to copy
  docs/recipes.md                finds your task
  cargo run --package leasehold-recipes --bin leader
                                 one of three processes leads, the next takes over; --bin jobs claims ids
  cargo test --package leasehold-recipes --bin double
                                 a test of your own code, without a server
  cargo run --package leasehold-cli -- doctor --url redis://localhost:6379
                                 says what your own server lacks";

/// Sells a piece if there is one left, and tells whether there was.
fn sell_one(shop: &mut Shop, lock: Option<&Mutex>) -> Result<bool> {
    let guard = lock.map(Mutex::lock).transpose()?;
    let left = shop.read()?;
    if left > 0 {
        shop.write(left - 1)?;
    }
    guard.map(Guard::release).transpose()?;
    Ok(left > 0)
}

fn main() -> ExitCode {
    let outcome = match child::role().as_deref() {
        None => run(),
        Some("seller") => sell(),
        Some("stock-taker") => take_stock(),
        Some(other) => Err(format!("no such role: {other}").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inventory: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Which Redis, and which keys in it.
struct Place {
    url: String,
    prefix: String,
}

impl Place {
    /// The place that the parent told this process of.
    fn from_parent() -> Result<Place> {
        let prefix = env::args().nth(1).ok_or("a worker is told its keys")?;
        Ok(Place { url: env::var("REDIS_URL")?, prefix })
    }

    fn stock_key(&self) -> String {
        format!("{}:stock", self.prefix)
    }

    fn lock_key(&self) -> String {
        format!("{}:lock", self.prefix)
    }

    fn connect(&self) -> Result<Connection> {
        let client = redis::Client::open(self.url.as_str())?;
        Ok(client.get_connection_with_timeout(Duration::from_secs(5))?)
    }

    fn shop(&self) -> Result<Shop> {
        Ok(Shop { redis: self.connect()?, key: self.stock_key() })
    }

    fn lock(&self, lease: Lease) -> Result<Mutex> {
        let client = LockClient::open(&self.url)?;
        Ok(client.mutex_with(self.lock_key(), LockOptions::new().lease(lease))?)
    }

    fn hire(&self, role: &str, argument: &str) -> Result<Child> {
        let hired = Child::role(role).arg(&self.prefix).arg(argument);
        // In the environment, where `ps` does not show a password.
        let mut child = hired.env("REDIS_URL", &self.url).start()?;
        child.expect_line("ready", PATIENCE);
        Ok(child)
    }

    fn clear(&self) -> Result<()> {
        let mut redis = self.connect()?;
        let mut scan = redis::cmd("SCAN");
        // The keys beside the lock have its name in their midst.
        scan.cursor_arg(0).arg("MATCH").arg(format!("*{}:*", self.prefix)).arg("COUNT").arg(1000);
        let keys = scan.iter::<Vec<u8>>(&mut redis)?.collect::<redis::RedisResult<Vec<_>>>()?;
        for key in keys {
            redis::cmd("DEL").arg(key).exec(&mut redis)?;
        }
        Ok(())
    }
}

/// Deletes the keys of this run in the end, however it ends.
struct Tidy<'a>(&'a Place);

impl Drop for Tidy<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.clear() {
            eprintln!("inventory: the keys {}:* were not deleted: {error}", self.0.prefix);
        }
    }
}

/// The stock: a number in Redis.
struct Shop {
    redis: Connection,
    key: String,
}

impl Shop {
    fn stock_up(&mut self, stock: i64) -> Result<()> {
        let mut set = redis::cmd("SET");
        Ok(set.arg(&self.key).arg(stock).arg("EX").arg(KEPT_SECONDS).exec(&mut self.redis)?)
    }

    fn read(&mut self) -> Result<i64> {
        Ok(redis::cmd("GET").arg(&self.key).query(&mut self.redis)?)
    }

    fn write(&mut self, left: i64) -> Result<()> {
        Ok(redis::cmd("SET").arg(&self.key).arg(left).arg("KEEPTTL").exec(&mut self.redis)?)
    }

    /// Looks again and again until what is left is as wanted.
    fn wait(&mut self, limit: Duration, wanted: impl Fn(i64) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !wanted(self.read()?) {
            if begun.elapsed() > limit {
                return Err(format!("the sale stands still for more than {limit:.1?}").into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// A worker process: its threads sell until nothing is left.
fn sell() -> Result<()> {
    let place = Place::from_parent()?;
    let locked = env::args().nth(2).as_deref() == Some("locked");
    let lock = locked.then(|| place.lock(Lease::default())).transpose()?;
    let shops = (0..THREADS).map(|_| place.shop()).collect::<Result<Vec<_>>>()?;
    tell("ready");
    hear().ok_or("the shop never opened")?;
    let sold = thread::scope(|scope| {
        let lock = lock.as_ref();
        let sellers = shops.into_iter().map(|shop| scope.spawn(move || sell_out(shop, lock)));
        let sellers: Vec<_> = sellers.collect();
        sellers
            .into_iter()
            .map(|seller| seller.join().map_err(|_| "a seller panicked")?)
            .sum::<Result<u64>>()
    })?;
    tell(&format!("sold {sold}"));
    Ok(())
}

fn sell_out(mut shop: Shop, lock: Option<&Mutex>) -> Result<u64> {
    let mut sold = 0;
    while sell_one(&mut shop, lock)? {
        sold += 1;
    }
    Ok(sold)
}

/// A worker process that holds the lock for longer than its lease, and then for as long as it
/// lives.
fn take_stock() -> Result<()> {
    let place = Place::from_parent()?;
    let mut shop = place.shop()?;
    let lock = place.lock(Lease::renewed(SHORT_LEASE))?;
    tell("ready");
    hear().ok_or("the shop never opened")?;
    let guard = lock.lock()?;
    let before = shop.read()?;
    tell("holds");
    thread::sleep(STOCK_TAKING);
    let after = shop.read()?;
    guard.check()?;
    if before != after {
        return Err(format!("{before} became {after} under the lock").into());
    }
    tell(&format!("counted {after}"));
    // The parent has nothing more to say: it kills us.
    hear();
    Ok(())
}

/// A sale, from the opening until everything is sold.
#[derive(Clone, Copy, PartialEq)]
enum Plan {
    Unlocked,
    Locked,
    /// Locked, and one worker is killed while it holds the lock.
    Killed,
}

/// How a sale went.
struct Round {
    plan: Plan,
    stock: i64,
    sold: i64,
    /// What each process sold.
    shares: Vec<i64>,
    /// How long it took, without the pause around a death.
    time: Duration,
    commands: u64,
    renewals: u64,
    death: Option<Death>,
}

/// What a death did to the sale.
struct Death {
    /// What was left of the dead worker's lease.
    lease: Duration,
    /// From the death to the next sale.
    waited: Duration,
    /// From when the worker got the lock to the next sale.
    pause: Duration,
}

impl Round {
    fn oversold(&self) -> i64 {
        self.sold - self.stock
    }

    /// Each sale is one, and each thread's last look, which finds nothing left.
    fn acquisitions(&self) -> u64 {
        let looks = self.sold.unsigned_abs() + PROCESSES * THREADS;
        match self.plan {
            Plan::Unlocked => 0,
            Plan::Locked => looks,
            Plan::Killed => looks + 1,
        }
    }

    /// Whether there was what the round is held for, or what must never be.
    fn shows(&self) -> bool {
        match self.plan {
            Plan::Unlocked => self.oversold() > 0,
            Plan::Locked => true,
            Plan::Killed => self.oversold() != 0 || self.death.is_some(),
        }
    }
}

impl Plan {
    fn title(self) -> &'static str {
        match self {
            Plan::Unlocked => "without a lock",
            Plan::Locked => "with the lock",
            Plan::Killed => "one worker killed",
        }
    }

    fn carry_out(self, place: &Place, stock: i64) -> Result<Round> {
        let mut shop = place.shop()?;
        shop.stock_up(stock)?;
        let how = if self == Plan::Unlocked { "unlocked" } else { "locked" };
        let mut sellers =
            (0..PROCESSES).map(|_| place.hire("seller", how)).collect::<Result<Vec<_>>>()?;
        let taker = (self == Plan::Killed).then(|| place.hire("stock-taker", "")).transpose()?;
        let watch = Watch::start(self.title(), stock, place)?;
        let before = commands(&mut shop.redis)?;
        let begun = Instant::now();
        sellers.iter_mut().for_each(|seller| seller.say("open"));
        let death = match taker {
            Some(taker) => kill(taker, stock, place, &watch)?,
            None => None,
        };
        let shares = sellers.iter_mut().map(|seller| seller.expect_line("sold", PATIENCE).parse());
        let shares = shares.collect::<std::result::Result<Vec<i64>, _>>()?;
        let sold: i64 = shares.iter().sum();
        let pause = death.as_ref().map_or(Duration::ZERO, |death| death.pause);
        let time = begun.elapsed().saturating_sub(pause);
        let commands = commands(&mut shop.redis)?.saturating_sub(before);
        let renewals = watch.renewals();
        Ok(Round { plan: self, stock, sold, shares, time, commands, renewals, death })
    }
}

/// Has a worker take stock in the midst of a sale, and kills it while it holds the lock.
///
/// `None` if its turn came when everything was sold.
fn kill(mut taker: Child, stock: i64, place: &Place, watch: &Watch) -> Result<Option<Death>> {
    let mut shop = place.shop()?;
    shop.wait(PATIENCE, |left| left < stock * 3 / 4)?;
    taker.say("take stock");
    taker.expect_line("holds", PATIENCE);
    let held = Instant::now();
    watch.say(&format!(
        "one worker takes stock for {STOCK_TAKING:?}; its lease of {SHORT_LEASE:?} is renewed"
    ));
    let counted: i64 = taker.expect_line("counted", PATIENCE).parse()?;
    taker.kill9();
    let killed = Instant::now();
    let lease: i64 = redis::cmd("PTTL").arg(place.lock_key()).query(&mut shop.redis)?;
    let lease = u64::try_from(lease).map_err(|_| "the killed worker did not hold the lock")?;
    let lease = Duration::from_millis(lease);
    watch.say(&format!("killed: {counted} pieces are left, and {lease:.2?} of its lease"));
    if counted == 0 {
        return Ok(None);
    }
    shop.wait(lease + LATE, |left| left != counted)?;
    let waited = killed.elapsed();
    watch.say(&format!("the sale goes on {waited:.2?} after the kill"));
    Ok(Some(Death { lease, waited, pause: held.elapsed() }))
}

/// How many scripts the server has run for clients: leasehold's commands are scripts, but for a
/// few when it connects, and nobody else here uses any.
fn commands(redis: &mut Connection) -> Result<u64> {
    let info: String = redis::cmd("INFO").arg("commandstats").query(redis)?;
    let calls = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let counts = matches!(command, "eval" | "evalsha");
        counts.then(|| rest.split(',').next().unwrap_or_default().parse::<u64>())
    };
    Ok(info.lines().filter_map(calls).sum::<std::result::Result<u64, _>>()?)
}

/// Watches a sale from outside: shows how it goes, and counts renewals.
struct Watch {
    bar: ProgressBar,
    renewals: Arc<AtomicU64>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn start(title: &'static str, stock: i64, place: &Place) -> Result<Watch> {
        let style = ProgressStyle::with_template("  {prefix:17} {wide_bar} {pos} of {len}")?;
        let bar = ProgressBar::new(stock.unsigned_abs()).with_style(style).with_prefix(title);
        let renewals = Arc::new(AtomicU64::new(0));
        let (end, ended) = mpsc::channel();
        let (keys, redis) = ([place.stock_key(), place.lock_key()], place.connect()?);
        let (shown, counted) = (bar.clone(), Arc::clone(&renewals));
        let look = Look { stock, keys, redis, bar: shown, renewals: counted };
        let thread = thread::spawn(move || look.follow(&ended));
        Ok(Watch { bar, renewals, end: Some(end), thread: Some(thread) })
    }

    fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Relaxed)
    }

    fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            println!("  {line}");
        } else {
            self.bar.println(format!("  {line}"));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said so.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

/// What the thread of a [`Watch`] has.
struct Look {
    stock: i64,
    /// Of the stock and of the lock.
    keys: [String; 2],
    redis: Connection,
    bar: ProgressBar,
    renewals: Arc<AtomicU64>,
}

impl Look {
    fn follow(mut self, ended: &Receiver<()>) {
        let mut last = (None, 0);
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK) {
            // The sale does not depend on it.
            let Ok((left, owner, ttl)) = self.look() else { return };
            // A renewal gives the same owner more time; hardly anything else does.
            if owner.is_some() && owner == last.0 && ttl > last.1 {
                self.renewals.fetch_add(1, Ordering::Relaxed);
            }
            last = (owner, ttl);
            let gone = self.stock - left;
            self.bar.set_position(gone.unsigned_abs());
        }
    }

    /// What is left, who has the lock, and for how many milliseconds.
    fn look(&mut self) -> redis::RedisResult<(i64, Option<Vec<u8>>, i64)> {
        let [stock, lock] = &self.keys;
        redis::pipe().atomic().get(stock).get(lock).pttl(lock).query(&mut self.redis)
    }
}

/// Holds the three sales on the Redis of the environment, or else on a private server.
fn run() -> Result<()> {
    let given = env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
    let server = if given.is_none() { Some(Server::start()?) } else { None };
    let prefix = format!("inventory:{}", Uuid::new_v4().simple());
    let url = match &server {
        Some(server) => {
            println!("On a private server, {}:", server.version());
            server.url()
        }
        None => {
            println!("On the server of REDIS_URL, under {prefix}:*");
            println!("(its counters also count the scripts of other clients):");
            given.unwrap_or_default()
        }
    };
    println!("{PROCESSES} processes with {THREADS} threads each sell what is in stock.\n");
    let place = Place { url, prefix };
    place.connect().map_err(|error| format!("the server cannot be reached: {error}"))?;
    let _tidy = Tidy(&place);
    let plans = [Plan::Unlocked, Plan::Locked, Plan::Killed];
    let rounds = plans.into_iter().map(|plan| hold_sale(plan, &place));
    let rounds = rounds.collect::<Result<Vec<_>>>()?;
    println!("{}", table(&rounds));
    rounds.iter().try_for_each(judge)?;
    println!("{NEXT}");
    Ok(())
}

/// Carries out a plan, again if by chance there was nothing to see.
fn hold_sale(plan: Plan, place: &Place) -> Result<Round> {
    let stock = if plan == Plan::Unlocked { UNLOCKED_STOCK } else { LOCKED_STOCK };
    let mut round = plan.carry_out(place, stock)?;
    for _ in 0..REPEATS {
        if round.shows() {
            break;
        }
        println!("  {}: nothing to see; once more, with twice the stock", plan.title());
        round = plan.carry_out(place, round.stock * 2)?;
    }
    Ok(round)
}

fn table(rounds: &[Round]) -> Table {
    let header = [
        "",
        "stock",
        "sold",
        "oversold",
        "seconds",
        "acquisitions\nper second",
        "commands per\nacquisition",
        "renewals",
    ];
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(header);
    for round in rounds {
        table.add_row(row(round));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(round: &Round) -> [String; 8] {
    let seconds = round.time.as_secs_f64();
    let acquisitions = round.acquisitions() as f64;
    let locked =
        |figure: String| if round.plan == Plan::Unlocked { "-".to_owned() } else { figure };
    [
        round.plan.title().to_owned(),
        round.stock.to_string(),
        round.sold.to_string(),
        round.oversold().to_string(),
        format!("{seconds:.2}"),
        locked(format!("{:.0}", acquisitions / seconds)),
        locked(format!("{:.2}", round.commands as f64 / acquisitions)),
        locked(round.renewals.to_string()),
    ]
}

/// Says what a round has shown, or why it has not shown what it should.
fn judge(round: &Round) -> Result<()> {
    let (title, over) = (round.plan.title(), round.oversold());
    if !round.shows() {
        return Err(format!("{title}: nothing to see in {REPEATS} repeats").into());
    }
    if round.plan == Plan::Unlocked {
        println!("{title}: {over} more were sold than there were");
        return Ok(());
    }
    if over != 0 {
        return Err(format!("{title}: {} sold of a stock of {}", round.sold, round.stock).into());
    }
    let shares: Vec<_> = round.shares.iter().map(i64::to_string).collect();
    println!("{title}: exactly the stock was sold, {} by process", shares.join(" + "));
    round.death.as_ref().map_or(Ok(()), |death| judge_death(death, round.renewals))
}

fn judge_death(death: &Death, renewals: u64) -> Result<()> {
    let Death { lease, waited, pause } = death;
    if renewals == 0 {
        return Err(format!("nothing was renewed in {STOCK_TAKING:?} of stock-taking").into());
    }
    if *waited + TICK < *lease {
        let early = format!("sold {waited:?} after the kill, when the lease had {lease:?} left");
        return Err(early.into());
    }
    println!("  its lease of {SHORT_LEASE:?} was renewed and so held for {STOCK_TAKING:?}");
    println!("  the kill left {} ms of the lease", lease.as_millis());
    println!("  the others waited {} ms until the next sale", waited.as_millis());
    println!("  the {pause:.1?} in which nothing could be sold do not count above");
    Ok(())
}
