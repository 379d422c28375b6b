-- What the scripts of the weighted lock share where somebody waits. Stands after give.lua and line.lua.
--
-- Messages to a client, besides those in mutex/hand_over.lua, which are the same but for p, which there is not:
--   s <attempt's number> <token> <server time> <window> <waiters> <slots, with commas> <lock>   granted permits
--   u <attempt's number> <token> <server time> <number of the change> <waiters> <lock>          upgraded
--   c <attempt's number> <limit> <lock>       your weight is above the limit in force, and never fits

-- The limit of a resize is kept for its time from now on: it was used, also where it refuses a request. So a limit of
-- zero lasts for as long as anybody asks.
local function use_limit()
  if limit_ttl > 0 then
    redis.pcall('PEXPIRE', KEYS[1], text(limit_ttl), 'GT')
  end
end

-- Takes out those whose leases have ended. A sum that is too high hurts nobody for a while, so that a script does
-- it for so many at most.
local function purge()
  for _, attempt in ipairs(redis.call('ZRANGE', KEYS[1], LEASES, digits, 'BYSCORE', 'LIMIT', '0', '64')) do
    if asked(attempt) then -- what a user has put there stays
      drop(attempt)
      if attempt == me then
        lease, change = nil, nil
      end
    end
  end
end

local function leave(attempt)
  redis.call('ZREM', KEYS[3], attempt)
  redis.call('ZREM', KEYS[4], attempt)
end

local function tell(channel, ...)
  redis.pcall('PUBLISH', channel, table.concat({...}, ' ') .. ' ' .. KEYS[1]) -- last, and may be forbidden
end

-- The first holders by the ends of their leases, so many at most.
local function holders(most)
  return redis.call('ZRANGE', KEYS[1], LEASES, '+inf', 'BYSCORE', 'LIMIT', '0', most)
end

-- Mends a sum that is above the weights of the holders. No script leaves one: somebody has taken a holder out by hand.
-- While others wait nothing else would ever lower the sum, and nobody would be granted. So a request counts the weights
-- before it is refused for the sum, where few hold, as it looks at each holder (rule 24). Each holder weighs one at
-- least, an upgradable reader 2^31 more, and a writer all. Where as many hold as can make up the sum, it is right.
local function recount()
  local count = redis.call('ZCOUNT', KEYS[1], LEASES, '+inf')
  local most = is_rw and (used == ALL and 1 or used % 2147483648) or used
  if count > 64 or count >= most then
    return
  end
  local all = holders('64')
  local sum, is_held, changes = 0, {}, {}
  for i, attempt in ipairs(all) do
    is_held[attempt], changes[i] = true, 'c/' .. attempt
  end
  changes = is_rw and changes[1] and redis.call('ZMSCORE', KEYS[1], unpack(changes)) or {}
  for i, attempt in ipairs(all) do
    sum = sum + (changes[i] and WEIGHTS[(changes[i] - BAND) % 4] or asked(attempt) or 0)
  end
  if sum >= used then
    return
  end
  -- Its slots, or its change, may be left: there are as many slots as the sum says (rule 29).
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], text(BAND), '(' .. LEASES, 'BYSCORE')) do
    local attempt = string.match(member, '^%w+/(.*)$')
    if attempt and not is_held[attempt] then
      redis.call('ZREM', KEYS[1], member)
    end
  end
  redis.call('ZADD', KEYS[1], text(sum), 'used')
  used = sum
end

-- Tells the clients that hold that somebody waits, or that they hold more than the limit (rule 34): each once, for all that
-- it holds. It looks at the first holders, so many at most: the others learn of those who wait by their next requests.
local function tell_holders(most)
  -- As in renew.lua: those who wait may be the ones of the holder's own client.
  local waiters = redis.call('ZCARD', KEYS[3]) + (used > limit and 1 or 0)
  local is_told = {}
  for _, attempt in ipairs(holders(most)) do
    local channel, number = listener(attempt)
    if channel and attempt ~= me and not is_told[channel] then
      is_told[channel] = true
      tell(channel, 'w', number, waiters)
    end
  end
end

-- An upgrade stands before everybody, at a place below 1. It is served while the lease of its holder lives.
local function upgrade(attempt)
  local till = redis.call('ZSCORE', KEYS[1], attempt)
  if till and tonumber(till) > now then
    return ALL, held(attempt)
  end
end

-- Makes an upgradable holder the writer; returns its token, which is above that of every reader (rule 32).
local function raise(attempt, before, change, keep)
  local function note(weight, class)
    redis.call('ZADD', KEYS[1], text(weight), 'used', text(BAND + 4 * change + class), 'c/' .. attempt)
  end
  note(used - before + ALL, CLASSES.w)
  local is_done, token = pcall(function()
    return mint(digits, fence_for(keep)) -- above that of every reader
  end)
  if not is_done then -- as in `give`
    note(used, CLASSES.u)
    error(refusal(token), 0)
  end
  used = used - before + ALL
  return token
