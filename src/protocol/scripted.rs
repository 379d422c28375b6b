//! The protocol where one server at a time has a lock: one script a request.
//!
//! It is the same over one server, behind sentinels, in a cluster and in memory: a [`Backend`] carries
//! the calls.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::id::Identity;
use crate::base::inspection::Inspection;
use crate::base::name::Name;
use crate::base::option::{Durability, ReleaseKind};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::answer::{Acquired, Answer, Released, Told, Verdict};
use crate::protocol::answer::{Forced, acquired, flag, forced, released, renewed, unexpected};
use crate::protocol::backend::{Backend, Server, Trips};
use crate::protocol::errand::Errand;
use crate::protocol::holder::ReportedHolder;
use crate::protocol::inspection::{Report, View};
use crate::protocol::recipe::Kind;
use crate::protocol::request::{Attempt, Return};
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::protocol::wake::{GrantMessage, Publishers};
use crate::protocol::{Protocol, replica, transaction};
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;
use crate::wire::{Pipeline, Value};

/// Locks on behalf of one client.
#[derive(Debug)]
pub(crate) struct Scripted<B>(B);

impl<B: Backend> Scripted<B> {
    pub(crate) fn new(backend: B) -> Scripted<B> {
        Scripted(backend)
    }

    fn report(&self, target: &Target, view: View, deadline: Moment) -> Result<Report, Failure> {
        let call = target.inspect(view);
        self.0.at(target, Trips::One, deadline, |server| {
            // It only reads, so that it may be repeated here (rule 31).
            let reply = Failure::repeating(|| server.call(&call, deadline))?;
            read(server, target.report(view, reply.value))
        })
    }
}

/// Sends a request that has a deadline of its own on the server: the moment until which its reply is
/// waited for, so that it does nothing once nobody waits for it. One that `has_come_late` before is given
/// its deadline when there is a connection for it.
fn call_in_time(
    server: &impl Server,
    has_come_late: bool,
    deadline: Moment,
    request: impl Fn(u64) -> Call,
) -> Result<Reply, Failure> {
    // Read each time: the server may have moved since the last request, and its time with it.
    let request = || request(server.clock().deadline(server.reply_by(deadline)));
    if has_come_late {
        server.call_with(request, deadline)
    } else {
        server.call(&request(), deadline)
    }
}

/// An unreadable reply may belong to another command, so no connection is trusted any longer.
fn read<T>(server: &impl Server, outcome: Result<T, Failure>) -> Result<T, Failure> {
    or_distrust(outcome, || server.distrust())
}

fn or_distrust<T>(outcome: Result<T, Failure>, distrust: impl FnOnce()) -> Result<T, Failure> {
    outcome.inspect_err(|failure| {
        if failure.is_unknown() {
            distrust();
        }
    })
}

fn acquire(
    server: &impl Server,
    target: &Target,
    attempt: &Attempt<'_>,
    deadline: Moment,
) -> Result<Answer, Failure> {
    let clock = server.clock();
    if !clock.is_known() {
        server.connect(deadline)?;
    }
    let mut again = true;
    loop {
        let reply = call_in_time(server, !again, deadline, |by| target.acquire(attempt, by))?;
        let (answer, micros) = read(server, acquired(&reply, attempt.ttl))?;
        // A bare number is easily another command's reply. Asked again, Redis tells more.
        if let Value::Int(_) = reply.value
            && !clock.agrees(micros, reply.sent, reply.received)
        {
            return read(server, Err(unexpected(&reply.value)));
        }
        clock.note(reply.epoch, micros, reply.sent, reply.received);
        // After a long silence the server's time is not known well enough; now it is. Or a connection
        // was waited for during all the time that the request had.
        if answer != Answer::Late || !std::mem::take(&mut again) {
            return Ok(answer);
        }
    }
}

fn release(
    server: &impl Server,
    target: &Target,
    returned: &Return<'_>,
    deadline: Moment,
) -> Result<Released, Failure> {
    let Return { owner, ttl, last_token, how } = *returned;
    if how == ReleaseKind::Watch {
        let outcome = server
            .session(deadline, |session| transaction::release(session, target, returned, deadline));
        // Redis 7.0 takes no transaction at all when memory is full, and a script all the same.
        if !outcome.as_ref().is_err_and(Failure::is_out_of_memory) {
            return outcome.map(Released::from);
        }
    }
    let reply = server.call(&target.release(owner, ttl, last_token), deadline)?;
    read(server, released(&reply.value))
}

