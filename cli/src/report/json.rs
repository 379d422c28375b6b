//! The JSON of this command. `docs/command.md` has the schema; a change that a program could notice takes
//! another [`VERSION`].

use std::io::{self, Write as _};
use std::time::Duration;

use leasehold::{Holder, ListedLock, WaitingProcess};
use serde_json::{Map, Value, json};

use crate::kind::word_of;
use crate::name::Shown;
use crate::report::row::{Row, rows};

/// The version of the schema.
const VERSION: u32 = 1;

/// Prints a document in one line. `fields` is an object.
pub(crate) fn print(fields: Value) -> io::Result<()> {
    let mut document = Map::new();
    document.insert("version".to_owned(), VERSION.into());
    if let Value::Object(fields) = fields {
        document.extend(fields);
    }
    writeln!(io::stdout().lock(), "{}", Value::Object(document))
}

/// A list of locks.
pub(crate) fn locks(locks: &[ListedLock]) -> Value {
    locks.iter().zip(rows(locks)).map(|(listed, row)| lock(listed, &row)).collect()
}

fn lock(lock: &ListedLock, row: &Row) -> Value {
    let seen = lock.inspection();
    json!({
        "name": Shown(lock.name()).to_string(),
        "name_hex": hex(lock.name()),
        "kind": word_of(lock),
        "holders": seen.holders().iter().map(holder).collect::<Value>(),
        "waiters": seen.waiters().iter().map(waiter).collect::<Value>(),
        "waiting": seen.waiting(),
        "blocker": (!row.blocker.is_empty()).then_some(&row.blocker),
        "permits": seen.permits().map(|it| json!({ "limit": it.limit(), "used": it.used() })),
        "word": seen.word().map(|word| Shown(word).to_string()),
    })
}

/// One holder of a lock.
pub(crate) fn holder(holder: &Holder) -> Value {
    json!({
        "owner": Shown(holder.owner()).to_string(),
        "host": holder.host(),
        "pid": holder.pid(),
        "label": holder.label(),
        "token": holder.token().map(|token| token.get()),
        "held_ms": holder.since().map(millis),
        "ttl_ms": holder.ttl().map(millis),
        "overdue_ms": holder.overdue().map(millis),
        "access": holder.access().map(|access| access.to_string()),
        "slots": holder.slots(),
    })
}

fn waiter(waiter: &WaitingProcess) -> Value {
    json!({
        "place": waiter.place(),
        "owner": Shown(waiter.owner()).to_string(),
        "host": waiter.host(),
        "pid": waiter.pid(),
        "label": waiter.label(),
        "waiting_ms": waiter.since().map(millis),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
