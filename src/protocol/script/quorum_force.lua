-- Takes one server's vote back, whoever has it.
--
-- KEYS  as in quorum_acquire.lua
-- Answers 1 somebody had it   0 nobody did
local owner = redis.call('GET', KEYS[1])
if not owner then -- an error for what is not a string, which is no mutex
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', 'leasehold:released:' .. KEYS[1], owner) -- as in quorum_release.lua
return 1
