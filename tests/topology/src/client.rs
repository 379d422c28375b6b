//! What clients of all kinds have in common, and their builders.

use std::fmt::Debug;
use std::time::Duration;

use leasehold::{
    CloseReport, DistributedLock, Lease, LockClient, LockClientBuilder, LockOptions, Loss, Mutex,
    Observer, QuorumClient, QuorumClientBuilder, Result,
};

/// What makes mutexes.
pub trait Client: DistributedLock + Clone + Debug + Send + Sync + 'static {
    /// As [`LockClient::mutex`].
    fn mutex(&self, name: &[u8]) -> Result<Mutex>;
    /// As [`LockClient::mutex_with`].
    fn mutex_with(&self, name: &[u8], options: LockOptions) -> Result<Mutex>;
    /// As [`LockClient::with_lock`].
    fn with_lock<T>(
        &self,
        key: &str,
        wait: Duration,
        lease: Lease,
        work: impl FnOnce() -> T,
    ) -> Result<T>;
    /// As [`LockClient::close`].
    fn close(&self, grace: Duration, within: Duration) -> CloseReport;
    /// As [`LockClient::is_closed`].
    fn is_closed(&self) -> bool;
    /// As [`LockClient::shutdown`].
    fn shutdown(&self, within: Duration) -> Result<()>;
}

/// What makes clients.
pub trait Builder: Sized {
    /// The clients.
    type Client: Client;
    /// As [`LockClientBuilder::name_prefix`].
    fn name_prefix(self, prefix: &[u8]) -> Self;
    /// As [`LockClientBuilder::label`].
    fn label(self, label: &str) -> Self;
    /// As [`LockClientBuilder::on_loss`].
    fn on_loss(self, callback: impl Fn(&Loss) + Send + Sync + 'static) -> Self;
    /// As [`LockClientBuilder::observer`].
    fn observer(self, observer: impl Observer + 'static) -> Self;
    /// As [`LockClientBuilder::give_up_after`].
    fn give_up_after(self, outage: Duration) -> Self;
    /// How long one server may take to be connected to, and to answer.
    fn timeout(self, timeout: Duration) -> Self;
    /// As [`LockClientBuilder::connect_now`].
    fn connect_now(self, connect: bool) -> Self;
    /// As [`LockClientBuilder::build`].
    fn build(self) -> Result<Self::Client>;
}

macro_rules! common {
    ($client:ident, $builder:ident, $($timeout:ident)*) => {
        impl Client for $client {
            fn mutex(&self, name: &[u8]) -> Result<Mutex> {
                self.mutex(name)
            }

            fn mutex_with(&self, name: &[u8], options: LockOptions) -> Result<Mutex> {
                self.mutex_with(name, options)
            }

            fn with_lock<T>(
                &self,
                key: &str,
                wait: Duration,
                lease: Lease,
                work: impl FnOnce() -> T,
            ) -> Result<T> {
                self.with_lock(key, wait, lease, work)
            }

            fn close(&self, grace: Duration, within: Duration) -> CloseReport {
                self.close(grace, within)
            }

            fn is_closed(&self) -> bool {
                self.is_closed()
            }

            fn shutdown(&self, within: Duration) -> Result<()> {
                self.shutdown(within)
            }
        }

        impl Builder for $builder {
            type Client = $client;

            fn name_prefix(self, prefix: &[u8]) -> Self {
                self.name_prefix(prefix)
            }

            fn label(self, label: &str) -> Self {
                self.label(label)
            }

            fn on_loss(self, callback: impl Fn(&Loss) + Send + Sync + 'static) -> Self {
                self.on_loss(callback)
            }

            fn observer(self, observer: impl Observer + 'static) -> Self {
                self.observer(observer)
            }

            fn give_up_after(self, outage: Duration) -> Self {
                self.give_up_after(outage)
            }

            fn timeout(self, timeout: Duration) -> Self {
                self$(.$timeout(timeout))*
            }

            fn connect_now(self, connect: bool) -> Self {
                self.connect_now(connect)
            }

            fn build(self) -> Result<$client> {
                self.build()
            }
        }
    };
}

common!(LockClient, LockClientBuilder, max_wait connect_timeout command_timeout);
common!(QuorumClient, QuorumClientBuilder, node_timeout);
