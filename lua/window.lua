-- Windows of two counters: fixed (f), sliding (s), aligned to Redis's clock; and
-- windows of a calendar (m): windowcalendar.lua.
-- State:   "1f<period> <win> <cur> <prev> <born> <since>[ <letter><number> ...]"
--          in hexadecimal; 1s for a sliding one, 1m for one of a calendar
--          period µs of a window of the limit that wrote the state; 1m: s of the
--                 current window
--          win    number of the current window: Redis time / period; 1m: s of Redis
--                 time at which it begins
--          cur    units counted in it; of a fixed window with the carried units
--          prev   units counted in the window before
--          born   µs of Redis time at creation
--          since  units debited since born or the last reset
--          Fields, each absent if it is 0; common.lua has the rules for fields of
--          other versions:
--          c      of a fixed window: units of cur that were d of the window before
--          d      of a fixed window: units of cur above the limit under which they were
--                 counted: the next window begins with them
--          l      in the window of born: units of since that cur does not count,
--                 because they came late and belong to the window before
--          n      units leased of the next window, with which it begins
--          z      µs from the window's begin to the last reset in it: views up
--                 to that time are void
-- Limit:   "f <rate> <period> 1", "s <rate> <period> <tick>": units, µs, µs. A
--          unit is one sub-unit in a fixed window. In a sliding window it is as
--          many as the window has ticks.
-- Expiry:  end of the next window, because late units still change it; if the
--          next window begins with units, end of the window after that; + 1 s (the
--          longest lease) + 1 s (the longest freeze). The next window of a calendar
--          counts as half longer
-- Source:  Cloudflare has described the two counters; the carry is ours. The Go
--          twin, line for line and with the reasons, is internal/algo:
--          window.go, fixed.go, sliding.go.

local window_fields = {c = 'carry', d = 'debt', l = 'late', n = 'next', z = 'reset'}

local function window_read(raw, lim)
  local letter, period, win, cur, prev, born, since, tail =
    match(raw or '', '^1([fsm])(%x+) (%x+) (%x+) (%x+) (%x+) (%x+)(.*)$')
  if letter ~= lim.kind then return nil end
  local s = {
    period = hex(period), win = hex(win), cur = hex(cur), prev = hex(prev),
    born = hex(born), since = hex(since), reset = 0, late = 0, next = 0, debt = 0, carry = 0,
    lim = false, dirty = false, more = '',
  }
  s.period = s.period * lim.each
  local step = lim.roll and lim.step or s.period
  if s.period < 1 or s.born < 1 or max(s.cur, s.prev, s.born, s.since) > EXACT or s.period > EXACT / 2 or step * s.win > EXACT then
    return nil
  end
  if tail == '' then return s end
  local f = read_fields(tail, window_fields)
  if not f then return nil end
  if f.reset then
    s.reset = s.win * step + f.reset
    if f.reset < 0 or s.reset > EXACT then return nil end
  end
  s.late, s.next, s.debt, s.carry, s.more = f.late or 0, f.next or 0, f.debt or 0, f.carry or 0, f.more
  if max(abs(s.late), s.next, s.debt, s.carry) > EXACT or min(s.next, s.debt, s.carry) < 0 then return nil end
  return s
end

-- window_most returns the most units that a window counts: one Rate of debt.
local function window_most(lim) return min(2 * lim.rate, EXACT) end

-- window_count changes the units of this window. Of more units, those above the limit
-- are debt. Of fewer, the debt goes first.
local function window_count(s, lim, cur)
  cur = min(cur, window_most(lim))
  if lim.kind ~= 's' then
    s.debt = max(cur > s.cur and s.debt + max(cur - max(lim.rate, s.cur), 0) or s.debt - (s.cur - cur), 0)
  end
  s.cur = cur
end

-- window_end returns the end of the state's window, which is the begin of the next one.
local function window_end(s, lim) return s.win * lim.step + s.period end

-- window_next returns the number of the window after the state's.
local function window_next(s, lim) return s.win + s.period / lim.step end

-- window_last reports whether a window before the state's is the one just before it.
local function window_last(s, lim, win) return 2 * (s.win - win) <= 3 * s.period / lim.step end

-- window_has reports whether a time is in the state's window.
local function window_has(s, lim, at) return at >= s.win * lim.step and at < window_end(s, lim) end

-- window_clock returns now, or the begin of the state's window if a clock that
-- stepped back is before it.
local function window_clock(s, step, now) return max(now, s.win * step) end

-- window_shift begins the window with a number after the state's.
local function window_shift(s, lim, win)
  local debt = min(s.debt, max(s.cur - lim.rate, 0))
  s.cur, s.prev, s.next, s.carry, s.win = debt + s.next, s.cur, 0, debt, win
  s.debt = min(debt, max(s.cur - lim.rate, 0))
end

