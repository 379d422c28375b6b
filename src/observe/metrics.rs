//! Metrics, over the facade of the crate `metrics`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug};
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, Label, SharedString, Unit};

use crate::base::inspection::Holder;
use crate::base::sync::{Arc, Mutex, OnceLock};
use crate::base::text::clean;
use crate::observe::{
    Acquired, ConfirmedAgain, Exchange, How, Lost, NotAcquired, Observer, Reconnected, Released,
    Renewed, Unconfirmed, Waiting,
};

/// The class of all names, unless the user gives others; and the one of what comes after so many others.
const ALL: &str = "all";
const OTHER: &str = "other";
const MAX_CLASSES: usize = 100;
/// The same for the labels of blockers.
const MAX_BLOCKERS: usize = 100;
/// At most this many characters of a class are shown.
const SHOWN: usize = 64;

const WAIT: &str = "leasehold_wait_seconds";
const BLOCKED: &str = "leasehold_blocked_seconds";
const HOLD: &str = "leasehold_hold_seconds";
const WAITING: &str = "leasehold_waiting";
const HELD: &str = "leasehold_held";
const ACQUIRED: &str = "leasehold_acquired_total";
const BUSY: &str = "leasehold_busy_total";
const ERRORS: &str = "leasehold_errors_total";
const LOST: &str = "leasehold_lost_total";
const EXCHANGE: &str = "leasehold_exchange_seconds";
const RENEWAL: &str = "leasehold_renewal_seconds";
const RENEWED: &str = "leasehold_renewed_total";
const UNCONFIRMED: &str = "leasehold_unconfirmed_total";
const CONFIRMED_AGAIN: &str = "leasehold_confirmed_again_total";
const RECONNECTS: &str = "leasehold_reconnects_total";

/// Records metrics of the locks of its client, with the recorder of the crate `metrics` that the process has installed.
///
/// [Operations](crate::guide::operations#metrics) has a table of all metrics and their labels, and what to alert on.
/// Install the recorder before the first lock: the handles of a class are made when it is first used.
///
/// Names of locks are no labels, as there may be any number of them. The label is a *class* of names, "all" by default.
/// So that there are few series whatever names come, only the first 100 classes count, and all others are "other".
///
/// ```
/// use leasehold::LockClient;
/// use leasehold::observe::MetricsObserver;
///
/// # fn main() -> leasehold::Result<()> {
/// // The class of `orders:42` is `orders`.
/// let metrics = MetricsObserver::new().class(|name| {
///     let class = name.split(|byte| *byte == b':').next().unwrap_or_default();
///     String::from_utf8_lossy(class).into_owned()
/// });
/// let client = LockClient::builder("redis://127.0.0.1:6379").observer(metrics).build()?;
/// # Ok(())
/// # }
/// ```
pub struct MetricsObserver {
    class: ClassOf,
    series: Mutex<HashMap<Cow<'static, str>, OfKinds>>,
    blockers: Mutex<HashSet<String>>,
    exchange: OnceLock<Histogram>,
}

/// The class of a name.
type ClassOf = Box<dyn Fn(&[u8]) -> Cow<'static, str> + Send + Sync>;

