-- Whether the server knows PEXPIRE … GT, without a key of the user.
--
-- keys: none
-- arguments: none
-- replies: 1 if it does, 0 if not
--
-- Redis 7.0 and later, and Valkey, tell scripts their version. Elsewhere the number of arguments decides: a server
-- checks it before the key, the permissions and the role. So any other error comes from a server that knows the option.
if redis.REDIS_VERSION_NUM then
    return 1
end
local reply = redis.pcall('PEXPIRE', '', '1', 'GT')
if type(reply) == 'table' and reply.err and string.find(string.lower(reply.err), 'number of arg', 1, true) then
    return 0
end
return 1
