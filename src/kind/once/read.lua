-- Tells the record of a job, and the server's time. It writes nothing.
--
-- KEYS  1 the record (a hash; record.rs says what its fields are)
-- ARGV  none
-- Returns {server time in µs, how many fields it has, the values of ten fields, 1 KiB of each at most}
local time = redis.call('TIME')
local values = redis.call('HMGET', KEYS[1], 'form', 'done', 'done_by', 'run', 'run_by', 'end', 'reason',
  'tries', 'over', 'policy')
for at = 1, 10 do
  values[at] = values[at] and string.sub(values[at], 1, 1024)
end
return {time[1] * 1000000 + time[2], redis.call('HLEN', KEYS[1]), values}