/// The series of one class, for each kind of lock that is in use.
type OfKinds = Vec<(&'static str, Arc<Series>)>;

/// The metrics of one class and kind.
struct Series {
    labels: [Label; 2],
    waiting: Gauge,
    held: Gauge,
    hold: Histogram,
    wait: Histogram,
    acquired: [OnceLock<Counter>; How::ALL.len()],
}

impl Default for MetricsObserver {
    fn default() -> MetricsObserver {
        MetricsObserver::new()
    }
}

impl MetricsObserver {
    /// Makes an observer whose only class is "all".
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use leasehold::observe::MetricsObserver;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let url = "redis://127.0.0.1:6379";
    /// let client = LockClient::builder(url).observer(MetricsObserver::new()).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new() -> MetricsObserver {
        MetricsObserver {
            class: Box::new(|_| Cow::Borrowed(ALL)),
            series: Mutex::new(HashMap::new()),
            blockers: Mutex::new(HashSet::new()),
            exchange: OnceLock::new(),
        }
    }

    /// Sets the class of a name, which is its label; default "all" for every name.
    ///
    /// It is called with the lock's name in Redis, the client's prefix included, for each event: it should be quick, and
    /// return the same for the same name. What does not show itself in a text is escaped, and 64 characters are
    /// shown.
    ///
    /// ```
    /// use leasehold::observe::MetricsObserver;
    ///
    /// let metrics = MetricsObserver::new().class(|name| match name {
    ///     name if name.starts_with(b"orders:") => "orders",
    ///     name if name.starts_with(b"stock:") => "stock",
    ///     _ => "other",
    /// });
    /// ```
    #[must_use = "a builder does nothing until it is used"]
    pub fn class<C: Into<Cow<'static, str>>>(
        self,
        class: impl Fn(&[u8]) -> C + Send + Sync + 'static,
    ) -> MetricsObserver {
        MetricsObserver { class: Box::new(move |name| class(name).into()), ..self }
    }

    fn series(&self, name: &[u8], kind: &'static str) -> Arc<Series> {
        let class = (self.class)(name);
        let mut all = self.series.lock();
        let class = match all.contains_key(&class) || all.len() < MAX_CLASSES {
            true => class,
            false => Cow::Borrowed(OTHER),
        };
        if let Some(series) = all.get(&class).and_then(|it| find(it, kind)) {
            return series;
        }
        if all.is_empty() {
            describe();
        }
        let shown: String = clean(&class).chars().take(SHOWN).collect();
        let series = Arc::new(Series::new(shown, kind));
        all.entry(class).or_default().push((kind, Arc::clone(&series)));
        series
    }

    /// Who was waited for, as a label: the label of that client.
    fn blocker(&self, holder: &Holder) -> Cow<'static, str> {
        let Some(label) = holder.label() else {
            let is_ours = holder.pid().is_some();
            return Cow::Borrowed(if is_ours { "unlabelled" } else { "unknown" });
        };
        let mut known = self.blockers.lock();
        if known.contains(label) || known.len() < MAX_BLOCKERS {
            known.insert(label.to_owned());
            return Cow::Owned(label.to_owned());
        }
        Cow::Borrowed(OTHER)
    }

    fn waited(&self, series: &Series, waited: Duration, blocker: Option<&Holder>) {
        series.waiting.decrement(1.0);
        series.wait.record(waited);
        if let Some(holder) = blocker {
            let labels = series.labels_and("blocker", self.blocker(holder));
            ::metrics::histogram!(BLOCKED, labels).record(waited);
        }
    }
}

impl Series {
    fn new(class: String, kind: &'static str) -> Series {
        let labels = [Label::new("class", class), Label::new("kind", kind)];
        let of = || labels.to_vec();
        Series {
            waiting: ::metrics::gauge!(WAITING, of()),
            held: ::metrics::gauge!(HELD, of()),
            hold: ::metrics::histogram!(HOLD, of()),
            wait: ::metrics::histogram!(WAIT, of()),
            acquired: [const { OnceLock::new() }; How::ALL.len()],
            labels,
        }
    }

    fn labels_and(&self, key: &'static str, value: impl Into<SharedString>) -> Vec<Label> {
        let [class, kind] = self.labels.clone();
        vec![class, kind, Label::new(key, value)]
    }

    fn acquired(&self, how: How) {
        // Their order is that of `ALL`.
        let Some(counter) = self.acquired.get(how as usize) else { return };
        let make = || ::metrics::counter!(ACQUIRED, self.labels_and("how", how.text()));
        counter.get_or_init(make).increment(1);
    }

    fn end_hold(&self, held: Duration) {
        self.held.decrement(1.0);
        self.hold.record(held);
    }
}

impl Observer for MetricsObserver {
    fn waiting(&self, event: &Waiting<'_>) {
        self.series(event.name, event.kind).waiting.increment(1.0);
    }

    fn acquired(&self, event: &Acquired<'_>) {
        let series = self.series(event.name, event.kind);
        series.acquired(event.how);
        if event.how != How::Reentry {
            self.waited(&series, event.waited, event.blocker);
        }
        if event.how.begins_hold() {
            series.held.increment(1.0);
        }
    }

