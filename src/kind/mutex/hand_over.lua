-- What the scripts of the mutex share, after token.lua and line.lua: the hand-over to the next who waits.
--
-- KEYS  1 the lock (a string: its owner)   2 its fence (the last token)   the rest as in line.lua
--
-- Messages to a client: g <attempt's number> <token> <server time> <window> <waiters> <lock>   granted
--                       r <attempt's number> <lock>             are you there? ask again
--                       w <attempt's number> <waiters> <lock>   somebody waits for your lock
--                       p <attempt's number> <server time> <lock>   somebody asks you to let it go
--                       x <attempt's number> <lock>             you were evicted: ask whether it is so

-- Makes the first live waiter the owner and tells it; returns it, or nil if nobody lives. Where
-- that is the attempt `me`, which asks itself, the owner is left to the caller to write.
--
-- A waiter is passed over only before its grant. A grant that was published is never withdrawn,
-- whatever PUBLISH counted: a subscriber at a replica hears what the master does not count (rule 12).
local function hand_over(now, keep, me)
  while true do
    -- By place, as the places of those who were passed over are below zero, and without it: to write a score out costs
    -- more than to search for it.
    local attempt = redis.pcall('ZRANGE', KEYS[3], '(0', '+inf', 'BYSCORE', 'LIMIT', '0', '1')[1]
    if not attempt then
      return nil
    end
    local death = redis.pcall('ZSCORE', KEYS[4], attempt)
    if type(death) == 'table' then
      return nil -- signs of another type keep no lock either
    end
    if attempt == me then
      redis.call('ZREM', KEYS[3], me)
      redis.call('ZREM', KEYS[4], me)
      return me
    end
    local channel, number, window = listener(attempt)
    local lives = channel and death and death - now > 0 and may_be_heard(channel)
    local place = lives or redis.call('ZSCORE', KEYS[3], attempt)
    local waiters = redis.call('ZCARD', KEYS[3]) - 1 -- before the grant, as a user may be denied it (rule 56)
    redis.call('ZREM', KEYS[3], attempt) -- never refused, so that what follows is not either (rule 16)
    if lives then
      redis.call('ZREM', KEYS[4], attempt)
      redis.call('SET', KEYS[1], attempt, 'PX', window) -- its window, not the giver's (rule 7)
      if window - keep > 0 then
        keep = window -- its token outlives its lease, not only the giver's
      end
      local token = mint(now, keep)
      local grant = 'g ' .. number .. ' ' .. token .. ' ' .. now .. ' ' .. window .. ' ' .. waiters .. ' ' .. KEYS[1]
      redis.pcall('PUBLISH', channel, grant) -- last, and may be forbidden
      return attempt
    end
    skip(attempt, place, channel, number)
  end
end
