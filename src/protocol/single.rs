//! The protocol over one server.

use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::option::{Copies, Least, ReleaseKind};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::answer::{Forced, acquired, flag, forced, released, renewed, unexpected};
use crate::protocol::{
    Answer, Applied, Attempt, Errand, GrantMessage, Listener, Protocol, Released, Return, Target,
    Told, Verdict, replica, transaction, wake,
};
use crate::wire::connection::{Connection, Reply};
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::script::Call;
use crate::wire::transport::Transport;
use crate::wire::{Pipeline, Value};

/// Locks on one server, on behalf of one client.
#[derive(Debug)]
pub(crate) struct Single {
    transport: Arc<Transport>,
    identity: Arc<Identity>,
    /// Whether it is a node of a cluster that is only about to take the lock over.
    asking: bool,
}

impl Single {
    pub(crate) fn new(transport: Arc<Transport>, identity: Arc<Identity>) -> Single {
        Single { transport, identity, asking: false }
    }

    /// The same for a node of a cluster that is only about to take the lock over.
    pub(crate) fn asking(self) -> Single {
        Single { asking: true, ..self }
    }

    fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        if self.asking {
            self.transport.exchange(deadline, |connection| connection.call_asking(call, deadline))
        } else {
            self.transport.call(call, deadline)
        }
    }

    /// Sends a request that has a deadline of its own on the server: the moment until which its reply is
    /// waited for, so that it does nothing once nobody waits for it. One that `has_come_late` before is given
    /// its deadline when there is a connection for it.
    fn call_in_time(
        &self,
        has_come_late: bool,
        deadline: Moment,
        request: impl Fn(Moment) -> Call,
    ) -> Result<Reply, Failure> {
        let request = || request(self.transport.reply_by(deadline));
        if !has_come_late {
            return self.call(&request(), deadline);
        }
        self.transport.exchange(deadline, |connection| {
            let call = request();
            let ask = if self.asking { Connection::call_asking } else { Connection::call };
            ask(connection, &call, deadline)
        })
    }

    /// An answer that cannot be read may belong to another command, so no connection is trusted
    /// any longer.
    fn read<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure) = &outcome
            && failure.is_unknown()
            && !mutated!("odd-answer-spoils-nothing")
        {
            self.transport.distrust();
        }
        outcome
    }
}

