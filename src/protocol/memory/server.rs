//! A store that several clients share, with a clock.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::sync::channel::{Receiver, Sender, unbounded};
use crate::base::sync::{Arc, Mutex, MutexGuard};
use crate::base::time::{Clock, Moment};
use crate::protocol::Target;
use crate::wire::connection::Reply;
use crate::wire::failure::Failure;
use crate::wire::subscription::Event;

use super::request::Request;
use super::store::{Published, Store, WrongType};

/// The server's time when the clients' clock shows nothing: far from both 0 and 2^53, in
/// microseconds.
const EPOCH: u64 = 1_700_000_000_000_000;

/// A server in memory.
pub(crate) struct Server {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    store: Store,
    ears: BTreeMap<u64, Sender<Event>>,
    last_ear: u64,
}

impl Server {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Server> {
        Arc::new(Server { clock, state: Mutex::default() })
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The server's own time in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        EPOCH + self.clock.now().as_nanos() / 1000
    }

    /// Serves a request at once.
    pub(crate) fn serve(&self, target: &Target, request: &Request) -> Result<Reply, Failure> {
        let sent = self.now();
        let mut state = self.state.lock();
        let (answer, published) = state.store.serve(target, request, self.micros());
        state.deliver(published);
        drop(state);
        let value = answer.map_err(|WrongType| Failure::wrong_type())?;
        Ok(Reply { value, sent, received: self.now() })
    }

    /// Looks at the store, or changes it, as an operator would.
    pub(crate) fn with_store<T>(&self, work: impl FnOnce(&mut Store, u64) -> T) -> T {
        let micros = self.micros();
        work(&mut self.state.lock().store, micros)
    }

    /// A message from outside of a script.
    pub(crate) fn publish(&self, channel: &[u8], payload: &[u8]) {
        let published = Published { channel: channel.to_vec(), payload: payload.to_vec() };
        self.state.lock().deliver(vec![published]);
    }

    /// Opens a connection that listens, to a first channel.
    pub(crate) fn listen(self: &Arc<Server>, channel: &[u8]) -> Ear {
        let (sender, events) = unbounded();
        let mut state = self.state.lock();
        state.last_ear += 1;
        let ear = Ear { server: Arc::clone(self), number: state.last_ear, events };
        state.ears.insert(ear.number, sender);
        state.subscribe(ear.number, channel);
        ear
    }

    /// Closes all connections that listen.
    pub(crate) fn disconnect(&self) {
        let mut state = self.state.lock();
        for (number, _) in std::mem::take(&mut state.ears) {
            state.store.disconnect(number);
        }
    }
}

impl State {
    fn subscribe(&mut self, ear: u64, channel: &[u8]) {
        let State { store, ears, .. } = self;
        // One that was disconnected finds out by itself.
        if let Some(sender) = ears.get(&ear) {
            store.subscribe(ear, channel);
            let _ = sender.send(Event::Subscribed { channel: channel.to_vec() });
        }
    }

    fn deliver(&mut self, published: Vec<Published>) {
        for Published { channel, payload } in published {
            for ear in self.store.hearers(&channel) {
                let (channel, payload) = (channel.clone(), payload.clone());
                if let Some(sender) = self.ears.get(&ear) {
                    let _ = sender.send(Event::Message { channel, payload });
                }
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// A connection that listens.
pub(crate) struct Ear {
    server: Arc<Server>,
    number: u64,
    events: Receiver<Event>,
}

impl Ear {
    /// What comes; it ends when the server closes the connection.
    pub(crate) fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.server.state.lock()
    }

    /// Listens to a channel; asked again, it is confirmed again.
    pub(crate) fn subscribe(&self, channel: &[u8]) {
        self.state().subscribe(self.number, channel);
    }

    pub(crate) fn unsubscribe(&self, channel: &[u8]) {
        self.state().store.unsubscribe(self.number, channel);
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut state = self.state();
        state.ears.remove(&self.number);
        state.store.disconnect(self.number);
    }
}