-- window_roll brings a state to the window of now.
local function window_roll(s, lim, step, now)
  if lim.roll then return lim.roll(s, lim, now) end
  local win = floor(now / step)
  for _ = 1, 3 do -- the fourth window back no longer counts
    if s.win < win then window_shift(s, lim, s.win + 1) end
  end
  if s.win < win or s.win * step - now > CLOCK_SLACK then s.win = win end
  if s.reset < s.win * step then s.reset = 0 end
  if floor(s.born / step) ~= s.win then s.late = 0 end
end

-- window_weight returns the number of ticks of the last window that still count.
local function window_weight(s, lim, at) return lim.unit - floor((at - s.win * lim.step) / lim.tick) end

local function window_level(s, lim, at)
  if lim.kind == 's' then
    return lim.cap - max(s.cur * lim.unit + s.prev * window_weight(s, lim, at), (s.cur + s.next) * lim.unit)
  end
  return lim.rate - s.cur
end

-- window_convert counts the usage under another period in this window.
local function window_convert(s, lim, now)
  local period = s.period
  window_roll(s, lim, period, now)
  local used = s.cur + s.next
  if lim.kind == 's' then
    local product = s.prev * (period - (window_clock(s, period, now) - s.win * period))
    used = used + ceil(product / period)
    if product >= EXACT then used = used + 1 end -- two roundings may have gone down
  end
  s.period, s.win, s.cur, s.prev, s.next, s.carry = lim.period, floor(now / lim.period), used, 0, 0, 0
end

local function window_again(s, lim, now)
  local most = window_most(lim)
  s.cur, s.prev, s.next = min(s.cur, most), min(s.prev, most), min(s.next, lim.rate)
  if s.period ~= lim.period and not lim.roll then
    window_convert(s, lim, now)
    s.cur = min(s.cur, most)
  end
  window_roll(s, lim, lim.step, now)
  s.debt = min(s.debt, max(s.cur - lim.rate, 0)) -- a larger limit permits it
end

local function window_load(raw, lim, now)
  local s = window_read(raw, lim)
  if not s then
    s = {
      period = lim.period, win = lim.opens and lim.opens(lim, now) or floor(now / lim.step), cur = 0, prev = 0, born = now, since = 0, reset = 0, late = 0,
      next = 0, debt = 0, carry = 0, lim = lim, dirty = false, more = '', fresh = true,
    }
    if lim.roll then lim.roll(s, lim, now) end
    return s
  end
  window_again(s, lim, now)
  return s
end

local function sliding_retry(s, lim, n, at)
  if window_level(s, lim, at) >= n * lim.unit then return 0 end
  local start, k = s.win * lim.step, 0
  if s.prev > 0 and s.cur + s.next + n <= lim.rate then
    k = ceil((s.cur + s.prev + n - lim.rate) * lim.unit / s.prev)
    if k <= (lim.period - 1) / lim.tick then return start + k * lim.tick - at end
    k = 0
  end
  local over = s.cur + s.next + n - lim.rate
  if over > 0 then k = s.cur > 0 and ceil(over * lim.unit / s.cur) or lim.unit end
  return start + lim.period + min(k * lim.tick, lim.period) - at
end

local function fixed_retry(s, lim, n, at)
  if s.cur + n <= lim.rate then return 0 end
  local over = s.debt + s.next + n - lim.rate -- of the next window
  return window_end(s, lim) + ceil(max(over, 0) / lim.rate) * s.period - at
end

-- window_low returns an op's floor, at most half of the rate.
local function window_low(lim, op) return op.floor and min(op.floor, floor(lim.rate / 2)) or 0 end

local function window_retry(s, lim, n, now)
  if n > lim.rate then return NEVER end
  if s.closed then return 1 end
  local at = window_clock(s, lim.step, now)
  return thaw((lim.kind == 's' and sliding_retry or fixed_retry)(s, lim, n, at), at - now)
end

local function window_write(key, s, lim, now)
  local text = format('1%s%x %x %x %x %x %x', lim.kind, s.period / lim.each, s.win, s.cur, s.prev, s.born, s.since)
  if s.late ~= 0 and window_has(s, lim, s.born) then text = text .. ' l' .. hexed(s.late) end
  if s.next > 0 then text = text .. format(' n%x', s.next) end
  if s.debt > 0 then text = text .. format(' d%x', s.debt) end
  if s.carry > 0 then text = text .. format(' c%x', s.carry) end
  if s.reset > 0 then text = text .. format(' z%x', s.reset - s.win * lim.step) end
  local follows = lim.roll and 1.5 * s.period or s.period
  local last = window_end(s, lim) + follows
  if s.debt + s.next > 0 then last = last + follows end
  local ttl = ceil(max(last - window_clock(s, lim.step, now), 0) / 1000) + (GENERATION + CLOCK_SLACK) / 1000
  store(key, text .. s.more, ttl)
  return lim.roll and ttl
end
