-- The rest of release.lua: somebody waits, or the mutex is not the attempt's.
if owner ~= ARGV[1] then
  for place = 3, 4 do
    local gone = redis.pcall('ZREM', KEYS[place], ARGV[1])
    -- Of another type it keeps nobody waiting. Any other refusal means that the attempt is still there.
    if type(gone) == 'table' and not string.find(gone.err, 'WRONGTYPE', 1, true) then
      return gone
    end
  end
  return owner and -1 or {0, 0, tonumber(redis.pcall('GET', KEYS[2])) or 0}
end
local given
if waiting then
  local time = redis.call('TIME')
  if ARGV[3] ~= '0' then
    redis.pcall('ZREM', KEYS[3], ARGV[1])
    keep_token(ARGV[3], ARGV[2])
  end
  given = hand_over(micros(time), ARGV[2])
end
if not given then
  redis.call('DEL', KEYS[1])
  if ARGV[3] ~= '0' then
    keep_token(ARGV[3], ARGV[2])
  end
end
return 1
