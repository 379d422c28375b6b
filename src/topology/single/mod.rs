//! The backend that is one server, or the master that sentinels report.

use crate::base::glob::Glob;
use crate::base::id::Identity;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::backend::{Backend, RoundTrips, Sending, TransportServer};
use crate::protocol::index::ScanPosition;
use crate::protocol::target::Target;
use crate::protocol::wake_message::{self, GrantMessage, Publishers, SinglePublisher};
use crate::wire::Value;
use crate::wire::connection::Reply;
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::transport::Transport;

/// One server, on behalf of one client.
#[derive(Debug)]
pub(crate) struct Single {
    transport: Arc<Transport>,
    identity: Arc<Identity>,
}

impl Single {
    pub(crate) fn new(transport: Arc<Transport>, identity: Arc<Identity>) -> Single {
        Single { transport, identity }
    }
}

impl Backend for Single {
    type Server<'a> = TransportServer<'a>;

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn with_server<T>(
        &self,
        _target: &Target,
        _trips: RoundTrips,
        _deadline: Moment,
        mut operation: impl FnMut(&TransportServer<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // No second try at another server, also behind sentinels: a refusal by a demoted master
        // ends the epoch of its connections, and the engine repeats the request on a new one (rule
        // 31).
        operation(&TransportServer { transport: &self.transport, asking: false })
    }

    fn call_many(
        &self,
        _keys: &[&[u8]],
        calls: &[Call],
        sending: Sending,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        // All locks are on this server, so one pipeline carries them.
        self.transport.call_all(calls, sending.lane(), deadline)
    }

    fn scan(
        &self,
        position: &mut ScanPosition,
        pattern: &Glob,
        deadline: Moment,
    ) -> Result<Option<Value>, Failure> {
        if position.choose(&[""])?.is_none() {
            return Ok(None);
        }
        let reply = self.transport.call(&position.call(pattern), deadline)?;
        Ok(Some(reply.value))
    }

    fn keep_worker_connections(&self, until: Moment) -> bool {
        self.transport.keep_worker_connection(until)
    }

    fn connect_worker(&self) {
        self.transport.connect_worker();
    }

    fn discard_connections(&self, _key: &[u8]) -> String {
        self.transport.discard_connections()
    }

    fn publishers(&self) -> Arc<dyn Publishers> {
        Arc::new(SinglePublisher(self.transport.clone()))
    }

    fn listen_to(&self, _channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        self.transport.call(&wake_message::wake_listener(&self.identity), deadline).map(drop)
    }

    fn unbroken_since(&self, _target: &Target) -> Moment {
        self.transport.server_clock().epochs().unbroken_since()
    }

    fn granted_after(
        &self,
        _target: &Target,
        grant: &GrantMessage,
        received: Moment,
        _queued: Option<Moment>,
    ) -> Option<Moment> {
        // The message names the server's time at the grant, and there is one server's clock to read
        // it by. The run matters: after a fail-over the clock is another one, and the time of the
        // old master would date the grant too late, so that the lease would seem longer than it is.
        self.transport.server_clock().not_before(grant.run, grant.micros, received)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_support::fault::Operation;
    use leasehold_support::{Action, Fault, Proxy, Server};

    use std::time::Duration;

    use super::*;
    use crate::base::name::Name;
    use crate::base::share::Share;
    use crate::base::sync;
    use crate::base::time::{BootClock, Clock};
    use crate::kind::mutex::MutexKind;
    use crate::protocol::Protocol as _;
    use crate::protocol::lock_kind::LockKind as _;
    use crate::protocol::reply::AcquireReply;
    use crate::protocol::request::{AcquireMode, AcquireRequest, ForceRequest};
    use crate::protocol::script_protocol::ScriptProtocol;
    use crate::wire::endpoint;
    use crate::wire::locator::FixedServer;
    use crate::wire::manager::Timeouts;
    use crate::wire::pool::{PoolSettings, connector};
    use crate::wire::server_clock::Reading;

    const LEASE: Duration = Duration::from_secs(30);
    /// No machine pauses for so long.
    const LONG: Duration = Duration::from_secs(600);

    /// A client, its server, and a proxy between the two.
    struct Stage {
        _server: Server,
        proxy: Proxy,
        transport: Arc<Transport>,
        identity: Arc<Identity>,
        locks: ScriptProtocol<Single>,
        target: Arc<Target>,
    }

    impl Stage {
        fn new() -> Stage {
            let server = Server::start().unwrap();
            let proxy = Proxy::start(&server).unwrap();
            let source = Arc::new(FixedServer::new(endpoint::parse(&proxy.url()).unwrap()));
            let timeouts = Timeouts::both(LONG);
            let (settings, identity) = (PoolSettings::default(), Arc::new(Identity::new("")));
            let threads = identity.threads();
            let connector = connector(threads).unwrap();
            let transport =
                Transport::new(source, Arc::new(BootClock), &settings, timeouts, connector);
            let transport = Arc::new(transport);
            let single = Single::new(Arc::clone(&transport), Arc::clone(&identity));
            let locks = ScriptProtocol::new(single);
            let target = Target::new(&MutexKind, Name::new(b"", b"x").unwrap());
            Stage { _server: server, proxy, transport, identity, locks, target }
        }

        fn deadline() -> Moment {
            BootClock.now().after(LONG)
        }

        fn acquire(&self) -> (Vec<u8>, Result<AcquireReply, Failure>) {
            let number = self.identity.next_attempt();
            let owner = MutexKind.owner(&self.identity, number, LEASE.into(), false, Share::Whole);
            let request = AcquireRequest {
                owner: &owner,
                ttl: LEASE,
                tail: Duration::ZERO,
                share: Share::Whole,
                mode: AcquireMode::Try,
                dies_after: Duration::ZERO,
            };
            let reply = self.locks.acquire(&self.target, &request, Stage::deadline()).outcome;
            (owner, reply)
        }

        fn force(&self, owner: &[u8]) -> Result<bool, Failure> {
            let request = ForceRequest { owner, takes_any: false };
            self.locks.force_release(&self.target, &request, Stage::deadline())
        }

        /// The next request of a call arrives late, and the server has moved before its reply
        /// arrives. So the call sends another request, whose deadline is by the new server's time.
        fn move_during(&self, operation: Operation) {
            let clock = self.transport.server_clock();
            let now = BootClock.now();
            // By this reading the deadline passed long ago.
            let epoch = clock.epochs().number();
            clock.note(Reading { epoch, micros: 1_000_000, sent: now, received: now });
            let held = self.proxy.add(Fault::reply("", Action::Hold).at(operation));
            let epochs = clock.epochs().clone();
            let body = move || {
                assert!(held.wait_fired(LONG));
                epochs.advance();
                held.release();
            };
            sync::spawn("move", body).unwrap();
        }
    }

    #[test]
    fn acquire_during_a_move_uses_the_new_servers_clock() {
        let stage = Stage::new();
        // The server knows the script now, or it would refuse the first request for that.
        let (owner, reply) = stage.acquire();
        assert!(matches!(reply, Ok(AcquireReply::Granted(_))), "{reply:?}");
        assert!(stage.force(&owner).unwrap());
        stage.move_during(Operation::Acquire);
        let (_, reply) = stage.acquire();
        assert!(matches!(reply, Ok(AcquireReply::Granted(_))), "{reply:?}");
        let clock = stage.transport.server_clock();
        assert!(clock.is_known(), "its request had a deadline");
    }

    #[test]
    fn force_during_a_move_uses_the_new_servers_clock() {
        let stage = Stage::new();
        let (owner, _) = stage.acquire();
        let force = || stage.force(&owner);
        assert!(force().unwrap());
        let (owner, _) = stage.acquire();
        stage.move_during(Operation::Force);
        let force = || stage.force(&owner);
        assert!(force().unwrap());
    }
}
