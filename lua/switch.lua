-- The fleet's switch of a limit: an operator's setting for all processes.
-- State:  text "1 <switch> <at>[ <letter><number> ...]": schema; a number without
--         a meaning here; the µs at which it was set; fields of other versions,
--         which are kept. A time in the future counts as now, or no later switch
--         would count. A missing state is like one of 0 0.
-- Lost:   settings.lua tells a wiped Redis: processes carry the switch that they saw
--         last, and the later one counts. So to take a switch back is to write
--         another one, not to delete it.
-- Expiry: as the caller says, from the time at which it was set. Processes renew it
--         after half of it is over.

-- switch_args reads a switch, its time and its TTL in ms. It returns nil if one of
-- them is unreadable.
local function switch_args(switch, at, ttl)
  switch, at, ttl = string.match(switch or '', '^%d+$'), string.match(at or '', '^%d+$'), string.match(ttl or '', '^%d+$')
  if not switch or not at or not ttl or #switch > 9 or #at > 16 or #ttl > 15 or tonumber(ttl) < 1 then return nil end
  return tonumber(switch), tonumber(at), tonumber(ttl)
end

-- read_switch returns the switch, its time and the fields of other versions. Text
-- that the library cannot have written counts as no switch.
local function read_switch(key, now)
  local switch, at, more = string.match(redis.call('MGET', key)[1] or '', '^1 (%d+) (%d+)(.*)$')
  if not switch or #switch > 9 or #at > 16 or #more > 256 or string.gsub(more, ' %l%-?%x+', '') ~= '' then return 0, 0, '' end
  return tonumber(switch), math.min(tonumber(at), now), more
end

local function write_switch(key, switch, at, more, ttl)
  redis.call('SET', key, string.format('1 %.0f %.0f', switch, at) .. more, 'PX', string.format('%.0f', ttl))
end
