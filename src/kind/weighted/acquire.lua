-- Takes a weight of a lock, or waits for it in its line.
--
-- KEYS  as in state.lua
-- ARGV  1 the attempt   2 its time to live, ms   3 deadline in server time, µs (0: not known)
--       4 time to live of the fence, ms
--       5 what to do where it does not fit: try (nothing) | join (line up) | beat (stay in the line)
--       6 the waiter is taken for dead after, µs   7 time to live of line and signs, ms
--       8 the limit that the user declares; 2^32 of a read-write lock
-- Returns {1, token, time to live in ms, server time in µs, waiters, slots…}     granted
--         {0, ms until the first lease ends, server time, waiters ahead (an upper bound), 1, the holder of
--             that lease, -1}                                                    it does not fit
--         {2, server time}                                                       too late
--         {3, server time}                                                       beat: not in the line
--         {4, limit declared, limit in force, server time}                       another limit was declared, or
--                                                                                the weight is above the limit
--
-- As in mutex/acquire.lua, a value for every attempt makes a repeated request recognisable, and a deadline makes one
-- harmless that was stuck on its way (rules 1 to 4).
--
-- This is the way when nobody holds and nobody waits; state.lua stands before it. token.lua, hold.lua, give.lua,
-- line.lua, serve.lua and wait.lua stand after it, where their functions cost this way nothing. The first write is the
-- one that makes a holder: where memory is full, it is refused, and what follows is not (rule 41). If a later command
-- is denied to the user, the holder is taken out again, because no client would know of it (rule 56).
local time = redis.call('TIME')
digits = #time[2] == 6 and time[1] .. time[2] or string.format('%.0f%06.0f', time[1], time[2])
now = tonumber(digits)
if ARGV[3] ~= '0' and now > tonumber(ARGV[3]) then
  return {2, now}
end
local wish = tonumber(ARGV[8])
if not declared then
  limit = wish
elseif declared ~= wish then -- not the limit in force, which users may change (rule 33)
  return {4, declared, limit, now}
end
local weight = permits
if is_rw then
  weight = word == 'r' and 1 or word == 'w' and ALL or word == 'u' and 2147483649 or nil
end

-- With the weights of leases that have ended the sum is too high, if anything, so that none need be looked for
-- (rule 24).
local fits = weight and not lease and ARGV[5] ~= 'beat'
  and used + weight <= limit and redis.call('EXISTS', KEYS[3]) == 0
local granted, words, kept, last
if fits and used == 0 then
  words = {weight, 'used', string.format('%.0f', now + 1000 * ARGV[2]), me}
  if not declared then
    words[5], words[6], words[7], words[8] = limit, 'declared', limit, 'limit'
  end
  granted = {1, now, tonumber(ARGV[2]), now, 0}
  for i = 1, is_rw and 0 or weight do
    words[#words + 1], words[#words + 2] = BAND + i - 1, i .. '/' .. me
    granted[i + 5] = i - 1
  end
  redis.call('ZADD', KEYS[1], unpack(words))
  if declared then
    kept = redis.pcall('PEXPIRE', KEYS[1], limit_ttl > 0 and math.max(limit_ttl, ARGV[4]) or ARGV[4], 'GT')
  else
    kept = redis.pcall('PEXPIRE', KEYS[1], ARGV[4])
  end
  if type(kept) == 'number' then
    last = redis.pcall('SET', KEYS[2], digits, 'GET', 'PX', ARGV[4])
    if not last or (type(last) == 'string' and (tonumber(last) or 0) < now) then
      return granted
    end
  end
end
