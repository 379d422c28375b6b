-- Takes a mutex, or waits for it in its line.
--
-- KEYS  as in hand_over.lua
-- ARGV  1 the attempt   2 its time to live, ms   3 deadline in server time, µs (0: not known)
--       4 time to live of the fence, ms
--       5 what to do where another has it: try (nothing) | join (line up) | beat (stay in the line)
--       6 the waiter is taken for dead after, µs   7 time to live of line and signs, ms
-- Returns token = server time in µs                                             granted as asked,
--                                                                               nobody waits
--         {1, token, time to live in ms, server time in µs, waiters}            granted
--         {0, time to live of the holder in ms (-1: none), server time, waiters ahead (an upper
--             bound), whether the holder hands over (1, 0), the holder (512 bytes of it at most),
--             the last token (-1: none)}                                        held by another
--         {2, server time}                                                      too late
--         {3, server time}                                                      beat: not in the line
--
-- SET NX PX with a random value is the lock of the Redis documentation. A new value for every
-- attempt makes a repeated request recognisable, and the deadline makes one harmless that was
-- stuck on its way (rules 1 to 4). Nobody takes it before a live waiter. The first write may be
-- refused for want of memory, the later ones then no more, so the lock comes first (rule 16). If a later command is
-- denied to the user, the lock is given back, because no client would know of it (rule 56).
--
-- This is the way when nobody has it and nobody waits. token.lua, line.lua, hand_over.lua and wait.lua
-- stand after it, where their functions cost this way nothing.
local time = redis.call('TIME')
local digits = #time[2] == 6 and time[1] .. time[2] or string.format('%.0f%06.0f', time[1], time[2])
local now = tonumber(digits)
if now > tonumber(ARGV[3]) and ARGV[3] ~= '0' then
  return {2, now}
end
local owner, waiting, taken, last
if ARGV[5] == 'beat' then
  owner = redis.call('GET', KEYS[1])
else
  owner = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET', 'PX', ARGV[2])
  waiting = not owner and redis.pcall('EXISTS', KEYS[3])
  if waiting == 0 then
    taken, last = true, redis.pcall('SET', KEYS[2], digits, 'GET', 'PX', ARGV[4])
    if not last or (type(last) == 'string' and (tonumber(last) or 0) < now) then
      return now
    end
  end
end
