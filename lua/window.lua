-- Windows of two counters: fixed (f), sliding (s), aligned to Redis's clock.
-- State:   "1f<period> <win> <cur> <prev> <born> <since>[ <letter><number> ...]"
--          in hexadecimal; 1s for a sliding one
--          period µs of a window of the limit that wrote the state
--          win    number of the current window: Redis time / period
--          cur    units counted in it; of a fixed window with the carried units
--          prev   units counted in the window before
--          born   µs of Redis time at creation
--          since  units debited since born or the last reset
--          Fields, each absent if it is 0; common.lua has the rules for fields of
--          other versions:
--          l      in the window of born: units of since that cur does not count,
--                 because they came late and belong to the window before
--          z      µs from the window's begin to the last reset in it: views up
--                 to that time are void
-- Limit:   "f <rate> <period> 1", "s <rate> <period> <tick>": units, µs, µs. A
--          unit is one sub-unit in a fixed window. In a sliding window it is as
--          many as the window has ticks.
-- Expiry:  end of the next window, because late units still change it; with a
--          carry, end of the window after that; + 1 s (the longest lease) + 1 s
--          (the longest freeze)
-- Source:  Cloudflare has described the two counters; the carry is ours. The Go
--          twin, line for line and with the reasons, is internal/algo:
--          window.go, fixed.go, sliding.go.

local window_fields = {l = 'late', z = 'reset'}

local function window_read(raw, kind)
  local letter, period, win, cur, prev, born, since, tail =
    match(raw or '', '^1([fs])(%x+) (%x+) (%x+) (%x+) (%x+) (%x+)(.*)$')
  if letter ~= kind then return nil end
  local s = {
    period = hex(period), win = hex(win), cur = hex(cur), prev = hex(prev),
    born = hex(born), since = hex(since), reset = 0, late = 0, lim = false, dirty = false, more = '',
  }
  if s.period < 1 or s.born < 1 or max(s.cur, s.prev, s.born, s.since) > EXACT or s.period > EXACT / 2 or s.period * s.win > EXACT then
    return nil
  end
  if tail == '' then return s end
  local f = read_fields(tail, window_fields)
  if not f then return nil end
  if f.reset then
    s.reset = s.win * s.period + f.reset
    if f.reset < 0 or s.reset > EXACT then return nil end
  end
  s.late, s.more = f.late or 0, f.more
  if abs(s.late) > EXACT then return nil end
  return s
end

-- window_most returns the most units that a window counts: one Rate of debt.
local function window_most(lim) return min(2 * lim.rate, EXACT) end

local function window_carry(total, lim) return lim.kind == 's' and 0 or max(0, total - lim.rate) end

-- window_clock returns now, or the begin of the state's window if a clock that
-- stepped back is before it.
local function window_clock(s, period, now) return max(now, s.win * period) end

-- window_roll brings a state to the window of now.
local function window_roll(s, lim, period, now)
  local win = floor(now / period)
  for _ = 1, 3 do -- the fourth window back no longer counts
    if s.win < win then
      local total = s.cur
      s.cur, s.prev, s.win = window_carry(total, lim), total, s.win + 1
    end
  end
  if s.win < win or s.win * period - now > CLOCK_SLACK then s.win = win end
  if s.reset < s.win * period then s.reset = 0 end
  if floor(s.born / period) ~= s.win then s.late = 0 end
end

-- window_weight returns the number of ticks of the last window that still count.
local function window_weight(s, lim, at) return lim.unit - floor((at - s.win * lim.period) / lim.tick) end

local function window_level(s, lim, at)
  if lim.kind == 's' then return lim.cap - s.cur * lim.unit - s.prev * window_weight(s, lim, at) end
  return lim.rate - s.cur
end

-- window_convert counts the usage under another period in this window.
local function window_convert(s, lim, now)
  local period = s.period
  window_roll(s, lim, period, now)
  local used = s.cur
  if lim.kind == 's' then
    local product = s.prev * (period - (window_clock(s, period, now) - s.win * period))
    used = used + ceil(product / period)
    if product >= EXACT then used = used + 1 end -- two roundings may have gone down
  end
  s.period, s.win, s.cur, s.prev = lim.period, floor(now / lim.period), used, 0
