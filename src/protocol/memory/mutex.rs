//! The scripts of the mutex, line by line: `mutex_….lua` over `queue.lua`.

use crate::protocol::request::Mode;
use crate::wire::Value;

use super::request::Request;
use super::store::{Outcome, Run, WrongType};
use super::token::{above, digits, keep_token, mint};

/// The keys of a mutex.
#[derive(Clone, Copy)]
struct Keys<'a> {
    lock: &'a [u8],
    fence: &'a [u8],
    queue: &'a [u8],
    beats: &'a [u8],
}

/// Serves a request.
pub(crate) fn scripts(
    run: &mut Run<'_>,
    keys: &[Vec<u8>],
    request: &Request,
) -> Result<Value, WrongType> {
    let [lock, fence, queue, beats] = keys else { return Err(WrongType) };
    let keys = Keys { lock, fence, queue, beats };
    match request {
        Request::Acquire { owner, ttl, deadline, fence, mode, dies_after, queue } => {
            if *deadline != 0 && run.now() > *deadline {
                return Ok(list([2, signed(run.now())]));
            }
            let attempt =
                Acquire { keys, me: owner, ttl: *ttl, keep: *fence, mode: *mode, queue: *queue };
            attempt.run(run, *dies_after)
        }
        Request::Release { owner, fence, last_token } => {
            release(run, keys, owner, *fence, *last_token).map(Value::Int)
        }
        Request::Delete { owner, fence, last_token } => {
            let found = run.get(keys.lock)?;
            let is_owner = found.as_ref() == Some(owner);
            if is_owner {
                run.del(keys.lock);
                keep_token(run, keys.fence, *last_token, *fence);
            }
            Ok(Value::Int(if is_owner {
                1
            } else if found.is_some() {
                -1
            } else {
                0
            }))
        }
        Request::Renew { owner, ttl, fence, .. } => {
            let found = run.get(keys.lock)?;
            if found.as_ref() == Some(owner) {
                run.pexpire_later(keys.lock, *ttl);
                run.pexpire_later(keys.fence, *fence);
                return Ok(Value::Int(1));
            }
            Ok(Value::Int(if found.is_some() { -1 } else { 0 }))
        }
        Request::Force { owner, deadline, fence } => {
            if run.now() > *deadline {
                return Ok(list([2, signed(run.now())]));
            }
            if run.get(keys.lock)?.as_ref() != Some(owner) {
                return Ok(Value::Int(0));
            }
            if hand_over(run, keys, *fence, None)?.is_none() {
                run.del(keys.lock);
            }
            if let Some(to) = listener(owner) {
                run.publish(&to.channel, message(&["x", to.number], keys.lock));
            }
            Ok(Value::Int(1))
        }
        Request::Ask => {
            let owner = run.get(keys.lock)?.unwrap_or_default();
            Ok(Value::Int(listener(&owner).map_or(0, |to| {
                let payload = message(&["p", to.number, &run.now().to_string()], keys.lock);
                signed(run.publish(&to.channel, payload))
            })))
        }
        Request::Inspect => Ok(run.get(keys.lock)?.map_or(Value::Nil, Value::BulkString)),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn list<const N: usize>(numbers: [i64; N]) -> Value {
    Value::Array(numbers.into_iter().map(Value::Int).collect())
}

/// What the value of an attempt tells about who hears of it.
struct Hearer<'a> {
    channel: Vec<u8>,
    number: &'a str,
    window: u64,
}

/// Whose holder hands over: `^%dq:(%x+):(%x+):(%d+):`.
fn listener(attempt: &[u8]) -> Option<Hearer<'_>> {
    let is_hexadecimal = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit);
    let mut parts = attempt.splitn(5, |&byte| byte == b':');
    let mark = parts.next()?;
    if mark.len() != 2 || !mark[0].is_ascii_digit() || mark[1] != b'q' {
        return None;
    }
    let client = parts.next().filter(|text| is_hexadecimal(text))?;
    let number = parts.next().filter(|text| is_hexadecimal(text))?;
    let window = parts.next().filter(|text| text.iter().all(u8::is_ascii_digit))?;
    parts.next()?;
    Some(Hearer {
        channel: [b"leasehold:", client].concat(),
        number: std::str::from_utf8(number).ok()?,
        window: std::str::from_utf8(window).ok()?.parse().ok()?,
    })
}

/// The fields and the name, with blanks between.
fn message(fields: &[&str], name: &[u8]) -> Vec<u8> {
    [fields.join(" ").as_bytes(), b" ", name].concat()
}

