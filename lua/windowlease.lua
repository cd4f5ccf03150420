-- Leases of a window, and of the next one.
-- State:   of window.lua: next (units leased of the next window)
-- Source:  the Go twin, line for line and with the reasons, is internal/algo:
--          window_lease.go.
local WINDOW_LEASE, AHEAD_PERIOD = 5 * GENERATION, 5 * MIN_LEASE

local function window_busy(lim) return lim.rate - ceil(lim.rate / 8) end

-- window_share returns an equal share of the units up to busy.
local function window_share(lim, op) return floor(window_busy(lim) / max(floor(op.div / 2), 1)) end

-- window_roomy reports whether a short window has enough units for all.
local function window_roomy(s, lim, at)
  local busy = window_busy(lim)
  return lim.period <= WINDOW_LEASE and s.prev <= busy and window_level(s, lim, at) >= (lim.rate - busy) * lim.unit
end

-- window_margin returns the units to lease for an expected demand.
local function window_margin(s, lim, mu, less, at)
  if window_roomy(s, lim, at) then less = -1.5 elseif lim.period > WINDOW_LEASE then less = 1 end
  return floor(mu - less * sqrt(mu))
end

-- window_wants returns the units that the sender would lease if enough were free.
local function window_wants(s, lim, op, free, life, at)
  if op.div == 0 or op.demand == 0 then return 0 end
  local part, all = floor(free / op.div), op.demand * lim.period / 1e9
  if window_roomy(s, lim, at) then
    part = max(part, floor(window_share(lim, op) / 2))
  elseif lim.kind ~= 's' and all * op.div >= lim.rate * 2.5 then
    part = max(part, min(floor(window_share(lim, op) / 4), 8))
  end
  return max(0, min(part, window_margin(s, lim, op.demand * min(life, WINDOW_LEASE) / 1e9, 1.5, at)))
end

-- window_rest returns the units that a sliding window will probably still need.
local function window_rest(s, lim, at)
  local left = window_end(s, lim) - at
  local past = max(lim.period - left, 1)
  local rest = s.cur * left / past
  if window_roomy(s, lim, at) then
    if s.cur > s.prev then rest = (s.cur - s.prev) * left / past else rest = min(rest, s.prev - s.cur) end
  end
  return min(ceil(rest), lim.rate)
end

-- window_ahead sizes a lease of the next window.
local function window_ahead(s, lim, op, at)
  if op.div == 0 or op.demand == 0 or lim.period < AHEAD_PERIOD or lim.use or window_has(s, lim, s.born) then return 0 end
  local room, share = window_busy(lim) - s.debt - s.next - window_low(lim, op), window_share(lim, op)
  if lim.kind == 's' then
    room = room + lim.rate - window_busy(lim) - window_rest(s, lim, at) - floor(lim.rate / 16) - s.cur
    share = floor(max(room + s.next, 0) / max(floor(op.div / 2), 1))
  end
  local want = window_margin(s, lim, op.demand * min(lim.period, WINDOW_LEASE) / 1e9, 2, at)
  return max(0, min(want, share, room))
end

-- window_apply runs one op, in the order of bucket_apply. If the owed units came
-- too late to be counted, it returns -1 - granted for granted. If the state may not
-- count the returned units, they stay, and it returns -1 - lease for lease. For a
-- lease of the next window, life is minus the number of that window.
local function window_apply(s, lim, op, now)
  local at, dropped = window_clock(s, lim.step, now), false
  if op.reset then
    s.cur, s.prev, s.next, s.debt, s.carry, s.since, s.late, s.reset, s.dirty = 0, 0, 0, 0, 0, 0, 0, at, true
  end
  window_merge(s, lim, op, now)
  if op.owed > 0 then
    dropped = s.closed or not window_add(s, lim, op.owed, op.win, at)
    if not dropped then s.since, s.dirty = min(s.since + op.owed, EXACT), true end
  end
  if op.refund > 0 then window_refund(s, lim, op.refund, op.refundat) end
  local back, ahead = op.back or 0, window_next(s, lim)
  local stays = op.lost or op.broken or op.vborn ~= s.born or op.gen > ahead or not window_last(s, lim, op.gen)
  if back > 0 and not stays then
    if op.gen > s.win then window_unlease(s, back) else window_refund(s, lim, back, op.gen) end
  end
  if (op.used or 0) > 0 then window_observe(s, lim, op.used, at) end
  local low = window_low(lim, op)
  local granted, refused, free = serve(op, s.closed and 0 or max(floor(max(window_level(s, lim, at), 0) / lim.unit) - low, 0))
  local ends, took, lease = s.closed and 0 or window_end(s, lim) - now, granted, 0
  local life = ends >= MIN_LEASE and ends or 0
  if op.ahead then
    s.cur = s.cur + granted
    lease = s.closed and 0 or window_ahead(s, lim, op, at)
    if lease > 0 then
      s.next, s.since, s.dirty, life = s.next + lease, min(s.since + lease, EXACT), true, -ahead
    end
  else
    if refused == 0 then lease = min(window_wants(s, lim, op, free, life, at), free) end
    took = granted + lease
    s.cur = s.cur + took
  end
  if took > 0 then s.since, s.dirty = min(s.since + took, EXACT), true end
  if back > 0 and stays then lease = -1 - lease end
  if lim.roll and not window_has(s, lim, s.born) then s.late = 0 end -- the next op of the batch may name an earlier window
  return dropped and -1 - granted or granted, lease, life, window_retry(s, lim, max(refused, 1) + low, now), 0
end

kinds.f = {
  limit = function(rate, period, tick, letter)
    if rate < 1 or period < 1 or tick < 1 or period > EXACT / 2 then return nil end
    local unit = letter == 's' and ceil(period / tick) or 1
    if rate >= EXACT or letter == 's' and 2 * rate * unit > EXACT then return nil end
    return {kind = letter, rate = rate, period = period, step = period, each = 1, tick = tick, unit = unit, cap = rate * unit}
  end,
  load = window_load, again = window_again, apply = window_apply, retry = window_retry, write = window_write,
  tell = function(s, lim, now)
    local ends = s.closed and 0 or window_end(s, lim) - now
    return window_level(s, lim, window_clock(s, lim.step, now)), lim.cap - s.next * lim.unit,
      lim.kind == 's' and floor(s.prev / lim.tick) or lim.roll and s.win or 0, ends
  end,
}
kinds.s = kinds.f
