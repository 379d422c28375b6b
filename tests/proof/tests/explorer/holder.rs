//! One process that has the lock, or must still take something out of Redis: its lease, release
//! and worker, as `src/engine/{lease,release,worker}.rs` have them.

use crate::client::{Client, FAR, Part, Place};
use crate::mutation::Mutation;
use crate::network::Line;
use crate::protocol::{Ownership, Request, Time, Token};
use crate::scenario::Setting;

/// A command that was sent then, and is given up then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) sent: Time,
    pub(crate) deadline: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) number: u8,
    pub(crate) token: Token,
    pub(crate) minted: bool,
    /// The server's time that was surely reached at a local moment.
    pub(crate) server: (Time, Time),
    pub(crate) valid_until: Time,
    pub(crate) renew_at: Time,
    pub(crate) settled: Time,
    pub(crate) failing: bool,
    /// From when on its renewals yield to nobody.
    pub(crate) insists_at: Time,
    pub(crate) renewal: Option<Call>,
    pub(crate) extension: Option<Call>,
    pub(crate) epoch: u8,
}

impl Lease {
    /// When the worker or its thread must look at it.
    pub(crate) fn due(&self, tail: Time, setting: &Setting) -> Time {
        let renewal = self.renewal.map_or(self.renew_at, |call| call.deadline);
        let extension = self.extension.map_or(FAR, |call| call.deadline);
        renewal.min(extension).min(self.lost_at(tail, setting))
    }

    /// When it is lost if no reply confirms it. In its tail a reply may, but not if a request of its attempt could have made
    /// it the owner once more after another's hold (rules 30, 50).
    fn lost_at(&self, tail: Time, setting: &Setting) -> Time {
        let settled = self.settled <= self.valid_until || setting.has(Mutation::UnsettledComesBack);
        if self.valid_until == FAR || tail == 0 || !settled {
            return self.valid_until;
        }
        // The validity is less than the lease by the allowance, and the tail is not.
        self.valid_until + setting.allowance + tail
    }
}

/// An attempt that must not stay in Redis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingRelease {
    pub(crate) number: u8,
    pub(crate) settled: Time,
    pub(crate) ttl: Time,
    pub(crate) last_token: Option<Token>,
    pub(crate) at: Time,
    pub(crate) call: Option<Call>,
}

impl PendingRelease {
    pub(crate) fn due(&self) -> Time {
        self.call.map_or(self.at, |call| call.deadline)
    }
}

impl Client {
    /// A grant arrives, in a reply or a message.
    pub(crate) fn take(
        &mut self,
        token: Token,
        left: Time,
        sent: Time,
        server: (Time, Time),
        epoch: u8,
        place: &mut Place<'_>,
    ) {
        let local = self.local(place.now);
        let valid_until = sent + left - place.allowance();
        if valid_until <= local {
            if let Some(open_attempt) = &mut self.open_attempt {
                open_attempt.unknown = true;
            }
            let open_attempt = self.open_attempt.take();
            self.part = Part::Idle;
            return self.clean_up(open_attempt, false, place);
        }
        let Some(open_attempt) = self.open_attempt.take() else { return };
        self.heard = None;
        self.part = Part::Holding { since: place.now };
        self.lease = Some(Lease {
            number: open_attempt.number,
            token,
            minted: true,
            server,
            valid_until,
            renew_at: renewal_after(sent, left.min(self.ttl), place),
            settled: open_attempt.settled,
            failing: false,
            insists_at: FAR,
            renewal: None,
            extension: None,
            epoch,
        });
    }

    /// The end of what this client believes to have, in its own time; nothing if it has nothing.
    pub(crate) fn believes_until(&self, now: Time) -> Option<Time> {
        let lease = self.lease.as_ref()?;
        let holds = matches!(self.part, Part::Holding { .. });
        (holds && self.local(now) < lease.valid_until).then_some(lease.valid_until)
    }

    /// The thread gives the lock back.
    pub(crate) fn release(&mut self, place: &mut Place<'_>) {
        place.network.abandon(self.id, Line::Renewal);
        let Some(lease) = &mut self.lease else { return self.finish() };
        // Validity is over before the request is sent (rule 15).
        (lease.valid_until, lease.renew_at, lease.renewal) = (FAR, FAR, None);
        self.send_release(false, place);
    }

    fn send_release(&mut self, repeated: bool, place: &mut Place<'_>) {
        let Some(lease) = &self.lease else { return self.finish() };
        let owner = self.attempt(lease.number, place.setting);
        let last_token = (!lease.minted).then_some(lease.token);
        let sent = self.local(place.now);
        let deadline = sent + place.setting.exchange;
        self.part = Part::Releasing { sent, deadline, repeated };
        let ttl = self.key_ttl(self.ttl, place.setting);
        let request = Request::Release { owner, ttl, last_token };
        self.send(Line::Thread, request, place);
    }

