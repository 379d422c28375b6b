//! The scripts of the mutex as pure steps over a state that can be compared and hashed.
//!
//! This mirrors `src/kind/token.lua` and `src/kind/mutex/*.lua` line by line, at whole ticks of
//! time; `differential.rs` runs both side by side. Left out: owners of other libraries, keys of other
//! types, full memory, how many wait ahead (a hint for polling), and the message that somebody waits
//! (a hint for lingering).
//!
//! | script | here |
//! | --- | --- |
//! | mutex_acquire, mutex_wait | [`Server::acquire`] |
//! | mutex_release, mutex_pass | [`Server::release`] |
//! | mutex_renew | [`Server::renew`] |
//! | queue.lua: hand_over | [`Server::hand_over`] |
//! | token.lua: mint, keep_token | [`Server::mint`], [`Server::keep_token`] |

use crate::mutation::Mutation;
use crate::protocol::{Acquire, Answer, Attempt, Grant, Mode, Time, Token, Verdict, Wake};
use crate::scenario::Setting;
use crate::sorted::Sorted;

/// How long a queue lives that was left with the dead alone: a minute in queue.lua.
pub(crate) const QUEUE_REST: Time = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub(crate) owner: Attempt,
    pub(crate) until: Time,
    /// What it was granted with. No script knows this; the invariants do.
    pub(crate) token: Token,
}

/// What a script did besides answering.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    pub(crate) published: Vec<(u8, Wake)>,
    /// Who became the owner and stayed it, and with which token.
    pub(crate) granted: Option<(Attempt, Token)>,
}

/// One Redis, as far as one lock is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub(crate) lock: Option<Lock>,
    pub(crate) fence: Option<(Token, Time)>,
    pub(crate) queue: Sorted,
    pub(crate) beats: Sorted,
    /// Whose channel is subscribed to, a bit for each client.
    pub(crate) heard: u8,
    /// Whose listener is at a replica: it hears, and is not counted here.
    pub(crate) at_replica: u8,
    /// How often it was emptied. The invariants know this; no script does.
    pub(crate) epoch: u8,
}

impl Server {
    /// Drops what has expired.
    pub(crate) fn purge(&mut self, now: Time) {
        self.lock = self.lock.filter(|lock| lock.until > now);
        self.fence = self.fence.filter(|(_, until)| *until > now);
        self.queue.purge(now);
        self.beats.purge(now);
    }

    /// FLUSHALL.
    pub(crate) fn flush(&mut self) {
        let Server { heard, at_replica, epoch, .. } = *self;
        *self = Server { heard, at_replica, epoch: epoch + 1, ..Server::default() };
    }

    pub(crate) fn acquire(
        &mut self,
        now: Time,
        request: &Acquire,
        setting: &Setting,
    ) -> (Answer, Effect) {
        self.purge(now);
        let mut effect = Effect::default();
        let me = request.owner;
        let late = setting.micros(now) > request.deadline && request.deadline != 0;
        if late && !setting.has(Mutation::NoDeadline) {
            return (Answer::Late { now }, effect);
        }
        let mut mode = request.mode;
        if setting.has(Mutation::BeatJoins) && mode == Mode::Beat && !self.queue.contains(me) {
            mode = Mode::Join;
        }
        let mut owner = self.lock.map(|lock| lock.owner);
        if mode != Mode::Beat && owner.is_none() {
            let barges = setting.has(Mutation::NewcomerBarges);
            if self.queue.members.is_empty() || barges {
                let token = self.mint(now, request.ttl, setting);
                return (self.own(me, request.ttl, token, now, &mut effect), effect);
            }
            owner = self.hand_over(now, Some(me), request.ttl, setting, &mut effect);
            if owner.is_none_or(|owner| owner == me) {
                let token = self.mint(now, request.ttl, setting);
                return (self.own(me, request.ttl, token, now, &mut effect), effect);
            }
        }
        if let Some(lock) = &mut self.lock
            && lock.owner == me
            && owner == Some(me)
        {
            let mut left = lock.until - now;
            if setting.has(Mutation::FullTtlOnRepeat) {
                left = request.ttl;
            } else if left < request.ttl {
                lock.until = now + request.ttl;
                left = request.ttl;
            }
            self.keep_fence(now, request.ttl, setting);
            let token = match self.fence {
                Some((token, _)) if !setting.has(Mutation::RepeatMints) => token,
                _ => self.mint(now, request.ttl, setting),
            };
            return (Answer::Granted { token, left, now, epoch: self.epoch }, effect);
        }
        if mode != Mode::Try
            && let Some(answer) = self.wait(now, request, mode, owner, setting, &mut effect)
        {
            return (answer, effect);
        }
        let left = self.lock.map_or(0, |lock| lock.until - now);
        (Answer::Busy { left, now }, effect)
    }

