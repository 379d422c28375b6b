//! How the types of this layer are written and read by serde. The form is part of the public interface:
//! `tests/it/serial.rs` pins it.

use std::fmt;
use std::time::Duration;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::error::{Error, Result};
use crate::base::id::sanitize;
use crate::base::inspection::{HeldPart, Holder, Origin};
use crate::base::loss::{Loss, LossCause};
use crate::base::name::Name;
use crate::base::option::{Lease, TAIL};
use crate::base::share::Access;
use crate::base::token::FencingToken;

const SPANS: &str = "a time such as 500ms, 10s or 5m";

/// Reads a time as people write it.
pub(crate) fn span(setting: &str, text: &str) -> Result<Duration> {
    sum_of_terms(text)
        .ok_or_else(|| Error::config(setting, format_args!("\"{}\"", text.escape_debug()), SPANS))
}

/// Reads the terms of a time, such as `1m` and `30s`, one by one: humantime 2.4 panics at a sum that is too great.
fn sum_of_terms(text: &str) -> Option<Duration> {
    let (mut sum, mut rest) = (Duration::ZERO, text);
    loop {
        // The number of the next term follows the unit of this one.
        let unit = rest.find(char::is_alphabetic).unwrap_or(rest.len());
        let digit = rest[unit..].find(|letter: char| letter.is_ascii_digit());
        let (term, others) = rest.split_at(digit.map_or(rest.len(), |at| unit + at));
        sum = sum.checked_add(humantime::parse_duration(term).ok()?)?;
        rest = others;
        if rest.is_empty() {
            return Some(sum);
        }
    }
}

/// A time in one unit, which programs can read, too, and without loss.
fn written(span: Duration) -> String {
    match span.as_nanos() {
        nanos if nanos % 1_000_000_000 == 0 => format!("{}s", span.as_secs()),
        nanos if nanos % 1_000_000 == 0 => format!("{}ms", span.as_millis()),
        nanos if nanos % 1_000 == 0 => format!("{}us", span.as_micros()),
        nanos => format!("{nanos}ns"),
    }
}

/// A lease as it is written. What is left out is that of the default lease.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LeaseForm {
    ttl: Option<String>,
    renewed: Option<bool>,
    at_most: Option<String>,
    recoverable_for: Option<String>,
}

impl LeaseForm {
    pub(crate) fn lease(&self) -> Result<Lease> {
        let usual = Lease::default();
        let ttl = self.ttl.as_deref().map_or(Ok(usual.ttl()), |ttl| span("lease", ttl))?;
        let is_renewed = self.renewed.unwrap_or(usual.is_renewed());
        let lease = if is_renewed { Lease::renewed(ttl) } else { Lease::fixed(ttl) };
        let lease = match &self.recoverable_for {
            Some(tail) => lease.recoverable_for(span(TAIL, tail)?),
            None => lease,
        };
        match &self.at_most {
            Some(limit) => Ok(lease.at_most(span("at_most of the lease", limit)?)),
            None => Ok(lease),
        }
    }
}

impl Serialize for Lease {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let (ttl, renewed) = (Some(written(self.ttl())), Some(self.is_renewed()));
        let recoverable_for = Some(self.tail()).filter(|tail| !tail.is_zero()).map(written);
        let at_most = self.limit.map(written);
        LeaseForm { ttl, renewed, at_most, recoverable_for }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Lease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Lease, D::Error> {
        LeaseForm::deserialize(deserializer)?.lease().map_err(D::Error::custom)
    }
}

/// A loss as it is written.
#[derive(Serialize, Deserialize)]
struct LossForm {
    name: Bytes,
    token: FencingToken,
    cause: LossCause,
    renewed: bool,
}

impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let (name, token) = (Bytes(self.name().to_vec()), self.fencing_token());
        LossForm { name, token, cause: self.cause(), renewed: self.is_renewed }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Loss, D::Error> {
        let LossForm { name, token, cause, renewed } = LossForm::deserialize(deserializer)?;
        Ok(Loss::new(Name::unchecked(&name.0), token, cause, renewed))
    }
}

/// A holder as it is written.
#[derive(Serialize, Deserialize)]
struct HolderForm {
    owner: Bytes,
    origin: Option<OriginForm>,
    token: Option<FencingToken>,
    since: Option<String>,
    ttl: Option<String>,
    overdue: Option<String>,
    #[serde(default)]
    slots: Vec<u32>,
    access: Option<Access>,
}

#[derive(Serialize, Deserialize)]
struct OriginForm {
    host: Option<String>,
    pid: Option<u32>,
    label: Option<String>,
}

impl Serialize for Holder {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let origin = |Origin { host, pid, label }| OriginForm { host, pid, label };
        HolderForm {
            owner: Bytes(self.owner.clone()),
            origin: self.origin.clone().map(origin),
            token: self.token,
            since: self.since.map(written),
            ttl: self.ttl.map(written),
            overdue: self.overdue.map(written),
            slots: self.slots().to_vec(),
            access: self.access(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Holder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Holder, D::Error> {
        let form = HolderForm::deserialize(deserializer)?;
        // Another program may have written it, and all of it is shown to people.
        let clean = |text: Option<String>| text.map(|text| sanitize(&text));
        let origin = |OriginForm { host, pid, label }| Origin {
            host: clean(host),
            pid,
            label: clean(label),
        };
        let time = |field, text: Option<String>| {
            text.map(|text| span(field, &text)).transpose().map_err(D::Error::custom)
        };
        Ok(Holder {
            owner: form.owner.0,
            origin: form.origin.map(origin),
            token: form.token,
            since: time("since", form.since)?,
            ttl: time("ttl", form.ttl)?,
            overdue: time("overdue", form.overdue)?,
            part: match form.access {
                Some(access) => HeldPart::Access(access),
                None if form.slots.is_empty() => HeldPart::Whole,
                None => HeldPart::Permits(form.slots),
            },
        })
    }
}

/// Bytes that mostly are text: a string where they are, else a list of numbers. A format that people do not
/// read has them as they are.
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            _ if !serializer.is_human_readable() => serializer.serialize_bytes(&self.0),
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Bytes, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of bytes")
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<Bytes, E> {
                Ok(Bytes(text.as_bytes().to_vec()))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> std::result::Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut numbers: A,
            ) -> std::result::Result<Bytes, A::Error> {
                // Without room in advance: the length may be what somebody claims.
                let mut bytes = Vec::new();
                while let Some(byte) = numbers.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes(bytes))
            }
        }

        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Reader)
        } else {
            deserializer.deserialize_byte_buf(Reader)
        }
    }
}
