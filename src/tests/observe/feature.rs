//! What the features `metrics` and `tracing` make of the events.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use ::tracing::field::{Field, Visit};
use ::tracing::span::{Attributes, Id, Record};
use ::tracing::{Event, Subscriber};

use super::super::double::until;
use super::{SECOND, aside};
use crate::base::sync::{Arc, Mutex};
use crate::client::LockClient;
use crate::observe::{MetricsObserver, TracingObserver};
use crate::testing::Server;

/// What was recorded, by name and labels: the sum, and of a histogram how often.
type Values = Arc<Mutex<BTreeMap<String, f64>>>;

#[derive(Debug)]
struct Registry(Values);

/// One metric.
struct Cell(Values, String);

impl Cell {
    fn add(&self, value: f64) {
        *self.0.lock().entry(self.1.clone()).or_default() += value;
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Cell {
    fn record(&self, _: f64) {
        self.add(1.0);
    }
}

impl Registry {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Cell(Arc::clone(&self.0), format!("{}{{{}}}", key.name(), labels.join(","))))
    }
}

impl Recorder for Registry {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

fn class(name: &[u8]) -> String {
    String::from_utf8_lossy(name.split(|byte| *byte == b':').next().unwrap_or_default())
        .into_owned()
}

#[test]
fn metrics_count_what_locks_do_and_gauges_return_to_zero() {
    // For the whole process, as a program installs one: losses are told on threads of their own. No other test
    // here has metrics.
    let values = Values::default();
    ::metrics::set_global_recorder(Registry(Arc::clone(&values))).expect("there is no other");
    let server = Server::standing_still();
    let settings =
        LockClient::builder("redis://memory").observer(MetricsObserver::new().class(class));
    let client = server.connect(settings).unwrap();
    let billing = server.connect(LockClient::builder("redis://memory").label("billing")).unwrap();
    let value = |name: &str| values.lock().get(name).copied();

    let guard = client.mutex("orders:1").unwrap().lock().unwrap();
    assert_eq!(value("leasehold_held{class=orders,kind=mutex}"), Some(1.0));
    drop(client.mutex("orders:1").unwrap().lock().unwrap());
    guard.release().unwrap();
    let held = billing.mutex("orders:2").unwrap().lock().unwrap();
    assert!(client.mutex("orders:2").unwrap().try_lock().unwrap().is_none());
    let lock = client.mutex("orders:2").unwrap();
    let waiter = aside(move || lock.lock().map(drop));
    until(|| server.is_queued_for("orders:2"));
    assert_eq!(value("leasehold_waiting{class=orders,kind=mutex}"), Some(1.0));
    held.release().unwrap();
    waiter.recv().unwrap().unwrap();

    let lost = client.mutex("orders:3").unwrap().lock().unwrap();
    server.delete("orders:3");
    assert!(lost.check().is_err());
    until(|| value("leasehold_lost_total{class=orders,kind=mutex,cause=deleted}") == Some(1.0));
    let kept = client.mutex("stock\n").unwrap().lock().unwrap();
    server.advance(SECOND * 11);
    until(|| value("leasehold_renewed_total{}") == Some(1.0));
    kept.release().unwrap();
    server.link(&client).cut();
    assert!(client.mutex("orders:4").unwrap().try_lock().is_err());

    let expected = [
        ("leasehold_acquired_total{class=orders,kind=mutex,how=free}", 2.0),
        ("leasehold_acquired_total{class=orders,kind=mutex,how=queued}", 1.0),
        ("leasehold_acquired_total{class=orders,kind=mutex,how=reentry}", 1.0),
        ("leasehold_blocked_seconds{class=orders,kind=mutex,blocker=billing}", 2.0),
        ("leasehold_busy_total{class=orders,kind=mutex}", 1.0),
        ("leasehold_errors_total{class=orders,kind=mutex,error=unreachable}", 1.0),
        ("leasehold_held{class=orders,kind=mutex}", 0.0),
        ("leasehold_held{class=stock\\n,kind=mutex}", 0.0),
        ("leasehold_hold_seconds{class=orders,kind=mutex}", 3.0),
        ("leasehold_wait_seconds{class=orders,kind=mutex}", 5.0),
        ("leasehold_waiting{class=orders,kind=mutex}", 0.0),
    ];
    for (name, expected) in expected {
        assert_eq!(value(name), Some(expected), "{name} of {:#?}", values.lock());
    }
    assert!(value("leasehold_exchange_seconds{outcome=ok}").is_some());
    assert!(value("leasehold_exchange_seconds{outcome=unreachable}").is_some());

    // However many classes there are, few have a name.
    server.link(&client).restore();
    for number in 0..1_000 {
        client.mutex(format!("{number}:x")).unwrap().lock().unwrap().release().unwrap();
    }
    let series = values.lock().keys().filter(|name| name.starts_with("leasehold_held{")).count();
    assert_eq!(series, 101);
    let other = value("leasehold_acquired_total{class=other,kind=mutex,how=free}");
    assert_eq!(other, Some(902.0));
}

/// A subscriber that writes lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<(Vec<String>, u64)>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Lines {
    fn push(&self, mut line: String, fields: impl FnOnce(&mut Fields)) {
        let mut shown = Fields(std::mem::take(&mut line));
        fields(&mut shown);
        self.0.lock().0.push(shown.0);
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &::tracing::Metadata<'_>) -> bool {
        metadata.target() == "leasehold" && *metadata.level() <= ::tracing::Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let number = {
            let mut all = self.0.lock();
            all.1 += 1;
            all.1
        };
        self.push(format!("{number} {}", span.metadata().name()), |it| span.record(it));
        Id::from_u64(number)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.push(format!("{}", span.into_u64()), |it| values.record(it));
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.push(format!("{} after {}", span.into_u64(), follows.into_u64()), |_| ());
    }

