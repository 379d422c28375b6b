-- Asks the holder of a mutex to let it go.
--
-- KEYS  as in hand_over.lua, which stands before this, after line.lua
-- Returns how many processes heard it, as far as the server counts them: 1, or 0 where nobody holds it
-- or the holder does not listen here. A holder that listens at a replica hears it, and is not counted. In
-- a cluster the count is not known, and 1 is returned for each holder that may listen.
--
-- The time tells one that is asked again from one that is heard again, as in a cluster all are.
local owner = redis.call('GET', KEYS[1])
local channel, number = listener(owner or '')
if not channel then
  return 0
end
local now = micros(redis.call('TIME'))
local heard = redis.call('PUBLISH', channel, table.concat({'p', number, now, KEYS[1]}, ' '))
return KEYS[5] and 1 or heard
