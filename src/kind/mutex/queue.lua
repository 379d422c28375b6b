-- What the scripts of the mutex share, after token.lua: the hand-over to the next who waits.
--
-- KEYS  1 the lock (a string: its owner)       2 its fence (the last token)
--       3 the queue (attempt -> place)         4 the beats (attempt -> server time of its death, µs)
--       5 in a cluster only: a key that is never there. Its node then refuses the script as a whole
--         while the slot is being moved, rather than in the middle.
--
-- An attempt reads <version><mark>:<client>:<number>:<window, ms>:…; the mark q tells that its
-- holder hands over, and that its client listens on the channel leasehold:<client>. A place is the server's
-- time when it was taken, in µs, or one above the highest place, whichever is greater. A place below zero is
-- that of a waiter who was taken for dead, or not listening: it keeps its place until it is heard of again
-- (rule 11), and until then it is passed over, so that the dead are skipped all at once.
--
-- Messages to a client: g <attempt's number> <token> <server time> <window> <waiters> <lock>   granted
--                       r <attempt's number> <lock>             are you there? ask again
--                       w <attempt's number> <waiters> <lock>   somebody waits for your lock
--                       p <attempt's number> <server time> <lock>   somebody asks you to let it go
--                       x <attempt's number> <lock>             you were evicted: ask whether it is so

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

-- Makes the first live waiter the owner and tells it; returns it, or nil if nobody lives. Where
-- that is the attempt `me`, which asks itself, the owner is left to the caller to write.
--
-- A waiter is passed over only before its grant. A grant that was published is never withdrawn,
-- whatever PUBLISH counted: a subscriber at a replica hears what the master does not count (rule 12).
local function hand_over(now, keep, me)
  local head
  local dead = false -- whether some are behind whom to look
  while true do
    if not dead then
      head = redis.pcall('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES') -- cheaper than by place
      dead = head[2] and string.sub(head[2], 1, 1) == '-'
    end
    if dead then
      head = redis.pcall('ZRANGE', KEYS[3], '(0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
    end
    local attempt, place = head[1], head[2]
    if not attempt then
      return nil
    end
    local channel, number, window = listener(attempt)
    local death = redis.pcall('ZSCORE', KEYS[4], attempt)
    if type(death) == 'table' then
      return nil -- beats of another type keep no lock either
    end
    redis.call('ZREM', KEYS[3], attempt) -- never refused, so that what follows is not either (rule 16)
    if attempt == me then
      redis.call('ZREM', KEYS[4], attempt)
      return me
    end
    if channel and death and tonumber(death) > tonumber(now) and may_be_heard(channel) then
      redis.call('ZREM', KEYS[4], attempt)
      redis.call('SET', KEYS[1], attempt, 'PX', window) -- its window, not the giver's (rule 7)
      if tonumber(window) > tonumber(keep) then
        keep = window -- its token outlives its lease, not only the giver's
      end
      local token = mint(now, keep)
      local waiters = redis.call('ZCARD', KEYS[3])
      local terms = number .. ' ' .. token .. ' ' .. now .. ' ' .. window .. ' ' .. waiters
      redis.pcall('PUBLISH', channel, 'g ' .. terms .. ' ' .. KEYS[1]) -- last, and may be forbidden
      return attempt
    end
    if channel then
      -- Also to who is not heard of at this server: a listener at a replica hears it.
      redis.pcall('PUBLISH', channel, table.concat({'r', number, KEYS[1]}, ' '))
    end
    redis.call('ZADD', KEYS[3], '-' .. place, attempt)
    dead = true
    -- It may have been the only one. Both end at once, or the next who joins would make beats without end.
    if redis.call('PEXPIRE', KEYS[3], '60000', 'NX') == 1 then
      redis.call('PEXPIRE', KEYS[4], '60000')
    end
  end
end
