-- What all files share: bounds, and numbers as text.
-- Numbers: integers up to 2^53, so every sum here is exact; products may leave
--          that range only where just their size matters. States hold them in
--          hexadecimal, which Lua writes and reads as fast as decimals and
--          Redis keeps in fewer bytes.
-- Kinds:   an algorithm is made when a batch has a limit of its kind: what a
--          script defines costs each call, and to define all of them took as
--          long as a small batch. It puts its functions into `kinds`:
--            limit(a, b, c)              of three numbers, or nil
--            load(raw, lim, now, key, since)  a state brought to now; lost: fresh
--            again(s, lim, now)          a loaded state in another limit's terms
--            apply(s, lim, op, now)      granted, lease, life, retry, delay
--            retry(s, lim, n, now)       µs until n units are there
--            tell(s, lim, now)           level, ceiling, refill, ends
--            write(key, s, lim, now)     store it, with its TTL
local MAX_LEASE, MIN_LEASE, CLOCK_SLACK = 1000000, 20000, 1000000
local EXACT, NEVER = 2 ^ 53, 2 ^ 53
local abs, floor, ceil, min, max, sqrt =
  math.abs, math.floor, math.ceil, math.min, math.max, math.sqrt
local match, gmatch, gsub, sub, format = string.match, string.gmatch, string.gsub, string.sub, string.format
local tonumber, HUGE = tonumber, math.huge
local kinds, makers = {}, {}

-- kind_of is the algorithm of a letter.
local function kind_of(letter)
  if not kinds[letter] and makers[letter] then makers[letter]() end
  return kinds[letter]
end

-- num is what a match of digits says, and infinite where it says nothing or
-- too much (gopher-lua's tonumber gives nil above 63 bits, and fails on a match
-- that found nothing).
local function num(digits) return digits and tonumber(digits) or HUGE end

-- hex is num of hexadecimal digits, perhaps with a minus.
local function hex(digits)
  if sub(digits, 1, 1) == '-' then return -(tonumber(sub(digits, 2), 16) or HUGE) end
  return tonumber(digits, 16) or HUGE
end

-- read_fields reads the tail of a state, " <letter><number>" again and again:
-- those that `names` has under their names, the others as they are in `more`, so
-- that a state passes through a version that does not know them. (What must not
-- be ignored needs another letter for the kind.) Other text is nil.
local MAX_TAIL = 256
local function read_fields(tail, names)
  if #tail > MAX_TAIL then return nil end
  local f, length = {more = ''}, 0
  for letter, n in gmatch(tail, ' (%l)(%-?%x+)') do
    length = length + 2 + #n
    if names[letter] then
      f[names[letter]] = hex(n)
    else
      f.more = f.more .. ' ' .. letter .. n
    end
  end
  return length == #tail and f or nil
end

-- hexed is how hex reads n.
local function hexed(n) return format(n < 0 and '-%x' or '%x', abs(n)) end

-- store writes a string that lives for so many ms: as text, since of a number
-- Redis makes text by %.17g, which took a third of the whole write.
local function store(key, text, ttl) redis.call('SET', key, text, 'PX', format('%d', ttl)) end

-- thaw adds to a wait the time for which a clock that stepped back keeps the
-- state frozen.
local function thaw(wait, frozen) return wait > 0 and wait + frozen or 0 end

-- serve grants asks as they fit into free units, for the kinds that do so
-- without delay. It returns what was granted, and the first that was refused.
local function serve(op, free, grant)
  local granted, refused = 0, 0
  for i = 1, #op.asks do
    local n, got = op.asks[i], 0
    if n > 0 and n <= free then got = n elseif n > 0 and op.partial then got = free end
    if got > 0 then
      free, granted = free - got, granted + got
      if grant then grant(got) end
    elseif n > 0 and refused == 0 then
      refused = op.partial and 1 or n
    end
  end
  return granted, refused, free
end
