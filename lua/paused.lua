-- The keys that are paused: no process of the deployment admits a call of them until a
-- time. The heartbeats carry their marks.
-- State:  text "1 <version>[ <until> <mark>...]": schema; the µs of the last change; the
--         µs at which the pause ends; 22 letters of base64url that stand for a limiter
--         and a key
-- Bound:  1000 marks of at most ten minutes. Of more, those that end first go.
-- Lost:   processes keep the pauses that they know, and tell them again. Text that the
--         library cannot have written counts as lost.
-- Expiry: one second after the last pause
local MOST_PAUSED, LONGEST_PAUSE, PAUSED_MARK = 1000, 600000000, 22

-- read_paused returns the version, and the end of each pause that is not over by its mark.
local function read_paused(text, now)
  local version, rest = string.match(text, '^1 (%d+)([ %w_-]*)$')
  local ends = {}
  if not version or #version > 16 then return '0', ends end
  for at, mark in string.gmatch(rest, ' (%d+) ([%w_-]+)') do
    local n = #at <= 16 and tonumber(at) or 0
    if #mark == PAUSED_MARK and n > now then ends[mark] = math.min(n, now + LONGEST_PAUSE) end
  end
  return version, ends
end

-- read_pauses returns the version that a process knows, and the pauses that it tells,
-- in µs from now by mark; nil if they are unreadable or too many.
local function read_pauses(text)
  local known, rest = string.match(text, '^(%d+)([ %w_-]*)$')
  local told, length, count = {}, 0, 0
  if not known or #known > 16 then return nil end
  for left, mark in string.gmatch(rest, ' (%d+) ([%w_-]+)') do
    length, count = length + #left + #mark + 2, count + 1
    if #mark ~= PAUSED_MARK or #left > 9 or count > MOST_PAUSED then return nil end
    told[mark] = math.max(told[mark] or 0, tonumber(left))
  end
  return length == #rest and known or nil, told
end

-- tell_paused adds pauses to those in a text. It returns the text with all, or '' if the
-- process knows it. The longer of two pauses of a key counts.
local function tell_paused(key, text, known, told, now)
  if text == '' and not next(told) then return '' end
  local version = string.match(text, '^1 (%d+)')
  if version == known and not next(told) then return '' end
  local ends, changed
  version, ends = read_paused(text, now)
  for mark, left in pairs(told) do
    local at = now + math.min(left, LONGEST_PAUSE)
    if at > now and at > (ends[mark] or 0) then ends[mark], changed = at, true end
  end
  local marks = {}
  for mark in pairs(ends) do marks[#marks + 1] = mark end
  table.sort(marks, function(a, b)
    if ends[a] ~= ends[b] then return ends[a] > ends[b] end
    return a < b
  end)
  local parts = {}
  for i = 1, math.min(#marks, MOST_PAUSED) do parts[i] = string.format('%.0f %s', ends[marks[i]], marks[i]) end
  if changed then
    version = string.format('%.0f', math.max(now, tonumber(version) + 1))
    local ttl = (ends[marks[1]] - now) / 1000 + 1000
    redis.call('SET', key, '1 ' .. version .. ' ' .. table.concat(parts, ' '), 'PX', string.format('%.0f', ttl))
  end
  if version == '0' or version == known and not changed then return '' end
  return version .. (#parts > 0 and ' ' .. table.concat(parts, ' ') or '')
end
