-- Asks the holder of a mutex to let it go.
--
-- KEYS  as in queue.lua, which stands before this
-- Answers how many processes heard it: 1, or 0 where nobody holds it or the holder does not listen.
-- In a cluster that is not known, and the answer is 1 for each holder that may listen.
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
