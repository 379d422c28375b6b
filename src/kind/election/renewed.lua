end

-- Lengthens the lease of a leader, and the life of its word. The rest of renew.lua, which stands before this with its
-- arguments and replies.
--
-- KEYS  1 the lock   2 its fence   3 the word
local reply = plain()
if reply[1] == 1 then
  redis.call('PEXPIRE', KEYS[3], ARGV[4], 'GT') -- as long as the fence
end
return reply
