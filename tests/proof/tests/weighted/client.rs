//! One process: an attempt at a time, its hold, and the changes of its weight.
//!
//! | part | the client | goes to |
//! | --- | --- | --- |
//! | idle | does not want it, or no longer | waiting |
//! | waiting | asks, or stands in the line | holding, leaving, idle |
//! | holding | has it; a phase says which change is under way | releasing |
//! | releasing | waits for the answer to its release | leaving, idle |
//! | leaving | takes an attempt out that a late request may bring back (rule 6) | idle |

use crate::invariant::{Invariant, Violation, broken};
use crate::request::{Become, Weight};
use crate::scenario::{Plan, Scenario, Time};
use crate::wire::{Answer, Ask, Grant, Id, Push, Since};

/// Long ago.
const LONG_AGO: Time = -100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) until: Time,
    pub(crate) token: u64,
    pub(crate) weight: u64,
    pub(crate) slots: u32,
    pub(crate) since: Since,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Idle,
    Waiting {
        /// When the latest answered request was sent, and the server's time then (rule 10).
        dated: Option<(Time, Time)>,
        answered: bool,
    },
    Holding(Hold),
    Releasing,
    Leaving,
    Crashed,
}

/// What becomes of the weight of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Rests,
    Sinks,
    Rises { answered: bool },
    Falls,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) id: u8,
    pub(crate) part: Part,
    pub(crate) number: u8,
    pub(crate) rounds: u8,
    /// When the last request was sent, and until when it may run.
    last: Time,
    by: Time,
    /// The same of the join, as long as it may run still.
    join: (Time, Time),
    /// The greatest token that was returned to anybody before the call.
    floor: u64,
    pub(crate) is_renewing: bool,
    pub(crate) phase: Phase,
    /// The number of the change, its deadline, and how many are done.
    change: u8,
    change_by: Time,
    pub(crate) done: u8,
}

/// Where a client finds itself.
pub(crate) struct Place<'a> {
    pub(crate) now: Time,
    pub(crate) scenario: &'a Scenario,
    pub(crate) sent: &'a mut Vec<Ask>,
    /// The greatest token that was returned.
    pub(crate) highest: &'a mut u64,
}

impl Client {
    pub(crate) fn new(id: u8, rounds: u8) -> Client {
        Client {
            id,
            part: Part::Idle,
            number: 0,
            rounds,
            last: 0,
            by: 0,
            join: (LONG_AGO, LONG_AGO),
            floor: 0,
            is_renewing: false,
            phase: Phase::Rests,
            change: 0,
            change_by: 0,
            done: 0,
        }
    }

    pub(crate) fn id(&self) -> Id {
        Id { client: self.id, number: self.number }
    }

    pub(crate) fn hold(&self) -> Option<Hold> {
        match self.part {
            Part::Holding(hold) => Some(hold),
            _ => None,
        }
    }

