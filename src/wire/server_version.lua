-- Tells whether the server knows PEXPIRE … GT, and uses no key of the user.
--
-- keys: none
-- arguments: none
-- replies: 1 if it does, 0 if not
--
-- Redis 7.0 and later, and Valkey, tell scripts their version. Other servers are sent the command: an older one refuses
-- the number of arguments before it checks the key, the permissions and the role. So any other error shows that the
-- server knows the option.
if redis.REDIS_VERSION_NUM then
    return 1
end
local reply = redis.pcall('PEXPIRE', '', '1', 'GT')
if type(reply) == 'table' and reply.err and string.find(string.lower(reply.err), 'number of arg', 1, true) then
    return 0
end
return 1
