end

-- Tells who leads, what the leader says, and who stands in the line. It writes nothing. The rest of inspect.lua of the
-- mutex, which stands before this, and has its own keys by keys.lua.
--
-- KEYS  1 the lock   2 its fence   3 the word   4 the line, if the candidates are asked for
-- ARGV  as in inspect.lua
-- Returns as inspect.lua, and behind it a list: the word, or nothing
--         the error WRONGTYPE if the key is held, and not by a leader
local leader = redis.call('GET', KEYS[1])
local odd = leader and refusal(leader)
if odd then
  return odd
end
local reply = plain()
if not reply.err then
  local number, value = said_in(redis.pcall('GET', KEYS[2]))
  reply[5] = leader and number and number > 0 and {value} or {}
end
return reply
