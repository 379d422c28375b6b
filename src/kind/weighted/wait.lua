-- The rest of acquire.lua: it does not fit, or somebody waits, or the attempt has it.
local mode, ttl, keep = ARGV[5], tonumber(ARGV[2]), tonumber(ARGV[4])
if granted then -- acquire.lua has written it, and the last token is ahead of the clock, or a command was refused
  local is_done, token = type(kept) == 'number', kept
  if is_done then
    is_done, token = pcall(above, last, digits, ARGV[4])
  end
  if not is_done then
    take_back(words, not declared)
    return refusal(token)
  end
  granted[2] = tonumber(token)
  return granted
end

-- The token may be one that is there already.
local function reply(token, slots, left, waiters)
  return {1, tonumber(token), left, now, waiters, unpack(slots)}
end

if fits then
  local token, slots = give(me, weight, ttl, keep)
  return reply(token, slots, ttl, 0)
end
if mode == 'beat' then
  redis.call('ZREM', KEYS[1], '') -- of nothing: a waiter is served also when memory is full (rule 16)
end
purge()

if lease then
  -- Asked again: the same slots, and never a shorter lease (rule 3). The token is above the first one. PEXPIRE comes
  -- first, as it is never refused.
  local till = math.max(lease, now + 1000 * ttl)
  redis.call('PEXPIRE', KEYS[1], text(math.max(limit_ttl, ARGV[4])), 'GT')
  redis.call('ZADD', KEYS[1], 'XX', text(till), me)
  local slots, permits = {}, {}
  for i = 1, is_rw and 0 or weight do
    permits[i] = i .. '/' .. me
  end
  if permits[1] then
    for i, score in ipairs(redis.call('ZMSCORE', KEYS[1], unpack(permits))) do
      slots[i] = score - BAND
    end
  end
  local token = mint(digits, fence_for(keep))
  serve(keep)
  return reply(token, slots, math.floor((till - now) / 1000), redis.call('ZCARD', KEYS[3]))
end

-- A late try of an attempt that has lined up since is a beat: it must not hold and wait at a time.
local place = tonumber(redis.call('ZSCORE', KEYS[3], me))
if not weight or weight > limit then
  if place then
    leave(me)
  end
  use_limit()
  serve(keep)
  return {4, declared or wish, limit, now}
end
if mode == 'beat' and not place then
  serve(keep)
  return {3, now}
end

if used + weight > limit then
  recount()
end

local is_new = not place
if is_new then
  serve(keep)
  if used + weight <= limit and not first() then
    local token, slots = give(me, weight, ttl, keep)
    return reply(token, slots, ttl, 0)
  end
  if mode == 'try' then
    return busy(0)
  end
end

-- Whether all who wait before this place are clients that hold. A client whose threads keep a lock busy has a place of
-- its own in the line, which tells it nothing of others. So the first waiter behind such places tells the holders. One
-- that stands behind another client need not: that client has told them.
local function is_behind_holders(ahead)
  if ahead == 0 or ahead > 32 then
    return ahead == 0
  end
  local holds = {}
  for _, attempt in ipairs(holders('256')) do
    holds[listener(attempt) or ''] = true
  end
  for _, attempt in ipairs(redis.call('ZRANGE', KEYS[3], '(0', '(' .. text(place), 'BYSCORE')) do
    if not holds[listener(attempt) or ''] then
      return false
    end
  end
  return true
end

-- Stands in the line until it is granted; returns the reply.
local function line_up()
  if is_new then
    place = last_place(now)
    redis.call('ZADD', KEYS[3], text(place), me)
  elseif place < 0 then
    place = -place
    redis.call('ZADD', KEYS[3], text(place), me)
  end
  redis.call('ZADD', KEYS[4], text(now + ARGV[6]), me)
  if not is_new then
    local token, slots = serve(keep, me)
    if token then
      return reply(token, slots, ttl, redis.call('ZCARD', KEYS[3]))
    end
  end

  keep_line(ARGV[7], ARGV[4])
  -- Those who were passed over and not heard of since are forgotten.
  local since = text(now - 1000 * ARGV[7])
  for _, attempt in ipairs(redis.call('ZRANGE', KEYS[4], '-inf', since, 'BYSCORE', 'LIMIT', '0', '8')) do
    leave(attempt)
  end
  local ahead = redis.call('ZCOUNT', KEYS[3], '(0', '(' .. text(place))
  if is_behind_holders(ahead) then
    tell_holders('256')
  end
  return busy(ahead)
end

local is_done, answer = pcall(line_up)
if not is_done then
  if type(redis.pcall('ZSCORE', KEYS[1], me)) == 'string' then
    pcall(drop, me) -- the refusal came when others were served behind it
  end
  if is_new then
    -- Nobody would come back for its place (rule 56).
    redis.pcall('ZREM', KEYS[3], me)
    redis.pcall('ZREM', KEYS[4], me)
  end
  return refusal(answer)
end
return answer
