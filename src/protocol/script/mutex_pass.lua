-- The rest of mutex_release.lua: somebody waits, or the mutex is not the attempt's.
if owner ~= ARGV[1] then
  redis.pcall('ZREM', KEYS[3], ARGV[1])
  redis.pcall('ZREM', KEYS[4], ARGV[1])
  return owner and -1 or 0
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
