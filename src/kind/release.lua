-- Gives a lock without a line back if it is still the attempt's, whatever its count says (rule 22).
-- Stands after token.lua, and the owner.lua and wake.lua of a kind.
--
-- KEYS  1 the lock   2 its fence   and the kind's own
-- ARGV  1 the attempt   2 time to live of the fence, ms   3 the last token used, 0: the one minted
--       4 quiet: wakes nobody
-- Returns 1 released   -1 another owner has it
--         {1, n} released, and n listen for it, as far as this server counts them
--         {0, 0, fence} the key is gone, and the fence as in renew.lua
--
-- A failed attempt releases its votes quietly: contenders would wake each other without end. The message
-- comes last, because a user who may not publish must still release.
--
-- The count is a hint: a subscriber at a replica hears the message and is not counted.
local ownership = owned(ARGV[1])
if ownership == 0 then
  return {0, 0, tonumber(redis.pcall('GET', KEYS[2])) or 0}
elseif ownership ~= 1 then
  return ownership
end
redis.call('DEL', KEYS[1])
if ARGV[3] ~= '0' then
  keep_token(ARGV[3], ARGV[2])
end
local listeners = ARGV[4] ~= 'quiet' and wake(ARGV[1]) or 0
return listeners > 0 and {1, listeners} or 1
