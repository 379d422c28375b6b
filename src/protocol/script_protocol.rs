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
use crate::protocol::backend::{Backend, LockServer, RoundTrips};
use crate::protocol::holder::ReportedHolder;
use crate::protocol::inspection::{Report, View};
use crate::protocol::lease_request::LeaseRequest;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::reply::{AcquireOutcome, AcquireReply, Ownership, OwnershipReply, Released};
use crate::protocol::reply::{Forced, acquired, flag, forced, released, renewed, unexpected};
use crate::protocol::request::{AcquireRequest, ReleaseRequest};
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::protocol::wake_message::{GrantMessage, Publishers};
use crate::protocol::{Protocol, durability, transaction};
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;
use crate::wire::{Pipeline, Value};

/// Locks on behalf of one client.
#[derive(Debug)]
pub(crate) struct ScriptProtocol<B>(B);

impl<B: Backend> ScriptProtocol<B> {
    pub(crate) fn new(backend: B) -> ScriptProtocol<B> {
        ScriptProtocol(backend)
    }

    fn report(&self, target: &Target, view: View, deadline: Moment) -> Result<Report, Failure> {
        let call = target.inspect(view);
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
            // It only reads, so that it may be repeated here (rule 31).
            let reply = Failure::retry_disconnected(|| server.call(&call, deadline))?;
            read(server, target.report(view, reply.value))
        })
    }
}

/// Sends a request that has a deadline of its own on the server: the moment until which its reply is
/// waited for, so that it does nothing once nobody waits for it. One that `has_come_late` before is given
/// its deadline when there is a connection for it.
fn call_in_time(
    server: &impl LockServer,
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
fn read<T>(server: &impl LockServer, outcome: Result<T, Failure>) -> Result<T, Failure> {
    or_discard_connections(outcome, || server.discard_connections())
}

fn or_discard_connections<T>(
    outcome: Result<T, Failure>,
    discard_connections: impl FnOnce(),
) -> Result<T, Failure> {
    outcome.inspect_err(|failure| {
        if failure.is_unknown() {
            discard_connections();
        }
    })
}

fn acquire(
    server: &impl LockServer,
    target: &Target,
    request: &AcquireRequest<'_>,
    deadline: Moment,
) -> Result<AcquireReply, Failure> {
    let clock = server.clock();
    if !clock.is_known() {
        server.connect(deadline)?;
    }
    let mut again = true;
    loop {
        let reply = call_in_time(server, !again, deadline, |by| target.acquire(request, by))?;
        let (acquired, micros) = read(server, acquired(&reply, request.ttl))?;
        // A bare number is easily another command's reply. Asked again, Redis tells more.
        if let Value::Int(_) = reply.value
            && !clock.agrees(micros, reply.sent, reply.received)
        {
            return read(server, Err(unexpected(&reply.value)));
        }
        clock.note(reply.epoch, micros, reply.sent, reply.received);
        // After a long silence the server's time is not known well enough; now it is. Or a connection
        // was waited for during all the time that the request had.
        if acquired != AcquireReply::Late || !std::mem::take(&mut again) {
            return Ok(acquired);
        }
    }
}

fn release(
    server: &impl LockServer,
    target: &Target,
    request: &ReleaseRequest<'_>,
    deadline: Moment,
) -> Result<Released, Failure> {
    let ReleaseRequest { owner, ttl, last_token, kind } = *request;
    if kind == ReleaseKind::Watch {
        let outcome = server
            .session(deadline, |session| transaction::release(session, target, request, deadline));
        // Redis 7.0 takes no transaction at all when memory is full, and a script all the same.
        if !outcome.as_ref().is_err_and(Failure::is_out_of_memory) {
            return outcome.map(Released::from);
        }
    }
    let reply = server.call(&target.release(owner, ttl, last_token), deadline)?;
    read(server, released(&reply.value))
}

fn force_release(
    server: &impl LockServer,
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
            return Err(Failure::NotSent(NotSentReason::DeadlinePassed));
        }
    }
}

impl<B: Backend> Protocol for ScriptProtocol<B> {
    fn identity(&self) -> &Identity {
        self.0.identity()
    }

    fn target(&self, kind: &'static dyn LockKind, name: Name) -> Arc<Target> {
        self.0.target(kind, name)
    }

    fn check_keys(&self, name: &Name, keys: &[Vec<u8>]) -> Result<(), Error> {
        self.0.check_keys(name, keys)
    }

    fn acquire(
        &self,
        target: &Target,
        request: &AcquireRequest<'_>,
        deadline: Moment,
    ) -> AcquireOutcome {
        let outcome = self.0.with_server(target, RoundTrips::One, deadline, |server| {
            acquire(server, target, request, deadline)
        });
        AcquireOutcome { outcome, is_spent: false }
    }

    fn release(
        &self,
        target: &Target,
        request: &ReleaseRequest<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        let watches = request.kind == ReleaseKind::Watch;
        let trips = if watches { RoundTrips::Many } else { RoundTrips::One };
        self.0.with_server(target, trips, deadline, |server| {
            release(server, target, request, deadline)
        })
    }

    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<OwnershipReply, Failure> {
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
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
    ) -> Result<Result<Durability, Ownership>, Failure> {
        self.0.with_server(target, RoundTrips::Many, deadline, |server| {
            server.session(deadline, |session| {
                durability::replicate(session, target, owner, wanted, deadline)
            })
        })
    }

    fn run(
        &self,
        requests: &[LeaseRequest<'_>],
        deadline: Moment,
    ) -> Vec<Result<OwnershipReply, Failure>> {
        let targets: Vec<&Target> = requests.iter().map(|request| request.target).collect();
        let calls: Vec<Call> = requests.iter().map(LeaseRequest::call).collect();
        let replies = self.0.call_many(&targets, &calls, deadline);
        let told = |(request, reply): (&LeaseRequest<'_>, Result<Reply, Failure>)| {
            or_discard_connections(request.read(&reply?), || {
                self.0.discard_connections(request.target)
            })
        };
        requests.iter().zip(replies).map(told).collect()
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
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
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
        self.0.with_server(target, RoundTrips::Many, deadline, |server| {
            server.session(deadline, |session| {
                let calls = pipeline.cmd_iter().map(Call::of).collect();
                transaction::apply(session, target, owner, calls, deadline)
            })
        })
    }

    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure> {
        let Some(call) = target.request() else { return Ok(false) };
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
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