/// Makes the first live waiter the owner and tells it; returns it, or nothing if nobody lives.
/// Where that is the attempt `me`, which asks itself, the owner is left to the caller to write.
fn hand_over(
    run: &mut Run<'_>,
    keys: Keys<'_>,
    keep: u64,
    me: Option<&[u8]>,
) -> Outcome<Option<Vec<u8>>> {
    let now = run.now();
    loop {
        let queue = run.zrange(keys.queue).unwrap_or_default();
        let Some((place, attempt)) = queue.into_iter().find(|(place, _)| *place > 0) else {
            return Ok(None);
        };
        let to = listener(&attempt);
        let Ok(death) = run.zscore(keys.beats, &attempt) else { return Ok(None) };
        run.zrem(keys.queue, &attempt)?;
        if me == Some(&attempt) {
            run.zrem(keys.beats, &attempt)?;
            return Ok(Some(attempt));
        }
        if let Some(to) = &to
            && death.is_some_and(|death| death > signed(now))
            && run.numsub(&to.channel) != 0
        {
            run.zrem(keys.beats, &attempt)?;
            run.set(keys.lock, &attempt, Some(to.window));
            let token = mint(run, keys.fence, keep.max(to.window));
            let waiters = run.zcard(keys.queue)?;
            let fields = [token, now, to.window, waiters].map(|number| number.to_string());
            let [token, now, window, waiters] = &fields;
            let grant = message(&["g", to.number, token, now, window, waiters], keys.lock);
            run.publish(&to.channel, grant);
            return Ok(Some(attempt));
        }
        if let Some(to) = to {
            run.publish(&to.channel, message(&["r", to.number], keys.lock));
        }
        run.zadd(keys.queue, &attempt, -place)?;
        if run.pexpire_new(keys.queue, 60_000) {
            run.pexpire(keys.beats, 60_000);
        }
    }
}

fn release(
    run: &mut Run<'_>,
    keys: Keys<'_>,
    me: &[u8],
    keep: u64,
    last_token: u64,
) -> Outcome<i64> {
    let owner = run.get(keys.lock)?;
    if owner.as_deref() != Some(me) {
        let _ = run.zrem(keys.queue, me);
        let _ = run.zrem(keys.beats, me);
        return Ok(if owner.is_some() { -1 } else { 0 });
    }
    let mut given = None;
    if run.exists(keys.queue) {
        if last_token != 0 {
            let _ = run.zrem(keys.queue, me);
            keep_token(run, keys.fence, last_token, keep);
        }
        given = hand_over(run, keys, keep, None)?;
    }
    if given.is_none() {
        run.del(keys.lock);
        if last_token != 0 {
            keep_token(run, keys.fence, last_token, keep);
        }
    }
    Ok(1)
}

/// `mutex_acquire.lua` and, after it, `mutex_wait.lua`.
struct Acquire<'a> {
    keys: Keys<'a>,
    me: &'a [u8],
    ttl: u64,
    keep: u64,
    mode: Mode,
    queue: u64,
}

