//! Where a message of the Redis protocol ends.

/// Takes the first whole message off the buffer.
///
/// What is not the protocol at all (inline commands, TLS) comes out as it went in.
pub(crate) fn take(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    if buffer.is_empty() {
        return None;
    }
    let end = match end(buffer, 0) {
        Ok(end) => end,
        Err(Problem::Incomplete) => return None,
        Err(Problem::Foreign) => buffer.len(),
    };
    let rest = buffer.split_off(end);
    Some(std::mem::replace(buffer, rest))
}

/// Says whether a server's message answers no request: published, or about a subscription.
pub(crate) fn is_push(message: &[u8]) -> bool {
    const RESP2: [&[u8]; 3] = [b"message", b"pmessage", b"smessage"];
    message.starts_with(b">")
        || word(message).is_some_and(|word| RESP2.contains(&word) || subscribes(word))
}

/// Says whether a client's message is answered by pushes alone.
pub(crate) fn is_subscription(message: &[u8]) -> bool {
    word(message).is_some_and(subscribes)
}

fn subscribes(word: &[u8]) -> bool {
    let word = word.to_ascii_lowercase();
    let word = word.strip_prefix(b"p").or(word.strip_prefix(b"s")).map_or(&*word, |rest| {
        // `subscribe` itself begins with the letter of the sharded kind.
        if rest == b"ubscribe" { &word } else { rest }
    });
    matches!(word, b"subscribe" | b"unsubscribe")
}

/// Returns the strings of an array, or nothing for any other message.
pub(crate) fn words(message: &[u8]) -> Vec<&[u8]> {
    fn next(message: &[u8], at: usize) -> Option<(&[u8], usize)> {
        if message.get(at) != Some(&b'$') {
            return None;
        }
        let (length, from) = line(message, at).ok()?;
        let to = from + usize::try_from(number(length).ok()?).ok()?;
        Some((message.get(from..to)?, to + 2))
    }
    let mut words = Vec::new();
    if message.starts_with(b"*")
        && let Ok((_, mut at)) = line(message, 0)
    {
        while let Some((word, end)) = next(message, at) {
            words.push(word);
            at = end;
        }
    }
    words
}

/// Returns the first string of an array.
fn word(message: &[u8]) -> Option<&[u8]> {
    if !message.starts_with(b"*") {
        return None;
    }
    let start = line(message, 0).ok()?.1;
    if message.get(start) != Some(&b'$') {
        return None;
    }
    let (length, from) = line(message, start).ok()?;
    message.get(from..from + usize::try_from(number(length).ok()?).ok()?)
}

#[derive(Debug)]
enum Problem {
    Incomplete,
    Foreign,
}

fn end(bytes: &[u8], at: usize) -> Result<usize, Problem> {
    let (head, next) = match bytes.get(at) {
        None => return Err(Problem::Incomplete),
        Some(kind) if b"+-:_#,($!=*~>%|".contains(kind) => line(bytes, at)?,
        Some(_) => return Err(Problem::Foreign),
    };
    let parts = match bytes[at] {
        b'$' | b'!' | b'=' => {
            let Ok(length) = usize::try_from(number(head)?) else {
                return Ok(next);
            };
            let end = next + length + 2;
            return if end <= bytes.len() { Ok(end) } else { Err(Problem::Incomplete) };
        }
        b'*' | b'~' | b'>' => number(head)?,
        b'%' => number(head)? * 2,
        // Attributes come before the value that they are about.
        b'|' => number(head)? * 2 + 1,
        _ => 0,
    };
    (0..parts).try_fold(next, |at, _| end(bytes, at))
}

/// Returns the line's text after its first byte, and where the next line begins.
fn line(bytes: &[u8], at: usize) -> Result<(&[u8], usize), Problem> {
    let rest = &bytes[at..];
    let length = rest.windows(2).position(|pair| pair == b"\r\n");
    let length = length.ok_or(Problem::Incomplete)?;
    Ok((&rest[1..length], at + length + 2))
}

fn number(text: &[u8]) -> Result<i64, Problem> {
    let text = std::str::from_utf8(text).map_err(|_| Problem::Foreign)?;
    text.parse().map_err(|_| Problem::Foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_cut_at_the_ends_of_messages() {
        let messages: [&[u8]; 8] = [
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
            b"+OK\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"$4\r\n\r\n\r\n\r\n",
            b"%1\r\n+a\r\n*1\r\n:1\r\n",
            b"|1\r\n+a\r\n+b\r\n:7\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        ];
        let stream = messages.concat();
        let mut buffer = Vec::new();
        let mut found = Vec::new();
        for byte in stream {
            buffer.push(byte);
            found.extend(take(&mut buffer));
        }
        assert_eq!(found, messages);
        assert!(buffer.is_empty());
    }

    #[test]
    fn subscriptions_are_recognised() {
        for name in ["SUBSCRIBE", "psubscribe", "SSUBSCRIBE", "unsubscribe", "PUNSUBSCRIBE"] {
            let message = format!("*1\r\n${}\r\n{name}\r\n", name.len());
            assert!(is_subscription(message.as_bytes()), "{name}");
        }
        assert!(!is_subscription(b"*1\r\n$4\r\nPING\r\n"));
        assert!(is_push(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"));
        assert!(!is_push(b"*1\r\n$4\r\npong\r\n"));
    }
}
