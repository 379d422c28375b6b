//! The worker's thread: what it does in a turn, and for how long it sleeps.

use std::fmt;
use std::time::Duration;

use crate::base::panic::survive;
use crate::base::sync::channel::{Receiver, RecvTimeoutError};
use crate::base::sync::{self, Arc};
use crate::base::thread::{Role, Threads};
use crate::base::time::{Clock, Moment};
use crate::engine::callback::{Callbacks, News};
use crate::engine::heartbeat::DEAD_AFTER;
use crate::engine::lease::LiveLease;
use crate::engine::ownership::taken;
use crate::engine::worker::agenda::Agenda;
use crate::engine::worker::duty::{Duty, Entry, Tended};
use crate::engine::worker::job::{Job, LONGEST_RETRY, SHORTEST_RETRY};
use crate::engine::worker::report::Report;
use crate::protocol::Protocol;
use crate::protocol::lease_request::LeaseRequest;
use crate::protocol::reply::OwnershipReply;
use crate::wire::failure::Failure;

/// A renewal waits for its answer for this share of the validity that is left, and can then be tried
/// again: of 300 ms that leaves three tries, even where none is answered.
const TRIES_AHEAD: u32 = 2;
/// What may take up to this many times as long travels together.
const ALIKE: u32 = 4;

/// What is named where one piece of work panics.
const PART: &str = "the renewal worker, which goes on with other locks,";

/// The worker's thread.
pub(super) struct Runner {
    pub(super) protocol: Arc<dyn Protocol>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) exchange: Duration,
    pub(super) callbacks: Callbacks,
    pub(super) threads: Threads,
    pub(super) rung: Receiver<()>,
    pub(super) agenda: Arc<Agenda>,
    /// What is being done, put back on the agenda if that panics.
    pub(super) hand: Vec<Duty>,
    /// What is yet to be written to the log. A turn that panics leaves it to the next.
    pub(super) report: Report,
}

impl Runner {
    pub(super) fn run(&mut self) {
        self.agenda.wake();
        loop {
            match survive("the renewal worker, which goes on,", || self.turn()) {
                Some(true) => {}
                Some(false) => return,
                None => _ = survive("the renewal worker, which goes on,", || self.put_back()),
            }
        }
    }

    /// Puts what was being done back on the agenda.
    pub(super) fn put_back(&mut self) {
        let due = self.clock.now().after(SHORTEST_RETRY);
        let duties = std::mem::take(&mut self.hand);
        self.put(duties.into_iter().map(|duty| Entry { due, duty }));
    }

    /// Puts on the agenda what is to be done later.
    fn put(&self, entries: impl IntoIterator<Item = Entry>) {
        // The worker itself is awake.
        for Entry { due, duty } in entries {
            match duty {
                Duty::Look(slot) => {
                    if let Some(slot) = slot.upgrade() {
                        slot.look_again(due);
                    }
                }
                Duty::GiveBack(duty) => _ = self.agenda.give_back(due, duty),
                Duty::Announce(news) => _ = self.agenda.announce(due, news),
            }
        }
    }

    /// Does what is due and sleeps until more is. Answers whether to go on.
    pub(super) fn turn(&mut self) -> bool {
        let now = self.clock.now();
        self.agenda.take(now, &mut self.hand);
        self.carry_out(now);
        self.hand.clear();
        std::mem::take(&mut self.report).log(self.clock.now());
        self.sleep()
    }

    fn sleep(&mut self) -> bool {
        let next = self.agenda.sleep();
        let heard = if next == Moment::FAR {
            self.rung.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            let mut heard = Ok(());
            self.clock.doze(next, &mut |left| heard = self.rung.recv_timeout(left));
            heard
        };
        self.agenda.wake();
        if heard != Err(RecvTimeoutError::Disconnected) {
            return true;
        }
        // The client is gone. Slots keep it alive, so only what was left to us remains.
        match self.agenda.close() {
            Moment::FAR => false,
            next => {
                self.clock.doze(next, &mut sync::sleep);
                true
            }
        }
    }