impl Acquire<'_> {
    fn run(&self, run: &mut Run<'_>, dies_after: u64) -> Outcome<Value> {
        let keys = self.keys;
        let mut owner = run.get(keys.lock)?;
        if self.mode != Mode::Beat && owner.is_none() {
            run.set(keys.lock, self.me, Some(self.ttl));
            if !run.exists(keys.queue) {
                return Ok(self.take(run));
            }
            owner = hand_over(run, keys, self.keep, Some(self.me))?;
            if owner.as_deref().is_none_or(|owner| owner == self.me) {
                return Ok(self.granted(run, signed(self.ttl), None));
            }
        }
        if owner.as_deref() == Some(self.me) {
            let mut left = run.pttl(keys.lock);
            if left >= 0 && left < signed(self.ttl) {
                run.pexpire(keys.lock, self.ttl);
                left = signed(self.ttl);
            }
            run.pexpire_later(keys.fence, self.keep);
            let token = super::token::number(run.get(keys.fence).ok().flatten());
            return Ok(self.granted(run, left, token));
        }
        if self.mode == Mode::Try {
            return Ok(self.busy(run, owner, 0));
        }
        self.wait(run, owner, dies_after)
    }

    /// Nobody has it and nobody waits.
    fn take(&self, run: &mut Run<'_>) -> Value {
        let now = run.now();
        let last = run.set_get(self.keys.fence, &digits(now), self.keep);
        if last.as_ref().is_ok_and(|last| {
            last.is_none() || super::token::number(last.clone()).unwrap_or(0) < now
        }) {
            return Value::Int(signed(now));
        }
        let token = above(run, self.keys.fence, last, self.keep);
        self.granted(run, signed(self.ttl), Some(token))
    }

    fn wait(
        &self,
        run: &mut Run<'_>,
        mut owner: Option<Vec<u8>>,
        dies_after: u64,
    ) -> Outcome<Value> {
        let keys = self.keys;
        let death = signed(run.now().saturating_add(dies_after));
        let mut place = 0;
        let mut news = false;
        if self.mode == Mode::Join {
            let queue = run.zrange(keys.queue)?;
            let lowest = queue.first().map_or(0, |(place, _)| *place);
            let highest = queue.last().map_or(0, |(place, _)| *place);
            // Behind those, too, who were taken for dead.
            place = highest.max(-lowest) + 1;
            news = run.zscore(keys.queue, self.me)?.is_none();
            if news {
                run.zadd(keys.queue, self.me, place)?;
                run.zadd(keys.beats, self.me, death)?;
            }
        }
        if !news {
            let Some(found) = run.zscore(keys.queue, self.me)? else {
                return Ok(list([3, signed(run.now())]));
            };
            place = found.abs();
            if found < 0 {
                let _ = run.zadd(keys.queue, self.me, place);
            }
            if owner.is_none() {
                owner = hand_over(run, keys, self.keep, Some(self.me))?;
                if owner.as_deref().is_none_or(|owner| owner == self.me) {
                    run.zrem(keys.queue, self.me)?;
                    run.zrem(keys.beats, self.me)?;
                    run.set(keys.lock, self.me, Some(self.ttl));
                    return Ok(self.granted(run, signed(self.ttl), None));
                }
            }
            let _ = run.zadd(keys.beats, self.me, death);
        }
        if place % 8 == 1 || !news {
            run.pexpire(keys.queue, self.queue);
            run.pexpire(keys.beats, self.queue);
            if place > 1 || !news {
                self.sweep(run)?;
            }
        }
        let channel = owner.as_deref().and_then(listener);
        let mut ahead = 0;
        if place > 1 && !(news && channel.is_some()) {
            let queue = run.zrange(keys.queue)?;
            ahead = queue.iter().filter(|(other, _)| *other > 0 && *other < place).count() as i64;
        } else if news {
            ahead = place - 1;
        }
        if let Some(to) = channel
            && ahead == 0
        {
            let waiters = run.zcard(keys.queue)?.to_string();
            run.publish(&to.channel, message(&["w", to.number, &waiters], keys.lock));
        }
        Ok(self.busy(run, owner, ahead))
    }

    /// Takes those out who died long ago.
    fn sweep(&self, run: &mut Run<'_>) -> Outcome<()> {
        let keys = self.keys;
        let until = signed(run.now()).saturating_sub(signed(self.queue.saturating_mul(1000)));
        let beats = run.zrange(keys.beats)?;
        for (_, attempt) in beats.into_iter().take_while(|(death, _)| *death <= until).take(8) {
            run.zrem(keys.queue, &attempt)?;
            run.zrem(keys.beats, &attempt)?;
        }
        Ok(())
    }

    fn granted(&self, run: &mut Run<'_>, left: i64, token: Option<u64>) -> Value {
        let waiters = run.zcard(self.keys.queue).unwrap_or(0);
        let token = token.unwrap_or_else(|| mint(run, self.keys.fence, self.keep));
        list([1, signed(token), left, signed(run.now()), signed(waiters)])
    }

    fn busy(&self, run: &Run<'_>, owner: Option<Vec<u8>>, ahead: i64) -> Value {
        let hands_over = owner.as_deref().and_then(listener).is_some();
        let left = run.pttl(self.keys.lock);
        list([0, left, signed(run.now()), ahead, i64::from(hands_over)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_hands_over_is_a_hearer() {
        let to = listener(b"1q:ab:1f:3000:4711:host:label").unwrap();
        assert_eq!(
            (to.channel.as_slice(), to.number, to.window),
            (&b"leasehold:ab"[..], "1f", 3000)
        );
        for other in
            ["", "1-:ab:1f:3000:1", "1q:ab:1f:3000", "1q:xy:1f:3:1", "1q::1:3:1", "q:a:1:3:1"]
        {
            assert!(listener(other.as_bytes()).is_none(), "{other}");
        }
    }
}
