-- Units of a window that are paid, observed or given back, and lost states.
-- State:   of window.lua
-- Source:  the Go twin, line for line and with the reasons, is internal/algo:
--          window.go.

-- window_prev corrects the total of the last window, and the units carried from it.
local function window_prev(s, lim, prev)
  local more = prev - max(lim.rate, s.prev)
  if lim.kind == 's' then
    more = 0
  elseif more <= 0 then
    more = prev < s.prev and -min(s.carry, max(s.prev - max(lim.rate, prev), 0), s.cur) or 0
  end
  window_count(s, lim, s.cur + more)
  s.carry, s.prev = s.carry + more, prev
end

-- window_add debits units of a window. It returns false for one before the last.
local function window_add(s, lim, n, win, at)
  if win == 0 or win >= s.win then
    local room = floor((window_level(s, lim, at) + lim.cap) / lim.unit)
    window_count(s, lim, s.cur + min(n, max(room, 0)))
    return true
  end
  if not window_last(s, lim, win) then return false end
  local room = window_most(lim) - s.prev
  if lim.kind == 's' then
    room = min(room, floor((window_level(s, lim, at) + lim.cap) / window_weight(s, lim, at)))
  end
  window_prev(s, lim, s.prev + min(n, max(room, 0)))
  s.late = min(s.late + n, EXACT)
  return true
end

-- window_observe lowers the level to the units that another party's count leaves in
-- this window, as bucket_observe does.
local function window_observe(s, lim, used, at)
  local over = floor(window_level(s, lim, at) / lim.unit) - (lim.rate - min(used, lim.rate))
  if over > 0 then
    window_count(s, lim, s.cur + over)
    s.dirty = true
  end
end

-- window_unlease takes returned units off the next window.
local function window_unlease(s, n)
  local since = s.since
  s.next, s.since, s.dirty = max(s.next - n, 0), max(since - n, 0), true
  s.late = s.late - (since - s.since)
end

-- window_refund gives units back to their window. If that is unknown, this window
-- gives back as many as it has counted, and the last window the rest.
local function window_refund(s, lim, n, win)
  if win > s.win then -- leased of the next window, before the limit was lowered
    local next = min(n, s.next)
    if next > 0 then window_unlease(s, next) end
    n = n - next
  end
  local cur, prev, since, here = s.cur, s.prev, s.since, 0
  if win == 0 or win >= s.win then
    here = min(n, cur)
    window_count(s, lim, cur - here)
    if win == 0 and n > here then window_prev(s, lim, prev - min(n - here, prev)) end
  elseif window_last(s, lim, win) then
    window_prev(s, lim, prev - min(n, prev))
  else
    return
  end
  s.since = max(since - n, 0)
  s.late = s.late + here - (since - s.since)
  s.dirty = s.dirty or s.cur ~= cur or s.prev ~= prev or s.since ~= since
end

-- window_merge takes the history with more usage, like bucket_merge, if the
-- sender's view is of this window. Any other view is void.
local function window_merge(s, lim, op, now)
  if op.vborn == 0 or op.vat <= s.reset or not window_has(s, lim, op.vat) then return end
  local used, prev, next, most = lim.cap - min(max(op.vlevel, -3 * lim.cap), lim.cap), 0, min(op.vnext or 0, lim.rate), window_most(lim)
  if lim.kind == 's' then -- the level is the lower of two: see window_level
    prev = min(op.vprev or 0, most)
    used = used - max(prev * window_weight(s, lim, op.vat), next * lim.unit)
  end
  local cur, same = min(ceil(max(used, 0) / lim.unit), most), op.vborn == s.born
  prev, next = max(prev, s.prev), max(next, s.next)
  if not same and window_has(s, lim, s.born) then cur = min(cur + max(s.since - s.late, 0), most) end
  cur = max(cur, s.cur)
  if same and (not op.lost or op.vat > now) or cur == s.cur and prev == s.prev and next == s.next then return end
  window_count(s, lim, cur)
  s.prev, s.next, s.dirty = prev, next, true
  if same then s.born, s.since, s.late = max(now, s.born + 1), 0, 0 end
end