    /// The last place in the queue, also of those who were taken for dead.
    fn last_place(&self, setting: &Setting) -> Time {
        let (Some((_, first)), Some((_, last))) =
            (self.queue.members.first(), self.queue.members.last())
        else {
            return 0;
        };
        if setting.has(Mutation::NewcomerOvertakesSkipped) && *last > 0 {
            return *last;
        }
        (*last).max(-first)
    }

    /// Queues up, or stays in the queue.
    fn wait(
        &mut self,
        now: Time,
        request: &Acquire,
        mode: Mode,
        owner: Option<Attempt>,
        setting: &Setting,
        effect: &mut Effect,
    ) -> Option<Answer> {
        let me = request.owner;
        let death = now + setting.dead_after();
        let mut place = self.queue.score(me);
        let news = mode == Mode::Join && place.is_none();
        if news {
            let last = self.last_place(setting) + 1;
            place = Some(last);
            self.queue.add(me, last);
            self.beats.add(me, death);
        }
        let Some(mut place) = place else { return Some(Answer::Gone { now }) };
        if !news {
            if place < 0 && !setting.has(Mutation::SkippedNotHeard) {
                place = -place;
                self.queue.add(me, place);
            }
            if owner.is_none() {
                let next = self.hand_over(now, Some(me), request.ttl, setting, effect);
                if next.is_none_or(|next| next == me) {
                    self.queue.remove(me);
                    self.beats.remove(me);
                    let token = self.mint(now, request.ttl, setting);
                    return Some(self.own(me, request.ttl, token, now, effect));
                }
            }
            self.beats.add(me, death);
        }
        if (place % 8 == 1 || !news) && !setting.has(Mutation::QueueWithoutEnd) {
            self.queue.expire_at(now + setting.queue_keep(request.ttl));
            self.beats.expire_at(now + setting.queue_keep(request.ttl));
            let until = now - setting.queue_keep(request.ttl);
            let mut gone: Vec<Attempt> = Vec::new();
            if place > 1 || !news {
                let dead = self.beats.members.iter().filter(|(_, death)| *death <= until);
                gone.extend(dead.map(|(attempt, _)| *attempt));
            }
            for attempt in gone {
                self.queue.remove(attempt);
                self.beats.remove(attempt);
            }
        }
        None
    }

    pub(crate) fn release(
        &mut self,
        now: Time,
        me: Attempt,
        ttl: Time,
        last_token: Option<Token>,
        setting: &Setting,
    ) -> (Verdict, Effect) {
        self.purge(now);
        let mut effect = Effect::default();
        let owner = self.lock.map(|lock| lock.owner);
        if owner != Some(me) {
            if setting.has(Mutation::UncheckedRelease) {
                self.lock = None;
                return (Verdict::Done, effect);
            }
            self.queue.remove(me);
            self.beats.remove(me);
            return (if owner.is_some() { Verdict::Taken } else { Verdict::Gone }, effect);
        }
        let waiting = !self.queue.members.is_empty();
        let mut given = None;
        if waiting {
            if let Some(used) = last_token {
                self.queue.remove(me);
                self.keep_token(now, used, ttl, setting);
            }
            given = self.hand_over(now, None, ttl, setting, &mut effect);
        }
        if given.is_none() {
            self.lock = None;
            if let Some(used) = last_token {
                self.keep_token(now, used, ttl, setting);
            }
        }
        (Verdict::Done, effect)
    }

    pub(crate) fn renew(
        &mut self,
        now: Time,
        me: Attempt,
        ttl: Time,
        setting: &Setting,
    ) -> (Verdict, Effect) {
        self.purge(now);
        let effect = Effect::default();
        let verdict = match &mut self.lock {
            Some(lock) if lock.owner == me => {
                let until = now + ttl;
                let shortens = setting.has(Mutation::RenewalShortens);
                lock.until = if shortens { until } else { lock.until.max(until) };
                self.keep_fence(now, ttl, setting);
                Verdict::Done
            }
            Some(_) => Verdict::Taken,
            None if setting.has(Mutation::RenewalRevives) => {
                let token = self.fence.map_or(0, |(token, _)| token);
                self.lock = Some(Lock { owner: me, until: now + ttl, token });
                Verdict::Done
            }
            None => Verdict::Gone,
        };
        (verdict, effect)
    }

