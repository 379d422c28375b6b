//! The protocol for locks that one server at a time has: each request is one script.
//!
//! It is the same for one server, sentinels, a cluster and the server in memory: a [`Backend`]
//! sends the calls.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::glob::Glob;
use crate::base::id::Identity;
use crate::base::inspection::Inspection;
use crate::base::name::Name;
use crate::base::option::{Durability, ReleaseKind};
use crate::base::reserved;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::backend::{Backend, LockServer, RoundTrips, Sending};
use crate::protocol::holder::ReportedHolder;
use crate::protocol::index::ScanPosition;
use crate::protocol::inspection::{Report, View};
use crate::protocol::lease_request::LeaseRequest;
use crate::protocol::lock_kind::{LockKind, WeightedScripts};
use crate::protocol::reply::{
    AcquireOutcome, AcquireReply, ChangeReply, Forced, Ownership, OwnershipReply, Released,
    Resized, acquired, changed, flag, forced, ownership, renewed, resized, unexpected,
};
use crate::protocol::request::{
    AcquireRequest, ChangeRequest, ForceRequest, ProclaimRequest, ReleaseRequest, ResizeRequest,
};
use crate::protocol::server_protocol::ServerProtocol;
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::protocol::wake_message::{GrantMessage, Publishers};
use crate::protocol::{Protocol, durability, index, transaction};
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;
use crate::wire::server_clock;
use crate::wire::{Cmd, Pipeline, Value};

/// The locks of one client, over a backend.
#[derive(Debug)]
pub(crate) struct ScriptProtocol<B>(B);

impl<B: Backend> ScriptProtocol<B> {
    pub(crate) fn new(backend: B) -> ScriptProtocol<B> {
        ScriptProtocol(backend)
    }

    /// Tries to take these locks in one pipeline for each server.
    fn try_all(
        &self,
        requests: &[(&Target, AcquireRequest<'_>)],
        deadline: Moment,
    ) -> Vec<Result<AcquireReply, Failure>> {
        if requests.is_empty() {
            return Vec::new();
        }
        // Each by the clock of its own server.
        let prepare = |(target, request): &(&Target, AcquireRequest<'_>)| {
            self.0.with_server(target, RoundTrips::One, deadline, |server| {
                if !server.clock().is_known() {
                    server.connect(deadline)?;
                    learn_time(server, deadline);
                }
                Ok(target.acquire(request, server.clock().deadline(server.reply_by(deadline))))
            })
        };
        let prepared: Vec<_> = requests.iter().map(prepare).collect();
        let sent = requests.iter().zip(&prepared);
        let sent = sent.filter_map(|((target, _), call)| Some((target.key(), call.clone().ok()?)));
        let (keys, calls): (Vec<_>, Vec<_>) = sent.unzip();
        let mut replies = self.0.call_many(&keys, &calls, Sending::Once, deadline).into_iter();

        let judge = |((target, request), prepared): (&(&Target, _), Result<Call, Failure>)| {
            prepared?;
            let reply = replies.next().unwrap_or_else(|| Err(Failure::silent()))?;
            let judged = self.0.with_server(target, RoundTrips::One, deadline, |server| {
                read(server, read_acquired(server, &reply, request, deadline))
            });
            // The reply is there. If no server can be found that it could be checked by, it may be a grant.
            judged.map_err(|failure| match failure.is_unknown() || failure.is_redirect() {
                true => failure,
                false => Failure::silent(),
            })
        };
        requests.iter().zip(prepared).map(judge).collect()
    }

    fn at_index(&self, call: Call, sending: Sending, deadline: Moment) -> Result<Reply, Failure> {
        self.at(reserved::INDEX, call, sending, deadline)
    }

    /// One call to the server of a key, without the batcher.
    fn at(
        &self,
        key: &[u8],
        call: Call,
        sending: Sending,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        let replies = self.0.call_many(&[key], &[call], sending, deadline);
        replies.into_iter().next().unwrap_or_else(|| Err(Failure::silent()))
    }

    fn report(&self, target: &Target, view: View, deadline: Moment) -> Result<Report, Failure> {
        let call = target.inspect(view);
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
            // It only reads, so that it may be repeated here (rule 31).
            let reply = Failure::retry_read(|| server.call(&call, deadline))?;
            read(server, target.report(view, reply.value))
        })
    }
}

/// The scripts that only a lock with weights has.
fn weighted(target: &Target) -> Result<&'static WeightedScripts, Failure> {
    target.weighted().ok_or_else(|| Failure::refused_here("holds of this lock have no weights"))
}

