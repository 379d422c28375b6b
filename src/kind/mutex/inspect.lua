-- Tells who has a mutex, and who waits for it. It writes nothing. Stands after layout.lua.
--
-- KEYS  1 the lock (a string: its owner)   2 its fence (the last token)
--       3 the line (attempt -> place), if the waiters are asked for; line.lua says what a place is
-- ARGV  1 how many waiters to list at most
--       2 found: nobody has said that the key is a mutex, so anything else is an error; left out if somebody has
-- Returns {server time in µs, holders, how many wait (-1: not known), waiters}
--         a holder: {owner (16 KiB of it at most), time to live in ms (-1: none), last token (-1: none)}
--         a waiter: {attempt, its place}; those that are passed over are left out
local time = redis.call('TIME')
local owner = redis.call('GET', KEYS[1])
local last = tonumber(redis.pcall('GET', KEYS[2])) or -1
local holders, waiters, waiting = {}, {}, -1
local refused = owner and ARGV[2] == 'found' and refusal(owner)
if refused then
  return refused
end
if owner then
  holders[1] = {string.sub(owner, 1, 16384), redis.call('PTTL', KEYS[1]), last}
end
if KEYS[3] then
  waiting = redis.pcall('ZCOUNT', KEYS[3], '(0', '+inf')
  local range = redis.pcall('ZRANGE', KEYS[3], '(0', '+inf', 'BYSCORE', 'LIMIT', '0', ARGV[1], 'WITHSCORES')
  for _, reply in ipairs({waiting, range}) do
    -- Of another type it keeps nobody waiting. Any other refusal means that the waiters are not known.
    if type(reply) == 'table' and reply.err and not string.find(reply.err, 'WRONGTYPE', 1, true) then
      return reply
    end
  end
  waiting = tonumber(waiting) or 0
  for at = 1, #range, 2 do
    waiters[#waiters + 1] = {range[at], tonumber(range[at + 1])}
  end
end
return {time[1] * 1000000 + time[2], holders, waiting, waiters}
