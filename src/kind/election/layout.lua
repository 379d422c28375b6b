-- Tells a leader from the holder of another kind of lock, and from data.
--
-- An attempt of an election has the letter e behind its window; owner_value.rs has the whole form. The keys of a mutex
-- and of an election are both strings. Without the letter each would take the other's holder for its own, and a release
-- of the one would tell nobody of the other (rule 43).

-- The error if the string is no leader; nothing if it is one.
local function refusal(owner)
  if string.find(owner, '^%d[q-]:%x+:%x+:%d+:e:') then
    return nil
  end
  return {err = 'WRONGTYPE it is held, and not by the leader of an election'}
end

local not_a_leader = refusal -- token.lua, where it stands behind this, has another function of that name
