-- What a sliding log has admitted within its period.
-- KEYS:   1: the log
-- ARGV:   1: period in µs
-- Reply:  1, now, then per entry, the oldest first: µs of Redis time, units, id
-- Expiry: nothing is written
local function run_history(key, period, now)
  if not match(period or '', '^%d+$') or num(period) > EXACT / 2 then return {err = 'HLHISTORY unreadable period'} end
  local s = log_load(nil, {period = num(period)}, now, key)
  local reply = {1, now}
  for rank = s.first, log_count(s) - 1 do
    local e = log_entry(s, rank)
    reply[#reply + 1] = e.at
    reply[#reply + 1] = e.cost
    reply[#reply + 1] = string.sub(e.id, 2)
  end
  return reply
end
