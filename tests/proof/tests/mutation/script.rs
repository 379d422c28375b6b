//! The bugs planted in the scripts, which `plant.rs` puts there when a script is read.

/// Name, script, the piece to replace, and its replacement. One name may have several.
pub(crate) const PATCHES: &[(&str, &str, &str, &str)] = &[
    // Rule 1.
    (
        "beat-that-may-join",
        "kind/mutex/wait.lua",
        "  if mode == 'join' then\n    -- Behind",
        "  if true then\n    -- Behind",
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
        "    redis.call('PEXPIRE', KEYS[1], ARGV[2])\n    left = tonumber(ARGV[2])",
        "    left = tonumber(ARGV[2])",
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
        "if not owner and redis.call('EXISTS', KEYS[3]) == 0 then",
        "if not owner then",
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
        "kind/mutex/queue.lua",
        "redis.call('SET', KEYS[1], attempt, 'PX', window)",
        "redis.call('SET', KEYS[1], attempt, 'PX', keep)",
    ),
    // Rule 8.
    (
        "silent-waiter-not-skipped",
        "kind/mutex/queue.lua",
        "death and tonumber(death) > tonumber(now)",
        "death",
    ),
    // Rule 11.
    (
        "newcomer-overtakes-the-skipped",
        "kind/mutex/wait.lua",
        "      place = math.max(last, -first) + 1\n",
        "      place = (last > 0 and last or -first) + 1\n",
    ),
    (
        "skipped-waiter-loses-its-place",
        "kind/line.lua",
        "  redis.call('ZADD', KEYS[3], '-' .. place, attempt)\n",
        "",
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
        "kind/mutex/queue.lua",
        "      redis.pcall('PUBLISH', channel, 'g ' .. terms .. ' ' .. KEYS[1]) -- last, and may be forbidden\n      return attempt\n    end\n    skip(",
        "      if redis.pcall('PUBLISH', channel, 'g ' .. terms .. ' ' .. KEYS[1]) ~= 0 or KEYS[5] then\n        return attempt\n      end\n      redis.call('ZADD', KEYS[4], death, attempt)\n      channel = nil\n    end\n    skip(",
    ),
    // Rule 14.
    (
        "renewal-that-shortens",
        "kind/renew.lua",
        "if verdict == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')",
        "if verdict == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    ),
    (
        "renewal-makes-the-key-again",
        "kind/renew.lua",
        "if verdict == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')",
        "if verdict >= 0 then\n  verdict = 1\n  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
    ),
    (
        "renewal-of-anothers-lock",
        "kind/renew.lua",
        "local verdict = owned(ARGV[1])\nif verdict == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')",
        "local verdict = owned(ARGV[1]) ^ 2\nif verdict == 1 then\n  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')",
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
        "kind/mutex/queue.lua",
        "    redis.call('ZREM', KEYS[3], attempt) -- never refused, so that what follows is not either (rule 16)\n",
        "",
    ),
    (
        "first-write-refused-when-full",
        "kind/mutex/queue.lua",
        "      redis.call('ZREM', KEYS[4], attempt)\n      redis.call('SET'",
        "      redis.call('SET'",
    ),
    (
        "first-write-refused-when-full",
        "kind/mutex/queue.lua",
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
        "if verdict ~= 1 then\n  return verdict\nend\nfor place",
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
        "if verdict ~= 1 then\n  return verdict\nend\nredis.call('DEL'",
        "if verdict == 0 then\n  return verdict\nend\nredis.call('DEL'",
    ),
    (
        "release-told-to-nobody",
        "kind/mutex/quorum/wake.lua",
        "  redis.pcall('PUBLISH', 'leasehold:released:' .. KEYS[1], voted)\n",
        "",
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
        "    redis.call('PEXPIRE', KEYS[3], ARGV[7])\n    redis.call('PEXPIRE', KEYS[4], ARGV[7])\n",
        "",
    ),
    (
        "fence-of-the-giver",
        "kind/mutex/queue.lua",
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
        "eviction-not-told",
        "kind/force.lua",
        "redis.pcall('PUBLISH', channel, 'x ' .. number .. ' ' .. KEYS[1]) --",
        "--",
    ),
];
