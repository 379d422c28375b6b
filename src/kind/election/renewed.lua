end

-- Lengthens the lease of a leader, and the life of its word. The rest of renew.lua, which stands before this with its
-- arguments and replies.
--
-- KEYS  1 the lock   2 its fence   3 the word
local reply = plain()
if reply[1] == 1 then
  -- As long as the fence, also where somebody has taken away its end.
  if redis.call('PEXPIRE', KEYS[3], ARGV[4], 'GT') == 0 then
    redis.call('PEXPIRE', KEYS[3], ARGV[4], 'NX')
  end
end
return reply
