-- Takes one server's vote back, whoever has it.
--
-- KEYS  as in quorum_acquire.lua
-- Answers 1 somebody had it   0 nobody did
if not redis.call('GET', KEYS[1]) then -- an error for what is not a string, which is no mutex
  return 0
end
redis.call('DEL', KEYS[1])
return 1
