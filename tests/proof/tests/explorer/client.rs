//! One process that wants the lock: its acquirer thread, as `src/engine/{acquire,slot}.rs` has it.
//! `leave.rs` has how it gives up, and `holder.rs` the rest of it, from the grant on.
//!
//! | part | the thread | goes to |
//! | --- | --- | --- |
//! | idle | does not want the lock, or no longer | asking |
//! | asking | waits for a reply | pausing, holding, leaving, idle |
//! | pausing | waits for a message, or a moment | asking, holding, leaving |
//! | leaving | takes an attempt out of the queue | asking, idle |
//! | holding | has the lease | releasing, idle (lost) |
//! | releasing | waits for the reply to its release | idle |
//!
//! Simplified: several threads of a process appear only as local hand-offs; a pause between two
//! attempts in an outage takes no time; the worker's commands do not wait for one another.

use crate::clock::Reading;
use crate::holder::{Lease, PendingRelease};
use crate::mutation::Mutation;
use crate::network::{Line, Load, Network};
use crate::protocol::{Acquire, Answer, Attempt, Grant, Mode, Reply, Request, Time, Wake};
use crate::scenario::Setting;

/// Never.
pub(crate) const FAR: Time = Time::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Up,
    Paused,
    Crashed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Idle,
    Asking { mode: Mode, sent: Time, deadline: Time, again: bool },
    Pausing { until: Time },
    Leaving { number: u8, deadline: Time, anew: bool },
    Holding { since: Time },
    Releasing { sent: Time, deadline: Time, repeated: bool },
}

/// One attempt, until it is a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpenAttempt {
    pub(crate) number: u8,
    pub(crate) settled: Time,
    pub(crate) unknown: bool,
    pub(crate) queued: bool,
    pub(crate) outage: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) id: u8,
    pub(crate) ttl: Time,
    /// For how long its keys outlive its leases.
    pub(crate) tail: Time,
    pub(crate) rounds: u8,
    pub(crate) life: Life,
    /// Its clock less the true time.
    pub(crate) offset: i8,
    /// Whether it receives messages, as far as it knows.
    pub(crate) listens: bool,
    pub(crate) reading: Reading,
    pub(crate) number: u8,
    pub(crate) part: Part,
    pub(crate) open_attempt: Option<OpenAttempt>,
    /// A grant that the acquirer has not yet looked at.
    pub(crate) heard: Option<Grant>,
    pub(crate) nudged: bool,
    pub(crate) lease: Option<Lease>,
    pub(crate) releases: Vec<PendingRelease>,
    /// The attempts that are surely out of Redis for ever, a bit for each. Only the invariants ask.
    pub(crate) clean: u32,
}

/// The state of a client.
pub(crate) struct Place<'a> {
    pub(crate) now: Time,
    pub(crate) setting: &'a Setting,
    pub(crate) renewed: bool,
    pub(crate) spin: bool,
    pub(crate) network: &'a mut Network,
}

impl Client {
    pub(crate) fn new(id: u8, ttl: Time, tail: Time, rounds: u8) -> Client {
        Client {
            id,
            ttl,
            tail,
            rounds,
            life: Life::Up,
            offset: 0,
            listens: true,
            reading: Reading { server: 0, sent: 0, received: 0 },
            number: 0,
            part: Part::Idle,
            open_attempt: None,
            heard: None,
            nudged: false,
            lease: None,
            releases: Vec::new(),
            clean: 0,
        }
    }

    pub(crate) fn local(&self, now: Time) -> Time {
        now + Time::from(self.offset)
    }

    pub(crate) fn is_trying(&self) -> bool {
        matches!(self.part, Part::Asking { .. } | Part::Pausing { .. })
    }

    pub(crate) fn attempt(&self, number: u8, setting: &Setting) -> Attempt {
        let (client, tail) = (self.id, self.tail);
        let claim = self.ttl.min(setting.claim());
        // Each client that hands over writes the key for that long (rule 49).
        let window = if setting.has(Mutation::WindowWithoutTail) { claim } else { claim + tail };
        Attempt { client, number, window, tail }
    }

    /// The time to live of the key beside a lease (rule 46).
    pub(crate) fn key_ttl(&self, ttl: Time, setting: &Setting) -> Time {
        if setting.has(Mutation::KeyWithoutTail) { ttl } else { ttl + self.tail }
    }

    /// How long the lease lasts whose key has so long to live.
    fn lease_of(&self, left: Time, setting: &Setting) -> Time {
        let wrong = [Mutation::TailTakenForLease, Mutation::KeyWithoutTail];
        if wrong.iter().any(|mutation| setting.has(*mutation)) { left } else { left - self.tail }
    }

