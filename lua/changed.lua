-- The time of the last change of a setting, for all limits of a deployment. Settings are
-- the fleets' switches and limits. Heartbeats tell this time, so that no heartbeat has to
-- read the settings.
-- State:  text: µs. Processes read the settings again if it is not the time that they
--         know, be it later or earlier.
-- Lost:   processes then tell their settings again.
-- Expiry: as the caller says. Processes renew it with their settings.

local function read_changed(key)
  local at = string.match(redis.call('MGET', key)[1] or '', '^%d+$')
  at = at and #at <= 16 and tonumber(at) or 0
  return at < 2 ^ 53 and at or 0
end

-- change notes a change at a time, and returns the time that processes are told. It is
-- another time than before.
local function change(key, at, ttl)
  at = math.max(at, read_changed(key) + 1)
  redis.call('SET', key, string.format('%.0f', at), 'PX', string.format('%.0f', ttl))
  return at
end
