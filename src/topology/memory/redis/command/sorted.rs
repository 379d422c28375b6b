//! Commands on sorted sets.

use redis::Value;

use super::super::number::{Score, integer};
use super::super::reply::{CommandResult, ErrorReply};
use super::super::store::{Execution, Member};
use super::entry::Access::{Grow, Read, Shrink};
use super::entry::{Command, Words, between, bulk, count, is, read_integer, read_score};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("ZADD", -4, Grow, zadd),
    Command::new("ZINCRBY", 4, Grow, |run, words| {
        let rules = AddRules { increments: true, ..AddRules::default() };
        add(run, &words[1], rules, &[(read_score(&words[2])?, words[3].clone())])
    }),
    Command::new("ZREM", -3, Shrink, |run, words| {
        remove(run, &words[1], |(_, member)| words[2..].contains(member))
    }),
    Command::new("ZREMRANGEBYSCORE", 4, Shrink, |run, words| {
        let range = Range::read(&words[2], &words[3])?;
        remove(run, &words[1], |(score, _)| range.contains(*score))
    }),
    Command::new("ZPOPMIN", -2, Shrink, zpopmin),
    Command::new("ZSCORE", 3, Read, |run, words| {
        let found = position(run.sorted(&words[1])?, &words[2]);
        Ok(found.map_or(Value::Nil, |(_, score)| bulk(&score.print())))
    }),
    Command::new("ZMSCORE", -3, Read, |run, words| {
        let scores = run.sorted(&words[1])?;
        let score = |member| match position(scores, member) {
            Some((_, score)) => bulk(&score.print()),
            None => Value::Nil,
        };
        Ok(Value::Array(words[2..].iter().map(|member| score(member)).collect()))
    }),
    Command::new("ZCARD", 2, Read, |run, words| Ok(count(run.sorted(&words[1])?.len()))),
    Command::new("ZCOUNT", 4, Read, |run, words| {
        let range = Range::read(&words[2], &words[3])?;
        let scores = run.sorted(&words[1])?.iter();
        Ok(count(scores.filter(|(score, _)| range.contains(*score)).count()))
    }),
    Command::new("ZRANGE", -4, Read, zrange),
];

fn position(scores: &[Member], member: &[u8]) -> Option<(usize, Score)> {
    let at = scores.iter().position(|(_, other)| other == member)?;
    Some((at, scores[at].0))
}

/// The options of `ZADD`.
#[derive(Clone, Copy, Default)]
struct AddRules {
    only_new: bool,
    only_known: bool,
    only_greater: bool,
    only_less: bool,
    counts_changes: bool,
    increments: bool,
}

