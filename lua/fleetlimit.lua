-- The fleet's limit of a limiter: an operator's setting for all processes.
-- State:  text "1 <at> <limit>": schema; the µs at which it was set; up to 256 bytes of
--         printable ASCII without a meaning here, "" for none. A time in the future
--         counts as now, or no later limit would count. A missing state is like 0 "".
-- Lost:   as for the switch: see switch.lua.
-- Expiry: as for the switch.

-- limit_args reads a limit and its time. It returns nil if one of them is unreadable.
local function limit_args(text, at)
  text, at = string.match(text or '\n', '^[ -~]*$'), string.match(at or '', '^%d+$')
  if not text or #text > 256 or not at or #at > 16 then return nil end
  return text, tonumber(at)
end

-- read_limit returns the limit and its time. Text that the library cannot have written
-- counts as no limit.
local function read_limit(key, now)
  local at, text = string.match(redis.call('MGET', key)[1] or '', '^1 (%d+) ([ -~]*)$')
  if not at or #at > 16 or #text > 256 then return '', 0 end
  return text, math.min(tonumber(at), now)
end

local function write_limit(key, text, at, ttl)
  redis.call('SET', key, string.format('1 %.0f ', at) .. text, 'PX', string.format('%.0f', ttl))
end
