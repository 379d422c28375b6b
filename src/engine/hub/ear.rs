//! The thread that listens, which connects again and again.

use crate::base::panic::survive;
use crate::base::sync::{self, Ordering, Weak};
use crate::engine::backoff::Backoff;
use crate::engine::hub::state::{Channel, Heard, LOOK, Shared};
use crate::protocol::Protocol;
use crate::protocol::wake::{Listener, Wake};
use crate::wire::failure::Failure;

pub(super) fn run(shared: &Shared, protocol: &Weak<dyn Protocol>) {
    while survive("the listener, which starts again,", || run_inner(shared, protocol)).is_none() {
        shared.live.store(false, Ordering::Release);
        shared.forget(None);
        sync::sleep(LOOK);
    }
}

fn run_inner(shared: &Shared, protocol: &Weak<dyn Protocol>) {
    let mut backoff = Backoff::new();
    while !shared.closed.load(Ordering::Acquire) {
        let Some(protocol) = protocol.upgrade() else { return };
        let outcome = protocol.listen().and_then(|listener| Ear { shared, listener }.listen());
        let was_live = shared.live.swap(false, Ordering::AcqRel);
        if was_live {
            backoff = Backoff::new();
        }
        drop(protocol);
        let Err(failure) = outcome else { return };
        // The address still leads to a replica: many clients wait for the same fail-over.
        let awaits_master = !was_live && failure.is_not_a_master();
        shared.fail(failure);
        sync::sleep(if awaits_master { LOOK.mul_f64(fastrand::f64()) } else { backoff.next() });
        shared.rest_while_refused();
    }
}

/// The thread while it is connected.
pub(super) struct Ear<'a> {
    pub(super) shared: &'a Shared,
    pub(super) listener: Box<dyn Listener>,
}

impl Ear<'_> {
    /// Listens until the client has gone (`Ok`) or the connection has failed.
    fn listen(mut self) -> Result<(), Failure> {
        let mut swept = self.shared.clock.now();
        while !self.shared.closed.load(Ordering::Acquire) {
            let wake = match self.listener.next(LOOK) {
                Err(failure @ Failure::Refused(_)) => self.refuse(failure)?,
                wake => wake?,
            };
            let now = self.shared.clock.now();
            self.take(wake);
            self.ask()?;
            if now.since(swept) >= LOOK * 2 {
                swept = now;
                self.sweep()?;
            }
        }
        Ok(())
    }

    /// Asks for the channels that are wished for.
    pub(super) fn ask(&mut self) -> Result<(), Failure> {
        let mut state = self.shared.state.lock();
        for (name, channel) in &mut state.channels {
            if matches!(channel.heard, Heard::Wished) {
                self.listener.add(name)?;
                channel.heard = Heard::Asked;
            }
        }
        Ok(())
    }

    /// Forgets the slots that wait no longer, and leaves the channels without a slot.
    fn sweep(&mut self) -> Result<(), Failure> {
        let mut left = Vec::new();
        // Dropped after the lock is free: ours may be the last reference to a slot.
        let mut slots = Vec::new();
        self.shared.state.lock().channels.retain(|name, channel| {
            channel.slots.retain(|slot| {
                let slot = slot.upgrade();
                let waits = slot.as_ref().is_some_and(|slot| slot.is_waited_for());
                slots.extend(slot);
                waits
            });
            let waits = !channel.slots.is_empty();
            if !waits {
                left.push(name.clone());
            }
            waits
        });
        left.iter().try_for_each(|name| self.listener.remove(name))
    }

    /// The server refused something: a channel that was asked for, or all of it. Where it is not known which
    /// channel that is, it may be any that was asked for.
    pub(super) fn refuse(&mut self, failure: Failure) -> Result<Wake, Failure> {
        let refused = self.listener.refused();
        let mut state = self.shared.state.lock();
        // The channel may be wished for no longer, or anew.
        let mut found = refused.is_some();
        for (name, channel) in &mut state.channels {
            if matches!(channel.heard, Heard::Asked)
                && refused.as_ref().is_none_or(|refused| refused == name)
            {
                channel.heard = Heard::Refused(failure.clone());
                found = true;
            }
        }
        self.shared.changed.notify_all();
        if found && self.shared.live.load(Ordering::Acquire) {
            Ok(Wake::Nothing)
        } else {
            Err(failure)
        }
    }

    pub(super) fn take(&mut self, wake: Wake) {
        match wake {
            Wake::Released { channel } => {
                let state = self.shared.state.lock();
                let slots = state.channels.get(&channel).map(Channel::waiters);
                drop(state);
                slots.iter().flatten().for_each(|slot| slot.hear_release());
            }
            Wake::Live => self.come_live(),
            Wake::Listening { channel } => {
                let mut state = self.shared.state.lock();
                let (mut slots, mut missed) = (Vec::new(), false);
                // A confirmation of an earlier question says nothing of a wish that was left since.
                if let Some(channel) = state.channels.get_mut(&channel)
                    && matches!(channel.heard, Heard::Asked)
                {
                    channel.heard = Heard::Confirmed;
                    slots = channel.waiters();
                    // Before anybody can see that it is heard, and release the lock.
                    slots.iter().for_each(|slot| slot.listen_anew());
                    missed = std::mem::take(&mut channel.missed);
                }
                drop(state);
                self.shared.changed.notify_all();
                // What was said there since is made good by asking, too (rule 12).
                slots.iter().filter(|_| missed).for_each(|slot| slot.nudge());
            }
            Wake::Nothing => {}
            wake => (self.shared.tell)(wake),
        }
    }

    fn come_live(&self) {
        let mut state = self.shared.state.lock();
        state.refused = None;
        let came = !self.shared.live.swap(true, Ordering::AcqRel);
        self.shared.changed.notify_all();
        drop(state);
        if came && !mutated!("reconnect-wakes-nobody") {
            (self.shared.tell)(Wake::Live);
        }
    }
}