/// Sends a request that contains a deadline in the server's time: the moment until which the client
/// waits for the reply. After it the script does nothing. With `has_come_late`, an earlier request
/// was late, and this one gets its deadline only when there is a connection for it.
fn call_in_time(
    server: &impl LockServer,
    has_come_late: bool,
    deadline: Moment,
    request: impl Fn(u64) -> Call,
) -> Result<Reply, Failure> {
    // Computed for each sending: after a fail-over the server's clock is another one, and a
    // deadline of the old clock could let the new server run the request long after this call has
    // returned.
    let request = || request(server.clock().deadline(server.reply_by(deadline)));
    // Not `call_with` from the start: only `call` batches commands of many threads. Its deadline
    // also runs while it waits for a connection, which costs a second round trip in the rare case
    // of a full pool.
    if has_come_late {
        server.call_with(request, deadline)
    } else {
        server.call(&request(), deadline)
    }
}

/// Closes all connections after an unreadable reply: it may belong to another command.
fn read<T>(server: &impl LockServer, outcome: Result<T, Failure>) -> Result<T, Failure> {
    or_discard_connections(outcome, || server.discard_connections())
}

fn or_discard_connections<T>(
    outcome: Result<T, Failure>,
    discard_connections: impl FnOnce() -> String,
) -> Result<T, Failure> {
    outcome.map_err(|failure| {
        if !failure.is_unknown() {
            return failure;
        }
        // All of them, not this one alone: `call` does not tell on which one the batch travelled,
        // and on a connection that is one reply behind each later reply is a wrong one, too.
        failure.unreadable_at(&discard_connections())
    })
}

/// Reads a reply to a request for the lock, and notes the server's time.
fn read_acquired(
    server: &impl LockServer,
    reply: &Reply,
    request: &AcquireRequest<'_>,
    deadline: Moment,
) -> Result<AcquireReply, Failure> {
    let (acquired, micros) = acquired(reply, request.ttl, request.tail)?;
    // The shortest reply to a grant is a bare number, and so are the replies of many other
    // commands. If replies are out of step, one of those would be a grant that never was. A
    // true one is the server's time; what is not near that is an unknown outcome. The engine
    // then repeats the join, and an attempt that does own the lock gets the long form of the
    // reply. This must come before the time is noted, or the number would agree with itself.
    if let Value::Int(_) = reply.value
        && !is_the_time(server, reply, micros, deadline)
    {
        return Err(unexpected(&reply.value));
    }
    reply.note_time(micros);
    Ok(acquired)
}

/// Whether the number in a reply is the time at which the server sent it.
fn is_the_time(server: &impl LockServer, reply: &Reply, micros: u64, deadline: Moment) -> bool {
    let Some((clock, reading)) = reply.reading(micros) else { return true };
    if clock.agrees(&reading) {
        return true;
    }
    // Either the replies are out of step, or the server's clock was set. The server is asked for its time, in a reply of
    // another form: to close all connections because of a clock would cost its client more than the fault does.
    let Ok(asked) = server.call(&server_clock::time(), deadline) else { return false };
    let Some(now) = server_clock::micros_of(&asked.value) else { return false };
    asked.note_time(now);
    asked.reading(now).is_some_and(|(clock, now)| clock.agree(&reading, &now))
}

/// Asks the server for its time if that is unknown: the reply before has shown that its clock was set, and is not
/// believed. A request without the time would be late by construction.
fn learn_time(server: &impl LockServer, deadline: Moment) {
    if !server.clock().is_known()
        && let Ok(asked) = server.call(&server_clock::time(), deadline)
        && let Some(now) = server_clock::micros_of(&asked.value)
    {
        asked.note_time(now);
    }
}

