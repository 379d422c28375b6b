-- The rest of acquire.lua: somebody has the mutex, or waits for it.
local me, mode, keep = ARGV[1], ARGV[5], ARGV[4]

-- The token may be one that is there already.
local function granted(left, token)
  local waiters = tonumber(redis.pcall('ZCARD', KEYS[3])) or 0
  return {1, tonumber(token) or tonumber(mint(digits, keep)), left, now, waiters}
end

-- For how long the key of an owner outlives its lease, in ms (rule 46). 50 is the digit 2, which few owners have.
local function tail_of(holder)
  if string.byte(holder) ~= 50 then
    return 0
  end
  return tonumber(string.match(holder, '^2[q-]:%x+:%x+:%d+:e?:?(%d+):')) or 0
end

local is_new, wrote = false, mode ~= 'beat' and not owner -- whether this request has joined, and has written the lock

local function take_or_wait()
  if type(waiting) == 'table' then
    error(waiting, 0)
  end
  if taken then
    return granted(tonumber(ARGV[2]), above(last, digits, keep))
  end

  local tail = owner and owner ~= me and tail_of(owner) or 0
  if tail > 0 then
    local left = redis.call('PTTL', KEYS[1])
    if left >= 0 and left < tail then
      owner = nil -- its lease is over, so to others it is nobody (rule 47)
    end
  end

  if mode ~= 'beat' and not owner then
    owner = hand_over(digits, keep, me)
    if not owner or owner == me then
      if not wrote then -- else acquire.lua has written it
        wrote = true
        redis.call('SET', KEYS[1], me, 'PX', ARGV[2])
      end
      return granted(tonumber(ARGV[2]))
    end
  end

  if owner == me then
    -- Asked again: the same token, and never a shorter lease (rule 3).
    local left = redis.call('PTTL', KEYS[1])
    if left >= 0 and left < tonumber(ARGV[2]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
      left = tonumber(ARGV[2])
    end
    redis.call('PEXPIRE', KEYS[2], keep, 'GT')
    return granted(left, redis.pcall('GET', KEYS[2]))
  end

  local channel, number = listener(owner or '')
  local ahead = 0
  if mode ~= 'try' then
    local death = text(now + tonumber(ARGV[6]))
    local place, is_behind
    if mode == 'join' then
      place, is_behind = last_place(now)
      is_new = redis.call('ZADD', KEYS[3], 'NX', text(place), me) == 1
    end
    if is_new then
      redis.call('ZADD', KEYS[4], death, me)
    else
      place = tonumber(redis.call('ZSCORE', KEYS[3], me))
      if not place then
        return {3, now}
      end
      if place < 0 then
        place = -place
        redis.pcall('ZADD', KEYS[3], 'XX', text(place), me)
      end
      if not owner then
        owner = hand_over(digits, keep, me)
        if not owner or owner == me then
          -- In this order also out of memory (rule 16).
          redis.call('ZREM', KEYS[3], me)
          redis.call('ZREM', KEYS[4], me)
          wrote = true
          redis.call('SET', KEYS[1], me, 'PX', ARGV[2])
          return granted(tonumber(ARGV[2]))
        end
        channel, number = listener(owner)
      end
      redis.pcall('ZADD', KEYS[4], death, me) -- out of memory it fails, and rule 11 keeps the place
    end
    if not (is_behind and is_new) or place % 8 == 1 then
      -- Each who joins or beats keeps the line alive. Of those who join behind others one in eight is enough.
      redis.call('PEXPIRE', KEYS[3], ARGV[7])
      redis.call('PEXPIRE', KEYS[4], ARGV[7])
      if is_behind or not is_new then -- else the line was empty, of the dead too
        local gone = redis.call('ZRANGE', KEYS[4], '-inf', text(now - 1000 * tonumber(ARGV[7])), 'BYSCORE', 'LIMIT', '0', '8')
        for _, attempt in ipairs(gone) do
          redis.call('ZREM', KEYS[3], attempt)
          redis.call('ZREM', KEYS[4], attempt)
        end
      end
    end
    if not (is_new and channel) then
      ahead = redis.call('ZCOUNT', KEYS[3], '(0', '(' .. text(place))
    elseif is_behind then
      ahead = redis.call('ZCARD', KEYS[3]) - 1
    end
    -- The first who waits tells the holder. Where that one is not heard of any more, each of the others does.
    local tells = ahead == 0
    if channel and not (tells or is_new) then
      local first = redis.call('ZRANGE', KEYS[3], '(0', '+inf', 'BYSCORE', 'LIMIT', '0', '1')[1]
      tells = (tonumber(redis.call('ZSCORE', KEYS[4], first or '')) or 0) <= now
    end
    if channel and tells then
      local waiters = is_new and 1 or redis.call('ZCARD', KEYS[3]) -- a new one with nobody ahead is alone
      redis.pcall('PUBLISH', channel, table.concat({'w', number, waiters, KEYS[1]}, ' '))
    end
  end
  local last = tonumber(redis.pcall('GET', KEYS[2])) or -1
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and owner then
    left = math.max(left - tail_of(owner), 0) -- to the end of its lease (rule 48)
  end
  return {0, left, now, ahead, channel and 1 or 0, string.sub(owner or '', 1, 512), last}
end

local is_done, answer = pcall(take_or_wait)
if not is_done then
  if wrote and redis.pcall('GET', KEYS[1]) == me then
    redis.pcall('DEL', KEYS[1])
  end
  if is_new then -- nobody would come back for its place, nor know of the lock (rule 56)
    redis.pcall('ZREM', KEYS[3], me)
    redis.pcall('ZREM', KEYS[4], me)
  end
  return refusal(answer)
end
return answer
