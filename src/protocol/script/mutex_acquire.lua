-- Takes a mutex that nobody holds, or grants it again to the attempt that has it.
--
-- KEYS  1 the lock (a string: its owner)   2 its fence (the last token)
-- ARGV  1 the attempt   2 its time to live, ms   3 deadline in server time, µs (0: not known)
--       4 time to live of the fence, ms
-- Answers {1, token, time to live in ms, server time in µs}   granted
--         {0, time to live of the holder in ms, server time}  held by another; -1: it has none
--         {2, server time}                                    too late: nothing was done
--
-- SET NX PX with a random value is the lock of the Redis documentation. A new value for every
-- attempt makes a repeated request recognisable, and the deadline makes one harmless that was
-- stuck on its way (rules 2, 3). The token is the server's time or the last one plus one, after
-- M. Kleppmann's fencing tokens. The first write may be refused for want of memory, the later
-- ones then no more (rule 16), so the lock comes first. Numbers are formatted by hand, as Lua
-- would write large ones with an exponent (rule 20).
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local deadline = tonumber(ARGV[3])
if deadline > 0 and now > deadline then
  return {2, now}
end
local ttl = tonumber(ARGV[2])
local owner = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET', 'PX', ARGV[2])
if owner then
  local left = redis.call('PTTL', KEYS[1])
  if owner ~= ARGV[1] then
    return {0, left, now}
  end
  if left >= 0 and left < ttl then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    left = ttl
  end
  local token = tonumber(redis.call('GET', KEYS[2]))
  if token then
    return {1, token, left, now}
  end
  ttl = left
end
local token = now
local last = redis.pcall('SET', KEYS[2], string.format('%.0f', now), 'GET', 'PX', ARGV[4])
if type(last) == 'table' then
  redis.call('DEL', KEYS[1])
  return last
end
last = tonumber(last)
if last and last >= now then
  -- The clock went back, or two holds fell into one of its ticks.
  token = last + 1
  local keep = math.max(tonumber(ARGV[4]), math.ceil((last - now) / 1000) + tonumber(ARGV[4]))
  redis.call('SET', KEYS[2], string.format('%.0f', token), 'PX', string.format('%.0f', keep))
end
return {1, token, ttl, now}
