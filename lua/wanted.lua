-- The keys of which a process wants units that other processes may hold in leases: a
-- window is used up, and Redis does not know which of its leased units are spent. The
-- heartbeats carry their marks, and holders return what they do not use.
-- State:  text "1[ <at> <mark>...]": schema; the µs at which it was told; 22 letters of
--         base64url that stand for a limiter and a key. The last one is the newest.
-- Bound:  64 marks; the oldest ones go. A mark is told for three seconds.
-- Lost:   holders keep their units until the window ends, as without a mark. Text that
--         the library cannot have written counts as lost.
-- Expiry: ten seconds after the last mark was added.
local WANTED, AGAIN, MOST_WANTED, MARK = 3000000, 1000000, 64, 22

-- read_marks returns the marks in a text, or nil if they are unreadable or too many.
local function read_marks(text)
  local marks = {}
  for mark in string.gmatch(text, '[^ ]+') do
    if #mark ~= MARK or string.match(mark, '[^%w_-]') or #marks >= MOST_WANTED then return nil end
    marks[#marks + 1] = mark
  end
  return marks
end

-- read_wanted returns the marks that are told at now: at, mark, at, mark and so on.
local function read_wanted(text, now)
  local live, rest = {}, string.match(text, '^1([ %w_-]*)$')
  for at, mark in string.gmatch(rest or '', ' (%d+) ([%w_-]+)') do
    if #mark == MARK and #at <= 16 and tonumber(at) <= now and tonumber(at) > now - WANTED then
      live[#live + 1], live[#live + 2] = at, mark
    end
  end
  return live
end

-- tell_wanted adds marks to those in a text, and returns all that are told at now. A mark
-- that was told within the last second stays as it is.
local function tell_wanted(key, text, marks, now)
  if text == '' and #marks == 0 then return '' end
  local live, at, changed = read_wanted(text, now), string.format('%.0f', now), false
  for _, mark in ipairs(marks) do
    local found = nil
    for i = 2, #live, 2 do
      if live[i] == mark then found = i end
    end
    if not found or tonumber(live[found - 1]) <= now - AGAIN then
      if found then
        table.remove(live, found)
        table.remove(live, found - 1)
      end
      live[#live + 1], live[#live + 2], changed = at, mark, true
    end
  end
  while #live > 2 * MOST_WANTED do
    table.remove(live, 1)
    table.remove(live, 1)
  end
  local told = table.concat(live, ' ')
  if changed then redis.call('SET', key, '1 ' .. told, 'PX', '10000') end
  return told
end