end

local dead = false -- whether some are behind whom to look

-- The first waiter who was not passed over, and its place; nothing if there is none.
local function first()
  local head
  if not dead then
    head = redis.pcall('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES') -- cheaper than by place
    dead = head[2] and string.sub(head[2], 1, 1) == '-'
  end
  if dead then
    head = redis.pcall('ZRANGE', KEYS[3], '(0', '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  end
  return head[1], head[2]
end

-- Grants from the head of the line on while it fits, and stops at the first living waiter that does not (rule 27).
-- So a large request is not overtaken by small ones. The rest of very many is served when they ask again.
--
-- Returns token and slots of the attempt that waits for the answer, if there is one and it is among them. It is given
-- its whole lease, and the others their windows (rule 7). None is withdrawn, whatever PUBLISH counts (rule 28). No
-- command that may be refused comes after the grant; until then the waiter keeps its place (rule 56). The messages to
-- those who are granted are left in `messages`, with the number of those who still wait.
local function grant(keep, asks, messages)
  local token, slots
  local grants = 0
  while grants < 64 do
    local attempt, place = first()
    if not attempt then
      break
    end
    local channel, number, window = listener(attempt)
    local weight, before, change = asked(attempt), 0
    if tonumber(place) < 1 then
      weight, before, change = upgrade(attempt)
    end
    local death = tonumber(redis.call('ZSCORE', KEYS[4], attempt))
    if attempt ~= asks and not (channel and death and death > now and may_be_heard(channel)) then
      skip(attempt, place, channel, number)
      dead = true
    elseif not weight or weight > limit then
      leave(attempt) -- it would block the line for ever (rule 33)
      if tonumber(place) >= 1 then
        tell(channel, 'c', number, text(limit))
      end
    elseif used - before + weight > limit then
      break
    else
      redis.call('ZREM', KEYS[3], '') -- of nothing, so that what follows is not refused when memory is full (rule 41)
      local waiters = redis.call('ZCARD', KEYS[3]) - 1
      grants = grants + 1
      local new, numbers
      if change then
        new = raise(attempt, before, change, keep)
      else
        new, numbers = give(attempt, weight, tonumber(attempt == asks and ARGV[2] or window), keep)
      end
      leave(attempt)
      messages.waiters = waiters
      if attempt == asks then
        token, slots = new, numbers
      elseif change then
        messages[#messages + 1] = {channel, 'u', number, new, digits, text(change)}
      elseif is_rw then
        messages[#messages + 1] = {channel, 'g', number, new, digits, window}
      else
        messages[#messages + 1] = {channel, 's', number, new, digits, window, table.concat(numbers, ',')}
      end
    end
  end
  return token, slots
end

-- The same, and tells those who are granted. Each is told how many waited when the last of them was granted: a client
-- that counted those who come in beside it would give back at once, and keep its door shut, for nobody (rule 39). They
-- are told also where a command is refused after some have been granted.
local function serve(keep, asks)
  local messages = {}
  local is_done, token, slots = pcall(grant, keep, asks, messages)
  for _, message in ipairs(messages) do
    table.insert(message, 7, messages.waiters)
    tell(unpack(message))
  end
  if not is_done then
    error(refusal(token), 0)
  end
  return token, slots
end

-- The reply to a request that does not fit.
local function busy(ahead)
  local next = redis.call('ZRANGE', KEYS[1], LEASES, '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')
  local left = next[2] and math.max(0, math.ceil((next[2] - now) / 1000)) or 0
  return {0, left, now, ahead, 1, next[1] or '', -1}
end

-- Keeps line and signs for the waiters, and the lock with its limits while somebody waits.
local function keep_line(ttl, keep)
  redis.call('PEXPIRE', KEYS[3], ttl)
  redis.call('PEXPIRE', KEYS[4], ttl)
  redis.call('PEXPIRE', KEYS[1], text(math.max(keep, limit_ttl)), 'GT')
end

-- Takes an attempt out of the line, or out of the lock, and serves those who wait. Returns whether it was a holder.
-- A ZREM comes first, which is not refused when memory is full, so that nothing after it is (rule 41).
local function give_back(keep, last_token)
  for place = 3, 4 do
    redis.pcall('ZREM', KEYS[place], me) -- of another type it keeps nobody waiting
  end
  purge()
  local was = lease
  if was then
    drop(me)
    use_limit()
    if last_token ~= '0' then
      keep_token(last_token, fence_for(tonumber(keep)))
    end
  end
  if limit then
    serve(tonumber(keep))
  end
  if is_rw and used == 0 then
    redis.call('DEL', KEYS[1]) -- its limit is known without it
  end
  return was
end
