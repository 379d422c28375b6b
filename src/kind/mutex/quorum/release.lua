-- Takes one server's vote back, if it is the attempt's. Stands after token.lua.
--
-- KEYS  as in acquire.lua
-- ARGV  1 the attempt   2 time to live of the fence, ms   3 the last token used, 0: the one accepted
--       4 quiet: nobody is told
-- Answers 1 released   0 the key is gone   -1 another owner has it
--
-- Who waits is told whose vote it was, because all servers tell it of the same release. What an attempt
-- takes back that failed is not told: those that contend would wake each other without end.
local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] then
  return owner and -1 or 0
end
redis.call('DEL', KEYS[1])
if ARGV[3] ~= '0' then
  keep_token(ARGV[3], ARGV[2])
end
if ARGV[4] ~= 'quiet' then
  -- Last, and may be forbidden.
  redis.pcall('PUBLISH', 'leasehold:released:' .. KEYS[1], ARGV[1])
end
return 1
