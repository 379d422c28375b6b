//! Spans and events, over the crate `tracing`.

use std::collections::HashMap;
use std::fmt;

use ::tracing::field::{Empty, debug, display};
use ::tracing::{Span, debug_span, info, trace, warn};

use crate::base::name::ShownName;
use crate::base::share::Access;
use crate::base::sync::{AtomicUsize, Mutex, Ordering};
use crate::base::text::Span as ShownSpan;
use crate::observe::{
    Acquired, ConfirmedAgain, Exchange, Lost, NotAcquired, Observer, Reconnected, Released,
    Renewed, Unconfirmed, Waiting,
};

/// Tells of the locks of its client by spans and events of the crate `tracing`, all of the target `leasehold`.
///
/// | what | level | fields |
/// | --- | --- | --- |
/// | span `lock_wait`, for each call for a lock but a reentry | debug | `name`, `kind`, `access`; at its end `how`, `waited`, `blocker`, `error` |
/// | span `lock_hold`, for each hold | debug | `name`, `kind`, `token`; at its end `held`, `error`. It follows from its wait |
/// | event for a loss, in the span of the hold | warn | `name`, `token`, `cause`, `held` |
/// | event for a connection that was made again | info | `server` |
/// | events for renewals and exchanges with Redis | trace | `count`, `took`, `failure` |
///
/// A call that went without the lock has no `how`, and an `error` if that is not because somebody else had it. Both
/// spans are children of the span in which the call was made. They contain neither the thread's other spans nor its
/// events: no span is entered, as a hold is no part of the code.
///
/// ```
/// use leasehold::LockClient;
/// use leasehold::observe::TracingObserver;
///
/// # fn main() -> leasehold::Result<()> {
/// let url = "redis://127.0.0.1:6379";
/// let client = LockClient::builder(url).observer(TracingObserver::new()).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct TracingObserver {
    waits: Spans,
    holds: Spans,
}

/// Spans that have not ended, by the number of their call.
#[derive(Default)]
struct Spans {
    /// How many there are. Without a subscriber nothing else is looked at.
    count: AtomicUsize,
    spans: Mutex<HashMap<u64, Span>>,
}

impl Spans {
    fn begin(&self, number: u64, span: Span) {
        if !span.is_disabled() {
            self.count.fetch_add(1, Ordering::Relaxed);
            // What it replaces is dropped without the lock: the end of a span is code of a subscriber.
            let before = self.spans.lock().insert(number, span);
            drop(before);
        }
    }

    /// The span, if there is one. It ends when the caller drops it.
    fn end(&self, number: u64) -> Option<Span> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let span = self.spans.lock().remove(&number)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(span)
    }
}

impl TracingObserver {
    /// Makes an observer.
    ///
    /// ```
    /// use leasehold::QuorumClient;
    /// use leasehold::observe::TracingObserver;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let urls = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// let client = QuorumClient::builder(urls).observer(TracingObserver::new()).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new() -> TracingObserver {
        TracingObserver::default()
    }
}

/// Adds a field to a span, if there is a value for it.
fn note(span: &Span, field: &str, value: Option<impl fmt::Display>) {
    if let Some(value) = value {
        span.record(field, display(value));
    }
}

fn shown(access: Option<Access>) -> Option<impl ::tracing::Value> {
    access.map(display)
}

impl Observer for TracingObserver {
    fn waiting(&self, event: &Waiting<'_>) {
        let span = debug_span!(
            target: "leasehold",
            "lock_wait",
            name = %ShownName(event.name),
            kind = event.kind,
            access = shown(event.access),
            how = Empty,
            waited = Empty,
            blocker = Empty,
            error = Empty
        );
        self.waits.begin(event.call, span);
    }

    fn acquired(&self, event: &Acquired<'_>) {
        let wait = self.waits.end(event.call);
        if let Some(span) = &wait {
            span.record("how", event.how.text());
            span.record("waited", display(ShownSpan(event.waited)));
            note(span, "blocker", event.blocker);
        }
        if event.how.begins_hold() {
            let span = debug_span!(
                target: "leasehold",
                "lock_hold",
                name = %ShownName(event.name),
                kind = event.kind,
                token = event.token.get(),
                held = Empty,
                error = Empty
            );
            span.follows_from(wait.as_ref().and_then(Span::id));
            self.holds.begin(event.hold, span);
        }
    }

    fn not_acquired(&self, event: &NotAcquired<'_>) {
        if let Some(span) = self.waits.end(event.call) {
            span.record("waited", display(ShownSpan(event.waited)));
            note(&span, "blocker", event.blocker);
            note(&span, "error", event.error);
        }
    }

    fn released(&self, event: &Released<'_>) {
        if let Some(span) = self.holds.end(event.hold) {
            span.record("held", display(ShownSpan(event.held)));
            note(&span, "error", event.error);
        }
    }

    fn lost(&self, event: &Lost<'_>) {
        // Also without a span: the level of the event is another one.
        let span = self.holds.end(event.hold).unwrap_or_else(Span::none);
        let (loss, held) = (event.loss, ShownSpan(event.held));
        span.record("held", display(held));
        warn!(
            target: "leasehold",
            parent: &span,
            name = %ShownName(loss.name()),
            token = loss.fencing_token().get(),
            cause = ?loss.cause(),
            held = %held,
            "{loss}"
        );
    }

    fn unconfirmed(&self, event: &Unconfirmed<'_>) {
        let (name, unheard) = (ShownName(event.name), ShownSpan(event.unheard));
        warn!(target: "leasehold", %name, token = event.token.get(), %unheard, "not confirmed");
    }

    fn confirmed_again(&self, event: &ConfirmedAgain<'_>) {
        let (name, unheard) = (ShownName(event.name), ShownSpan(event.unheard));
        info!(target: "leasehold", %name, token = event.token.get(), %unheard, "confirmed again");
    }

    fn renewed(&self, event: &Renewed) {
        trace!(target: "leasehold", count = event.count, took = ?event.took, "leases renewed");
    }

    fn exchange(&self, event: &Exchange) {
        let failure = event.outcome.err().map(debug);
        trace!(target: "leasehold", took = ?event.took, failure, "exchange with Redis");
    }

    fn reconnected(&self, event: &Reconnected<'_>) {
        info!(target: "leasehold", server = event.server, "connected again");
    }
}

impl fmt::Debug for TracingObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TracingObserver")
    }
}
