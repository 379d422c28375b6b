//! A real server, clients of it, and threads that lock: what they do becomes a drawing.

use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold::{LockClient, LockOptions};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Direction, Fault, Injection, Proxy, Server, WallClock};
use redis::Connection;

use super::actor::{Actor, Ask, Report};
use super::names::{Names, seconds};
use super::reading;
use super::record::{Frame, Record};
use super::sequence::{Event, Row, Sequence, Step, What};
use super::{Result, Stalled};

/// The lock of all drawings.
const LOCK: &str = "orders";
/// Another, which is not drawn.
const WARM_UP: &str = "warm-up";
/// How much longer than it waits on purpose a story may take. A second would be drawn: waiters show
/// themselves, and what is left of a lease is another number.
const PACE: Duration = Duration::from_millis(800);
/// What does not happen in this time never does.
const MOST: Duration = Duration::from_secs(20);
const REPLY: Duration = Duration::from_secs(1);

/// What a lane is for.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    /// Of its client.
    pub(crate) letter: &'static str,
    /// The options of its thread; a lane without them is the client's worker thread.
    pub(crate) options: Option<LockOptions>,
}

struct Client {
    letter: &'static str,
    /// How many of its scripts are under way, as far as the story goes.
    under_way: i32,
    /// Whether it was told of a clock that was set, so that none of its requests is late.
    is_punctual: bool,
    /// Whether a reply is held up on purpose.
    is_held_up: bool,
    client: LockClient,
    proxy: Proxy,
}

/// Where a story plays.
pub(crate) struct Stage {
    // In this order they end.
    actors: Vec<Option<Actor>>,
    clients: Vec<Client>,
    connection: Connection,
    _server: Server,
    clock: WallClock,
    /// How far it is ahead, in microseconds.
    ahead: i64,
    record: Record,
    names: Names,
    lanes: Vec<Lane>,
    /// Which lane of each client acts.
    acting: Vec<(&'static str, usize)>,
    steps: Vec<Step>,
    /// What Redis kept at the end of the last step.
    before: Vec<String>,
    times: Vec<u64>,
    began: Instant,
    /// How long the story has waited on purpose.
    waited: Duration,
}

impl Stage {
    /// Starts a server and clients with these lanes. All clients are connected and listen.
    pub(crate) fn open(lanes: Vec<Lane>) -> Result<Stage> {
        Stage::open_within(lanes, Duration::ZERO)
    }

    /// The same with clients for which a server's clock may differ by so much: it is set, in place of the time that passes.
    pub(crate) fn open_within(lanes: Vec<Lane>, skew: Duration) -> Result<Stage> {
        let clock = WallClock::new()?;
        let server = Server::builder().envs(clock.variables()).start()?;
        let (record, mut names) = (Record::default(), Names::default());
        let mut clients: Vec<Client> = Vec::new();
        for lane in &lanes {
            if clients.iter().any(|client| client.letter == lane.letter) {
                continue;
            }
            let proxy = Proxy::start(&server)?;
            record.collect(lane.letter, &proxy);
            let builder = LockClient::builder(proxy.url()).label(lane.letter);
            let client = builder.command_timeout(REPLY).max_clock_skew(skew).build()?;
            warm_up(&client, lane.letter, &record, &mut names)?;
            clients.push(Client {
                letter: lane.letter,
                under_way: 0,
                is_punctual: false,
                is_held_up: false,
                client,
                proxy,
            });
        }
        let mut actors = Vec::new();
        for lane in &lanes {
            let client = find(&clients, lane.letter)?;
            let lock = lane.options.map(|options| client.client.mutex_with(LOCK, options));
            actors.push(lock.transpose()?.map(Actor::start));
        }
        record.take();
        Ok(Stage {
            actors,
            clients,
            connection: server.connection(),
            _server: server,
            clock,
            ahead: 0,
            record,
            names,
            lanes,
            acting: Vec::new(),
            steps: Vec::new(),
            before: Vec::new(),
            times: Vec::new(),
            began: Instant::now(),
            waited: Duration::ZERO,
        })
    }

    /// Begins a part of the story. What happens from now on belongs to it.
    pub(crate) fn step(&mut self, caption: &str) -> Result<()> {
        self.end_step()?;
        self.steps.push(Step { caption: caption.to_owned(), ..Step::default() });
        Ok(())
    }

