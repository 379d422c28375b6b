//! What the scripts of all kinds share, as `token.lua` has it: fencing tokens.

use super::store::{Outcome, Run, WrongType};

/// The number that digits tell, if they do.
pub(super) fn number(digits: Option<Vec<u8>>) -> Option<u64> {
    std::str::from_utf8(&digits?).ok()?.parse().ok()
}

pub(super) fn digits(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The token after the last one, where the server's time has just been noted in its place.
pub(super) fn above(
    run: &mut Run<'_>,
    fence: &[u8],
    last: Outcome<Option<Vec<u8>>>,
    keep: u64,
) -> u64 {
    let now = run.now();
    let last = match last {
        Ok(last) => number(last).unwrap_or(0),
        Err(WrongType) => {
            run.set(fence, &digits(now), Some(keep));
            return now;
        }
    };
    if last < now {
        return now;
    }
    run.set(fence, &digits(last + 1), Some(keep + (last - now).div_ceil(1000)));
    last + 1
}

/// A token above all earlier ones, and not below the server's time.
pub(super) fn mint(run: &mut Run<'_>, fence: &[u8], keep: u64) -> u64 {
    let last = run.set_get(fence, &digits(run.now()), keep);
    above(run, fence, last, keep)
}

/// Notes the last token used, where that is beyond the one that was minted.
pub(super) fn keep_token(run: &mut Run<'_>, fence: &[u8], used: u64, keep: u64) {
    let last = number(run.get(fence).ok().flatten()).unwrap_or(0);
    if last < used {
        run.set(fence, &digits(used), Some(keep));
    }
}