    fn not_acquired(&self, event: &NotAcquired<'_>) {
        let series = self.series(event.name, event.kind);
        self.waited(&series, event.waited, event.blocker);
        match event.error {
            None => ::metrics::counter!(BUSY, series.labels.to_vec()).increment(1),
            Some(error) => {
                let labels = series.labels_and("error", text(error.kind()));
                ::metrics::counter!(ERRORS, labels).increment(1);
            }
        }
    }

    fn released(&self, event: &Released<'_>) {
        let series = self.series(event.name, event.kind);
        series.end_hold(event.held);
        if let Some(error) = event.error {
            let labels = series.labels_and("error", text(error.kind()));
            ::metrics::counter!(ERRORS, labels).increment(1);
        }
    }

    fn lost(&self, event: &Lost<'_>) {
        let series = self.series(event.loss.name(), event.kind);
        series.end_hold(event.held);
        let labels = series.labels_and("cause", text(event.loss.cause()));
        ::metrics::counter!(LOST, labels).increment(1);
    }

    fn unconfirmed(&self, event: &Unconfirmed<'_>) {
        let series = self.series(event.name, event.kind);
        ::metrics::counter!(UNCONFIRMED, series.labels.to_vec()).increment(1);
    }

    fn confirmed_again(&self, event: &ConfirmedAgain<'_>) {
        let series = self.series(event.name, event.kind);
        ::metrics::counter!(CONFIRMED_AGAIN, series.labels.to_vec()).increment(1);
    }

    fn renewed(&self, event: &Renewed) {
        ::metrics::counter!(RENEWED).increment(event.count.into());
        ::metrics::histogram!(RENEWAL).record(event.took);
    }

    fn exchange(&self, event: &Exchange) {
        let of = |outcome: String| ::metrics::histogram!(EXCHANGE, "outcome" => outcome);
        match event.outcome {
            Ok(()) => self.exchange.get_or_init(|| of("ok".to_owned())).record(event.took),
            Err(kind) => of(text(kind)).record(event.took),
        }
    }

    fn reconnected(&self, _event: &Reconnected<'_>) {
        ::metrics::counter!(RECONNECTS).increment(1);
    }
}

fn find(of_kinds: &OfKinds, kind: &'static str) -> Option<Arc<Series>> {
    of_kinds.iter().find(|(of, _)| *of == kind).map(|(_, series)| Arc::clone(series))
}

/// `UnknownOutcome` as a label: `unknown_outcome`, which is the predicate of the error without its `is_`.
fn text(value: impl Debug) -> String {
    let mut text = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

fn describe() {
    let histograms = [
        (WAIT, "How long calls for a lock took, whether they got it or not"),
        (
            BLOCKED,
            "How long calls for a lock took that had to wait for a known holder, by the label of its client",
        ),
        (HOLD, "How long locks were held, until their release was done or they were lost"),
        (EXCHANGE, "How long requests to Redis took, with the wait for a connection"),
        (RENEWAL, "How long requests to Redis took that renewed leases"),
    ];
    for (name, what) in histograms {
        ::metrics::describe_histogram!(name, Unit::Seconds, what);
    }
    ::metrics::describe_gauge!(WAITING, "Calls for a lock that are under way");
    ::metrics::describe_gauge!(HELD, "Locks that threads hold");
    let counters = [
        (ACQUIRED, "Calls that got their lock"),
        (BUSY, "Calls that did not get their lock because somebody else had it"),
        (ERRORS, "Calls for a lock, and releases, that failed"),
        (LOST, "Holds that were lost before their release"),
        (
            UNCONFIRMED,
            "Holds whose lease was over before Redis confirmed it, and that may come back",
        ),
        (CONFIRMED_AGAIN, "Holds that Redis confirmed again after their lease was over"),
        (RENEWED, "Leases that were renewed"),
        (RECONNECTS, "Connections that replaced a broken or silent one"),
    ];
    for (name, what) in counters {
        ::metrics::describe_counter!(name, what);
    }
}

impl Debug for MetricsObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetricsObserver({} classes)", self.series.lock().len())
    }
}
