-- Tells a process the settings of its limiters. It restores settings that Redis has lost.
-- KEYS:   1: time of the last change of a setting; then for each limiter: switch, limit,
--         limits of keys
-- ARGV:   1: TTL in ms; then for each limiter, as the process saw it last: switch, the µs
--         at which it was set, limit, the µs at which it was set (0: none)
-- Reply:  now in µs; time of the last change; then for each limiter: switch, the µs at
--         which it was set, limit, the µs at which it was set, version of the limits of
--         keys (0: none)
-- Expiry: see switch.lua, fleetlimit.lua and changed.lua
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local _, _, ttl = switch_args('0', '0', ARGV[1])
if not ttl or #KEYS < 4 or #KEYS % 3 ~= 1 or #ARGV ~= (#KEYS - 1) / 3 * 4 + 1 then return {err = 'HLSETTINGS unreadable settings'} end
for i = 2, #ARGV, 4 do
  if not switch_args(ARGV[i], ARGV[i + 1], '1') or not limit_args(ARGV[i + 2], ARGV[i + 3]) then
    return {err = 'HLSETTINGS unreadable settings'}
  end
end

-- later returns the time of a setting that a process saw, or nil if the setting in Redis
-- counts, which was set at a time. If Redis's clock was set back, it is not known which
-- is the later one: the setting in Redis stays.
local function later(seen, at)
  if seen > now then seen = at > 0 and 0 or now end
  return seen > at and seen or nil
end

local function renew(key)
  if redis.call('PTTL', key) < ttl / 2 then redis.call('PEXPIRE', key, string.format('%.0f', ttl)) end
end

local reply, latest, restored = {now, read_changed(KEYS[1])}, 0, false
for i = 2, #KEYS, 3 do
  local a = (i - 2) / 3 * 4 + 2
  local seen, seen_at = switch_args(ARGV[a], ARGV[a + 1], '1')
  local switch, at, more = read_switch(KEYS[i], now)
  local since = later(seen_at, at)
  if since then
    switch, at, restored = seen, since, true
    write_switch(KEYS[i], switch, at, more, ttl)
  elseif at > 0 then
    renew(KEYS[i])
  end
  local n = #reply
  reply[n + 1], reply[n + 2] = switch, at
  latest = math.max(latest, at)

  seen, seen_at = limit_args(ARGV[a + 2], ARGV[a + 3])
  local limit
  limit, at = read_limit(KEYS[i + 1], now)
  since = later(seen_at, at)
  if since then
    limit, at, restored = seen, since, true
    write_limit(KEYS[i + 1], limit, at, ttl)
  elseif at > 0 then
    renew(KEYS[i + 1])
  end
  reply[n + 3], reply[n + 4] = limit, at
  latest = math.max(latest, at)

  reply[n + 5] = keys_version(redis.call('MGET', KEYS[i + 2])[1])
  if reply[n + 5] > 0 then renew(KEYS[i + 2]) end
end
if restored or latest > reply[2] then
  reply[2] = change(KEYS[1], latest, ttl)
elseif reply[2] > 0 then
  renew(KEYS[1])
end
return reply