    /// The whole story.
    pub(crate) fn finish(mut self, title: &str, description: &str) -> Result<Sequence> {
        self.end_step()?;
        Ok(Sequence {
            title: title.to_owned(),
            description: description.to_owned(),
            lanes: self.lanes.iter().map(|lane| lane.name.to_owned()).collect(),
            steps: std::mem::take(&mut self.steps),
        })
    }

    /// A thread calls `lock` and waits for what comes.
    pub(crate) fn call_lock(&mut self, lane: usize) -> Result<()> {
        self.act(lane, Ask::Lock)?;
        self.push(lane, What::Call, "lock()")?;
        self.push(lane, What::Waits, "")
    }

    /// A thread that has called `lock` has a guard.
    pub(crate) fn has(&mut self, lane: usize) -> Result<()> {
        match self.actor(lane)?.report()? {
            Report::Held(token) => {
                self.drain()?;
                let token = self.names.token(token)?;
                self.push(lane, What::Holds, &format!("guard, token {token}"))
            }
            other => Err(format!("no guard: {other:?}").into()),
        }
    }

    /// A thread takes a lock that it need not wait for.
    pub(crate) fn lock(&mut self, lane: usize) -> Result<()> {
        self.call_lock(lane)?;
        self.has(lane)
    }

    /// A thread calls `lock`, and Redis says that it has to wait.
    pub(crate) fn join(&mut self, lane: usize) -> Result<()> {
        self.call_lock(lane)?;
        let letter = self.lanes[lane].letter;
        self.record.wait(|frames| frames.iter().any(|frame| frame.joins(letter)))?;
        self.settle()
    }

    /// A thread calls `lock`, and its request reaches Redis. The reply is held up until that is
    /// released.
    pub(crate) fn join_unheard(&mut self, lane: usize) -> Result<Injection> {
        let held_up = Fault::reply("", Action::Hold).at(Operation::Acquire);
        let held_up = self.proxy(lane)?.add(held_up);
        self.set_held_up(lane, true);
        self.call_lock(lane)?;
        let letter = self.lanes[lane].letter;
        self.record.wait(|frames| frames.iter().any(|frame| frame.joins(letter)))?;
        Ok(held_up)
    }

    /// The reply to that reaches the thread.
    pub(crate) fn hear_join(&mut self, lane: usize, held_up: &Injection) -> Result<()> {
        held_up.release();
        self.set_held_up(lane, false);
        self.settle()
    }

    fn set_held_up(&mut self, lane: usize, is_held_up: bool) {
        let letter = self.lanes[lane].letter;
        let clients = self.clients.iter_mut().filter(|client| client.letter == letter);
        clients.for_each(|client| client.is_held_up = is_held_up);
    }

    /// A thread releases what it holds.
    pub(crate) fn release(&mut self, lane: usize) -> Result<()> {
        self.act(lane, Ask::Release)?;
        self.push(lane, What::Call, "release()")?;
        self.push(lane, What::Rests, "")?;
        match self.actor(lane)?.report()? {
            Report::Released => self.drain(),
            other => Err(format!("not released: {other:?}").into()),
        }
    }

