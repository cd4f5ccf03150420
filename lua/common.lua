-- Definitions that all files share: bounds, numbers as text, the list of kinds.
-- Numbers: integers up to 2^53, so that every sum here is exact. A product may
--          leave that range only if nothing but its size matters. States have
--          numbers in hexadecimal: Lua writes and reads it as fast as decimal,
--          and Redis keeps it in fewer bytes.
-- Kinds:   an algorithm is created when a batch has a limit of its kind, because
--          each call pays for all definitions of its script. To define all
--          algorithms took as long as a small batch. An algorithm puts its
--          functions into `kinds`:
--            limit(a, b, c, letter)      the limit of three numbers, or nil
--            load(raw, lim, now, key, since)  a state at now; a lost one is fresh
--            again(s, lim, now)          converts a loaded state to another limit
--            apply(s, lim, op, now)      granted, lease, life, retry, delay
--            retry(s, lim, n, now)       µs until n units are available
--            tell(s, lim, now)           level, ceiling, refill, ends
--            write(key, s, lim, now)     stores the state, with its TTL
local GENERATION, MIN_LEASE, CLOCK_SLACK = 1000000, 20000, 1000000
local EXACT, NEVER = 2 ^ 53, 2 ^ 53
local abs, floor, ceil, min, max, sqrt =
  math.abs, math.floor, math.ceil, math.min, math.max, math.sqrt
local match, gmatch, gsub, sub, format = string.match, string.gmatch, string.gsub, string.sub, string.format
local tonumber, HUGE = tonumber, math.huge
local kinds, make = {}, nil -- make(letter) creates the algorithm of a letter: source.go

-- kind_of returns the algorithm of a letter, or nil.
local function kind_of(letter)
  if not kinds[letter] then make(letter) end
  return kinds[letter]
end

-- num returns the number that matched digits spell. It returns infinity for no
-- match and for too many digits (gopher-lua's tonumber returns nil above 63 bits,
-- and fails on the nil of no match).
local function num(digits) return digits and tonumber(digits) or HUGE end

-- hex is num for hexadecimal digits, with or without a minus.
local function hex(digits)
  if sub(digits, 1, 1) == '-' then return -(tonumber(sub(digits, 2), 16) or HUGE) end
  return tonumber(digits, 16) or HUGE
end

-- read_fields reads the tail of a state: fields of the form " <letter><number>".
-- A field in `names` gets its name. All other fields stay as text in `more`, so
-- that a version keeps the fields of another version. (A feature with a field that
-- must not be ignored needs another letter for the kind.) Other text gives nil.
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

-- hexed returns n as text that hex reads.
local function hexed(n) return format(n < 0 and '-%x' or '%x', abs(n)) end

-- store writes a string with a TTL in ms. It passes the TTL as text: Redis makes
-- text from a number by %.17g, which took a third of the whole write.
local function store(key, text, ttl) redis.call('SET', key, text, 'PX', format('%d', ttl)) end

-- thaw adds to a wait the time for which the state is frozen after the clock
-- stepped back.
local function thaw(wait, frozen) return wait > 0 and wait + frozen or 0 end

-- serve grants the asks of an op one by one, as they fit into the free units, for
-- the kinds without delay. It returns the granted units, the units that the first
-- refused ask needs (0: none was refused), and the units left.
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