    fn carry_out(&mut self, now: Moment) {
        let (mut jobs, mut news, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for duty in &self.hand {
            match duty {
                Duty::Look(slot) => {
                    let Some(slot) = slot.upgrade() else { continue };
                    // One that panics keeps no other lease from being renewed.
                    let looked = survive(PART, || {
                        for lease in Arc::clone(&slot).held(now) {
                            jobs.extend(look(&slot, &lease, now, &mut self.report));
                        }
                    });
                    if looked.is_none() {
                        let duty = Duty::Look(Arc::downgrade(&slot));
                        again.push(Entry { due: now.after(LONGEST_RETRY), duty });
                    }
                }
                // A place in the queue may outlive a short lease.
                Duty::GiveBack(duty) if now < duty.settled.after(duty.ttl.max(DEAD_AFTER)) => {
                    jobs.push(Job::GiveBack(Arc::clone(duty)));
                }
                // It has expired by itself.
                Duty::GiveBack(duty) => self.agenda.is_given_back(duty),
                Duty::Announce(told) => news.push(told.clone()),
            }
        }
        // Told once, whatever happens next.
        self.hand.retain(|duty| !matches!(duty, Duty::Announce(_)));
        self.put(again);
        self.put(self.call_back(news, now));
        if !jobs.is_empty() {
            let told = self.ask(&jobs, now);
            let now = self.clock.now();
            for (job, told) in jobs.into_iter().zip(told) {
                let (gives_back, duty) = (job.gives_back(), job.duty());
                let report = &mut self.report;
                let next = survive(PART, || job.settle(told, now, &*self.protocol, report))
                    .unwrap_or_else(|| Some(Entry { due: now.after(LONGEST_RETRY), duty }));
                if let Some(duty) = gives_back
                    && next.is_none()
                {
                    self.agenda.is_given_back(&duty);
                }
                self.put(next);
            }
        }
    }

    /// Runs all errands, the most urgent first. Those that may take about as long travel together as one
    /// pipeline, so that a lease with little time left does not cut the time of all others.
    ///
    /// No pipeline goes on beyond the end of a lease that was asked for in vain before: when Redis is
    /// silent, that end must not be noticed late.
    fn ask(&self, jobs: &[Job], now: Moment) -> Vec<Result<OwnershipReply, Failure>> {
        let mut now = now;
        let ends: Vec<Moment> = jobs.iter().map(|job| job.end(now)).collect();
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|&number| ends[number]);
        let mut told: Vec<Option<Result<OwnershipReply, Failure>>> =
            jobs.iter().map(|_| None).collect();
        let mut missed = Moment::FAR;
        let mut rest = order.as_slice();
        while let Some(&first) = rest.first() {
            let patience = |number: usize| self.patience(ends[number], now);
            let most = patience(first);
            let alike = rest.partition_point(|&number| patience(number) <= most * ALIKE);
            let (group, others) = rest.split_at(alike);
            let requests: Vec<LeaseRequest<'_>> =
                group.iter().map(|&number| jobs[number].request()).collect();
            let deadline = now.after(most).min(missed.max(now.after(SHORTEST_RETRY)));
            for (&number, outcome) in group.iter().zip(self.protocol.run(&requests, deadline)) {
                if outcome.is_err() {
                    missed = missed.min(ends[number]);
                }
                // A refusal does not tell when it was asked for, but that was not before now.
                let refused =
                    |failure| Ok(OwnershipReply { ownership: taken(failure)?, sent: now });
                told[number] = Some(outcome.or_else(refused));
            }
            rest = others;
            if !rest.is_empty() {
                now = self.clock.now();
            }
        }
        told.into_iter().map(|told| told.unwrap_or_else(|| Err(Failure::silent()))).collect()
    }

    /// How long the renewal of a lease that ends then waits for its answer.
    fn patience(&self, end: Moment, now: Moment) -> Duration {
        (end.since(now) / TRIES_AHEAD).max(SHORTEST_RETRY).min(self.exchange)
    }

    /// Tells the user. Answers what could not be told yet.
    fn call_back(&self, mut news: Vec<News>, now: Moment) -> Vec<Entry> {
        news.retain(|news| self.callbacks.want(news));
        if news.is_empty() {
            return Vec::new();
        }
        let news: Arc<[News]> = news.into();
        let thread = self.threads.name(Role::Caller);
        let Err(error) = self.callbacks.call(&thread, Arc::clone(&news)) else {
            return Vec::new();
        };
        log!(error, "no thread for a callback could be started: {error}");
        let due = now.after(LONGEST_RETRY);
        news.iter().map(|news| Entry { due, duty: Duty::Announce(news.clone()) }).collect()
    }
}

/// Looks at a lease that a thread has. Returns what is to go to Redis for it.
fn look(
    slot: &Arc<dyn Tended>,
    lease: &Arc<LiveLease>,
    now: Moment,
    report: &mut Report,
) -> Option<Job> {
    if let Some(loss) = lease.expire(now) {
        Arc::clone(slot).lost(lease, loss.clone());
        report.lost(loss);
        return None;
    }
    let renews = lease.renew_at() <= now;
    let asks = renews || lease.hold_count.is_unshown() || lease.is_doubted();
    // Taken before its phase is looked at, so that a release that comes in between does not pass on a
    // lease that is about to be renewed.
    let command = asks.then(|| lease.command());
    if !lease.is_live() {
        return None;
    }
    if renews {
        // What comes of it says when to look again.
        return command.map(|command| Job::Renew(Arc::clone(slot), command));
    }
    Arc::clone(slot).look_again(lease.next_look());
    command.map(|command| Job::Show(Arc::clone(slot), command))
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("hand", &self.hand.len()).finish_non_exhaustive()
    }
}
