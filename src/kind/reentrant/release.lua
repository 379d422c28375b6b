-- Gives a reentrant lock back if it is still the attempt's, whatever its count says (rule 22).
-- Stands after token.lua.
--
-- KEYS  1 the lock (a hash: owner -> hold count)   2 its fence   3 the channel of those who wait
--       4 in a cluster only: a key that is never there (mutex/queue.lua)
-- ARGV  1 the attempt   2 time to live of the fence, ms   3 the last token used, 0: the one minted
-- Returns 1 released   0 the key is gone   -1 another owner has it
--         {1, n} released, and n listen for it, as far as this server counts them
--
-- The message "0" is what wakes the waiters of Redisson; that nobody may publish is no reason not
-- to release. In a cluster Redisson listens to the channel of the slot (SSUBSCRIBE).
--
-- The count is a hint: a subscriber at a replica hears the message and is not counted.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('DEL', KEYS[1])
  if ARGV[3] ~= '0' then
    keep_token(ARGV[3], ARGV[2])
  end
  local listeners = tonumber(redis.pcall('PUBLISH', KEYS[3], '0')) or 0
  if KEYS[4] then
    listeners = listeners + (tonumber(redis.pcall('SPUBLISH', KEYS[3], '0')) or 0)
  end
  return listeners > 0 and {1, listeners} or 1
end
return redis.call('EXISTS', KEYS[1]) == 1 and -1 or 0