end

local function window_again(s, lim, now)
  local most = window_most(lim)
  s.cur, s.prev = min(s.cur, most), min(s.prev, most)
  if s.period ~= lim.period then
    window_convert(s, lim, now)
    s.cur = min(s.cur, most)
  end
  window_roll(s, lim, lim.period, now)
end

local function window_load(raw, lim, now)
  local s = window_read(raw, lim.kind)
  if not s then
    return {
      period = lim.period, win = floor(now / lim.period), cur = 0, prev = 0, born = now, since = 0, reset = 0, late = 0,
      lim = lim, dirty = false, more = '', fresh = true,
    }
  end
  window_again(s, lim, now)
  return s
end

-- window_prev corrects the total of the last window, and the units carried from it.
local function window_prev(s, lim, prev)
  s.cur = max(0, min(s.cur + (window_carry(prev, lim) - window_carry(s.prev, lim)), window_most(lim)))
  s.prev = prev
end

-- window_add debits units of a window. It returns false for one before the last.
local function window_add(s, lim, n, win, at)
  if win == 0 or win >= s.win then
    local room = floor((window_level(s, lim, at) + lim.cap) / lim.unit)
    s.cur = min(s.cur + min(n, max(room, 0)), window_most(lim))
    return true
  end
  if win < s.win - 1 then return false end
  local room = window_most(lim) - s.prev
  if lim.kind == 's' then
    room = min(room, floor((window_level(s, lim, at) + lim.cap) / window_weight(s, lim, at)))
  end
  window_prev(s, lim, s.prev + min(n, max(room, 0)))
  s.late = min(s.late + n, EXACT)
  return true
end

-- window_refund gives units back to their window. If that is unknown, this window
-- gives back as many as it has counted, and the last window the rest.
local function window_refund(s, lim, n, win)
  local cur, prev, since, here = s.cur, s.prev, s.since, 0
  if win == 0 or win >= s.win then
    here = min(n, cur)
    s.cur = cur - here
    if win == 0 and n > here then window_prev(s, lim, prev - min(n - here, prev)) end
  elseif win == s.win - 1 then
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
  if op.vborn == 0 or op.vat <= s.reset or floor(op.vat / lim.period) ~= s.win then return end
  local used, prev, most = lim.cap - min(max(op.vlevel, -3 * lim.cap), lim.cap), 0, window_most(lim)
  if lim.kind == 's' then
    prev = min(op.vprev or 0, most)
    used = used - prev * window_weight(s, lim, op.vat)
  end
  local cur = min(ceil(max(used, 0) / lim.unit), most)
  prev = max(prev, s.prev)
  if op.vborn ~= s.born then
    if floor(s.born / lim.period) == s.win then cur = min(cur + max(s.since - s.late, 0), most) end
    cur = max(cur, s.cur)
    if cur ~= s.cur or prev ~= s.prev then s.cur, s.prev, s.dirty = cur, prev, true end
  elseif op.lost and op.vat <= now then
    cur = max(cur, s.cur)
    if cur ~= s.cur or prev ~= s.prev then
      s.cur, s.prev, s.born, s.since, s.late, s.dirty = cur, prev, max(now, s.born + 1), 0, 0, true
    end
  end
end

local function sliding_retry(s, lim, n, at)
  if window_level(s, lim, at) >= n * lim.unit then return 0 end
  local start, k = s.win * lim.period, 0
  if s.prev > 0 then
    k = ceil((s.cur + s.prev + n - lim.rate) * lim.unit / s.prev)
    if k <= (lim.period - 1) / lim.tick then return start + k * lim.tick - at end
    k = 0
  end
  if s.cur + n > lim.rate then k = ceil((s.cur + n - lim.rate) * lim.unit / s.cur) end
  return start + lim.period + min(k * lim.tick, lim.period) - at
end

