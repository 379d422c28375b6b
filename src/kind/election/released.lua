end

-- Ends a term: gives the lead to the first living candidate, or to nobody; takes the attempt out of the line if it does
-- not lead. The rest of release.lua and pass.lua of the mutex, which stand before this.
--
-- KEYS  as in keys.lua   ARGV and replies  as in release.lua
--
-- A mutex that nobody waits for is released without a message. Here the observers are told of that, too. A candidate
-- that was made the leader stays it also where its word is denied to this user: its grant was published (rule 28).
local before = redis.call('GET', KEYS[1])
local reply = plain()
if reply == 1 then
  settle(before, ARGV[2])
end
return reply
