-- Says a word, if the attempt still leads. Stands after keys.lua, token.lua, word.lua and owner.lua of the mutex.
--
-- KEYS  1 the lock   2 its fence   3 the word
-- ARGV  1 the attempt   2 its term   3 the number of the word   4 time to live of the fence and the word, ms
--       5 the value
-- Returns 1 said, or a later word was   0 the key is gone   -1 another leads
--
-- It needs no deadline: a request that was stuck says its word only in its own term, and only before a later word of that
-- term, because the numbers grow. The first write is one that is not refused when memory is full (rule 16). A fence that
-- is gone, say evicted, is written again: without it nobody could tell whose word it is.
local ownership = owned(ARGV[1])
if ownership ~= 1 then
  return ownership
end
redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT')
keep_token(ARGV[2], ARGV[4])
local term = redis.call('GET', KEYS[2])
local number = said_in(term)
if number and number >= tonumber(ARGV[3]) then
  return 1
end
local written = write(term, ARGV[3], ARGV[5], ARGV[4])
if written.err then
  return written
end
tell(term)
return 1
