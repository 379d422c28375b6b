-- Asks the holder of a mutex to let it go.
--
-- KEYS  as in queue.lua, which stands before this
-- Answers how many processes heard it: 1, or 0 where nobody holds it or the holder does not listen
local owner = redis.call('GET', KEYS[1])
local channel, number = listener(owner or '')
if not channel then
  return 0
end
return redis.call('PUBLISH', channel, table.concat({'p', number, KEYS[1]}, ' '))
