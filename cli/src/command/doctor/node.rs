//! The servers that have locks.

use std::collections::BTreeSet;

use leasehold::redis::{self, Value};

use super::probe::Probe;

/// How many names are tried until one is on a server. With a thousand masters of equal size, one in
/// e<sup>60</sup> would not be found.
const TRIES: u32 = 65_536;

/// A server, by a name of a lock that it has.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: Vec<u8>,
    /// Where there are several.
    pub(super) address: Option<String>,
}

/// All masters of a cluster, or the one that has all names with this hash tag; the one server otherwise.
pub(super) fn nodes(first: &Probe<'_>, is_cluster: bool) -> Vec<Node> {
    let only = || vec![Node { name: first.name.clone(), address: None }];
    if !is_cluster {
        return only();
    }
    let slots: Result<Vec<Vec<Value>>, String> = first.get(redis::cmd("CLUSTER").arg("SLOTS"));
    let Ok(ranges) = slots else { return only() };
    let mut nodes: Vec<Node> = Vec::new();
    for (first_slot, last_slot, address) in ranges.iter().filter_map(|range| read(range)) {
        let slots = first_slot..=last_slot;
        if let Some(tag) = tag(&first.name) {
            if slots.contains(&i64::from(slot(tag))) {
                return vec![Node { name: first.name.clone(), address: Some(address) }];
            }
            continue;
        }
        if nodes.iter().any(|node| node.address.as_deref() == Some(&address)) {
            continue;
        }
        let name = |number: u32| [&first.name[..], b":", number.to_string().as_bytes()].concat();
        let found = (0..TRIES).map(name).find(|name| slots.contains(&i64::from(slot(name))));
        nodes.extend(found.map(|name| Node { name, address: Some(address) }));
    }
    if nodes.is_empty() { only() } else { nodes }
}

/// The addresses of all nodes of a cluster, or of the replicas of the one server.
pub(super) fn others(
    first: &Probe<'_>,
    is_cluster: bool,
) -> Result<BTreeSet<(String, u16)>, String> {
    if is_cluster {
        let ranges: Vec<Vec<Value>> = first.get(redis::cmd("CLUSTER").arg("SLOTS"))?;
        // After the two ends of a range come its master and the replicas of that master.
        return Ok(ranges
            .iter()
            .flat_map(|range| range.iter().skip(2))
            .filter_map(address)
            .collect());
    }
    let info = first.info("replication")?;
    let replicas = (0..).map_while(|number| info.text(&format!("slave{number}")));
    let read = |replica: &str| {
        let field = |name: &str| replica.split(',').find_map(|pair| pair.strip_prefix(name));
        Some((field("ip=")?.to_owned(), field("port=")?.parse().ok()?))
    };
    Ok(replicas.filter_map(read).collect())
}

fn address(node: &Value) -> Option<(String, u16)> {
    let Value::Array(node) = node else { return None };
    let [Value::BulkString(host), Value::Int(port), ..] = node.as_slice() else { return None };
    Some((String::from_utf8(host.clone()).ok()?, u16::try_from(*port).ok()?))
}

/// The hash tag of a name: it alone decides the slot.
pub(super) fn tag(name: &[u8]) -> Option<&[u8]> {
    let begin = name.iter().position(|byte| *byte == b'{')? + 1;
    let length = name[begin..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &name[begin..begin + length])
}

/// The first slot, the last one, and the address of their master.
fn read(range: &[Value]) -> Option<(i64, i64, String)> {
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range else {
        return None;
    };
    let [Value::BulkString(host), Value::Int(port), ..] = master.as_slice() else { return None };
    Some((*first, *last, format!("{}:{port}", crate::name::Shown(host))))
}

/// The cluster slot of a name without a hash tag: CRC-16/XMODEM.
fn slot(name: &[u8]) -> u16 {
    let crc = name.iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_what_the_first_braces_have() {
        for (name, expected) in [
            (&b"a{b}{c}d"[..], Some(&b"b"[..])),
            (b"a{{b}}", Some(b"{b")),
            (b"{}{a}", None),
            (b"a}b{c", None),
        ] {
            assert_eq!(tag(name), expected, "{name:?}");
        }
    }

    #[test]
    fn slot_is_that_of_the_cluster_specification() {
        // Of its appendix: the check value 0x31C3.
        assert_eq!(slot(b"123456789"), 0x31c3);
    }
}
