-- Runs commands if an attempt holds, without another client's between them. Stands after owner.lua.
--
-- A transaction of Redis would WATCH the lock, and so fail whenever another holder's lease is renewed; and a lease that
-- ends by its score touches no key (rule 42).
--
-- KEYS  1 the lock   and all keys of the commands
-- ARGV  1 the attempt   and for each command the number of its words and the words
-- Returns the replies, in an array; 0: the attempt does not hold, and nothing was done
--
-- As within MULTI and EXEC, a command that fails is told in its place and does not undo those before it.
local is_held = owned(ARGV[1]) == 1
if not is_held then
  return 0
end
local replies, at = {}, 2
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end
return replies
