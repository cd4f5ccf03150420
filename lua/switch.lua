-- The fleet's switch of a limit: what an operator has told all its processes.
-- State:  text "1 <switch> <at>[ <letter><number> ...]": schema; a number that
--         says nothing here; the µs at which it was set, where a time in the
--         future counts as now (else nothing that is set later would count);
--         fields of other versions, which are kept. No state is as one of 0 0.
-- Lost:   a Redis that was wiped is told by the next heartbeat: processes carry
--         the switch that they saw last, and the later one stands. So one that
--         is taken back is written like any other, and not deleted.
-- Expiry: as the caller says, from when it was set, and renewed by heartbeats
--         once half of it is over.

-- switch_args reads a switch, its time and its TTL in ms; nil if unreadable.
local function switch_args(switch, at, ttl)
  switch, at, ttl = string.match(switch or '', '^%d+$'), string.match(at or '', '^%d+$'), string.match(ttl or '', '^%d+$')
  if not switch or not at or not ttl or #switch > 9 or #at > 16 or #ttl > 15 or tonumber(ttl) < 1 then return nil end
  return tonumber(switch), tonumber(at), tonumber(ttl)
end

-- read_switch takes what the library cannot have written for none.
local function read_switch(key, now)
  local switch, at, more = string.match(redis.call('MGET', key)[1] or '', '^1 (%d+) (%d+)(.*)$')
  if not switch or #switch > 9 or #at > 16 or #more > 256 or string.gsub(more, ' %l%-?%x+', '') ~= '' then return 0, 0, '' end
  return tonumber(switch), math.min(tonumber(at), now), more
end

local function write_switch(key, switch, at, more, ttl)
  redis.call('SET', key, string.format('1 %.0f %.0f', switch, at) .. more, 'PX', string.format('%.0f', ttl))
end
