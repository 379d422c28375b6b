-- What a script sees: the world that Redis gives it, with no global of its own and no way out.
--
-- Is called with the function that runs a command, and returns an error as {err = …}; the one that hashes a
-- text; the one that tells whether the time of the script is over; and the one that tells whether there is a command
-- of these words. Returns the environment of all scripts, the table that its globals are read from, and the function
-- that runs a compiled script.
local run, sha1hex, is_over, is_known = ...

local function refuse()
  error('Attempt to modify a readonly table', 2)
end

local protected = {}

local function readonly(content)
  local shown = setmetatable({}, {__index = content, __newindex = refuse, __metatable = false})
  protected[shown] = true
  return shown
end

-- This writes without a look at the metatable. The others of its library change no table that is empty.
local insert = table.insert
function table.insert(list, ...)
  if protected[list] then
    refuse()
  end
  return insert(list, ...)
end

local redis = {sha1hex = sha1hex, pcall = run, LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3}

function redis.call(...)
  local reply = run(...)
  if type(reply) == 'table' and reply.err then
    error(reply, 0)
  end
  return reply
end

function redis.error_reply(text)
  local error = string.gsub(text, '^%-', '')
  return {err = string.find(error, ' ', 1, true) and error or 'ERR ' .. error}
end

-- There is one user here, who may do everything.
function redis.acl_check_cmd(...)
  if not is_known(...) then
    error('Invalid command passed to redis.acl_check_cmd()', 0)
  end
  return true
end

function redis.status_reply(text)
  return {ok = text}
end

function redis.log() end

local globals = {
  redis = readonly(redis), math = readonly(math), string = readonly(string), table = readonly(table),
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next, pairs = pairs,
  rawequal = rawequal, rawget = rawget, select = select, setmetatable = setmetatable,
  tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
  _VERSION = _VERSION,
}
-- Chance would make two runs of one script differ.
math.random, math.randomseed = nil, nil
getmetatable('').__metatable = false
setmetatable(globals, {__index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end})
local environment = readonly(globals)
globals._G = environment

-- What `pcall` returns of an error that a command gave is its text.
local function caught(returned, error, ...)
  if not returned and type(error) == 'table' and error.err then
    return false, error.err
  end
  return returned, error, ...
end

-- A script whose time is over catches no error any more, or it would go on for ever.
local function unless_over(returned, ...)
  if not returned and is_over() then
    error('the script does not end', 0)
  end
  return returned, ...
end

function globals.pcall(...)
  return caught(unless_over(pcall(...)))
end

-- The handler runs after the error, and not within it, where nothing would end it.
function globals.xpcall(body, handler)
  local function handled(returned, ...)
    if returned then
      return returned, ...
    end
    local _, value = unless_over(pcall(handler, ...))
    return false, value
  end
  return handled(unless_over(pcall(body)))
end

-- Redis keeps the code of an error that a command or the script gave it.
local function main(script)
  local returned, reply = pcall(script)
  if returned then
    return reply
  end
  if type(reply) == 'table' then
    return {err = reply.err and tostring(reply.err) or 'ERR unknown error'}
  end
  return {err = 'ERR ' .. tostring(reply)}
end

return environment, globals, main
