-- Takes one server's vote back, if it is the attempt's. Stands after token.lua.
--
-- KEYS  as in quorum_acquire.lua
-- ARGV  1 the attempt   2 time to live of the fence, ms   3 the last token used, 0: the one accepted
-- Answers 1 released   0 the key is gone   -1 another owner has it
local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] then
  return owner and -1 or 0
end
redis.call('DEL', KEYS[1])
if ARGV[3] ~= '0' then
  keep_token(ARGV[3], ARGV[2])
end
return 1
