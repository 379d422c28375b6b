-- Tells who holds a weighted lock, and who waits for it. It writes nothing. Stands after state.lua
-- and token.lua.
--
-- KEYS  1 the lock, as in state.lua   2 its fence   3 the line, if the waiters are asked for
-- ARGV  1 how many waiters to list at most   2 found, which changes nothing here: state.lua knows a lock in any case
-- Returns {server time in µs, holders, how many wait (-1: not asked for), waiters,
--          {limit declared (0: it is not known), limit in force, sum of the weights}}
--         a holder: {attempt, time to live in ms, its token (-1: not known), its slots, or its access: 0 a reader,
--             1 an upgradable one, 2 the writer}; at most a thousand are listed
--         a waiter: {attempt, its place}; those that are passed over are left out
local digits = micros(redis.call('TIME'))

-- Its slots, or its access and its weight.
local function beside(attempt)
  local word = string.match(attempt, '^%dq:%x+:%x+:%d+:(%w+):')
  if is_rw then
    local last = redis.call('ZSCORE', KEYS[1], 'c/' .. attempt)
    local class = last and last % 4 or word == 'w' and 2 or word == 'u' and 1 or 0
    return {class}, class == 0 and 1 or class == 1 and 2147483649 or 4294967296
  end
  local members, slots = {}, {}
  for i = 1, tonumber(word) or 0 do
    members[i] = i .. '/' .. attempt
  end
  if members[1] then
    for _, score in ipairs(redis.call('ZMSCORE', KEYS[1], unpack(members))) do
      slots[#slots + 1] = score and score - 4294967296
    end
  end
  return slots, #members
end

-- The weights of leases that have ended are in the sum until a script takes them out (rule 24).
for _, attempt in ipairs(redis.call('ZRANGE', KEYS[1], '1099511627776', digits, 'BYSCORE', 'LIMIT', '0', '1000')) do
  local _, weight = beside(attempt)
  used = math.max(0, used - weight)
end
local holders = {}
local found = redis.call('ZRANGE', KEYS[1], '(' .. digits, '+inf', 'BYSCORE', 'LIMIT', '0', '1000', 'WITHSCORES')
for at = 1, #found, 2 do
  local slots, weight = beside(found[at])
  -- Nobody was granted after a writer, so that the last token is its own.
  local token = weight == 4294967296 and is_rw and tonumber(redis.pcall('GET', KEYS[2])) or -1
  local holder = {found[at], math.ceil((found[at + 1] - digits) / 1000), token}
  for i, slot in ipairs(slots) do
    holder[i + 3] = slot
  end
  holders[#holders + 1] = holder
end
local waiters, waiting = {}, -1
if KEYS[3] then
  waiting = redis.call('ZCOUNT', KEYS[3], '(0', '+inf')
  local range = redis.call('ZRANGE', KEYS[3], '(0', '+inf', 'BYSCORE', 'LIMIT', '0', ARGV[1], 'WITHSCORES')
  for at = 1, #range, 2 do
    local word = string.match(range[at], '^%dq:%x+:%x+:%d+:(%w+):')
    if is_rw == (word == 'r' or word == 'u' or word == 'w') then
      waiters[#waiters + 1] = {range[at], math.floor(tonumber(range[at + 1]))}
    else
      waiting = waiting - 1 -- of the other kind, after the last lock of this name was gone
    end
  end
end
return {tonumber(digits), holders, waiting, waiters, {declared or 0, limit or 0, used}}