local function fixed_retry(s, lim, n, at)
  local over = s.cur - lim.rate + n
  if over <= 0 then return 0 end
  return (s.win + ceil(over / lim.rate)) * lim.period - at
end

local function window_retry(s, lim, n, now)
  if n > lim.rate then return NEVER end
  local at = window_clock(s, lim.period, now)
  return thaw((lim.kind == 's' and sliding_retry or fixed_retry)(s, lim, n, at), at - now)
end

local WINDOW_LEASE = 5 * MAX_LEASE

-- window_lease sizes a lease, which ends with the window. There is no next poll
-- while units are scarce: it would need a slot in the state.
local function window_lease(op, free, refused, ends)
  local life, lease = ends, 0
  if life < MIN_LEASE then life = 0 end
  if op.div > 0 and op.demand > 0 and refused == 0 then
    local mu = op.demand * min(life, WINDOW_LEASE) / 1e9
    lease = max(0, min(floor(free / op.div), floor(mu - sqrt(mu))))
  end
  return lease, life
end

-- window_apply runs one op, in the order of bucket_apply. If the owed units came
-- too late to be counted, it returns -1 - granted for granted. If the state may not
-- count the returned units, they stay, and it returns -1 - lease for lease.
local function window_apply(s, lim, op, now)
  local at, dropped = window_clock(s, lim.period, now), false
  if op.reset then s.cur, s.prev, s.since, s.late, s.reset, s.dirty = 0, 0, 0, 0, at, true end
  window_merge(s, lim, op, now)
  if op.owed > 0 then
    dropped = not window_add(s, lim, op.owed, op.win, at)
    if not dropped then s.since, s.dirty = min(s.since + op.owed, EXACT), true end
  end
  if op.refund > 0 then window_refund(s, lim, op.refund, op.refundat) end
  local back, stays = op.back or 0, op.lost or op.broken or op.vborn ~= s.born or op.gen ~= s.win and op.gen ~= s.win - 1
  if back > 0 and not stays then window_refund(s, lim, back, op.gen) end
  local granted, refused, free = serve(op, floor(max(window_level(s, lim, at), 0) / lim.unit))
  local lease, life = window_lease(op, free, refused, (s.win + 1) * lim.period - now)
  local took = granted + lease
  if took > 0 then s.cur, s.since, s.dirty = s.cur + took, min(s.since + took, EXACT), true end
  if back > 0 and stays then lease = -1 - lease end
  return dropped and -1 - granted or granted, lease, life, window_retry(s, lim, max(refused, 1), now), 0
end

local function window_write(key, s, lim, now)
  local text = format('1%s%x %x %x %x %x %x', lim.kind, s.period, s.win, s.cur, s.prev, s.born, s.since)
  if s.late ~= 0 and floor(s.born / s.period) == s.win then text = text .. ' l' .. hexed(s.late) end
  if s.reset > 0 then text = text .. format(' z%x', s.reset - s.win * s.period) end
  local last = s.win + 2
  if window_carry(s.cur, lim) > 0 then last = last + 1 end
  local ttl = ceil((last * s.period - window_clock(s, s.period, now)) / 1000) + (MAX_LEASE + CLOCK_SLACK) / 1000
  store(key, text .. s.more, ttl)
end

local function window_kind(letter)
  kinds[letter] = {
    limit = function(rate, period, tick)
      if rate < 1 or period < 1 or tick < 1 or period > EXACT / 2 then return nil end
      local unit = letter == 's' and ceil(period / tick) or 1
      if rate >= EXACT or letter == 's' and 2 * rate * unit > EXACT then return nil end
      return {kind = letter, rate = rate, period = period, tick = tick, unit = unit, cap = rate * unit}
    end,
    load = window_load, again = window_again, apply = window_apply, retry = window_retry, write = window_write,
    tell = function(s, lim, now)
      return window_level(s, lim, window_clock(s, lim.period, now)), lim.cap,
        lim.kind == 's' and floor(s.prev / lim.tick) or 0, (s.win + 1) * lim.period - now
    end,
  }
end
window_kind('f')
window_kind('s')