fn zadd(run: &mut Execution, words: &Words) -> CommandResult {
    let mut rules = AddRules::default();
    let mut begin = 2;
    for option in &words[2..] {
        let rule = match option.to_ascii_uppercase().as_slice() {
            b"NX" => &mut rules.only_new,
            b"XX" => &mut rules.only_known,
            b"GT" => &mut rules.only_greater,
            b"LT" => &mut rules.only_less,
            b"CH" => &mut rules.counts_changes,
            b"INCR" => &mut rules.increments,
            _ => break,
        };
        *rule = true;
        begin += 1;
    }
    let pairs = words[begin..].chunks_exact(2);
    let is_single = pairs.len() == 1;
    if pairs.len() == 0 || !pairs.remainder().is_empty() {
        return Err(ErrorReply::syntax());
    }
    let AddRules { only_new, only_known, only_greater, only_less, increments, .. } = rules;
    let compares = only_greater || only_less;
    if (only_new && (only_known || compares)) || (only_greater && only_less) {
        return Err(ErrorReply::new(
            "ERR XX and NX, GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if increments && !is_single {
        return Err(ErrorReply::new("ERR INCR option supports a single increment-element pair"));
    }
    let pairs = pairs.map(|pair| Ok((read_score(&pair[0])?, pair[1].clone())));
    add(run, &words[1], rules, &pairs.collect::<Result<Vec<Member>, _>>()?)
}

fn add(run: &mut Execution, key: &[u8], rules: AddRules, pairs: &[Member]) -> CommandResult {
    // An error in the middle is returned only after `settle`: the pairs before it stay, and a set
    // that was created for nothing must not.
    let scores = run.sorted_mut(key)?;
    let (mut added, mut changed, mut last) = (0, 0, Ok(None));
    for (by, member) in pairs {
        let found = position(scores, member);
        last = new_score(rules, *by, found.map(|(_, score)| score));
        let Ok(Some(score)) = last else { continue };
        match found {
            Some((_, before)) if before == score => continue,
            Some((at, _)) => {
                scores.remove(at);
                changed += 1;
            }
            None => added += 1,
        }
        let entry = (score, member.clone());
        let at = scores.partition_point(|other| *other < entry);
        scores.insert(at, entry);
    }
    run.settle(key, added + changed > 0);
    let last = last?;
    if rules.increments {
        return Ok(last.map_or(Value::Nil, |score| bulk(&score.print())));
    }
    Ok(count(if rules.counts_changes { added + changed } else { added }))
}

/// The new score of a member; `None` if the options leave it unchanged.
fn new_score(
    rules: AddRules,
    score: Score,
    before: Option<Score>,
) -> Result<Option<Score>, ErrorReply> {
    let Some(before) = before else { return Ok((!rules.only_known).then_some(score)) };
    if rules.only_new {
        return Ok(None);
    }
    let score = if rules.increments {
        let not_a_number = || ErrorReply::new("ERR resulting score is not a number (NaN)");
        Score::new(before.number() + score.number()).ok_or_else(not_a_number)?
    } else {
        score
    };
    let is_kept = (rules.only_greater && score <= before) || (rules.only_less && score >= before);
    Ok((!is_kept).then_some(score))
}

fn remove(run: &mut Execution, key: &[u8], is_chosen: impl Fn(&Member) -> bool) -> CommandResult {
    let scores = run.sorted_mut(key)?;
    let before = scores.len();
    scores.retain(|entry| !is_chosen(entry));
    let removed = before - scores.len();
    run.settle(key, removed > 0);
    Ok(count(removed))
}

fn zpopmin(run: &mut Execution, words: &Words) -> CommandResult {
    if words.len() > 3 {
        return Err(ErrorReply::syntax());
    }
    let wanted = words
        .get(2)
        .map_or(Some(1), |digits| integer(digits).and_then(|wanted| usize::try_from(wanted).ok()));
    let wanted =
        wanted.ok_or_else(|| ErrorReply::new("ERR value is out of range, must be positive"))?;
    let scores = run.sorted_mut(&words[1])?;
    let popped: Vec<Member> = scores.drain(..wanted.min(scores.len())).collect();
    run.settle(&words[1], !popped.is_empty());
    Ok(list(popped.iter(), true))
}

/// Scores between two bounds.
struct Range {
    bounds: [(Score, bool); 2],
}

impl Range {
    fn read(low: &[u8], high: &[u8]) -> Result<Range, ErrorReply> {
        let bound = |text: &[u8]| match text.strip_prefix(b"(") {
            Some(text) => Score::read(text).map(|score| (score, true)),
            None => Score::read(text).map(|score| (score, false)),
        };
        match (bound(low), bound(high)) {
            (Some(low), Some(high)) => Ok(Range { bounds: [low, high] }),
            _ => Err(ErrorReply::new("ERR min or max is not a float")),
        }
    }

    fn contains(&self, score: Score) -> bool {
        let [(low, above), (high, below)] = self.bounds;
        (if above { score > low } else { score >= low })
            && (if below { score < high } else { score <= high })
    }
}

fn zrange(run: &mut Execution, words: &Words) -> CommandResult {
    let (mut by_score, mut reversed, mut with_scores, mut limit) = (false, false, false, None);
    let mut options = words[4..].iter();
    while let Some(option) = options.next() {
        if is(option, "BYSCORE") && !by_score {
            by_score = true;
        } else if is(option, "REV") && !reversed {
            reversed = true;
        } else if is(option, "WITHSCORES") {
            with_scores = true;
        } else if is(option, "LIMIT")
            && let (Some(offset), Some(most)) = (options.next(), options.next())
        {
            limit = Some((read_integer(offset)?, read_integer(most)?));
        } else if is(option, "BYLEX") {
            return Err(ErrorReply::unknown("option of ZRANGE", option));
        } else {
            return Err(ErrorReply::syntax());
        }
    }
    // Redis accepts a limit of −1 everywhere.
    if limit.is_some_and(|(_, most)| most != -1) && !by_score {
        return Err(ErrorReply::new(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    let (first, last) = (&words[2], &words[3]);
    if !by_score {
        let (first, last) = (read_integer(first)?, read_integer(last)?);
        let mut scores: Vec<_> = run.sorted(&words[1])?.iter().collect();
        if reversed {
            scores.reverse();
        }
        return Ok(list(between(&scores, first, last).iter().copied(), with_scores));
    }
    let range = if reversed { Range::read(last, first)? } else { Range::read(first, last)? };
    let scores = run.sorted(&words[1])?.iter();
    let mut chosen: Vec<_> = scores.filter(|(score, _)| range.contains(*score)).collect();
    if reversed {
        chosen.reverse();
    }
    let (offset, most) = limit.unwrap_or((0, -1));
    // A negative offset skips everything, and a negative limit means all: both become the largest
    // number.
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(list(chosen.into_iter().skip(offset).take(most), with_scores))
}

fn list<'a>(entries: impl Iterator<Item = &'a Member>, with_scores: bool) -> Value {
    let mut parts = Vec::new();
    for (score, member) in entries {
        parts.push(bulk(member));
        if with_scores {
            parts.push(bulk(&score.print()));
        }
    }
    Value::Array(parts)
}