    /// Waits until the guard of a lane knows of so many who wait.
    pub(crate) fn until_waiters(&mut self, lane: usize, count: usize) -> Result<()> {
        let end = Instant::now() + MOST;
        loop {
            let actor = self.actor(lane)?;
            actor.ask(Ask::Waiters)?;
            match actor.report()? {
                Report::Waiters(known) if known >= count => return self.drain(),
                _ if Instant::now() > end => return Err("nobody waits".into()),
                _ => sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Does nothing for a while.
    pub(crate) fn rest(&mut self, span: Duration) {
        self.waited += span;
        sleep(span);
    }

    /// Until when the guard of a lane is valid, or a moment before that.
    pub(crate) fn valid_until(&mut self, lane: usize) -> Result<Instant> {
        let actor = self.actor(lane)?;
        actor.ask(Ask::ValidUntil)?;
        match actor.report()? {
            Report::ValidUntil(moment) => Ok(moment),
            other => Err(format!("no time: {other:?}").into()),
        }
    }

    /// Waits for the reply to a request of this lane's client that the client makes by itself,
    /// after so long.
    pub(crate) fn expect(
        &mut self,
        lane: usize,
        operation: Operation,
        after: Duration,
    ) -> Result<()> {
        self.waited += after;
        let letter = self.lanes[lane].letter;
        let is_reply =
            |frame: &Frame| frame.direction == Direction::Reply && frame.operation == operation;
        self.record.wait(|frames| frames.iter().any(|f| f.letter == letter && is_reply(f)))?;
        self.drain()
    }

    /// Waits for a message that is published to this lane's client in this step.
    pub(crate) fn expect_message(&mut self, lane: usize) -> Result<()> {
        let letter = self.lanes[lane].letter;
        let is_message = |event: &Event| {
            matches!(event.what, What::Message(_)) && self.lanes[event.lane].letter == letter
        };
        if !self.steps.last().is_some_and(|step| step.events.iter().any(is_message)) {
            self.record.wait(|frames| {
                frames.iter().any(|frame| frame.letter == letter && frame.is_published())
            })?;
        }
        self.drain()
    }

    /// Puts the server's clock so far ahead of the clients', as if they had stood still for so
    /// long. The client of one lane learns the time at once, as all do with each request.
    pub(crate) fn set_clock_ahead(&mut self, span: Duration, lane: usize) -> Result<()> {
        self.drain()?;
        self.set_clock(i64::try_from(span.as_micros())?)?;
        let client = find(&self.clients, self.lanes[lane].letter)?;
        client.client.mutex(WARM_UP)?.with(|_| ())?;
        self.record.take();
        let letter = self.lanes[lane].letter;
        let clients = self.clients.iter_mut().filter(|client| client.letter == letter);
        clients.for_each(|client| client.is_punctual = true);
        Ok(())
    }

    /// Sets the server's clock back.
    pub(crate) fn set_clock_back(&mut self, span: Duration) -> Result<()> {
        self.set_clock(-i64::try_from(span.as_micros())?)
    }

    /// Sets the server's clock ahead of the system's, and waits until scripts see it: the server
    /// looks at its clock now and then.
    fn set_clock(&mut self, ahead: i64) -> Result<()> {
        let jump = ahead - std::mem::replace(&mut self.ahead, ahead);
        let (before, at) = (self.server_time()?, Instant::now());
        self.clock.set(ahead)?;
        while at.elapsed() < MOST {
            let passed = i64::try_from(at.elapsed().as_micros())?;
            if (self.server_time()? - before - passed - jump).abs() < jump.abs() / 2 {
                return Ok(());
            }
            sleep(Duration::from_millis(1));
        }
        Err("the server's clock stays as it is".into())
    }

    /// The time that scripts see, in microseconds.
    fn server_time(&mut self) -> Result<i64> {
        let mut time = redis::cmd("EVAL");
        time.arg("return redis.call('TIME')").arg("0");
        let (seconds, micros): (i64, i64) = time.query(&mut self.connection)?;
        Ok(seconds * 1_000_000 + micros)
    }

    /// The times of the server, in microseconds, in replies and grants so far.
    pub(crate) fn server_times(&self) -> &[u64] {
        &self.times
    }

    /// The proxy of a lane's client.
    pub(crate) fn proxy(&self, lane: usize) -> Result<&Proxy> {
        Ok(&find(&self.clients, self.lanes[lane].letter)?.proxy)
    }

    /// A command that somebody else sends.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<()> {
        let mut command = redis::cmd(words.first().ok_or("a command")?);
        command.arg(&words[1..]);
        Ok(command.exec(&mut self.connection)?)
    }

    /// Between which moments the key of the lock ends.
    pub(crate) fn lock_ends(&mut self) -> Result<(Instant, Instant)> {
        let asked = Instant::now();
        let left: u64 = redis::cmd("PTTL").arg(LOCK).query(&mut self.connection)?;
        let received = Instant::now();
        // Rounded to a millisecond.
        let left = Duration::from_millis(left);
        Ok((asked + left - Duration::from_millis(1), received + left + Duration::from_millis(1)))
    }

    /// The owner's value of the lock.
    pub(crate) fn owner(&mut self) -> Result<String> {
        Ok(redis::cmd("GET").arg(LOCK).query(&mut self.connection)?)
    }

    /// Adds what came by to the story.
    pub(crate) fn drain(&mut self) -> Result<()> {
        for frame in self.record.take() {
            for client in &mut self.clients {
                client.under_way += frame.opens(client.letter);
            }
            self.add(&frame)?;
        }
        Ok(())
    }

    /// Waits until no script is under way.
    fn settle(&mut self) -> Result<()> {
        for client in self.clients.iter().filter(|client| !client.is_held_up) {
            self.record.wait(|frames| {
                let opened: i32 = frames.iter().map(|frame| frame.opens(client.letter)).sum();
                client.under_way + opened == 0
            })?;
        }
        self.drain()
    }

    fn add(&mut self, frame: &Frame) -> Result<()> {
        let Frame { letter, direction, operation, ref message, is_lost } = *frame;
        let names = &mut self.names;
        let (what, text) = match direction {
            Direction::Request => (What::Request, reading::request(names, operation, message)?),
            Direction::Reply if frame.is_published() => {
                (What::Message(is_lost), reading::push(names, letter, message)?)
            }
            Direction::Reply => (What::Reply, reading::reply(names, operation, message)?),
        };
        let Some(text) = text else { return Ok(()) };
        if text == reading::TOO_LATE && find(&self.clients, letter)?.is_punctual {
            // It was given a reply from before the clock was set after the one that told the new
            // time.
            return Err(Stalled.into());
        }
        self.times.extend(reading::server_time(message));
        let lane = self.lane_of(letter, operation)?;
        self.push(lane, what, &text)
    }

    /// Whose arrow it is: that of the thread of the client that acts, else of its worker.
    fn lane_of(&self, letter: &str, operation: Operation) -> Result<usize> {
        let worker = || self.lanes.iter().position(|l| l.letter == letter && l.options.is_none());
        let acting = self.acting.iter().find(|(client, _)| *client == letter);
        let acting = acting.map(|&(_, lane)| lane).filter(|_| operation != Operation::Renew);
        let first = || self.lanes.iter().position(|lane| lane.letter == letter);
        acting.or_else(worker).or_else(first).ok_or_else(|| "no lane".into())
    }

    fn act(&mut self, lane: usize, ask: Ask) -> Result<()> {
        self.drain()?;
        let letter = self.lanes[lane].letter;
        self.acting.retain(|(client, _)| *client != letter);
        self.acting.push((letter, lane));
        self.actor(lane)?.ask(ask)
    }

    /// From now on what the client of this lane does is its worker's.
    pub(crate) fn leave_to_worker(&mut self, lane: usize) {
        let letter = self.lanes[lane].letter;
        self.acting.retain(|(client, _)| *client != letter);
    }

    fn actor(&self, lane: usize) -> Result<&Actor> {
        self.actors[lane].as_ref().ok_or_else(|| "a lane without a thread".into())
    }

    fn push(&mut self, lane: usize, what: What, text: &str) -> Result<()> {
        let step = self.steps.last_mut().ok_or("no step has begun")?;
        step.events.push(Event { lane, what, text: text.to_owned() });
        Ok(())
    }

    /// Notes what Redis keeps, and what of it is new.
    fn end_step(&mut self) -> Result<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        self.settle()?;
        let keys = self.keys()?;
        let rows = keys.iter().enumerate().map(|(place, (key, value, content))| Row {
            key: key.clone(),
            value: value.clone(),
            is_new: self.before.get(place).map_or("", String::as_str) != content,
        });
        let rows = rows.collect();
        self.before = keys.into_iter().map(|(_, _, content)| content).collect();
        if let Some(step) = self.steps.last_mut() {
            step.keys = rows;
            step.events = in_order(std::mem::take(&mut step.events));
        }
        self.check_pace()
    }

    fn check_pace(&self) -> Result<()> {
        if self.began.elapsed() > self.waited + PACE { Err(Stalled.into()) } else { Ok(()) }
    }

    /// The keys of the lock: the name, what is drawn, and what changes only when somebody writes
    /// it.
    fn keys(&mut self) -> Result<Vec<(String, String, String)>> {
        let [fence, queue, beats] =
            ["fence", "queue", "beats"].map(|word| format!("{{{LOCK}}}:{word}"));
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("GET").arg(LOCK).cmd("PTTL").arg(LOCK).cmd("PEXPIRETIME").arg(LOCK);
        pipe.cmd("GET").arg(&fence).cmd("TIME");
        for key in [&queue, &beats] {
            pipe.cmd("ZRANGE").arg(key).arg("0").arg("-1").arg("WITHSCORES");
        }
        type Scores = Vec<(Vec<u8>, i64)>;
        type Found = (Option<Vec<u8>>, i64, i64, Option<u64>, (i64, i64), Scores, Scores);
        let found: Found = pipe.query(&mut self.connection)?;
        let (owner, left, end, last, now, places, deaths) = found;
        let names = &mut self.names;
        let now = now.0 * 1_000_000 + now.1;
        let none = || "none".to_owned();
        let held = match &owner {
            Some(owner) => format!("{}, ends in {}", names.attempt(owner)?, seconds(left)),
            None => none(),
        };
        let token = last.map_or_else(|| Ok(none()), |last| names.token(last))?;
        type Show<'a> = &'a dyn Fn(&mut Names, i64) -> Result<String>;
        let mut listed = |scores: &Scores, show: Show<'_>| -> Result<String> {
            let mut texts = Vec::new();
            for (attempt, score) in scores {
                texts.push(format!("{}: {}", names.attempt(attempt)?, show(names, *score)?));
            }
            Ok(if texts.is_empty() { none() } else { texts.join(", ") })
        };
        let queued = listed(&places, &|names, place| names.place(place))?;
        let alive = listed(&deaths, &|_, death| match (death - now).div_euclid(1000) {
            left if left < 0 => Ok("over".to_owned()),
            left => Ok(seconds(left)),
        })?;
        let content =
            |is_there: bool, content: String| if is_there { content } else { String::new() };
        Ok(vec![
            (LOCK.to_owned(), held, content(owner.is_some(), format!("{owner:?} {end}"))),
            (fence, token, content(last.is_some(), format!("{last:?}"))),
            (queue, queued, content(!places.is_empty(), format!("{places:?}"))),
            (beats, alive, content(!deaths.is_empty(), format!("{deaths:?}"))),
        ])
    }
}

/// Puts each reply after its request, and the messages that the script published between the two.
/// They come on different connections, in any order; at the server a script runs as a whole.
fn in_order(events: Vec<Event>) -> Vec<Event> {
    let of = |events: &[Event], lane: usize, what: What| {
        let places = events.iter().enumerate().filter(|(_, e)| e.lane == lane && e.what == what);
        places.map(|(place, _)| place).collect::<Vec<_>>()
    };
    let (mut replies, mut ordered) = (Vec::new(), Vec::new());
    for event in &events {
        let number =
            replies.iter().filter(|(reply, _): &&(Event, _)| reply.lane == event.lane).count();
        let has_request = of(&events, event.lane, What::Request).len() > number;
        if event.what == What::Reply && has_request {
            replies.push((event.clone(), number));
        } else {
            ordered.push(event.clone());
        }
    }
    for (reply, number) in replies {
        let is_message = |event: &&Event| matches!(event.what, What::Message(_));
        let after = of(&ordered, reply.lane, What::Request)[number] + 1;
        let messages = ordered[after..].iter().take_while(is_message).count();
        ordered[after..after + messages].sort_by_key(|message| message.lane);
        ordered.insert(after + messages, reply);
    }
    ordered
}

fn find<'a>(clients: &'a [Client], letter: &str) -> Result<&'a Client> {
    clients.iter().find(|client| client.letter == letter).ok_or_else(|| "no such client".into())
}

/// Makes the client connect, the server know the scripts, and the client listen, so that none of it
/// is in the story; and learns who the client is.
fn warm_up(
    client: &LockClient,
    letter: &'static str,
    record: &Record,
    names: &mut Names,
) -> Result<()> {
    let fixed = LockOptions::new().lease(leasehold::Lease::fixed(Duration::from_secs(60)));
    client.mutex_with(WARM_UP, fixed)?.with(|guard| guard.extend(Duration::from_secs(60)))??;
    for frame in record.take() {
        if frame.letter == letter
            && frame.direction == Direction::Request
            && frame.operation == Operation::Acquire
            && let redis::Value::Array(words) = &frame.message
        {
            for word in words {
                names.learn(letter, super::names::bytes(word)?);
            }
        }
    }
    client.mutex(WARM_UP)?.with(|guard| guard.waiters())?;
    // A client joins a queue only once it listens.
    let end = Instant::now() + MOST;
    while !record.take().iter().any(|frame| frame.joins(letter)) {
        if Instant::now() > end {
            return Err("the client does not listen".into());
        }
        client.mutex(WARM_UP)?.with(|_| sleep(Duration::from_millis(1)))?;
    }
    Ok(())
}