    pub(crate) fn release_cut(&mut self, place: &mut Place<'_>) {
        match self.part {
            Part::Releasing { repeated: false, .. } => {
                place.network.abandon(self.id, Line::Thread);
                self.send_release(true, place);
            }
            _ => self.release_failed(place),
        }
    }

    /// The release got no reply: the worker goes on with it.
    pub(crate) fn release_failed(&mut self, place: &mut Place<'_>) {
        place.network.abandon(self.id, Line::Thread);
        let local = self.local(place.now);
        if let Some(lease) = self.lease.take() {
            let last_token = (!lease.minted).then_some(lease.token);
            self.give_back(lease.number, lease.settled.max(local), last_token, place);
        }
        self.finish();
    }

    /// The reply to a release, a renewal, an extension or a request of the worker.
    pub(crate) fn on_ownership(&mut self, line: Line, ownership: Ownership, place: &mut Place<'_>) {
        match line {
            Line::Thread => self.released(ownership, place),
            Line::Renewal | Line::Extension => self.lengthened(line, ownership, place),
            Line::PendingRelease(number) => self.given_back(number, place),
            Line::Nobody => {}
        }
    }

    fn released(&mut self, ownership: Ownership, place: &mut Place<'_>) {
        let Part::Releasing { sent, repeated, .. } = self.part else { return };
        let Some(lease) = self.lease.take() else { return self.finish() };
        let setting = place.setting;
        let known =
            if setting.has(Mutation::ReleaseDatedByAnswer) { self.local(place.now) } else { sent };
        if lease.settled > known && !setting.has(Mutation::NoReconciliation) {
            let last_token = (!lease.minted).then_some(lease.token);
            let settled = lease.settled.max(self.local(place.now));
            self.give_back(lease.number, settled, last_token, place);
        } else if ownership == Ownership::Owned || repeated {
            self.is_out(lease.number, place);
        }
        // Else it was lost before.
        self.finish();
    }

    fn lengthened(&mut self, line: Line, ownership: Ownership, place: &mut Place<'_>) {
        let (local, tail) = (self.local(place.now), self.tail);
        let Some(lease) = &mut self.lease else { return };
        let renewal = line == Line::Renewal;
        let call = if renewal { lease.renewal.take() } else { lease.extension.take() };
        let Some(Call { sent, .. }) = call else { return };
        let came_back = place.setting.has(Mutation::ComesBackAfterLoss);
        if ownership == Ownership::Gone || ownership == Ownership::Taken && !came_back {
            return self.lose(place);
        }
        let ttl = if renewal { self.ttl } else { place.setting.extension };
        if lease.lost_at(tail, place.setting) <= local {
            // No reply revives it (rule 30).
            return self.lose(place);
        }
        let receipt = place.setting.has(Mutation::RenewedFromReceipt);
        let sent = if receipt { local } else { sent };
        lease.valid_until = lease.valid_until.max(sent + ttl - place.allowance());
        (lease.failing, lease.insists_at) = (false, FAR);
        if renewal {
            lease.renew_at = renewal_after(sent, ttl, place);
        }
    }

    /// Its renewal was left to those who wait. They have had the time to ask when they would be dead.
    pub(crate) fn yielded(&mut self, place: &Place<'_>) {
        let (local, dead_after) = (self.local(place.now), place.setting.dead_after());
        let Some(lease) = &mut self.lease else { return };
        (lease.renewal, lease.failing, lease.renew_at) = (None, true, local + 1);
        if lease.insists_at == FAR {
            lease.insists_at = local + dead_after;
        }
    }

    /// The lease has ended while it was held.
    fn lose(&mut self, place: &mut Place<'_>) {
        place.network.abandon(self.id, Line::Renewal);
        place.network.abandon(self.id, Line::Extension);
        if let Some(lease) = self.lease.take()
            && lease.settled > self.local(place.now)
        {
            // A request of its attempt may still run, and is undone after that (rule 6).
            let last_token = (!lease.minted).then_some(lease.token);
            let (number, settled) = (lease.number, lease.settled);
            let ttl = self.key_ttl(self.ttl, place.setting);
            self.releases.push(PendingRelease {
                number,
                settled,
                ttl,
                last_token,
                at: settled,
                call: None,
            });
        }
        self.finish();
    }

