-- The directory of the groups of a deployment. A group is the set of the limiters of a
-- process.
-- State:  text "1 <version>[ <id> <expiry>...]": schema; a number that grows when a
--         group joins or is dropped; the id of a group; the µs at which it is dropped.
--         A heartbeat renews its own group when a third of the time is over. A group
--         that the last process has left is dropped at once.
-- Bound:  500 groups. A process of one more is refused, because no other would count it.
-- Lost:   each heartbeat adds its own group. Text that the library cannot have written
--         counts as lost.
local MAX_EXPIRY, LISTED, MOST_GROUPS, MAX_NAMES = 30000000, 60000000, 500, 16384

-- natural returns the number that digits spell, up to 2^53, or nil.
local function natural(text)
  text = string.match(text or '', '^%d+$')
  local n = text and #text <= 16 and tonumber(text)
  return n and n <= 2 ^ 53 and n or nil
end

-- look_up returns the expiry of a group in a directory (nil: it is not there). It looks
-- for that group alone.
local function look_up(text, id)
  local _, last = string.find(text, ' ' .. id .. ' ', 1, true)
  return last and natural(string.match(text, '^%d+', last + 1))
end

-- read_groups returns the version of a directory, and its groups: id, expiry, id, expiry
-- and so on. Without a readable directory it returns 0 and no groups.
local function read_groups(text)
  local version, rest = string.match(text, '^1 (%d+)([ %w_-]*)$')
  version = natural(version)
  if not version then return 0, {} end
  local groups, length = {}, 0
  for id, expires in string.gmatch(rest, ' ([%w_-]+) (%d+)') do
    length = length + 2 + #id + #expires
    if not natural(expires) then return 0, {} end
    groups[#groups + 1], groups[#groups + 2] = id, natural(expires)
  end
  if length ~= #rest then return 0, {} end
  return version, groups
end

-- write_groups writes a directory without the groups that have expired or are in `gone`.
-- The group `id` is in it, unless id is nil. It returns the text and its version.
local function write_groups(key, version, groups, now, id, gone, ttl)
  local kept, changed = {}, id ~= nil
  if id then kept[1] = string.format(' %s %.0f', id, now + LISTED) end
  for i = 1, #groups, 2 do
    local other, expires = groups[i], math.min(groups[i + 1], now + LISTED)
    if other == id then
      changed = false
    elseif expires >= now and not gone[other] then
      kept[#kept + 1] = string.format(' %s %.0f', other, expires)
    end
  end
  if changed or 2 * #kept < #groups then version = math.max(now, version + 1) end
  local text = string.format('1 %.0f', version) .. table.concat(kept)
  if #kept > 0 then
    redis.call('SET', key, text, 'PX', ttl)
  else
    redis.call('DEL', key)
  end
  return text, version
end
