-- Takes a mutex, or waits for it in its queue.
--
-- KEYS  as in queue.lua, which stands before this
-- ARGV  1 the attempt   2 its time to live, ms   3 deadline in server time, µs (0: not known)
--       4 time to live of the fence, ms
--       5 what to do where another has it: try (nothing) | join (queue up) | beat (stay in the queue)
--       6 the waiter is taken for dead after, µs   7 time to live of queue and beats, ms
-- Answers {1, token, time to live in ms, server time in µs, waiters}            granted
--         {0, time to live of the holder in ms (-1: none), server time, waiters ahead (an upper
--             bound), whether the holder hands over (1, 0)}                     held by another
--         {2, server time}                                                      too late
--         {3, server time}                                                      beat: not in the queue
--
-- SET NX PX with a random value is the lock of the Redis documentation. A new value for every
-- attempt makes a repeated request recognisable, and the deadline makes one harmless that was
-- stuck on its way (rules 1 to 4). Nobody takes it before a live waiter. The first write may be
-- refused for want of memory, the later ones then no more, so the lock comes first (rule 16).
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local deadline = tonumber(ARGV[3])
if deadline > 0 and now > deadline then
  return {2, now}
end

local me, mode, keep = ARGV[1], ARGV[5], tonumber(ARGV[4])

local function granted(left, token)
  return {1, token or mint(now, keep), left, now, redis.call('ZCARD', KEYS[3])}
end

local owner
if mode == 'beat' then
  owner = redis.call('GET', KEYS[1])
else
  owner = redis.call('SET', KEYS[1], me, 'NX', 'GET', 'PX', ARGV[2])
  if not owner then
    if redis.call('EXISTS', KEYS[3]) == 0 then
      return {1, mint(now, keep), tonumber(ARGV[2]), now, 0}
    end
    owner = hand_over(now, keep, me)
    if not owner or owner == me then
      return granted(tonumber(ARGV[2]))
    end
  end
end

if owner == me then
  -- Asked again: the same token, and never a shorter lease (rule 3).
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and left < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    left = tonumber(ARGV[2])
  end
  return granted(left, tonumber(redis.call('GET', KEYS[2])))
end

local channel, number = listener(owner or '')
local ahead = 0
if mode ~= 'try' then
  local death = text(now + tonumber(ARGV[6]))
  local place, news
  if mode == 'join' then
    local last = tonumber(redis.call('ZRANGE', KEYS[3], 0, 0, 'REV', 'WITHSCORES')[2])
    place = math.max(last or 0, 0) + 1
    news = redis.call('ZADD', KEYS[3], 'NX', text(place), me) == 1
  end
  if news then
    redis.call('ZADD', KEYS[4], death, me)
  else
    place = tonumber(redis.call('ZSCORE', KEYS[3], me))
    if not place then
      return {3, now}
    end
    if not owner then
      owner = hand_over(now, keep, me)
      if not owner or owner == me then
        redis.call('SET', KEYS[1], me, 'PX', ARGV[2])
        redis.call('ZREM', KEYS[3], me)
        redis.call('ZREM', KEYS[4], me)
        return granted(tonumber(ARGV[2]))
      end
      channel, number = listener(owner)
    end
    if place < 0 then
      place = -place
      redis.pcall('ZADD', KEYS[3], 'XX', text(place), me)
    end
    redis.pcall('ZADD', KEYS[4], death, me) -- out of memory it fails, and rule 11 keeps the place
  end
  if place % 8 == 1 or not news then
    -- Who joins or beats keeps the queue alive; not every one needs to.
    redis.call('PEXPIRE', KEYS[3], ARGV[7])
    redis.call('PEXPIRE', KEYS[4], ARGV[7])
    local gone = redis.call('ZRANGE', KEYS[4], '-inf', text(now - 1000 * tonumber(ARGV[7])), 'BYSCORE', 'LIMIT', 0, 8)
    for _, attempt in ipairs(gone) do
      redis.call('ZREM', KEYS[3], attempt)
      redis.call('ZREM', KEYS[4], attempt)
    end
  end
  if place > 1 and not (news and channel) then
    ahead = redis.call('ZCOUNT', KEYS[3], '(0', '(' .. text(place))
  elseif news then
    ahead = place - 1
  end
  if channel and ahead == 0 then
    redis.pcall('PUBLISH', channel, table.concat({'w', number, redis.call('ZCARD', KEYS[3]), KEYS[1]}, ' '))
  end
end
return {0, redis.call('PTTL', KEYS[1]), now, ahead, channel and 1 or 0}