fn force_release(
    server: &impl Server,
    target: &Target,
    owner: &[u8],
    deadline: Moment,
) -> Result<bool, Failure> {
    let mut again = true;
    loop {
        let reply = call_in_time(server, !again, deadline, |by| target.force(owner, by))?;
        match read(server, forced(&reply.value))? {
            Forced::Done(had) => return Ok(had),
            Forced::Late(micros) => {
                server.clock().note(reply.epoch, micros, reply.sent, reply.received);
            }
        }
        if !std::mem::take(&mut again) {
            return Err(Failure::NotSent(NotSentReason::Overdue));
        }
    }
}

impl<B: Backend> Protocol for Scripted<B> {
    fn identity(&self) -> &Identity {
        self.0.identity()
    }

    fn target(&self, kind: &'static dyn Kind, name: Name) -> Arc<Target> {
        self.0.target(kind, name)
    }

    fn check_keys(&self, name: &Name, keys: &[Vec<u8>]) -> Result<(), Error> {
        self.0.check_keys(name, keys)
    }

    fn acquire(&self, target: &Target, attempt: &Attempt<'_>, deadline: Moment) -> Acquired {
        let outcome = self
            .0
            .at(target, Trips::One, deadline, |server| acquire(server, target, attempt, deadline));
        Acquired { outcome, is_spent: false }
    }

    fn release(
        &self,
        target: &Target,
        returned: &Return<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        let watches = returned.how == ReleaseKind::Watch;
        let trips = if watches { Trips::Several } else { Trips::One };
        self.0.at(target, trips, deadline, |server| release(server, target, returned, deadline))
    }

    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<Told, Failure> {
        self.0.at(target, Trips::One, deadline, |server| {
            let reply = server.call(&target.renew(owner, ttl, count), deadline)?;
            read(server, renewed(&reply))
        })
    }

    fn replicate(
        &self,
        target: &Target,
        owner: &[u8],
        wanted: Durability,
        deadline: Moment,
    ) -> Result<Result<Durability, Verdict>, Failure> {
        self.0.at(target, Trips::Several, deadline, |server| {
            server.session(deadline, |session| {
                replica::replicate(session, target, owner, wanted, deadline)
            })
        })
    }

    fn run(&self, errands: &[Errand<'_>], deadline: Moment) -> Vec<Result<Told, Failure>> {
        let targets: Vec<&Target> = errands.iter().map(|errand| errand.target).collect();
        let calls: Vec<Call> = errands.iter().map(Errand::call).collect();
        let replies = self.0.call_many(&targets, &calls, deadline);
        let told = |(errand, reply): (&Errand<'_>, Result<Reply, Failure>)| {
            or_distrust(errand.read(&reply?), || self.0.distrust(errand.target))
        };
        errands.iter().zip(replies).map(told).collect()
    }

    fn holders(
        &self,
        target: &Target,
        view: View,
        deadline: Moment,
    ) -> Result<Vec<ReportedHolder>, Failure> {
        self.report(target, view, deadline).map(|report| report.holders)
    }

    fn inspect(&self, target: &Target, deadline: Moment) -> Result<Inspection, Failure> {
        let report = self.report(target, View::Waiters, deadline)?;
        Ok(report.identify(target.kind(), self.identity()))
    }

    fn force_release(
        &self,
        target: &Target,
        owner: &[u8],
        deadline: Moment,
    ) -> Result<bool, Failure> {
        self.0.at(target, Trips::One, deadline, |server| {
            force_release(server, target, owner, deadline)
        })
    }

    fn apply(
        &self,
        target: &Target,
        owner: &[u8],
        pipeline: &Pipeline,
        deadline: Moment,
    ) -> Result<Applied, Failure> {
        // A node that lacks one of the user's keys may have the lock all the same.
        self.0.at(target, Trips::Several, deadline, |server| {
            server.session(deadline, |session| {
                let calls = pipeline.cmd_iter().map(Call::of).collect();
                transaction::apply(session, target, owner, calls, deadline)
            })
        })
    }

    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure> {
        let Some(call) = target.request() else { return Ok(false) };
        self.0.at(target, Trips::One, deadline, |server| {
            read(server, flag(&server.call(&call, deadline)?.value))
        })
    }

    fn publishers(&self) -> Arc<dyn Publishers> {
        self.0.publishers()
    }

    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        self.0.listen_to(channel, deadline)
    }

    fn granted_after(
        &self,
        grant: &GrantMessage,
        received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment> {
        self.0.granted_after(grant, received, queued)
    }
}
