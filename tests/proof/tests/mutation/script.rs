//! The bugs planted in the scripts, which `plant.rs` puts there when a script is read.

/// Name, script, the piece to replace, and its replacement. One name may have several.
pub(crate) const PATCHES: &[(&str, &str, &str, &str)] = &[
    // Rule 1.
    (
        "beat-that-may-join",
        "kind/mutex/wait.lua",
        "    if mode == 'join' then\n      place",
        "    if true then\n      place",
    ),
    // Rule 2.
    (
        "no-request-deadline",
        "kind/mutex/acquire.lua",
        "if now > tonumber(ARGV[3]) and ARGV[3] ~= '0' then",
        "if false then",
    ),
    // Rule 3.
    (
        "full-ttl-on-a-repeated-grant",
        "kind/mutex/wait.lua",
        "      redis.call('PEXPIRE', KEYS[1], ARGV[2])\n      left = tonumber(ARGV[2])",
        "      left = tonumber(ARGV[2])",
    ),
    (
        "repeated-request-counts",
        "kind/reentrant/acquire.lua",
        "  local left = redis.call('PTTL', KEYS[1])\n  if left < ttl",
        "  local left = redis.call('PTTL', KEYS[1])\n  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)\n  if left < ttl",
    ),
    // Rule 4.
    (
        "newcomer-barges",
        "kind/mutex/acquire.lua",
        "if waiting == 0 then",
        "if waiting then",
    ),
    // Rule 5.
    (
        "leave-without-leaving",
        "kind/mutex/pass.lua",
        "if owner ~= ARGV[1] then\n  for place = 3, 4 do\n",
        "if owner ~= ARGV[1] then\n  do return owner and -1 or 0 end\n  for place = 3, 4 do\n",
    ),
    // Rule 7.
    (
        "releasers-ttl-for-the-next-owner",
        "kind/mutex/hand_over.lua",
        "redis.call('SET', KEYS[1], attempt, 'PX', window)",
        "redis.call('SET', KEYS[1], attempt, 'PX', keep)",
    ),
    // Rule 8.
    (
        "silent-waiter-not-skipped",
        "kind/mutex/hand_over.lua",
        "death and tonumber(death) > tonumber(now)",
        "death",
    ),
    // Rule 11.
    (
        "newcomer-overtakes-the-skipped",
        "kind/line.lua",
        "  return math.max(now, math.max(tail, -head) + 1), true\n",
        "  return (tonumber(tail) > 0 and tail or -head) + 1, true\n",
    ),
    (
        "skipped-waiter-loses-its-place",
        "kind/line.lua",
        "  redis.call('ZADD', KEYS[3], '-' .. place, attempt)\n",
        "",
    ),
    (
        "place-that-tells-no-time",
        "kind/line.lua",
        "    return now, false\n",
        "    return 1, false\n",
    ),
    (
        "passed-over-waiter-is-shown",
        "kind/mutex/inspect.lua",
        "local range = redis.pcall('ZRANGE', KEYS[3], '(0', '+inf',",
        "local range = redis.pcall('ZRANGE', KEYS[3], '-inf', '+inf',",
    ),
    (
        "denied-queue-is-empty",
        "kind/mutex/inspect.lua",
        "type(reply) == 'table' and reply.err and not",
        "false and not",
    ),
    // Rule 12.
    (
        "killed-waiter-not-skipped",
        "kind/line.lua",
        "  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0\n",
        "  return true\n",
    ),
    (
        "cluster-count-of-listeners-believed",
        "kind/line.lua",
        "  if KEYS[5] then\n    return true\n",
        "  if false then\n    return true\n",
    ),
    (
        "grant-withdrawn-by-its-count",
        "kind/line.lua",
        "  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0\n",
        "  return true\n",
    ),
    (
        "grant-withdrawn-by-its-count",
        "kind/mutex/hand_over.lua",
        "      redis.pcall('PUBLISH', channel, 'g ' .. terms .. ' ' .. KEYS[1]) -- last, and may be forbidden\n      return attempt\n    end\n    skip(",
        "      if redis.pcall('PUBLISH', channel, 'g ' .. terms .. ' ' .. KEYS[1]) ~= 0 or KEYS[5] then\n        return attempt\n      end\n      redis.call('ZADD', KEYS[4], death, attempt)\n      channel = nil\n    end\n    skip(",
    ),
    // Rule 14.
    (
        "renewal-that-shortens",
        "kind/renew.lua",
        "if ownership == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')",
        "if ownership == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    ),
    (
        "renewal-makes-the-key-again",
        "kind/renew.lua",
        "if ownership == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')",
        "if ownership >= 0 then\n  ownership = 1\n  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
    ),
    (
        "renewal-of-anothers-lock",
        "kind/renew.lua",
        "local ownership = owned(ARGV[1])\nif ownership == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')",
        "local ownership = owned(ARGV[1]) ^ 2\nif ownership == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')",
    ),
    // Rule 15.
    (
        "delete-without-a-look",
        "kind/mutex/release.lua",
        "if owner == ARGV[1] and not waiting",
        "if not waiting",
    ),
    (
        "reentrant-delete-without-a-look",
        "kind/reentrant/owner.lua",
        "if redis.call('HEXISTS', KEYS[1], attempt) == 1 then",
        "if redis.call('EXISTS', KEYS[1]) == 1 then",
    ),
    // Rule 16: the owner is written before anything is removed.
    (
        "first-write-refused-when-full",
        "kind/mutex/hand_over.lua",
        "    redis.call('ZREM', KEYS[3], attempt) -- never refused, so that what follows is not either (rule 16)\n",
        "",
    ),
    (
        "first-write-refused-when-full",
        "kind/mutex/hand_over.lua",
        "      redis.call('ZREM', KEYS[4], attempt)\n      redis.call('SET'",
        "      redis.call('SET'",
    ),
    (
        "first-write-refused-when-full",
        "kind/mutex/hand_over.lua",
        "      local token = mint(now, keep)\n",
        "      redis.call('ZREM', KEYS[3], attempt)\n      local token = mint(now, keep)\n",
    ),
    (
        "first-write-refused-when-full",
        "kind/mutex/pass.lua",
        "    redis.pcall('ZREM', KEYS[3], ARGV[1])\n    keep_token",
        "    keep_token",
    ),
    // Rule 19.
    (
        "short-counter-ttl",
        "kind/token.lua",
        "text(tonumber(keep) + math.ceil(ahead / 1000))",
        "keep",
    ),
    (
        "counter-not-renewed",
        "kind/renew.lua",
        "  redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT') -- tokens outlive the lease\n",
        "",
    ),
    ("token-of-the-clock-alone", "kind/token.lua", "  if ahead < 0 then", "  if true then"),
    // Rule 20.
    (
        "token-with-an-exponent",
        "kind/token.lua",
        "local token = text(tonumber(last) + 1)",
        "local token = '' .. (tonumber(last) + 1)",
    ),
    // Fail-over.
    (
        "replicas-of-nothing",
        "kind/touch.lua",
        "  if left > 0 then\n    redis.call('PEXPIRE', KEYS[place], left)",
        "  if false then\n    redis.call('PEXPIRE', KEYS[place], left)",
    ),
    (
        "replicas-of-anothers-lock",
        "kind/touch.lua",
        "if ownership ~= 1 then\n  return ownership\nend\nfor place",
        "for place",
    ),
    // A majority of several servers.
    (
        "vote-after-its-deadline",
        "kind/mutex/quorum/acquire.lua",
        "if now > tonumber(ARGV[3]) then",
        "if false then",
    ),
    (
        "any-token-accepted",
        "kind/mutex/quorum/acquire.lua",
        "if last and last >= tonumber(ARGV[5]) then",
        "if false then",
    ),
    (
        "fence-shorter-than-its-lead",
        "kind/mutex/quorum/acquire.lua",
        "text(tonumber(ARGV[4]) + ahead)",
        "ARGV[4]",
    ),
    (
        "vote-taken-back-from-another",
        "kind/release.lua",
        "if ownership ~= 1 then\n  return ownership\nend\nredis.call('DEL'",
        "if ownership == 0 then\n  return ownership\nend\nredis.call('DEL'",
    ),
    (
        "release-told-to-nobody",
        "kind/mutex/quorum/wake.lua",
        "  return tonumber(redis.pcall('PUBLISH', 'leasehold:released:' .. KEYS[1], voted)) or 0\n",
        "  return 0\n",
    ),
    (
        "quorum-release-counts-nobody",
        "kind/mutex/quorum/wake.lua",
        "  return tonumber(redis.pcall('PUBLISH', 'leasehold:released:' .. KEYS[1], voted)) or 0\n",
        "  redis.pcall('PUBLISH', 'leasehold:released:' .. KEYS[1], voted)\n  return 0\n",
    ),
    (
        "failed-attempt-wakes-others",
        "kind/release.lua",
        "ARGV[4] ~= 'quiet' and wake(ARGV[1]) or 0",
        "wake(ARGV[1])",
    ),
    // Keys that never end.
    (
        "queue-without-an-end",
        "kind/mutex/wait.lua",
        "      redis.call('PEXPIRE', KEYS[3], ARGV[7])\n      redis.call('PEXPIRE', KEYS[4], ARGV[7])\n",
        "",
    ),
    (
        "fence-of-the-giver",
        "kind/mutex/hand_over.lua",
        "if tonumber(window) > tonumber(keep) then",
        "if false then",
    ),
    ("force-release-passes-nobody-on", "kind/mutex/wake.lua", "  hand_over(now, keep)\n", ""),
    // A forced release.
    (
        "force-without-its-owner",
        "kind/force.lua",
        "if owned(ARGV[1]) ~= 1 then",
        "if owned(ARGV[1]) == 0 then",
    ),
    (
        "force-without-a-deadline",
        "kind/force.lua",
        "if tonumber(now) > tonumber(ARGV[2]) then -- a request that was stuck",
        "if false then",
    ),
    (
        "force-without-a-deadline",
        "kind/reentrant/force.lua",
        "if tonumber(ARGV[2]) < tonumber(now) then -- a request that was stuck",
        "if false then",
    ),
    (
        "eviction-not-told",
        "kind/reentrant/force.lua",
        "redis.pcall('PUBLISH', channel, table.concat({'x', number, KEYS[1]}, ' ')) --",
        "--",
    ),
    (
        "eviction-not-told",
        "kind/force.lua",
        "redis.pcall('PUBLISH', channel, 'x ' .. number .. ' ' .. KEYS[1]) --",
        "--",
    ),
    // The weighted lock.
    (
        "weighted-newcomer-takes-what-fits",
        "kind/weighted/acquire.lua",
        "  and used + weight <= limit and redis.call('EXISTS', KEYS[3]) == 0\n",
        "  and used + weight <= limit\n",
    ),
    (
        "weighted-small-ones-pass-a-large-one",
        "kind/weighted/serve.lua",
        "    elseif used - before + weight > limit then\n      break\n",
        "    elseif used - before + weight > limit then\n      skip(attempt, place, channel, number)\n",
    ),
    (
        "weighted-renewal-makes-a-holder",
        "kind/weighted/renew.lua",
        "if not lease or lease <= now then",
        "if lease and lease <= now then",
    ),
    (
        "weighted-renewal-makes-a-holder",
        "kind/weighted/renew.lua",
        "'XX', 'GT', text(now + 1000 * ARGV[2])",
        "'GT', text(now + 1000 * ARGV[2])",
    ),
    (
        "weighted-renewal-revives-a-hold",
        "kind/weighted/renew.lua",
        "if not lease or lease <= now then",
        "if not lease then",
    ),
    (
        "weighted-release-subtracts-twice",
        "kind/weighted/serve.lua",
        "  local was = lease\n",
        "  local was = lease\n  if not was and used > 0 then\n    used = used - (asked(me) or 0)\n    redis.call('ZADD', KEYS[1], text(used), 'used')\n  end\n",
    ),
    (
        "weighted-beat-serves-nobody",
        "kind/weighted/wait.lua",
        "  local token, slots = serve(keep, me)\n",
        "  local token, slots\n",
    ),
    (
        "weighted-weights-come-back-all-at-once",
        "kind/weighted/serve.lua",
        "ipairs(redis.call('ZRANGE', KEYS[1], LEASES, digits, 'BYSCORE', 'LIMIT', '0', '64'))",
        "ipairs(redis.call('ZCOUNT', KEYS[1], '(' .. digits, '+inf') > 0 and {} or redis.call('ZRANGE', KEYS[1], LEASES, digits, 'BYSCORE', 'LIMIT', '0', '64'))",
    ),
    (
        "weighted-release-grants-one",
        "kind/weighted/serve.lua",
        "while grants < 64 do",
        "while grants < 1 do",
    ),
    (
        "weighted-slot-is-the-number-in-use",
        "kind/weighted/give.lua",
        "if used > 0 and slot_at(used - 1) >= used then",
        "if false then",
    ),
    (
        "weighted-repeat-has-other-slots",
        "kind/weighted/wait.lua",
        "slots[i] = score - BAND",
        "slots[i] = score - BAND + 1",
    ),
    (
        "weighted-grant-withdrawn-by-its-count",
        "kind/weighted/serve.lua",
        "        tell(channel, 's', number, new, digits, window, waiters, table.concat(numbers, ','))\n",
        "        if redis.pcall('PUBLISH', channel, table.concat({'s', number, new, digits, window, waiters, table.concat(numbers, ','), KEYS[1]}, ' ')) == 0 then\n          drop(attempt)\n        end\n",
    ),
    (
        "weighted-upgrade-lines-up",
        "kind/weighted/change.lua",
        "redis.call('ZADD', KEYS[3], '0.5', me)",
        "redis.call('ZADD', KEYS[3], digits, me)",
    ),
    (
        "weighted-others-pass-an-upgrade",
        "kind/weighted/serve.lua",
        "    elseif used - before + weight > limit then\n      break\n",
        "    elseif used - before + weight > limit and change then\n      skip(attempt, place, channel, number)\n    elseif used - before + weight > limit then\n      break\n",
    ),
    (
        "weighted-plain-reader-upgrades",
        "kind/weighted/change.lua",
        "if number < last or before == 1 or",
        "if number < last or",
    ),
    (
        "weighted-upgrade-keeps-the-token",
        "kind/weighted/serve.lua",
        "return mint(digits, fence_for(keep)) -- above",
        "return redis.call('GET', KEYS[2]) -- above",
    ),
    (
        "weighted-upgrade-outlives-its-holder",
        "kind/weighted/hold.lua",
        "unpack(gone)) == 2 and is_rw then",
        "unpack(gone)) == 2 and false then",
    ),
    (
        "weighted-downgrade-without-number",
        "kind/weighted/change.lua",
        "  if number > last then\n    leave(me)",
        "  if true then\n    leave(me)",
    ),
    (
        "weighted-late-upgrade-after-its-cancel",
        "kind/weighted/change.lua",
        "if number < last or before == 1 or",
        "if before == 1 or",
    ),
    (
        "weighted-downgrade-lets-nobody-in",
        "kind/weighted/change.lua",
        "  serve(keep)\n  return number < last and",
        "  return number < last and",
    ),
    (
        "weighted-waiter-above-the-limit-stays",
        "kind/weighted/serve.lua",
        "elseif not weight or weight > limit then",
        "elseif not weight then",
    ),
    (
        "weighted-compared-with-the-limit-in-force",
        "kind/weighted/acquire.lua",
        "elseif declared ~= wish then",
        "elseif limit ~= wish then",
    ),
    (
        "weighted-each-request-brings-its-limit",
        "kind/weighted/acquire.lua",
        "if not declared then\n  limit = wish",
        "if true then\n  limit = wish",
    ),
    (
        "weighted-resize-cuts-the-sum",
        "kind/weighted/resize.lua",
        "ARGV[4], 'declared', text(used), 'used')",
        "ARGV[4], 'declared', text(math.min(used, limit)), 'used')",
    ),
    (
        "weighted-over-the-limit-not-told",
        "kind/weighted/renew.lua",
        "if used > limit then\n  waiters = waiters + 1",
        "if false then\n  waiters = waiters + 1",
    ),
    (
        "permits-passed-past-the-limit",
        "kind/weighted/serve.lua",
        " + (used > limit and 1 or 0)\n",
        "\n",
    ),
    (
        "weighted-full-lease-on-a-repeated-grant",
        "kind/weighted/wait.lua",
        "  redis.call('ZADD', KEYS[1], 'XX', text(till), me)\n",
        "",
    ),
    (
        "weighted-window-of-the-giver",
        "kind/weighted/serve.lua",
        "tonumber(attempt == asks and ARGV[2] or window)",
        "tonumber(ARGV[2])",
    ),
    (
        "weighted-lock-ends-with-the-last-lease",
        "kind/weighted/give.lua",
        "redis.call('PEXPIRE', KEYS[1], text(keep), 'GT')",
        "redis.call('PEXPIRE', KEYS[1], text(keep))",
    ),
    (
        "weighted-fence-ends-with-the-last-lease",
        "kind/weighted/give.lua",
        "return text(used > 0 and math.max(keep, redis.call('PTTL', KEYS[2])) or keep)",
        "return text(keep)",
    ),
    (
        "weighted-silent-waiter-not-passed-over",
        "kind/weighted/serve.lua",
        "channel and death and death > now and",
        "channel and death and",
    ),
    (
        "weighted-no-request-deadline",
        "kind/weighted/acquire.lua",
        "if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then",
        "if false then",
    ),
    (
        "weighted-transaction-after-the-lease",
        "kind/weighted/owner.lua",
        "return till and tonumber(till) > tonumber(micros(redis.call('TIME'))) and 1 or 0",
        "return till and 1 or 0",
    ),
    (
        "weighted-release-deletes-the-others",
        "kind/weighted/release.lua",
        "word == 'r' and used == 1",
        "word == 'r'",
    ),
    (
        "weighted-late-try-holds-and-waits",
        "kind/weighted/wait.lua",
        "local place = tonumber(redis.call('ZSCORE', KEYS[3], me))\nif not weight",
        "local place = mode ~= 'try' and tonumber(redis.call('ZSCORE', KEYS[3], me))\nif not weight",
    ),
    (
        "weighted-leave-refused-when-full",
        "kind/weighted/serve.lua",
        "  for place = 3, 4 do\n    redis.pcall('ZREM', KEYS[place], me) -- of another type it keeps nobody waiting\n  end\n  purge()\n",
        "  purge()\n",
    ),
    (
        "weighted-renewal-refused-when-full",
        "kind/weighted/renew.lua",
        "redis.call('PEXPIRE', KEYS[1], ARGV[4], 'GT')\nredis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT') -- tokens outlive the lease\n",
        "",
    ),
    (
        "weighted-change-refused-when-full",
        "kind/weighted/change.lua",
        "redis.call('ZREM', KEYS[1], '') -- of nothing, so that what follows is not refused when memory is full (rule 41)
purge()",
        "purge()",
    ),
    (
        "weighted-resize-refused-when-full",
        "kind/weighted/resize.lua",
        "redis.call('ZREM', KEYS[1], '') -- of nothing, so that what follows is not refused when memory is full (rule 41)
limit = ",
        "limit = ",
    ),
    (
        "weighted-beat-refused-when-full",
        "kind/weighted/wait.lua",
        "  redis.call('ZREM', KEYS[1], '') -- of nothing",
        "  -- of nothing",
    ),
    // Rule 43.
    ("set-of-a-user-adopted", "kind/weighted/state.lua", "if found ~= KIND then", "if found and found ~= KIND then"),
    (
        "set-with-marks-and-more-adopted",
        "kind/weighted/state.lua",
        "found = (tonumber(member[2]) or math.huge) >= 1099511627776 and found",
        "-- whatever else is there",
    ),
    (
        "set-without-holders-adopted",
        "kind/weighted/state.lua",
        "    if used > 0 then\n      found = string.match",
        "    if used > 0 then\n      local any = string.match",
    ),
    (
        "set-without-an-end-adopted",
        "kind/weighted/state.lua",
        "is_endless = found and redis.call('PTTL', KEYS[1]) < 0",
        "-- whatever its end is",
    ),
    (
        "marks-of-no-whole-numbers-adopted",
        "kind/weighted/state.lua",
        " and declared % 1 + limit % 1 + used % 1 == 0 then",
        " then",
    ),
    (
        "held-semaphore-without-an-end-refused",
        "kind/weighted/state.lua",
        "    if used > 0 then\n      found = string.match",
        "    is_endless = redis.call('PTTL', KEYS[1]) < 0\n    if used > 0 then\n      found = not is_endless and string.match",
    ),
    (
        "held-read-write-lock-refused",
        "kind/weighted/state.lua",
        "used > 0 and declared == ALL and '-1' or '3'",
        "'3'",
    ),
    ("weighted-kinds-not-told-apart", "kind/weighted/state.lua", "if found ~= KIND then", "if not found then"),
    (
        "members-of-a-user-purged",
        "kind/weighted/serve.lua",
        "if asked(attempt) then -- what",
        "if true then -- what",
    ),
    // Rule 56.
    (
        "refused-first-holder-stays",
        "kind/weighted/wait.lua",
        "    take_back(words, not declared)\n    return refusal(token)",
        "    return refusal(token)",
    ),
    (
        "refused-holder-stays",
        "kind/weighted/give.lua",
        "    take_back(words, not declared)\n    error(",
        "    error(",
    ),
    (
        "refused-waiter-stays",
        "kind/weighted/wait.lua",
        "  if is_new then\n    -- Nobody would",
        "  if false then\n    -- Nobody would",
    ),
    (
        "refused-mutex-stays",
        "kind/mutex/wait.lua",
        "  if wrote and redis.pcall(",
        "  if false and redis.pcall(",
    ),
    (
        "refused-reentrant-lock-stays",
        "kind/reentrant/acquire.lua",
        "    redis.call('DEL', KEYS[1]) -- nobody",
        "    -- nobody",
    ),
    (
        "refused-upgrade-stays",
        "kind/weighted/change.lua",
        "  if not place then\n    -- It would",
        "  if false then\n    -- It would",
    ),
    // The index.
    (
        "future-entry-kept",
        "protocol/announce.lua",
        "'(' .. now + ARGV[2], '+inf')",
        "'(' .. now + ARGV[2], '-inf')",
    ),
    (
        "whole-owner-read",
        "kind/mutex/inspect.lua",
        "holders[1] = {string.sub(owner, 1, 16384)",
        "holders[1] = {owner",
    ),
    (
        "huge-hash-listed",
        "kind/reentrant/layout.lua",
        "fields = size <= 1001 and redis.pcall('HGETALL', KEYS[1]) or {}",
        "fields = redis.pcall('HGETALL', KEYS[1])",
    ),
    (
        "huge-hash-named",
        "kind/reentrant/layout.lua",
        "if size > 1001 and redis.call('HEXISTS', KEYS[1], 'mode') == 1 and redis.call('PTTL', KEYS[1]) > 0 then\n    return {''}, {}, 'read'",
        "if size > 1001 and redis.call('HEXISTS', KEYS[1], 'mode') == 1 and redis.call('PTTL', KEYS[1]) > 0 then\n    return redis.call('HKEYS', KEYS[1]), {}, 'read'",
    ),
    // Data that lies where a lock is expected.
    ("wait-for-a-huge-hash-of-data", "kind/reentrant/layout.lua", " and redis.call('PTTL', KEYS[1]) > 0 then", " then"),
    ("hash-of-data-forced", "kind/reentrant/layout.lua", "      is_lock = false\n", "      owners[#owners + 1], counts[field] = field, 1\n"),
    (
        "owner-with-any-value",
        "kind/reentrant/layout.lua",
        "and string.find(value, '^%d+$') then",
        "then",
    ),
    ("string-of-data-forced", "kind/force.lua", "ARGV[4] ~= 'any' and refusal(ARGV[1])", "nil"),
    ("string-without-an-end-found", "kind/mutex/inspect.lua", "owner and ARGV[2] == 'found' and refusal(owner)", "nil"),
    ("every-reader-forced", "kind/reentrant/force.lua", "if not owners[2] then\n  redis.call('DEL', KEYS[1])", "if true then\n  redis.call('DEL', KEYS[1])"),
    ("lease-of-the-evicted-reader", "kind/reentrant/force.lua", "redis.pcall('PEXPIRE', KEYS[1], left, 'LT')", "left = nil"),
    ("wait-for-a-hash-of-data", "kind/reentrant/busy.lua", "if not owners and string.find", "if false and string.find"),
    (
        "announced-entry-never-dropped",
        "protocol/announce.lua",
        "'(' .. now - ARGV[2])",
        "'(0')",
    ),
];
