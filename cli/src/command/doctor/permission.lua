-- Tells which commands this user may run, and what is missing: the command, a key or a channel.
--
-- ARGV  the number of words of a command, its words, and so on
-- Returns a number for each: 0 it may be run, 1 the command is missing, 2 the key, 3 the channel
--
-- What the list denies is run all the same: nothing happens, and the refusal says which of the three it was. A
-- command that no script may run says nothing then, and has no key.
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
  if not (known and allowed) then
    local reply = redis.pcall(unpack(words))
    local text = type(reply) == 'table' and reply.err or ''
    lacks = string.find(text, 'access a channel') and 3 or string.find(text, 'permissions to access') and 2 or 1
  end
  replies[#replies + 1] = lacks
end
return replies
