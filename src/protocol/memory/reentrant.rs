//! The scripts of the reentrant lock, line by line: `reentrant_….lua`.

use crate::wire::Value;

use super::request::Request;
use super::store::{Outcome, Run, WrongType};
use super::token::{keep_token, mint, number};

/// Serves a request.
pub(crate) fn scripts(
    run: &mut Run<'_>,
    keys: &[Vec<u8>],
    request: &Request,
) -> Result<Value, WrongType> {
    let [lock, fence, channel] = keys else { return Err(WrongType) };
    let is_owner = |run: &Run<'_>, owner: &[u8]| Ok(run.hget(lock, owner)?.is_some());
    let not_owner = |run: &Run<'_>| Ok(Value::Int(if run.exists(lock) { -1 } else { 0 }));
    match request {
        Request::Acquire { owner, ttl, deadline, fence: keep, .. } => {
            acquire(run, [lock, fence], owner, *ttl, *deadline, *keep)
        }
        Request::Release { owner, fence: keep, last_token } => {
            if !is_owner(run, owner)? {
                return not_owner(run);
            }
            run.del(lock);
            if *last_token != 0 {
                keep_token(run, fence, *last_token, *keep);
            }
            let listeners = run.publish(channel, b"0".to_vec());
            let listeners = i64::try_from(listeners).unwrap_or(i64::MAX);
            Ok(if listeners > 0 {
                Value::Array(vec![Value::Int(1), Value::Int(listeners)])
            } else {
                Value::Int(1)
            })
        }
        Request::Renew { owner, ttl, count, fence: keep } => {
            if !is_owner(run, owner)? {
                return not_owner(run);
            }
            run.pexpire_later(lock, *ttl);
            run.pexpire_later(fence, *keep);
            run.hset(lock, owner, count.to_string().as_bytes())?;
            Ok(Value::Int(1))
        }
        Request::Force { owner, deadline, .. } => {
            if run.now() > *deadline {
                let now = i64::try_from(run.now()).unwrap_or(i64::MAX);
                return Ok(Value::Array(vec![Value::Int(2), Value::Int(now)]));
            }
            if !is_owner(run, owner)? {
                return Ok(Value::Int(0));
            }
            run.del(lock);
            run.publish(channel, b"0".to_vec());
            if let Some((channel, number)) = client(owner) {
                let payload = [format!("x {number:x} ").as_bytes(), lock.as_slice()].concat();
                run.publish(&channel, payload);
            }
            Ok(Value::Int(1))
        }
        Request::Delete { .. } | Request::Ask => Ok(Value::Int(0)),
        Request::Inspect => {
            Ok(Value::Array(run.hkeys(lock)?.into_iter().map(Value::BulkString).collect()))
        }
    }
}

/// The channel of an owner's client, and the number of the attempt: `^([%x-]+):(%d+)$`.
fn client(owner: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (client, number) = std::str::from_utf8(owner).ok()?.split_once(':')?;
    let is_client = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    let is_number = number.len() < 16 && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_number && client.bytes().all(is_client))?;
    let channel = format!("leasehold:{}", client.replace('-', ""));
    (!client.is_empty()).then(|| (channel.into_bytes(), number))
}

fn acquire(
    run: &mut Run<'_>,
    [lock, fence]: [&[u8]; 2],
    me: &[u8],
    ttl: u64,
    deadline: u64,
    keep: u64,
) -> Outcome<Value> {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let list = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Int).collect());
    let now = signed(run.now());
    if deadline > 0 && run.now() > deadline {
        return Ok(list(&[2, now]));
    }
    let mut left = signed(ttl);
    if run.hget(lock, me)?.is_some() {
        if run.pttl(lock) < left {
            run.pexpire(lock, ttl);
        }
        left = run.pttl(lock);
        if let Some(token) = number(run.get(fence)?) {
            return Ok(list(&[1, signed(token), left, now, 0]));
        }
    } else if run.exists(lock) {
        return Ok(list(&[0, run.pttl(lock), now, 0, 0]));
    } else {
        run.hset(lock, me, b"1")?;
        run.pexpire(lock, ttl);
    }
    Ok(list(&[1, signed(mint(run, fence, keep)), left, now, 0]))
}