    fn plan(&self, scenario: &Scenario) -> &'static Plan {
        &scenario.clients[usize::from(self.id)]
    }

    /// Whether a join may still run that was sent by this attempt.
    fn is_open(&self, now: Time) -> bool {
        self.join.1 >= now
    }

    /// Begins an attempt.
    pub(crate) fn ask(&mut self, place: &mut Place<'_>) {
        if self.part == Part::Idle {
            self.floor = *place.highest;
        }
        self.number += 1;
        self.part = Part::Waiting { dated: None, answered: false };
        self.send_join(place);
    }

    fn send_join(&mut self, place: &mut Place<'_>) {
        let (id, sent, by) = (self.id(), place.now, place.now + place.scenario.exchange);
        (self.last, self.by, self.join) = (sent, by, (sent, by));
        place.sent.push(match self.plan(place.scenario).tries {
            true => Ask::Try { id, sent, by },
            false => Ask::Join { id, sent, by },
        });
    }

    pub(crate) fn leave(&mut self, place: &mut Place<'_>) {
        self.part = Part::Leaving;
        self.last = place.now;
        place.sent.push(Ask::Leave { id: self.id() });
    }

    pub(crate) fn give_up(&mut self, place: &mut Place<'_>) {
        self.rounds -= 1;
        self.leave(place);
    }

    pub(crate) fn release(&mut self, place: &mut Place<'_>) {
        self.part = Part::Releasing;
        self.last = place.now;
        place.sent.push(Ask::Release { id: self.id() });
    }

    pub(crate) fn renew(&mut self, place: &mut Place<'_>) {
        self.is_renewing = true;
        place.sent.push(Ask::Renew { id: self.id(), sent: place.now });
    }

    pub(crate) fn next_change(&self, scenario: &Scenario) -> Option<Become> {
        let rests = self.phase == Phase::Rests;
        self.plan(scenario).changes.get(usize::from(self.done)).copied().filter(|_| rests)
    }

    fn send_change(&mut self, to: Become, place: &mut Place<'_>) {
        (self.last, self.change_by) = (place.now, place.now + place.scenario.exchange);
        place.sent.push(Ask::Change { id: self.id(), number: self.change, to });
    }

    /// Makes the next change of weight.
    pub(crate) fn begin_change(&mut self, place: &mut Place<'_>) {
        let Some(to) = self.next_change(place.scenario) else { return };
        self.change += 1;
        self.floor = *place.highest;
        if to == Become::Writer {
            self.phase = Phase::Rises { answered: false };
        } else {
            self.phase = Phase::Sinks;
            // Before it is sent (rule 36).
            if let Part::Holding(hold) = &mut self.part {
                hold.weight = weight(to);
            }
        }
        self.send_change(to, place);
    }

    /// Gives an upgrade up.
    pub(crate) fn fall_back(&mut self, place: &mut Place<'_>) {
        self.change += 1;
        self.phase = Phase::Falls;
        self.send_change(Become::Upgradable, place);
    }

    /// What is due when nothing has come.
    fn due(&self, now: Time, scenario: &Scenario) -> Option<Due> {
        let waits_for = |by: Time| now > by;
        match (self.part, self.phase) {
            (Part::Waiting { answered: false, .. }, _) if now > self.last && waits_for(self.by) => {
                Some(Due::Join)
            }
            (Part::Waiting { answered: true, .. }, _)
                if now >= self.last + scenario.poll && !self.is_open(now) =>
            {
                Some(Due::Beat)
            }
            (Part::Holding(_), Phase::Sinks | Phase::Falls) if waits_for(self.change_by) => {
                Some(Due::Change)
            }
            (Part::Holding(_), Phase::Rises { answered }) if waits_for(self.change_by) => {
                let is_time = !answered || now >= self.last + scenario.poll;
                is_time.then_some(Due::Change)
            }
            (Part::Releasing, _) if now > self.last + scenario.exchange => Some(Due::Release),
            (Part::Leaving, _) if now > self.last => Some(Due::Leave),
            _ => None,
        }
    }

    pub(crate) fn is_due(&self, now: Time, scenario: &Scenario) -> bool {
        self.due(now, scenario).is_some()
    }

    /// Does what is due.
    pub(crate) fn wake(&mut self, place: &mut Place<'_>) {
        match self.due(place.now, place.scenario) {
            Some(Due::Join) => self.send_join(place),
            Some(Due::Beat) => {
                let (id, sent, by) = (self.id(), place.now, place.now + place.scenario.exchange);
                (self.last, self.by) = (sent, by);
                place.sent.push(Ask::Beat { id, sent, by });
            }
            Some(Due::Change) => {
                let to = match self.phase {
                    Phase::Rises { answered: true } => Become::StillWriter,
                    Phase::Rises { answered: false } => Become::Writer,
                    Phase::Falls => Become::Upgradable,
                    _ => self.plan(place.scenario).changes[usize::from(self.done)],
                };
                self.send_change(to, place);
            }
            Some(Due::Release) => self.release(place),
            Some(Due::Leave) => self.leave(place),
            None => {}
        }
    }

    fn take(&mut self, until: Time, grant: Grant, place: &mut Place<'_>) -> Result<(), Violation> {
        let Grant { token, slots, since } = grant;
        if token <= self.floor {
            let text = format!("client {} got {token} after {}", self.id, self.floor);
            return broken(Invariant::Token, text);
        }
        let weight = self.plan(place.scenario).weight;
        if let Weight::Permits(permits) = weight
            && (slots.count_ones() != u32::from(permits) || u64::from(slots) >= 1 << since.limit)
        {
            return broken(Invariant::Slot, format!("{slots:b} of client {}", self.id));
        }
        *place.highest = token.max(*place.highest);
        let weight = weight.number();
        self.part = Part::Holding(Hold { until, token, weight, slots, since });
        (self.phase, self.change, self.done, self.is_renewing) = (Phase::Rests, 0, 0, false);
        Ok(())
    }

    /// Its attempt is over without a grant.
    fn refused(&mut self, is_reply: bool, place: &mut Place<'_>) {
        self.rounds -= 1;
        if is_reply || self.is_open(place.now) {
            self.leave(place);
        } else {
            self.part = Part::Idle;
        }
    }

    /// A message has come. Returns whether it could be looked at.
    pub(crate) fn hear(&mut self, push: Push, place: &mut Place<'_>) -> Result<bool, Violation> {
        let now = place.now;
        match (push, self.part) {
            (Push::Granted { id, at, window, grant }, Part::Waiting { dated, .. })
                if id == self.id() =>
            {
                // A grant that comes before the reply to its join is kept (rule 10).
                let Some((sent, then)) = dated else { return Ok(false) };
                let until = sent + (at - then) + window;
                if until > now {
                    self.take(until, grant, place)?;
                } else {
                    self.last = now - place.scenario.poll;
                }
            }
            (Push::Upgraded { id, number, token, since }, Part::Holding(_)) if id == self.id() => {
                self.upgraded(number, token, since, place)?;
            }
            (Push::TooHeavy { id }, Part::Waiting { .. }) if id == self.id() => {
                self.check_refusal(place.scenario)?;
                self.refused(false, place);
            }
            _ => {}
        }
        Ok(true)
    }

    fn upgraded(
        &mut self,
        number: u8,
        token: u64,
        since: Since,
        place: &mut Place<'_>,
    ) -> Result<(), Violation> {
        let Part::Holding(hold) = &mut self.part else { return Ok(()) };
        let rises = matches!(self.phase, Phase::Rises { .. }) && number == self.change;
        if !rises || place.now >= hold.until {
            return Ok(());
        }
        if token <= self.floor || token <= hold.token {
            let text = format!("upgrade of client {} got {token} after {}", self.id, self.floor);
            return broken(Invariant::Token, text);
        }
        *place.highest = token.max(*place.highest);
        (hold.token, hold.since, hold.weight) = (token, since, Weight::Writer.number());
        (self.phase, self.done) = (Phase::Rests, self.done + 1);
        Ok(())
    }

    /// An error about the limit has a cause: another client's declared limit, or a resize.
    fn check_refusal(&self, scenario: &Scenario) -> Result<(), Violation> {
        let plan = self.plan(scenario);
        let is_alone = scenario.clients.iter().all(|other| other.limit == plan.limit);
        let fits = scenario.resizes.iter().all(|limit| plan.weight.number() <= *limit);
        if is_alone && fits {
            return broken(Invariant::Config, format!("client {} is refused", self.id));
        }
        Ok(())
    }

    /// A reply has come.
    pub(crate) fn answered(
        &mut self,
        answer: Answer,
        place: &mut Place<'_>,
    ) -> Result<(), Violation> {
        let now = place.now;
        if let Answer::Waits { id, sent, .. } | Answer::Granted { id, sent, .. } = answer
            && id == self.id()
            && sent == self.join.0
            && matches!(self.part, Part::Waiting { .. } | Part::Holding(_))
        {
            self.join.1 = LONG_AGO;
        }
        match (answer, self.part) {
            (Answer::Waits { id, sent, at }, Part::Waiting { dated, .. }) if id == self.id() => {
                let dated = dated.filter(|(newer, _)| *newer > sent).or(Some((sent, at)));
                self.part = Part::Waiting { dated, answered: true };
            }
            (Answer::Granted { id, sent, left, grant }, Part::Waiting { dated, .. })
                if id == self.id() =>
            {
                if sent + left > now {
                    return self.take(sent + left, grant, place);
                }
                self.last = now - place.scenario.poll;
                let dated = dated.or(Some((sent, now)));
                self.part = Part::Waiting { dated, answered: true };
            }
            (Answer::Gone { id }, Part::Waiting { .. }) if id == self.id() => {
                if self.is_open(now) {
                    self.leave(place);
                } else {
                    self.ask(place);
                }
            }
            (Answer::Busy { id, sent }, Part::Waiting { .. })
                if id == self.id() && sent == self.join.0 =>
            {
                self.rounds -= 1;
                self.part = Part::Idle;
            }
            (Answer::Refused { id, is_full }, Part::Waiting { .. }) if id == self.id() => {
                if !is_full {
                    self.check_refusal(place.scenario)?;
                }
                self.refused(true, place);
            }
            (Answer::Released { id, at }, Part::Releasing) if id == self.id() => {
                self.rounds -= 1;
                if at <= self.join.1 {
                    self.leave(place);
                } else {
                    self.part = Part::Idle;
                }
            }
            (Answer::Left { id, at }, Part::Leaving) if id == self.id() && at > self.join.1 => {
                self.part = Part::Idle;
            }
            (Answer::Renewed { id, sent, is_done }, Part::Holding(hold)) if id == self.id() => {
                self.is_renewing = false;
                let until = hold.until.max(sent + self.plan(place.scenario).ttl);
                // No reply revives what has ended (rule 30).
                if is_done && now < hold.until {
                    self.part = Part::Holding(Hold { until, ..hold });
                }
            }
            (Answer::Changed { id, number, token, since }, Part::Holding(_))
                if id == self.id() && number == self.change =>
            {
                match self.phase {
                    Phase::Sinks => (self.phase, self.done) = (Phase::Rests, self.done + 1),
                    Phase::Falls => (self.phase, self.done) = (Phase::Rests, u8::MAX),
                    Phase::Rises { .. } => self.upgraded(number, token, since, place)?,
                    Phase::Rests => {}
                }
            }
            (Answer::UpgradeWaits { id, number }, Part::Holding(_))
                if id == self.id() && number == self.change =>
            {
                if let Phase::Rises { .. } = self.phase {
                    self.phase = Phase::Rises { answered: true };
                }
            }
            (Answer::NotChanged { id, number, is_held }, Part::Holding(_))
                if id == self.id()
                    && number == self.change
                    && matches!(self.phase, Phase::Rises { .. }) =>
            {
                // It begins again, if it holds.
                self.phase = Phase::Rests;
                if !is_held {
                    self.done = u8::MAX;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether anything that comes now may make a difference to it.
    pub(crate) fn wants(&self, answer: &Answer) -> bool {
        let holds = matches!(self.part, Part::Holding(_));
        let waits = matches!(self.part, Part::Waiting { .. });
        match answer {
            Answer::Waits { id, sent, .. } | Answer::Granted { id, sent, .. } => {
                let settles = *sent == self.join.0 && self.join.1 > LONG_AGO && holds;
                *id == self.id() && (waits || settles)
            }
            Answer::Gone { id } | Answer::Refused { id, .. } | Answer::Busy { id, .. } => {
                *id == self.id() && waits
            }
            Answer::Released { id, .. } => *id == self.id() && self.part == Part::Releasing,
            Answer::Left { id, .. } => *id == self.id() && self.part == Part::Leaving,
            Answer::Renewed { id, .. } => *id == self.id() && holds,
            Answer::Changed { id, number, .. }
            | Answer::UpgradeWaits { id, number }
            | Answer::NotChanged { id, number, .. } => {
                let changes = self.phase != Phase::Rests && *number == self.change;
                *id == self.id() && holds && changes
            }
            Answer::Nothing => false,
        }
    }

    pub(crate) fn wants_push(&self, push: &Push) -> bool {
        match push {
            Push::Granted { id, .. } | Push::TooHeavy { id } => {
                *id == self.id() && matches!(self.part, Part::Waiting { .. })
            }
            Push::Upgraded { id, number, .. } => {
                let rises = matches!(self.phase, Phase::Rises { .. }) && *number == self.change;
                *id == self.id() && matches!(self.part, Part::Holding(_)) && rises
            }
        }
    }

    /// Forgets what makes no difference any more, so that more states are the same.
    pub(crate) fn forget(&mut self, now: Time) {
        self.last = self.last.max(now - 12);
        if self.hold().is_none() {
            (self.phase, self.change, self.change_by, self.done) = (Phase::Rests, 0, 0, 0);
        }
        if matches!(self.part, Part::Idle | Part::Crashed) {
            (self.last, self.by, self.join) = (0, 0, (LONG_AGO, LONG_AGO));
            (self.floor, self.is_renewing) = (0, false);
        }
    }
}

enum Due {
    Join,
    Beat,
    Change,
    Release,
    Leave,
}

fn weight(to: Become) -> u64 {
    match to {
        Become::Reader => Weight::Reader.number(),
        Become::Upgradable => Weight::Upgradable.number(),
        Become::Writer | Become::StillWriter => Weight::Writer.number(),
    }
}
