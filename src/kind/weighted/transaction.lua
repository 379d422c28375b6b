-- Runs commands if an attempt holds, without another client's between them. Stands after owner.lua.
--
-- A transaction of Redis would WATCH the lock, and so fail whenever another holder's lease is renewed; and a lease that
-- ends by its score touches no key (rule 42).
--
-- KEYS  1 the lock   and all keys of the commands; in a cluster a key that is never there, if there are several commands
-- ARGV  1 the attempt   and for each command what it needs: memory, write, or nothing; the number of its words; and the
--       words
-- Returns the replies, in an array   0: the attempt does not hold, and nothing was done
--         an error: Redis refuses a command, and nothing was done
--
-- As within MULTI and EXEC, a command that fails is told in its place and does not undo those before it. One that is
-- refused would do the same in a script, where MULTI and EXEC refuse all. So what Redis may refuse is found before the
-- first of them. The client has asked whether a script can run them.
local is_held = owned(ARGV[1]) == 1
if not is_held then
  return 0
end
local commands, needs, at = {}, {}, 2
while at <= #ARGV do
  local count = tonumber(ARGV[at + 1])
  local command = {unpack(ARGV, at + 2, at + 1 + count)}
  if not redis.acl_check_cmd(unpack(command)) then
    return {err = 'NOPERM this user may not run ' .. command[1] .. ' of the transaction, or not with its arguments'}
  end
  commands[#commands + 1] = command
  needs[ARGV[at]] = needs[ARGV[at]] or command[1]
  at = at + count + 2
end
-- A server that is full, is a replica, or lacks replicas or its disk refuses the first write of a script, and none after
-- it. So the first write is of nothing; ZREM is not refused when memory is full, and ZADD is.
local name, refused = needs.memory or needs.write, false
if needs.memory then
  refused = redis.pcall('ZADD', KEYS[1], 'XX', 'GT', '0', ARGV[1])
elseif needs.write then
  refused = redis.pcall('ZREM', KEYS[1], '')
end
if type(refused) == 'table' then
  return {err = string.gsub(refused.err, '%.$', '') .. ', for ' .. name .. ' of the transaction'}
end
local replies = {}
for i, command in ipairs(commands) do
  replies[i] = redis.pcall(unpack(command))
end
return replies