    /// The same of what a hand-over has written.
    fn lease_of_window(&self, window: Time, setting: &Setting) -> Time {
        let wrong = setting.has(Mutation::WindowWithoutTail);
        if wrong { window } else { self.lease_of(window, setting) }
    }

    pub(crate) fn send(&self, line: Line, request: Request, place: &mut Place<'_>) {
        place.network.send(self.id, Load::Request(line, request));
    }

    /// A thread comes and wants the lock.
    pub(crate) fn arrive(&mut self, place: &mut Place<'_>) {
        self.rounds -= 1;
        // The clock was read when the client connected, and since then from every reply.
        let local = self.local(place.now);
        if self.reading.server == 0 {
            self.reading = Reading { server: place.now, sent: local, received: local };
        }
        self.begin(place);
        self.ask(place);
    }

    /// Begins a new attempt.
    fn begin(&mut self, place: &Place<'_>) {
        if !place.setting.has(Mutation::AttemptReused) || self.number == 0 {
            self.number += 1;
        }
        self.heard = None;
        self.nudged = false;
        self.open_attempt = Some(OpenAttempt {
            number: self.number,
            settled: 0,
            unknown: false,
            queued: false,
            outage: false,
        });
    }

    pub(crate) fn ask(&mut self, place: &mut Place<'_>) {
        let local = self.local(place.now);
        self.ask_until(local + place.setting.exchange, true, place);
    }

    fn ask_until(&mut self, deadline: Time, again: bool, place: &mut Place<'_>) {
        let Some(open_attempt) = &mut self.open_attempt else { return };
        let mode = match (open_attempt.queued, self.listens) {
            (true, _) => Mode::Beat,
            (false, true) if !place.spin => Mode::Join,
            _ => Mode::Try,
        };
        open_attempt.queued |= mode == Mode::Join;
        let number = open_attempt.number;
        self.resend(mode, number, deadline, again, place);
    }

    fn resend(
        &mut self,
        mode: Mode,
        number: u8,
        deadline: Time,
        again: bool,
        place: &mut Place<'_>,
    ) {
        let owner = self.attempt(number, place.setting);
        let request = Acquire {
            owner,
            ttl: self.key_ttl(self.ttl, place.setting),
            mode,
            deadline: self.reading.reached_at(deadline, place.setting),
        };
        self.part = Part::Asking { mode, sent: self.local(place.now), deadline, again };
        self.send(Line::Thread, Request::Acquire(request), place);
    }

    /// A pause is over: a received grant is examined, or Redis is asked.
    fn go_on(&mut self, place: &mut Place<'_>) {
        self.nudged = false;
        match self.heard.take() {
            Some(grant) => self.believe(grant, place),
            None => self.ask(place),
        }
    }

    fn believe(&mut self, grant: Grant, place: &mut Place<'_>) {
        let local = self.local(place.now);
        let sent = match self.reading.not_before(grant.now, local, place.setting) {
            Some(_) if place.setting.has(Mutation::GrantFromReceipt) => Some(local),
            sent => sent,
        };
        let window = self.lease_of_window(grant.window, place.setting);
        let whole = place.renewed || window >= self.ttl;
        match sent {
            Some(sent) if whole && sent + window - place.allowance() > local => {
                self.take(grant.token, window, sent, (grant.now, local), grant.epoch, place);
            }
            _ => self.ask(place),
        }
    }

    /// A message has come.
    pub(crate) fn hear(&mut self, wake: Wake, place: &mut Place<'_>) {
        match wake {
            Wake::Granted(grant) if self.is_trying() && self.number == grant.number => {
                self.heard = Some(grant);
            }
            Wake::Retry if self.is_trying() => self.nudged = true,
            _ => return,
        }
        if matches!(self.part, Part::Pausing { .. }) {
            self.go_on(place);
        }
    }

    /// The subscription stands again: all who wait ask.
    pub(crate) fn listen(&mut self, place: &mut Place<'_>) {
        self.listens = true;
        if self.is_trying() {
            self.hear(Wake::Retry, place);
        }
    }

    /// A reply has come.
    pub(crate) fn answered(&mut self, line: Line, reply: Reply, place: &mut Place<'_>) {
        match (line, self.part, reply) {
            (
                Line::Thread,
                Part::Asking { mode, sent, deadline, again },
                Reply::Acquired(answer),
            ) => {
                self.acquired(mode, sent, deadline, again, answer, place);
            }
            (Line::Thread, Part::Leaving { number, anew, .. }, Reply::Ownership(_)) => {
                self.is_out(number, place);
                self.after_leaving(anew, place);
            }
            (_, _, Reply::Ownership(ownership)) => self.on_ownership(line, ownership, place),
            (Line::Renewal, _, Reply::Yielded) => self.yielded(place),
            _ => {}
        }
    }

