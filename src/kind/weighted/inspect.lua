-- Who holds a lock, and who waits for it. Stands after token.lua.
--
-- KEYS  as in state.lua
-- ARGV  1 how many of each at most
-- Returns {server time in µs, limit declared (0: it is not known), limit in force, sum of the weights (rule 24),
--          holders: {attempt, end of its lease in µs, its slots, or the class of its last change}…,
--          waiters that were not passed over: attempt and place in turn, the next first}
local digits = micros(redis.call('TIME'))
local known = redis.call('ZMSCORE', KEYS[1], 'declared', 'limit', 'used')
local holders = {}
local found = redis.call('ZRANGE', KEYS[1], '(' .. digits, '+inf', 'BYSCORE', 'LIMIT', '0', ARGV[1], 'WITHSCORES')
for at = 1, #found, 2 do
  local attempt, till = found[at], found[at + 1]
  local holder, beside = {attempt, till}, {'c/' .. attempt}
  for i = 1, tonumber(string.match(attempt, '^%dq:%x+:%x+:%d+:(%d+):')) or 0 do
    beside[i] = i .. '/' .. attempt
  end
  for i, score in ipairs(redis.call('ZMSCORE', KEYS[1], unpack(beside))) do
    holder[i + 2] = score and (known[1] == '4294967296' and score % 4 or score - 4294967296)
  end
  holders[#holders + 1] = holder
end
local waiters = redis.call('ZRANGE', KEYS[3], '(0', '+inf', 'BYSCORE', 'LIMIT', '0', ARGV[1], 'WITHSCORES')
return {tonumber(digits), tonumber(known[1]) or 0, tonumber(known[2]) or 0, tonumber(known[3]) or 0, holders, waiters}
