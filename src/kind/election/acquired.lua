end

-- Leads an election, or stands in its line: the rest of acquire.lua and wait.lua of the mutex, which stand before this
-- with their arguments and replies.
--
-- KEYS  as in keys.lua   ARGV  as in acquire.lua
-- Returns as acquire.lua; the error WRONGTYPE if the key is held, and not by a leader
--
-- The mutex decides who leads. A new leader, be it this attempt or one of the line, has a new term: its word is noted, and
-- the observers are told. If the word is denied to the user, what was granted is given back (rule 56).
local before = redis.call('GET', KEYS[1])
local odd = before and not_a_leader(before)
if odd then
  return odd
end
local reply = plain()
local is_granted = type(reply) == 'number' or reply[1] == 1
if is_granted or reply[1] == 0 then
  local is_done, denied = pcall(settle, before, ARGV[4])
  if denied and is_granted then
    redis.pcall('DEL', KEYS[1])
    return is_done and denied or refusal(denied)
  end
  if is_granted then
    redis.pcall('PEXPIRE', WORD, ARGV[4], 'GT') -- a leader that asks again may have a longer lease now (rule 3)
  end
end
return reply