    fn acquired(
        &mut self,
        mode: Mode,
        sent: Time,
        deadline: Time,
        again: bool,
        answer: Answer,
        place: &mut Place<'_>,
    ) {
        let local = self.local(place.now);
        let (Answer::Granted { now, .. }
        | Answer::Busy { now, .. }
        | Answer::Late { now }
        | Answer::Gone { now }) = answer;
        self.reading = Reading { server: now, sent, received: local };
        match answer {
            Answer::Granted { token, left, now, epoch } => {
                let receipt = place.setting.has(Mutation::ValidityFromReceipt);
                let sent = if receipt { local } else { sent };
                let left = self.lease_of(left, place.setting);
                self.take(token, left, sent, (now, local), epoch, place);
            }
            Answer::Busy { left, .. } => {
                if let Some(open_attempt) = &mut self.open_attempt {
                    open_attempt.unknown = false;
                    open_attempt.outage = false;
                }
                let until = if mode == Mode::Try && self.listens && !place.spin {
                    local
                } else if place.setting.has(Mutation::NoHeartbeat) {
                    FAR
                } else {
                    local + place.setting.heartbeat.min(left).max(1)
                };
                self.pause(until, place);
            }
            Answer::Late { .. } if again && deadline > local => {
                let Some(open_attempt) = self.open_attempt else { return };
                self.resend(mode, open_attempt.number, deadline, false, place);
            }
            Answer::Late { .. } => self.pause(local + 1, place),
            Answer::Gone { .. } if place.setting.has(Mutation::GoneIgnored) => {
                self.pause(local + place.setting.heartbeat, place);
            }
            Answer::Gone { .. } => {
                let open_attempt = self.open_attempt.take();
                self.begin(place);
                self.clean_up(open_attempt, true, place);
            }
        }
    }

    fn pause(&mut self, until: Time, place: &mut Place<'_>) {
        self.part = Part::Pausing { until };
        if self.heard.is_some() || self.nudged || until <= self.local(place.now) {
            self.go_on(place);
        }
    }

    /// The exchange brought no reply: the connection broke, or its time is over.
    fn recover(&mut self, deadline: Time, broke: bool, place: &mut Place<'_>) {
        if !place.setting.has(Mutation::ReplyUnmatched) {
            place.network.abandon(self.id, Line::Thread);
        }
        let noted = !(broke && place.setting.has(Mutation::ResendUnnoted));
        if let Some(open_attempt) = &mut self.open_attempt {
            let beat = matches!(self.part, Part::Asking { mode: Mode::Beat, .. });
            if noted && !(beat && place.setting.has(Mutation::BeatUnnoted)) {
                open_attempt.settled = open_attempt.settled.max(deadline);
                open_attempt.unknown = true;
            }
            open_attempt.outage = true;
        }
        self.go_on(place);
    }

    /// The thread's connection breaks in an exchange.
    pub(crate) fn cut(&mut self, place: &mut Place<'_>) {
        match self.part {
            Part::Asking { deadline, .. } => self.recover(deadline, true, place),
            Part::Leaving { number, anew, .. } => self.leave_to_worker(number, anew, place),
            Part::Releasing { .. } => self.release_cut(place),
            _ => {}
        }
    }

    /// Whether the thread or the worker has something to do by now.
    pub(crate) fn is_due(&self, now: Time, setting: &Setting) -> bool {
        let local = self.local(now);
        let thread = match self.part {
            Part::Asking { deadline, .. }
            | Part::Leaving { deadline, .. }
            | Part::Releasing { deadline, .. } => deadline <= local,
            Part::Pausing { until } => until <= local,
            Part::Idle | Part::Holding { .. } => false,
        };
        thread
            || self.lease.as_ref().is_some_and(|lease| lease.due(self.tail, setting) <= local)
            || self.releases.iter().any(|release| release.due() <= local)
    }

    /// Performs the due actions.
    pub(crate) fn wake(&mut self, place: &mut Place<'_>) {
        let local = self.local(place.now);
        self.look_after_lease(place);
        self.do_duties(place);
        match self.part {
            Part::Asking { deadline, .. } if deadline <= local => {
                self.recover(deadline, false, place);
            }
            Part::Pausing { until } if until <= local => self.go_on(place),
            Part::Leaving { number, deadline, anew } if deadline <= local => {
                self.leave_to_worker(number, anew, place);
            }
            Part::Releasing { deadline, .. } if deadline <= local => self.release_failed(place),
            _ => {}
        }
    }
}

impl Place<'_> {
    pub(crate) fn allowance(&self) -> Time {
        if self.setting.has(Mutation::NoDriftAllowance) { 0 } else { self.setting.allowance }
    }
}
