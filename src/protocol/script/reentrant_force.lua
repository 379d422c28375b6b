-- Gives a reentrant lock back for whoever holds it.
--
-- KEYS  1 the lock (a hash: owner -> hold count)   2 its fence   3 the channel of those who wait
-- Answers 1 somebody held it   0 nobody did
local held = redis.call('DEL', KEYS[1])
if held == 1 then
  redis.pcall('PUBLISH', KEYS[3], '0')
end
return held
