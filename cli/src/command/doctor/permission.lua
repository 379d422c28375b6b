-- Tells which commands this user may run, and what is missing: the command, a key or a channel.
--
-- ARGV  the number of words of a command, its words, and so on
-- Returns a number for each: 0 it may be run, 1 the command is missing, 2 the key, 3 the channel, 4 the server does
-- not know the command
--
-- What the list denies is run all the same: nothing happens, and the refusal says which of the three it was. A
-- command that no script may run says nothing then, and has no key.
if not redis.acl_check_cmd then
  -- What is asked about would be done.
  return redis.error_reply('ERR this server does not have redis.acl_check_cmd')
end
local replies, at = {}, 1
while ARGV[at] do
  local count = tonumber(ARGV[at])
  local words = {}
  for i = 1, count do
    words[i] = ARGV[at + i]
  end
  at = at + count + 1
  local known, allowed = pcall(redis.acl_check_cmd, unpack(words))
  local lacks = 0
  if not known then
    -- The server has no such command, or has it under another name.
    lacks = 4
  elseif not allowed then
    local reply = redis.pcall(unpack(words))
    local text = type(reply) == 'table' and reply.err or ''
    local function says(words)
      return string.find(text, words, 1, true)
    end
    -- The second words of each are those of Redis 7.0.
    if says('permissions to access a channel') or says("can't publish to the channel") then
      lacks = 3
    elseif says('permissions to access') or says('of the keys mentioned') then
      lacks = 2
    else
      lacks = 1
    end
  end
  replies[#replies + 1] = lacks
end
return replies
