-- Takes a lock from its holder, if that is still the one it is aimed at, and wakes the next. Stands after
-- token.lua, and the owner.lua, layout.lua and wake.lua of a kind.
--
-- KEYS  1 the lock   2 its fence   and the kind's own
-- ARGV  1 the owner it is aimed at, foreign or not   2 deadline in server time, µs
--       3 time to live of the fence, ms
--       4 any: the caller says that the key is a lock; it may be left out
-- Returns 1 that owner had it   0 it had not   {2, server time in µs} too late
--         an error if the key is not a lock; the key stays
--
-- DEL is never refused when memory is full, so that what follows is not either (rule 16).
local now = micros(redis.call('TIME'))
if tonumber(now) > tonumber(ARGV[2]) then -- a request that was stuck
  return {2, tonumber(now)}
end
if owned(ARGV[1]) ~= 1 then -- an error for what is of another type, which is no lock of this kind
  return 0
end
-- Checked here again, because the key may have become data since the caller looked.
local refused = ARGV[4] ~= 'any' and refusal(ARGV[1])
if refused then
  return refused
end
redis.call('DEL', KEYS[1])
wake(ARGV[1], now, ARGV[3])
local channel, number = listener(ARGV[1])
if channel then
  redis.pcall('PUBLISH', channel, 'x ' .. number .. ' ' .. KEYS[1]) -- last, and may be forbidden
end
return 1