    fn event(&self, event: &Event<'_>) {
        let parent = event.parent().map_or(0, Id::into_u64);
        self.push(format!("{parent} {}", event.metadata().level()), |it| event.record(it));
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn try_close(&self, span: Id) -> bool {
        self.push(format!("{} ends", span.into_u64()), |_| ());
        true
    }
}

#[test]
fn spans_of_a_wait_and_a_hold_end_with_their_fields() {
    let lines = Lines::default();
    let server = Server::standing_still();
    let settings = LockClient::builder("redis://memory").observer(TracingObserver::new());
    let client = server.connect(settings).unwrap();
    let token = ::tracing::subscriber::with_default(lines.clone(), || {
        let guard = client.mutex("a\n").unwrap().lock().unwrap();
        let token = guard.fencing_token();
        guard.release().unwrap();
        let held = server.client().mutex("b").unwrap().lock().unwrap();
        assert!(client.mutex("b").unwrap().try_lock().unwrap().is_none());
        drop(held);
        token
    });
    let lines = lines.0.lock().0.clone();
    let begin = [
        r#"1 lock_wait name=a\n kind="mutex""#.to_owned(),
        r#"1 how="free""#.to_owned(),
        "1 waited=0s".to_owned(),
        format!(r#"2 lock_hold name=a\n kind="mutex" token={token}"#),
        "2 after 1".to_owned(),
        "1 ends".to_owned(),
        "2 held=0s".to_owned(),
        "2 ends".to_owned(),
        r#"3 lock_wait name=b kind="mutex""#.to_owned(),
        "3 waited=0s".to_owned(),
    ];
    assert_eq!(lines[..begin.len()], begin, "{lines:#?}");
    let rest = &lines[begin.len()..];
    let blocker = format!("3 blocker=process {}", std::process::id());
    assert!(rest.len() == 2 && rest[0].starts_with(&blocker) && rest[1] == "3 ends", "{rest:#?}");
}
