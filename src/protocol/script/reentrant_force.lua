-- Gives a reentrant lock back for whoever holds it.
--
-- KEYS  1 the lock (a hash: owner -> hold count)   2 its fence   3 the channel of those who wait
--       4 in a cluster only: a key that is never there (queue.lua)
-- Answers 1 somebody held it   0 nobody did
if redis.call('HLEN', KEYS[1]) == 0 then -- an error for what is not a hash, which is no such lock
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', KEYS[3], '0')
if KEYS[4] then
  redis.pcall('SPUBLISH', KEYS[3], '0') -- as in reentrant_release.lua
end
return 1
