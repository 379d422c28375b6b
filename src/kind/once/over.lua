-- Notes in the record of a job that its last run is over without an end, and when that was noticed. It runs within a
-- transaction of the job's lock.
--
-- KEYS  1 the record
-- ARGV  1 the run as the record tells it, 2 the note
-- Returns 1 if it was noted, 0 if the record tells of another run or was deleted: then there is nothing to note, and the
-- note alone would be no record
if redis.call('HMGET', KEYS[1], 'run')[1] ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'over', ARGV[2])
return 1