    /// Makes the attempt the owner, and answers so.
    fn own(
        &mut self,
        me: Attempt,
        ttl: Time,
        token: Token,
        now: Time,
        effect: &mut Effect,
    ) -> Answer {
        self.lock = Some(Lock { owner: me, until: now + ttl, token });
        effect.granted = Some((me, token));
        Answer::Granted { token, left: ttl, now, epoch: self.epoch }
    }

    /// Makes the first live waiter the owner and tells it; see queue.lua.
    fn hand_over(
        &mut self,
        now: Time,
        me: Option<Attempt>,
        givers_ttl: Time,
        setting: &Setting,
        effect: &mut Effect,
    ) -> Option<Attempt> {
        loop {
            let head = self.queue.members.iter().find(|(_, place)| *place > 0);
            let (attempt, place) = *head?;
            let death = self.beats.score(attempt);
            let lives = death.is_some_and(|death| death > now) || setting.has(Mutation::DeadServed);
            self.queue.remove(attempt);
            if Some(attempt) == me {
                self.beats.remove(attempt);
                return me;
            }
            if lives && self.may_be_heard(attempt.client, setting) {
                self.beats.remove(attempt);
                self.grant(attempt, now, givers_ttl, setting, effect);
                let is_withdrawn =
                    setting.has(Mutation::GrantWithdrawn) && !self.counts(attempt.client);
                if !is_withdrawn {
                    return Some(attempt);
                }
                effect.granted = None;
                self.beats.add(attempt, death.unwrap_or(now));
            } else {
                self.publish(attempt.client, Wake::Retry, effect);
            }
            if setting.has(Mutation::DeadThrownOut) {
                self.beats.remove(attempt);
                continue;
            }
            self.queue.add(attempt, -place);
            if self.queue.until.is_none() {
                self.queue.expire_at(now + QUEUE_REST);
                self.beats.expire_at(now + QUEUE_REST);
            }
        }
    }

    /// Writes a waiter as the owner, and tells it so.
    fn grant(
        &mut self,
        attempt: Attempt,
        now: Time,
        givers_ttl: Time,
        setting: &Setting,
        effect: &mut Effect,
    ) {
        let window = attempt.window;
        let written = if setting.has(Mutation::ReleasersTtl) { givers_ttl } else { window };
        let givers_fence = setting.has(Mutation::GiversFence);
        let longest = if givers_fence { givers_ttl } else { givers_ttl.max(window) };
        let token = self.mint(now, longest, setting);
        self.lock = Some(Lock { owner: attempt, until: now + written, token });
        let grant = Grant { number: attempt.number, token, now, window, epoch: self.epoch };
        self.publish(attempt.client, Wake::Granted(grant), effect);
        effect.granted = Some((attempt, token));
    }

    fn publish(&self, client: u8, wake: Wake, effect: &mut Effect) {
        if self.reaches(client) {
            effect.published.push((client, wake));
        }
    }

    /// Whether a message to a client may be heard, as far as the script can tell (rule 12).
    fn may_be_heard(&self, client: u8, setting: &Setting) -> bool {
        let looks = setting.numsub && !setting.has(Mutation::GrantWithdrawn);
        !looks || self.counts(client)
    }

    /// Whether a client's listener is at this server, and so is counted.
    pub(crate) fn counts(&self, client: u8) -> bool {
        self.heard & !self.at_replica & (1 << client) != 0
    }

    /// Whether a message reaches a client's listener, be it here or at a replica.
    pub(crate) fn reaches(&self, client: u8) -> bool {
        self.heard & (1 << client) != 0
    }

    /// A token above all earlier ones, and not below the server's time.
    fn mint(&mut self, now: Time, ttl: Time, setting: &Setting) -> Token {
        let micros = setting.micros(now);
        let mut token = micros;
        let mut keep = setting.fence(ttl);
        if let Some((last, _)) = self.fence
            && last >= micros
        {
            token = last + 1;
            if !setting.has(Mutation::ShortCounterTtl) {
                keep += setting.ticks(last - micros);
            }
        }
        self.fence = Some((token, now + keep));
        token
    }

    /// `PEXPIRE … GT`: the fence lasts at least as long as one beside this time to live.
    fn keep_fence(&mut self, now: Time, ttl: Time, setting: &Setting) {
        let keep = now + setting.fence(ttl);
        self.fence = self.fence.map(|(token, until)| (token, until.max(keep)));
    }

    /// Notes the last token used, where that is beyond the one that was minted.
    fn keep_token(&mut self, now: Time, used: Token, ttl: Time, setting: &Setting) {
        if self.fence.is_none_or(|(last, _)| last < used) {
            self.fence = Some((used, now + setting.fence(ttl)));
        }
    }
}