impl Protocol for Single {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn acquire(
        &self,
        target: &Target,
        attempt: &Attempt<'_>,
        deadline: Moment,
    ) -> Result<Answer, Failure> {
        let clock = self.transport.server_clock();
        if !clock.is_known() {
            self.transport.connect(deadline)?;
        }
        let mut again = true;
        loop {
            // Read each time: the server may have moved since the last request, and its time with it.
            let reply = self
                .call_in_time(!again, deadline, |by| target.acquire(attempt, clock.deadline(by)))?;
            let (answer, micros) = self.read(acquired(&reply, attempt.ttl))?;
            // A bare number is easily another command's answer. Asked again, Redis tells more.
            if let Value::Int(_) = reply.value
                && !clock.agrees(micros, reply.sent, reply.received)
                && !mutated!("any-number-is-a-grant")
            {
                return self.read(Err(unexpected(&reply.value)));
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
        &self,
        target: &Target,
        returned: &Return<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        let Return { owner, ttl, last_token, how } = *returned;
        if how == ReleaseKind::Watch {
            let outcome = self.transport.exchange(deadline, |connection| {
                transaction::release(connection, target, returned, deadline)
            });
            // Redis 7.0 takes no transaction at all when memory is full, and a script all the same.
            if !outcome.as_ref().is_err_and(Failure::is_out_of_memory) {
                return outcome.map(Released::from);
            }
        }
        let reply = self.call(&target.release(owner, ttl, last_token), deadline)?;
        self.read(released(&reply.value))
    }

    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<Told, Failure> {
        let reply = self.call(&target.renew(owner, ttl, count), deadline)?;
        self.read(renewed(&reply))
    }

    fn replicate(
        &self,
        target: &Target,
        owner: &[u8],
        copies: Copies,
        deadline: Moment,
    ) -> Result<Result<Least, Verdict>, Failure> {
        self.transport.exchange(deadline, |connection| {
            replica::replicate(connection, target, owner, copies, deadline)
        })
    }

    fn run(&self, errands: &[Errand<'_>], deadline: Moment) -> Vec<Result<Told, Failure>> {
        let calls: Vec<Call> = errands.iter().map(Errand::call).collect();
        let replies = self.transport.call_all(&calls, deadline);
        let told = |(errand, reply): (&Errand<'_>, Result<Reply, Failure>)| {
            self.read(errand.read(&reply?))
        };
        errands.iter().zip(replies).map(told).collect()
    }

    fn holder(&self, target: &Target, deadline: Moment) -> Result<Option<Holder>, Failure> {
        // It only reads, so that it may be repeated here (rule 31).
        let reply = Failure::repeating(|| self.call(&target.inspect(), deadline))?;
        self.read(target.kind().inspected(reply.value))
    }

    fn force_release(
        &self,
        target: &Target,
        owner: &[u8],
        deadline: Moment,
    ) -> Result<bool, Failure> {
        let clock = self.transport.server_clock();
        let mut again = true;
        loop {
            let reply =
                self.call_in_time(!again, deadline, |by| target.force(owner, clock.deadline(by)))?;
            match self.read(forced(&reply.value))? {
                Forced::Done(had) => return Ok(had),
                Forced::Late(micros) => clock.note(reply.epoch, micros, reply.sent, reply.received),
            }
            if !std::mem::take(&mut again) {
                return Err(Failure::NotSent(Hindrance::Overdue));
            }
        }
    }

    fn apply(
        &self,
        target: &Target,
        owner: &[u8],
        pipeline: &Pipeline,
        deadline: Moment,
    ) -> Result<Applied, Failure> {
        self.transport.exchange(deadline, |connection| {
            let calls = pipeline.cmd_iter().map(Call::of).collect();
            transaction::apply(connection, target, owner, calls, deadline)
        })
    }

    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure> {
        let Some(call) = target.request() else { return Ok(false) };
        self.read(flag(&self.call(&call, deadline)?.value))
    }

    fn listen(&self) -> Result<Box<dyn Listener>, Failure> {
        let channel = wake::client_channel(&self.identity);
        let subscription = self.transport.subscribe(&channel)?;
        Ok(Box::new(wake::Subscribed::new(subscription, channel)))
    }

    fn nudge_listener(&self, deadline: Moment) -> Result<(), Failure> {
        let channel = wake::client_channel(&self.identity);
        let call = Call::plain(&[b"PUBLISH", &channel, wake::NUDGE]);
        self.call(&call, deadline).map(drop)
    }

    fn not_before(&self, grant: &GrantMessage, now: Moment) -> Option<Moment> {
        self.transport.server_clock().not_before(grant.epoch, grant.micros, now)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_support::fault::Operation;
    use leasehold_support::{Action, Fault, Proxy, Server};

    use super::*;
    use crate::base::name::Name;
    use crate::base::sync;
    use crate::base::time::{BootClock, Clock};
    use crate::protocol::Mode;
    use crate::protocol::kind::Kind as _;
    use crate::protocol::mutex::MutexKind;
    use crate::wire::endpoint;
    use crate::wire::manager::{Source, Timeouts};
    use crate::wire::pool::{PoolSettings, connector};

    const LEASE: Duration = Duration::from_secs(30);
    const SOON: Duration = Duration::from_secs(20);

    /// A client of a server, and what is between the two.
    struct Stage {
        _server: Server,
        proxy: Proxy,
        single: Single,
        target: Arc<Target>,
    }

    impl Stage {
        fn new() -> Stage {
            let server = Server::start().unwrap();
            let proxy = Proxy::start(&server).unwrap();
            let source = Source::Fixed(endpoint::parse(&proxy.url()).unwrap());
            let timeouts = Timeouts::both(SOON);
            let (settings, identity) = (PoolSettings::default(), Arc::new(Identity::new("")));
            let threads = identity.threads();
            let connector = connector(threads).unwrap();
            let transport = Transport::new(
                source,
                Arc::new(BootClock),
                &settings,
                timeouts,
                connector,
                threads,
            );
            let single = Single::new(Arc::new(transport), identity);
            let target = Target::new(&MutexKind, Name::new(b"", b"x").unwrap());
            Stage { _server: server, proxy, single, target }
        }

        fn deadline() -> Moment {
            BootClock.now().after(SOON)
        }

        fn acquire(&self) -> (Vec<u8>, Result<Answer, Failure>) {
            let number = self.single.identity.next_attempt();
            let owner = MutexKind.owner(&self.single.identity, number, LEASE, false);
            let attempt =
                Attempt { owner: &owner, ttl: LEASE, mode: Mode::Try, dies_after: Duration::ZERO };
            let answer = self.single.acquire(&self.target, &attempt, Stage::deadline());
            (owner, answer)
        }

        /// The next request of a call comes late, and the server has moved before its reply arrives. So
        /// the call asks once more, and gives that request its deadline once it knows the new server's time.
        fn move_during(&self, operation: Operation) {
            let clock = self.single.transport.server_clock();
            let now = BootClock.now();
            // By this time the deadline was over long ago.
            clock.note(clock.epochs().number(), 1_000_000, now, now);
            let held = self.proxy.add(Fault::reply("", Action::Hold).at(operation));
            let epochs = clock.epochs().clone();
            let body = move || {
                assert!(held.wait_fired(SOON));
                epochs.advance();
                held.release();
            };
            sync::spawn("move", body).unwrap();
        }
    }

    #[test]
    fn acquire_during_a_move_has_a_deadline_of_the_new_server() {
        let stage = Stage::new();
        // The server knows the script now, or it would refuse the first request for that.
        let (owner, answer) = stage.acquire();
        assert!(matches!(answer, Ok(Answer::Granted(_))), "{answer:?}");
        assert!(stage.single.force_release(&stage.target, &owner, Stage::deadline()).unwrap());
        stage.move_during(Operation::Acquire);
        let (_, answer) = stage.acquire();
        assert!(matches!(answer, Ok(Answer::Granted(_))), "{answer:?}");
        let clock = stage.single.transport.server_clock();
        assert!(clock.is_known(), "its request had a deadline");
    }

    #[test]
    fn force_during_a_move_has_a_deadline_of_the_new_server() {
        let stage = Stage::new();
        let (owner, _) = stage.acquire();
        let force = || stage.single.force_release(&stage.target, &owner, Stage::deadline());
        assert!(force().unwrap());
        let (owner, _) = stage.acquire();
        stage.move_during(Operation::Force);
        let force = || stage.single.force_release(&stage.target, &owner, Stage::deadline());
        assert!(force().unwrap());
    }
}
