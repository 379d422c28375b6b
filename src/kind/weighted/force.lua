-- Takes its weight from a holder, and grants all who fit then. Stands after serve.lua.
--
-- KEYS  as in state.lua
-- ARGV  1 the holder   2 deadline in server time, µs   3 time to live of the fence, ms
--       4 any, of a caller who says that the key is a lock; it may be left out, and state.lua knows a lock in any case
-- Returns 1 it was a holder   0 it was none   {2, server time in µs} too late
read_clock()
if now > tonumber(ARGV[2]) then
  return {2, now}
end
if not lease or not give_back(ARGV[3], '0') then
  return 0
end
local channel, number = listener(me)
if channel then
  tell(channel, 'x', number)
end
return 1
