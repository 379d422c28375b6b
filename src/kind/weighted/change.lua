-- Changes the weight that an attempt holds of a read-write lock. Stands after serve.lua.
--
-- KEYS  as in state.lua
-- ARGV  1 the attempt   2 the number of the change, which grows with each of this hold
--       3 r or u: become a reader or an upgradable one | w: become the writer | beat: go on waiting for that
--       4 time to live of the fence, ms
--       5 the waiter is taken for dead after, µs   6 time to live of line and signs, ms
-- Returns {1, token, server time in µs, waiters}     it has that weight; the token is 0 where it keeps its own
--         {0, …} as acquire.lua     it waits to become the writer, before everybody
--         {3, server time}     a later change was made, or the upgrade does not wait any more
--         {4, server time}     it does not hold any more
--
-- An upgrade that is given up is a change to u with the next number. A number that is not the latest does nothing,
-- so that no request needs a deadline, whatever overtakes it (rule 35).
read_clock()
redis.call('ZREM', KEYS[1], '') -- of nothing, so that what follows is not refused when memory is full (rule 41)
purge()
local keep, number, to = tonumber(ARGV[4]), tonumber(ARGV[2]), ARGV[3]
if not lease then
  if limit then
    serve(keep)
  end
  return {4, now}
end

local before, last = held(me)
local function note(weight, class)
  used = used - before + weight
  redis.call('ZADD', KEYS[1], text(used), 'used', text(BAND + 4 * number + class), 'c/' .. me)
end

if CLASSES[to] and to ~= 'w' then
  if number > last then
    leave(me)
    local weight = math.min(before, WEIGHTS[CLASSES[to]]) -- never a greater one, without a wait
    note(weight, weight == 1 and CLASSES.r or CLASSES.u)
  end
  serve(keep)
  return number < last and {3, now} or {1, 0, now, redis.call('ZCARD', KEYS[3])}
end

local place = tonumber(redis.call('ZSCORE', KEYS[3], me))
-- A plain reader must not wait for the others to leave: another one may do the same, for ever.
local is_lost = to == 'beat' and (number > last or not place and before ~= ALL)
if number < last or before == 1 or is_lost then
  serve(keep)
  return {3, now}
end
if before == ALL then
  if number > last then
    note(ALL, CLASSES.w)
  end
  local token = mint(digits, fence_for(keep))
  serve(keep)
  return {1, tonumber(token), now, redis.call('ZCARD', KEYS[3])}
end

if used - before + ALL > limit then
  recount()
end

-- Stands before everybody until it is the writer; returns the reply.
local function line_up()
  if number > last then
    note(before, CLASSES.u)
  end
  redis.call('ZADD', KEYS[3], '0.5', me)
  redis.call('ZADD', KEYS[4], text(now + ARGV[5]), me)
  local token = serve(keep, me)
  if token then
    return {1, tonumber(token), now, redis.call('ZCARD', KEYS[3])}
  end
  keep_line(ARGV[6], ARGV[4])
  tell_holders('256')
  return busy(0)
end

local is_done, answer = pcall(line_up)
if not is_done then
  if not place then
    -- It would keep all others out until it counts as dead, and nobody would come back for it (rule 56).
    redis.pcall('ZREM', KEYS[3], me)
    redis.pcall('ZREM', KEYS[4], me)
  end
  if change then
    redis.pcall('ZADD', KEYS[1], text(change), 'c/' .. me)
  else
    redis.pcall('ZREM', KEYS[1], 'c/' .. me)
  end
  return refusal(answer)
end
return answer
