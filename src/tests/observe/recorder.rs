//! An observer that keeps what it is told, and checks that calls and holds end once.

use std::collections::BTreeMap;

use super::super::double::until;
use crate::base::error::ErrorKind;
use crate::base::inspection::Holder;
use crate::base::loss::LossCause;
use crate::base::sync::{Arc, Mutex};
use crate::base::token::FencingToken;
use crate::client::LockClient;
use crate::observe::{
    Acquired, ConfirmedAgain, Exchange, How, Lost, NotAcquired, Observer, Reconnected, Released,
    Renewed, Unconfirmed, Waiting,
};
use crate::testing::Server;

/// A blocker is known by its token. The holders of weighted kinds are named without one.
pub(crate) type Blocker = Option<Option<FencingToken>>;

/// An event, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Waiting { call: u64, kind: &'static str },
    Acquired { call: u64, hold: u64, how: How, token: FencingToken, blocker: Blocker },
    NotAcquired { call: u64, error: Option<ErrorKind>, blocker: Blocker },
    Released { hold: u64, token: FencingToken, error: Option<ErrorKind> },
    Lost { hold: u64, cause: LossCause },
    Renewed(u32),
    Unconfirmed(FencingToken),
    ConfirmedAgain(FencingToken),
    Exchange(Result<(), ErrorKind>),
    Reconnected(String),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    pub(crate) fn client(&self, server: &Server) -> LockClient {
        let settings = LockClient::builder("redis://memory").observer(self.clone());
        server.connect(settings).unwrap()
    }

    fn push(&self, event: Event) {
        self.0.lock().push(event);
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().clone()
    }

    /// Takes what was told of calls and holds since the last look.
    pub(crate) fn take(&self) -> Vec<Event> {
        let mut all = std::mem::take(&mut *self.0.lock());
        all.retain(|it| !matches!(it, Event::Exchange(_) | Event::Renewed(_)));
        all
    }

    /// How the last hold came, and who was in its way.
    pub(crate) fn last(&self) -> Option<(How, Blocker)> {
        self.all().iter().rev().find_map(|event| match event {
            Event::Acquired { how, blocker, .. } => Some((*how, *blocker)),
            _ => None,
        })
    }

    /// What is wrong: a call or a hold that has not ended, or not once.
    fn unbalanced(&self) -> Vec<String> {
        // How many beginnings and ends there were.
        type Ends = BTreeMap<u64, (u32, u32)>;
        let (mut calls, mut holds) = (Ends::new(), Ends::new());
        let mut wrong = Vec::new();
        let end = |all: &mut Ends, number: u64| {
            let (begun, ended) = all.entry(number).or_default();
            *ended += 1;
            // A gauge of what is held must never fall below zero.
            (*begun == 1 && *ended == 1).then_some(())
        };
        for event in self.all() {
            let ok = match event {
                Event::Waiting { call, .. } => {
                    calls.entry(call).or_default().0 += 1;
                    Some(())
                }
                Event::Acquired { call, hold, how, .. } => {
                    let ended = if how == How::Reentry { Some(()) } else { end(&mut calls, call) };
                    if how.begins_hold() {
                        holds.entry(hold).or_insert((0, 0)).0 += 1;
                    }
                    ended.filter(|()| how.begins_hold() == (call == hold) || how == How::Reentry)
                }
                Event::NotAcquired { call, .. } => end(&mut calls, call),
                Event::Released { hold, .. } | Event::Lost { hold, .. } => end(&mut holds, hold),
                _ => Some(()),
            };
            wrong.extend(ok.is_none().then(|| format!("out of order: {event:?}")));
        }
        for (what, all) in [("call", calls), ("hold", holds)] {
            let odd = all.into_iter().filter(|(_, ends)| *ends != (1, 1));
            wrong.extend(odd.map(|(number, ends)| format!("{what} {number}: {ends:?}")));
        }
        wrong
    }

    /// Waits until everything has ended, which it does once. Losses are told by threads of their own.
    #[track_caller]
    pub(crate) fn settle(&self) {
        until(|| {
            let wrong = self.unbalanced();
            assert!(
                !wrong.iter().any(|it| it.starts_with("out of")),
                "{wrong:?} {:#?}",
                self.all()
            );
            wrong.is_empty()
        });
    }
}

fn token(holder: Option<&Holder>) -> Blocker {
    holder.map(Holder::token)
}

impl Observer for Recorder {
    fn waiting(&self, event: &Waiting<'_>) {
        self.push(Event::Waiting { call: event.call, kind: event.kind });
    }

    fn acquired(&self, event: &Acquired<'_>) {
        let Acquired { call, hold, how, token: own, .. } = *event;
        self.push(Event::Acquired { call, hold, how, token: own, blocker: token(event.blocker) });
    }

    fn not_acquired(&self, event: &NotAcquired<'_>) {
        let error = event.error.map(crate::Error::kind);
        self.push(Event::NotAcquired { call: event.call, error, blocker: token(event.blocker) });
    }

    fn released(&self, event: &Released<'_>) {
        let error = event.error.map(crate::Error::kind);
        self.push(Event::Released { hold: event.hold, token: event.token, error });
    }

    fn lost(&self, event: &Lost<'_>) {
        self.push(Event::Lost { hold: event.hold, cause: event.loss.cause() });
    }

    fn unconfirmed(&self, event: &Unconfirmed<'_>) {
        self.push(Event::Unconfirmed(event.token));
    }

    fn confirmed_again(&self, event: &ConfirmedAgain<'_>) {
        self.push(Event::ConfirmedAgain(event.token));
    }

    fn renewed(&self, event: &Renewed) {
        self.push(Event::Renewed(event.count));
    }

    fn exchange(&self, event: &Exchange) {
        self.push(Event::Exchange(event.outcome));
    }

    fn reconnected(&self, event: &Reconnected<'_>) {
        self.push(Event::Reconnected(event.server.to_owned()));
    }
}