    /// Renews, and notices the end.
    pub(crate) fn look_after_lease(&mut self, place: &mut Place<'_>) {
        let local = self.local(place.now);
        let (id, tail, ttl) = (self.id, self.tail, self.key_ttl(self.ttl, place.setting));
        if !matches!(self.part, Part::Holding { .. }) {
            return;
        }
        let Some(lease) = &mut self.lease else { return };
        if lease.lost_at(tail, place.setting) <= local {
            return self.lose(place);
        }
        if lease.extension.is_some_and(|call| call.deadline <= local) {
            lease.extension = None;
            place.network.abandon(id, Line::Extension);
        }
        if let Some(call) = lease.renewal {
            if call.deadline > local {
                return;
            }
            lease.renewal = None;
            lease.failing = true;
            lease.renew_at = local;
            place.network.abandon(id, Line::Renewal);
        }
        if lease.renew_at <= local {
            let most = place.setting.exchange.min(((lease.valid_until - local) / 2).max(1));
            lease.renewal = Some(Call { sent: local, deadline: local + most });
            let tail =
                if lease.insists_at <= local || place.setting.in_cluster() { 0 } else { tail };
            let number = lease.number;
            let owner = self.attempt(number, place.setting);
            self.send(Line::Renewal, Request::Renew { owner, ttl, tail }, place);
        }
    }

    /// The holder makes its lease longer.
    pub(crate) fn extend(&mut self, place: &mut Place<'_>) {
        let local = self.local(place.now);
        let Some(lease) = &mut self.lease else { return };
        lease.extension = Some(Call { sent: local, deadline: local + place.setting.exchange });
        let number = lease.number;
        let owner = self.attempt(number, place.setting);
        let ttl = self.key_ttl(place.setting.extension, place.setting);
        self.send(Line::Extension, Request::Renew { owner, ttl, tail: 0 }, place);
    }

    /// The token of the next thread of this process, if the lease may be passed on to it.
    pub(crate) fn next_token(&self, now: Time, renewed: bool, setting: &Setting) -> Option<Token> {
        let local = self.local(now);
        let lease = self.lease.as_ref()?;
        let good = renewed
            && self.believes_until(now).is_some()
            && (lease.renewal, lease.extension) == (None, None)
            && !lease.failing
            && lease.settled <= local
            && lease.valid_until - local > self.ttl / 4;
        let (server, at) = lease.server;
        let passed = (local - at - setting.allowance).max(0);
        // The time that has passed, less a hundredth: strictly less than all of it.
        let sure = setting.micros(server + passed) - Token::from(passed > 0);
        let next = lease.token + 1;
        (good && (next <= sure || setting.has(Mutation::LargeBlock))).then_some(next)
    }

    /// The next thread of this process has the lease.
    pub(crate) fn pass_on(&mut self, token: Token, place: &Place<'_>) {
        if let Some(lease) = &mut self.lease {
            lease.token = token;
            lease.minted = false;
            self.part = Part::Holding { since: place.now };
        }
    }

    /// Leaves an attempt to the worker.
    pub(crate) fn give_back(
        &mut self,
        number: u8,
        settled: Time,
        last_token: Option<Token>,
        place: &mut Place<'_>,
    ) {
        let at = self.local(place.now);
        let ttl = self.key_ttl(self.ttl, place.setting);
        self.releases.push(PendingRelease { number, settled, ttl, last_token, at, call: None });
        self.do_duties(place);
    }

    pub(crate) fn do_duties(&mut self, place: &mut Place<'_>) {
        let local = self.local(place.now);
        let dead_after = place.setting.dead_after();
        let mut due = Vec::new();
        for release in &mut self.releases {
            if release.call.is_some_and(|call| call.deadline <= local) {
                release.call = None;
                release.at = local;
                place.network.abandon(self.id, Line::PendingRelease(release.number));
            }
        }
        // It has expired by itself.
        self.releases.retain(|release| {
            release.call.is_some() || local < release.settled + release.ttl.max(dead_after)
        });
        for release in &mut self.releases {
            if release.call.is_none() && release.at <= local {
                release.call = Some(Call { sent: local, deadline: local + place.setting.exchange });
                due.push((release.number, release.ttl, release.last_token));
            }
        }
        for (number, ttl, last_token) in due {
            let owner = self.attempt(number, place.setting);
            let request = Request::Release { owner, ttl, last_token };
            self.send(Line::PendingRelease(number), request, place);
        }
    }

    fn given_back(&mut self, number: u8, place: &mut Place<'_>) {
        let Some(at) = self.releases.iter().position(|release| release.number == number) else {
            return;
        };
        let Some(call) = self.releases[at].call.take() else { return };
        let settled = self.releases[at].settled;
        if place.setting.has(Mutation::CleanUpForEver) {
            (self.releases[at].settled, self.releases[at].at) = (call.deadline, call.deadline);
        } else if call.sent >= settled || place.setting.has(Mutation::LeaveOnce) {
            self.releases.remove(at);
            self.is_out(number, place);
        } else {
            self.releases[at].at = settled;
        }
    }
}

fn renewal_after(sent: Time, ttl: Time, place: &Place<'_>) -> Time {
    if place.renewed { sent + (ttl / 3).max(1) } else { FAR }
}