fn acquire(
    server: &impl LockServer,
    target: &Target,
    request: &AcquireRequest<'_>,
    deadline: Moment,
) -> Result<AcquireReply, Failure> {
    let clock = server.clock();
    // The first request of a client needs a deadline, and so the server's time. Opening a
    // connection reads it. Without this the first acquisition of each client would be late, and
    // take two round trips.
    if !clock.is_known() {
        server.connect(deadline)?;
    }
    let mut again = true;
    loop {
        if !again {
            learn_time(server, deadline);
        }
        let reply = call_in_time(server, !again, deadline, |by| target.acquire(request, by))?;
        let acquired = read(server, read_acquired(server, &reply, request, deadline))?;

        // *Late* does not mean that the caller has no time left. After a long silence the allowance
        // for drift may be more than the request had, or the request waited for a connection all
        // that time, or the server has moved. The reply has just reported the server's time, so a
        // second request has a better deadline. The first has done nothing (rule 2). One
        // repetition, and no more: a server that is late twice is for the engine to judge.
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
    // A release has no deadline on the server, unlike `acquire` and `force_release`. It may run at
    // any time later: the owner's value is never used again (rule 5), so it cannot hit another
    // hold.
    if request.kind == ReleaseKind::Watch {
        let outcome = server
            .session(deadline, |session| transaction::release(session, target, request, deadline));
        // Redis 7.0 queues no command of a transaction while memory is full, and a release must
        // work then (rule 16). It does run the script. The transaction has done nothing, so the
        // script may follow.
        if !outcome.as_ref().is_err_and(Failure::is_out_of_memory) {
            return outcome;
        }
    }

    let reply = server.call(&release_call(target, request), deadline)?;
    read(server, target.released(&reply.value))
}

fn release_call(target: &Target, request: &ReleaseRequest<'_>) -> Call {
    let ReleaseRequest { owner, ttl, last_token, kind: _, is_wanted } = *request;
    match is_wanted {
        true => target.hand_over(owner, ttl, last_token),
        false => target.release(owner, ttl, last_token),
    }
}

/// Sends a request that does nothing after its deadline, and sends it again if it came late. `outcome` reads the
/// outcome from a reply, or the server's time if the request did nothing. If both came late, the caller may treat the
/// request as not sent.
fn call_until_in_time<T>(
    server: &impl LockServer,
    deadline: Moment,
    request: impl Fn(u64) -> Call,
    outcome: impl Fn(&Value) -> Result<Result<T, u64>, Failure>,
) -> Result<T, Failure> {
    // No `connect` before, unlike in `acquire`. While the server's time is unknown the first
    // request is late by construction, and its reply reports the time: a second round trip in a
    // rare call.
    let mut again = true;
    loop {
        if !again {
            learn_time(server, deadline);
        }
        let reply = call_in_time(server, !again, deadline, &request)?;
        match read(server, outcome(&reply.value))? {
            Ok(outcome) => return Ok(outcome),
            Err(micros) => reply.note_time(micros),
        }
        if !std::mem::take(&mut again) {
            // Both requests ran and reported that they did nothing. To the caller that is the same
            // as a request that was never sent, and not an unknown outcome.
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
        // One server knows who owns the lock, so the same attempt may ask again. A quorum withdraws
        // the votes of a failed round, and needs another owner's value for the next (rule 5).
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

    fn acquire_all(
        &self,
        requests: &[(&Target, AcquireRequest<'_>)],
        deadline: Moment,
    ) -> Vec<AcquireOutcome> {
        let mut outcomes = self.try_all(requests, deadline);
        // These did nothing, so what follows is no repetition (rule 31): it has a better deadline, or goes to the node
        // that has the lock now. Together, as before: one after the other, the last would wait for all of them.
        let is_late = |outcome: &Result<AcquireReply, Failure>| match outcome {
            Ok(reply) => *reply == AcquireReply::Late,
            Err(failure) => failure.is_redirect(),
        };
        let late: Vec<usize> = (0..outcomes.len()).filter(|&at| is_late(&outcomes[at])).collect();
        let again: Vec<_> = late.iter().map(|&at| requests[at]).collect();
        for (at, outcome) in late.into_iter().zip(self.try_all(&again, deadline)) {
            outcomes[at] = outcome;
        }
        let outcome = |outcome| AcquireOutcome { outcome, is_spent: false };
        outcomes.into_iter().map(outcome).collect()
    }

    fn release_all(
        &self,
        requests: &[(&Target, ReleaseRequest<'_>)],
        deadline: Moment,
    ) -> Vec<Result<Released, Failure>> {
        let by_script = |request: &ReleaseRequest<'_>| request.kind == ReleaseKind::Lua;
        let sent = requests.iter().filter(|(_, request)| by_script(request));
        let (keys, calls): (Vec<_>, Vec<_>) =
            sent.map(|(target, request)| (target.key(), release_call(target, request))).unzip();
        // Once: of two releases the second finds the lock gone, and the caller has to know of both (rule 15).
        let mut replies = self.0.call_many(&keys, &calls, Sending::Once, deadline).into_iter();
        let judge = |(target, request): &(&Target, ReleaseRequest<'_>)| {
            if !by_script(request) {
                return self.release(target, request, deadline);
            }
            match replies.next().unwrap_or_else(|| Err(Failure::silent())) {
                Ok(reply) => or_discard_connections(target.released(&reply.value), || {
                    self.0.discard_connections(target.key())
                }),
                Err(failure) if failure.is_redirect() => self.release(target, request, deadline),
                Err(failure) => Err(failure),
            }
        };
        requests.iter().map(judge).collect()
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
            // No deadline on the server. A renewal that runs late lengthens the lease of its own
            // owner or does nothing, and after an unknown outcome the engine reckons with the
            // longer lease.
            let reply = server.call(&target.renew(owner, ttl, count), deadline)?;
            read(server, renewed(&reply, target.weighted().is_some()))
        })
    }

    fn keep_worker_connections(&self, until: Moment) -> bool {
        self.0.keep_worker_connections(until)
    }

    fn connect_worker(&self) {
        self.0.connect_worker();
    }

    fn server(&self) -> Result<&dyn ServerProtocol, Failure> {
        Ok(self)
    }

    fn run(
        &self,
        requests: &[LeaseRequest<'_>],
        deadline: Moment,
    ) -> Vec<Result<OwnershipReply, Failure>> {
        // Each lease is judged by its own reply. One failure must not fail the renewals beside it,
        // whose leases would then run out for nothing.
        let keys: Vec<&[u8]> = requests.iter().map(|request| request.target.key()).collect();
        let calls: Vec<Call> = requests.iter().map(LeaseRequest::call).collect();
        // Over a connection that callers do not use, if there is one: a renewal must not wait for
        // them.
        let replies = self.0.call_many(&keys, &calls, Sending::Worker, deadline);
        let outcome = |(request, reply): (&LeaseRequest<'_>, Result<Reply, Failure>)| {
            or_discard_connections(request.read(&reply?), || {
                self.0.discard_connections(request.target.key())
            })
        };
        requests.iter().zip(replies).map(outcome).collect()
    }

    fn holders(
        &self,
        target: &Target,
        view: View,
        deadline: Moment,
    ) -> Result<Vec<ReportedHolder>, Failure> {
        self.report(target, view, deadline).map(|report| report.holders)
    }

    fn inspect(
        &self,
        target: &Target,
        view: View,
        deadline: Moment,
    ) -> Result<Inspection, Failure> {
        let report = self.report(target, view, deadline)?;
        Ok(report.identify(target.kind(), self.identity()))
    }

    fn inspect_all(
        &self,
        targets: &[Arc<Target>],
        view: View,
        deadline: Moment,
    ) -> Vec<Result<Inspection, Failure>> {
        let mut known: Vec<&str> = Vec::new();
        let call = |target: &Arc<Target>| {
            let (call, kind) = (target.inspect(view), target.kind().name());
            if known.contains(&kind) {
                return call;
            }
            // The first of each kind brings the script along, or a server that does not know it yet would have
            // all calls sent twice.
            known.push(kind);
            call.with_source().unwrap_or(call)
        };
        let calls: Vec<Call> = targets.iter().map(call).collect();
        let keys: Vec<&[u8]> = targets.iter().map(|target| target.key()).collect();
        let ask = || self.0.call_many(&keys, &calls, Sending::Caller, deadline);
        let mut replies = ask();
        // A connection from the pool may have died. It only reads, so that it may be repeated here (rule 31).
        if replies.iter().any(|reply| reply.as_ref().is_err_and(Failure::is_disconnect)) {
            replies = ask();
        }
        let inspection = |(target, reply): (&Arc<Target>, Result<Reply, Failure>)| {
            let reply = reply.map_err(Failure::before_sending)?;
            let report = or_discard_connections(target.report(view, reply.value), || {
                self.0.discard_connections(target.key())
            })?;
            Ok(report.identify(target.kind(), self.identity()))
        };
        targets.iter().zip(replies).map(inspection).collect()
    }

    fn force_release(
        &self,
        target: &Target,
        request: &ForceRequest<'_>,
        deadline: Moment,
    ) -> Result<bool, Failure> {
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
            let outcome = |value: &Value| {
                Ok(match forced(value)? {
                    Forced::Done(had) => Ok(had),
                    Forced::Late(micros) => Err(micros),
                })
            };
            call_until_in_time(server, deadline, |by| target.force(request, by), outcome)
        })
    }

    fn apply(
        &self,
        locks: &[(&Target, &[u8])],
        pipeline: &Pipeline,
        deadline: Moment,
    ) -> Result<Applied, Failure> {
        let Some((target, _)) = locks.first() else { return Ok(Applied::Done(Vec::new())) };
        // `Many`: a node that is importing the slot may lack one of the user's keys although it has
        // the lock, and it would take `ASKING` for one of these commands only.
        self.0.with_server(target, RoundTrips::Many, deadline, |server| {
            server
                .session(deadline, |session| transaction::apply(session, locks, pipeline, deadline))
        })
    }

    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure> {
        // Such a kind has no channel on which its holder could be asked. Nobody receiving the
        // request is a result and no error.
        let Some(call) = target.request() else { return Ok(false) };
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
            // The holder is asked once more at worst.
            let reply = Failure::retry_disconnected(|| server.call(&call, deadline))?;
            read(server, flag(&reply.value))
        })
    }

    fn publishers(&self) -> Arc<dyn Publishers> {
        self.0.publishers()
    }

    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        self.0.listen_to(channel, deadline)
    }

    fn is_timed_by(&self, target: &Target, clock: u64) -> bool {
        self.0.is_timed_by(target, clock)
    }

    fn unbroken_since(&self, target: &Target) -> Moment {
        self.0.unbroken_since(target)
    }

    fn granted_after(
        &self,
        target: &Target,
        grant: &GrantMessage,
        received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment> {
        self.0.granted_after(target, grant, received, queued)
    }
}

impl<B: Backend> ServerProtocol for ScriptProtocol<B> {
    fn change(
        &self,
        target: &Target,
        request: &ChangeRequest<'_>,
        deadline: Moment,
    ) -> Result<ChangeReply, Failure> {
        let scripts = weighted(target)?;
        let call = target.change(scripts, request);
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
            // No deadline on the server: the number of the change decides whether it still counts (rule 35).
            let reply = server.call(&call, deadline)?;
            read(server, changed(&reply))
        })
    }

    fn resize(
        &self,
        target: &Target,
        request: ResizeRequest,
        deadline: Moment,
    ) -> Result<Option<u64>, Failure> {
        let scripts = weighted(target)?;
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
            let outcome = |value: &Value| {
                Ok(match resized(value)? {
                    Resized::Done => Ok(None),
                    Resized::Refused { declared } => Ok(Some(declared)),
                    Resized::Late(micros) => Err(micros),
                })
            };
            let request = |by| target.resize(scripts, request, by);
            // Twice is as good as once: it sets a limit, and another one that was set in between would
            // have been set at the same time.
            Failure::retry_disconnected(|| call_until_in_time(server, deadline, request, outcome))
        })
    }

    fn proclaim(
        &self,
        target: &Target,
        request: &ProclaimRequest<'_>,
        deadline: Moment,
    ) -> Result<Ownership, Failure> {
        let call = target.proclaim(request);
        let call = call.ok_or_else(|| Failure::refused_here("nobody leads by this lock"))?;
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
            // No deadline on the server: the term and the number decide whether the word still counts. So it may be
            // sent again, too.
            let reply = Failure::retry_disconnected(|| server.call(&call, deadline))?;
            read(server, ownership(&reply.value))
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
            // A session, because `WAIT` counts for the last write of its own connection.
            server.session(deadline, |session| {
                durability::replicate(session, target, owner, wanted, deadline)
            })
        })
    }

    fn announce(&self, targets: &[Arc<Target>], deadline: Moment) -> Result<(), Failure> {
        // The worker waits only briefly for the reply, so its absence says nothing about the server.
        let call = index::announce(targets).excused();
        self.at_index(call, Sending::Worker, deadline).map(drop)
    }

    fn announced(&self, deadline: Moment) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let ask = || self.at_index(index::list(), Sending::Caller, deadline);
        let reply = Failure::retry_read(ask)?;
        or_discard_connections(index::entries(reply.value), || {
            self.0.discard_connections(reserved::INDEX)
        })
    }

    fn scan(
        &self,
        position: &mut ScanPosition,
        pattern: &Glob,
        deadline: Moment,
    ) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let reply = Failure::retry_read(|| self.0.scan(position, pattern, deadline))?;
        reply.map(|reply| position.read(reply)).transpose()
    }

    fn look(&self, target: &Target, call: &Call, deadline: Moment) -> Result<Value, Failure> {
        self.0.with_server(target, RoundTrips::One, deadline, |server| {
            Failure::retry_read(|| server.call(call, deadline)).map(|reply| reply.value)
        })
    }

    fn query(&self, key: &[u8], command: &Cmd, deadline: Moment) -> Result<Value, Failure> {
        Ok(self.at(key, Call::of(command), Sending::Once, deadline)?.value)
    }
}
