-- Windows of a calendar (m): fixed windows whose begin and length the sender computes.
-- State:   of window.lua
-- Limit:   "m <rate> <begin> <end>": units, s, s: the sender's window. "u <rate>
--          <begin> <length>": a window that begins with the first unit after the last
--          one; <begin> 0: the sender knows none
-- Rules:   which window counts if senders disagree: the Go twin has the list
-- Source:  the Go twin, line for line and with the reasons, is internal/algo:
--          calendar.go.
if letter == 'm' or letter == 'u' then
  -- calendar_mine reports whether the sender's window contains a time.
  local function calendar_mine(lim, at)
    return lim.win > 0 and at >= lim.win * lim.step and at < lim.win * lim.step + lim.period
  end

  -- calendar_opens returns the number of the first window of a key.
  local function calendar_opens(lim, now)
    if lim.use and not calendar_mine(lim, now) then return floor(now / lim.step) end
    return lim.win
  end

  -- calendar_shift begins the sender's window with a number after the state's.
  local function calendar_shift(s, lim, win)
    local apart, length = 2 * (win - s.win), lim.period / lim.step
    if apart < length and not lim.use then
      s.win, s.period = win, lim.period
      return
    end
    for n = 0, 2 do
      if n == 0 or apart > (2 * n + 1) * length then window_shift(s, lim, win) end
    end
    s.period = lim.period
  end

  -- calendar_roll brings a state to the window that counts.
  local function calendar_roll(s, lim, now)
    local over, ahead, mine = now >= window_end(s, lim), s.win * lim.step - now > CLOCK_SLACK, calendar_mine(lim, now)
    if lim.use then
      if over then
        calendar_shift(s, lim, calendar_opens(lim, now))
      elseif ahead or mine and lim.win < s.win or s.cur + s.next == 0 and not mine then
        s.win, s.period = calendar_opens(lim, now), lim.period
      end
    elseif mine and lim.win > s.win then
      calendar_shift(s, lim, lim.win)
    elseif mine and (lim.win == s.win or over or ahead) then
      s.win, s.period = lim.win, lim.period
    end
    if s.reset < s.win * lim.step then s.reset = 0 end
    if not window_has(s, lim, s.born) then s.late = 0 end
    -- closed: nothing can be granted, because neither the state's window nor the
    -- sender's is that of Redis's clock.
    local early = s.win * lim.step - now
    s.closed = not lim.use and (now >= window_end(s, lim) or early > 0 and (s.fresh and not s.dirty or early > CLOCK_SLACK))
  end

  kinds.m = {
    limit = function(rate, begin, last, which)
      local length, second = which == 'u' and last or last - begin, 1000000
      if rate < 1 or rate >= EXACT or length < 1 or begin < 1 and which == 'm' then return nil end
      if (begin + length) * second > EXACT / 2 then return nil end
      return {
        kind = 'm', rate = rate, period = length * second, step = second, each = second, tick = 1, unit = 1, cap = rate,
        win = begin, use = which == 'u', roll = calendar_roll, opens = calendar_opens,
      }
    end,
    load = window_load, again = window_again, apply = window_apply, retry = window_retry, write = window_write, tell = kinds.f.tell,
  }
  kinds.u = kinds.m
end
