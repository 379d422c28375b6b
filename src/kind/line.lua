-- What the scripts of all kinds with a line of waiters share: who waits, and who of them lives.
--
-- KEYS  3 the line (attempt -> place)   4 the signs of life (attempt -> server time of its death, µs)
--       5 in a cluster only: a key that is never there. Its node then refuses the script as a whole
--         while the slot is being moved, rather than in the middle.
--
-- An attempt reads <version><mark>:<client>:<number>:<window, ms>:…; the mark q tells that its
-- holder hands over, and that its client listens on the channel leasehold:<client>. A place is the server's
-- time when it was taken, in µs, or one above the highest place, whichever is greater. A place below zero is
-- that of a waiter that was taken for dead, or not listening: it keeps its place until its next request
-- (rule 11), and until then it is passed over, so that the dead are skipped all at once.

local function listener(attempt)
  local client, number, window = string.match(attempt, '^%dq:(%x+):(%x+):(%d+):')
  return client and 'leasehold:' .. client, number, window
end

-- Whether a message to this channel may be heard (rule 12). Nobody hears it for sure where one server
-- counts no subscriber. In a cluster a node counts its own alone. A user who may not ask, too, has to
-- believe that it is heard.
local function may_be_heard(channel)
  if KEYS[5] then
    return true
  end
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0
end

-- The place of a waiter that joins at this time, and whether others were there before. It is behind everybody, also
-- behind those who were passed over: they may live, and have their places again at their next request. Their places are
-- below zero, so that either end may be the last. A place is the time at which it was taken, unless the clock went
-- back: so people see who waits how long.
local function last_place(now)
  local head = redis.call('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES')[2]
  if not head then
    return now, false
  end
  local tail = redis.call('ZRANGE', KEYS[3], '0', '0', 'REV', 'WITHSCORES')[2]
  return math.max(now, math.max(tail, -head) + 1), true
end

-- Passes over a waiter, who is told to ask again.
local function skip(attempt, place, channel, number)
  if channel then
    -- Also to who is not heard of at this server: a listener at a replica hears it.
    redis.pcall('PUBLISH', channel, table.concat({'r', number, KEYS[1]}, ' '))
  end
  redis.call('ZADD', KEYS[3], '-' .. place, attempt)
  -- It may have been the only one. Both end at once, or the next who joins would make beats without end.
  if redis.call('PEXPIRE', KEYS[3], '60000', 'NX') == 1 then
    redis.call('PEXPIRE', KEYS[4], '60000')
  end
end
