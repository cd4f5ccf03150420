-- Leased rates: one message of a process, with an exchange of its lease for each of
-- some keys of a tag. internal/ratelease has the protocol.
-- KEYS:   for each op: the state of its key, and the record of the process's lease
-- ARGV:   for each op: text "1 <number> <procs> <demand> <span> <have> <back> <spilt>
--         <want> <wish> <most> <owed> <acked> <rate> <burst> <born> <at> <level> <out>
--         <own> <reset>": the fields of ratelease.Op; the five before the last are its
--         view. Amounts are millionths of a unit, and rates millionths of a unit per
--         second.
-- Reply:  for each op: 1 (0: the number is too old, and nothing was done), then rate,
--         depth, units, held, next (µs), born, at, level, out
-- Once:   an op whose number is that of the record gets the same answer again.
-- State:  text "1 <born> <last> <generation> <level> <rate> <burst>", then for this
--         generation and for the one before: leased rates, depths, demands, peaks;
--         then "<unknown> <told> <told out> <reset>", and fields " <letter><hexadecimal>"
--         of later versions, which stay as they are. Record: text
--         "1 <number> <born> <generation> <leased> <depth> <granted> <owed>" and the
--         reply.
-- Lost:   text that the library cannot have written counts as no state.
-- Expiry: a state: until no lease counts and its level is full. A record: nine seconds.
-- Source: the Go twin, with the reasons, is internal/ratelease/state.go.
local MICRO, LIFE, LARGEST, MAX_OPS, RECORD_TTL = 1000000, 4000000, 1000000000000000, 64, 9000
local floor, ceil, min, max, sqrt = math.floor, math.ceil, math.min, math.max, math.sqrt

-- numbers returns the numbers of a text "1 <n> ...", or nil if there are not `count`.
-- The one at `signed` may be negative.
local function numbers(text, count, signed)
  local out, length = {}, 1
  if string.sub(text or '', 1, 1) ~= '1' or #text > 512 then return nil end
  for sign, digits in string.gmatch(text, ' (%-?)(%d+)') do
    local n = #digits <= 16 and tonumber(digits)
    if not n or n > 2 ^ 53 or sign ~= '' and #out + 1 ~= signed then return nil end
    out[#out + 1], length = sign == '' and n or -n, length + 1 + #sign + #digits
  end
  return #out == count and length == #text and out or nil
end

local function read_op(text)
  local n = numbers(text, 20, 17)
  if not n then return nil end
  local op = {
    number = n[1], procs = n[2], demand = n[3], span = n[4], have = n[5], back = n[6], spilt = n[7], want = n[8],
    wish = n[9], most = n[10], owed = n[11], acked = n[12], rate = n[13], burst = n[14], vborn = n[15], vat = n[16], vlevel = n[17],
    vout = n[18], vown = n[19], reset = n[20] == 1,
  }
  if op.number < 1 or op.procs < 1 or op.rate < 1 or op.burst < MICRO or op.most < 1 then return nil end
  if max(op.rate, op.burst, op.demand, op.have, op.back, op.spilt, op.want, op.wish) > LARGEST or op.most > LARGEST / MICRO or op.span > LIFE then return nil end
  return op
end

local function read_state(text)
  local fixed, more = string.match(text or '', '^([^%l]*%d)(.*)$')
  local n = numbers(fixed, 18, 4)
  if not n or n[1] < 1 or n[5] < 1 or n[6] < MICRO then return nil end
  if #more > 256 or string.gsub(more, ' %l%-?%x+', '') ~= '' then return nil end
  return {
    born = n[1], last = n[2], generation = n[3], level = n[4], rate = n[5], burst = n[6],
    leased = {n[7], n[8]}, depth = {n[9], n[10]}, demand = {n[11], n[12]}, peak = {n[13], n[14]},
    unknown = n[15], told = n[16], told_out = n[17], reset = n[18], more = more,
  }
end

local function read_record(text)
  local n = numbers(text, 16, 15)
  if not n then return {number = 0, owed = 0} end
  return {
    number = n[1], born = n[2], generation = n[3], leased = n[4], depth = n[5], granted = n[6], owed = n[7],
    answer = {n[8], n[9], n[10], n[11], n[12], n[13], n[14], n[15], n[16]},
  }
end

local function room(s) return max(0, s.burst - s.depth[1] - s.depth[2]) end

local function out(s, now) return s.leased[1] + s.leased[2] + (now < s.born + LIFE and s.unknown or 0) end

local function refill(s, to)
  if to <= s.last then return end
  local more = floor((to - s.last) * (s.rate - out(s, s.last)) / MICRO)
  s.level, s.last = max(-s.burst, min(room(s), s.level + more)), to
end

local function advance(s, to)
  local ends = s.born + LIFE
  if s.unknown > 0 and s.last < ends and ends < to then refill(s, ends) end
  refill(s, to)
end

-- see takes what a process knows of a state that was lost.
local function see(s, op, now)
  local age = now - op.vat
  if op.vborn == 0 or op.vborn == s.born or age < 0 then return end
  if op.vat > s.reset then
    local more = floor((age * s.rate - min(age, 2 * LIFE) * op.vout) / MICRO)
    s.level = max(-s.burst, min(s.level, op.vlevel + more))
  end
  local told = min(op.vout, s.rate)
  if op.vat > s.told and age < LIFE then
    s.unknown = s.unknown + max(0, told - s.told_out)
    s.told, s.told_out = op.vat, max(told, s.told_out)
  end
  s.unknown = max(0, s.unknown - op.vown)
end

-- load returns the state at now, with the op's limit.
local function load(s, op, now)
  local generation = floor(now / LIFE)
  if not s then
    s = {
      born = now, last = now, generation = generation, level = op.burst, rate = op.rate, burst = op.burst,
      leased = {0, 0}, depth = {0, 0}, demand = {0, 0}, peak = {op.burst, op.burst}, unknown = 0, told = 0, told_out = 0, reset = 0, more = '',
    }
    see(s, op, now)
    return s
  end
  if generation < s.generation then -- the clock was put back: no record may settle with sums of another time
    s.leased, s.depth = {s.leased[1] + s.leased[2], 0}, {s.depth[1] + s.depth[2], 0}
    s.demand, s.generation, s.born = {0, max(s.demand[1], s.demand[2])}, generation, now
    s.last, s.unknown, s.told, s.peak = min(s.last, now), 0, 2 ^ 53, {s.burst, s.burst}
  end
  for _ = 1, 2 do
    if s.generation < generation then
      advance(s, (s.generation + 1) * LIFE)
      s.leased, s.depth, s.demand = {0, s.leased[1]}, {0, s.depth[1]}, {0, s.demand[1]}
      s.peak, s.generation = {0, s.peak[1]}, s.generation + 1
    end
  end
  if s.generation < generation then s.demand, s.peak, s.generation = {0, 0}, {s.burst, s.burst}, generation end
  advance(s, now)
  s.rate, s.burst = op.rate, op.burst
  s.level = min(s.level, room(s))
  s.peak[1] = max(s.peak[1], s.level + s.depth[1] + s.depth[2])
  see(s, op, now)
  return s
end

-- settle takes back the last lease of the sender, and debits what it owes.
local function settle(s, r, op)
  local age = s.generation - (r.generation or -1)
  if r.number > 0 and r.born == s.born and (age == 0 or age == 1) then
    local i = age + 1
    local spilt = max(0, min(op.spilt, r.granted + r.leased * 4, s.burst - max(s.peak[1], s.peak[i])))
    s.level = s.level + spilt + max(0, min(op.back, r.depth - op.have))
    s.peak = {s.peak[1] + spilt, s.peak[2] + spilt}
    s.leased[i] = max(0, s.leased[i] - r.leased)
    s.depth[i] = max(0, s.depth[i] - r.depth)
  end
  s.level = max(-s.burst, s.level - max(0, op.owed - max(op.acked, r.owed)) * MICRO)
end

-- units returns the millionths that the sender gets beside its rate.
local function units(s, op, want, rate, fair)
  local free = max(0, s.level)
  if want == 0 and free < s.burst / 4 then return 0 end
  local need = max(want, op.wish, max(0, op.demand - rate) * 4)
  local horizon = min(1, 0.35 * s.burst / s.rate)
  local part = max(free / (2 * op.procs), min(free, max(want, MICRO, min(op.demand, fair) * horizon)))
  want = min(want, floor(free))
  return want + floor(max(0, min(need, part) - want) / MICRO) * MICRO -- beside what is wanted, whole units
end

-- lease gives the sender a rate and units, and returns its record.
local function lease(s, op, now)
  local demand, have = op.demand, op.have
  s.demand[1] = s.demand[1] + floor(demand * min(LIFE, op.span) / LIFE)
  local all = max(1, s.demand[1], s.demand[2])
  local fair = s.rate * demand / all
  if s.demand[2] == 0 then fair = min(fair, s.rate / op.procs) end -- nothing is known of the others
  local spare, largest = max(0, s.rate - out(s, now) - max(0, -s.level) / 4), op.most * MICRO -- a debt is paid back in about a life
  local rate = floor(min(demand + sqrt(demand * largest), fair, spare))
  local depth = min(4 * MICRO, max(MICRO, 0.25 * s.burst / op.procs), max(MICRO, rate * 4))
  depth = max(floor(depth), floor(rate * min(1, 0.3 * s.burst / s.rate)), largest)
  depth = min(depth, have + rate * 4) -- it fills no further in a life
  if rate < 1 or s.burst < 2 * MICRO * op.procs or s.depth[1] + s.depth[2] + max(depth, have) > 0.75 * s.burst then
    rate, depth = 0, 0
  end
  s.leased[1] = s.leased[1] + rate
  local held, most = max(depth, have), s.burst - s.depth[1] - s.depth[2]
  local start = max(0, min(s.level - max(0, most - held), held - have)) -- the bucket that is leased starts with what has no room here
  s.level = min(s.level, max(0, most - held))
  local want = max(0, op.want - start)
  local got = units(s, op, want, rate, fair)
  s.level = s.level - got
  local granted = got >= want and want or 0 -- for calls that wait: spent with the answer
  held, got = held + got - granted, got + start
  s.depth[1] = s.depth[1] + held
  local wait = LIFE
  spare = s.rate - out(s, now)
  if spare > s.rate / 20 then -- processes ask in turn for the rate that is not leased
    wait = min(LIFE, max(LIFE / 4, floor(op.procs * max(MICRO, got) / spare * s.rate / all * MICRO)))
  end
  return {
    number = op.number, born = s.born, generation = s.generation, leased = rate, depth = held, granted = granted, owed = op.owed,
    answer = {rate, depth, got, held, wait, s.born, now, s.level, out(s, now)},
  }
end

local function text_of(list) return '1' .. string.rep(' %.0f', #list):format(unpack(list)) end

local function store_state(key, s)
  local ttl = 2 * LIFE / 1000 + 1000 + ceil((s.burst - s.level) / s.rate * 1000)
  redis.call('SET', key, text_of({
    s.born, s.last, s.generation, s.level, s.rate, s.burst, s.leased[1], s.leased[2], s.depth[1], s.depth[2], s.demand[1], s.demand[2],
    s.peak[1], s.peak[2], s.unknown, s.told, s.told_out, s.reset,
  }) .. s.more, 'PX', string.format('%.0f', ttl))
end

local function store_record(key, r)
  local list = {r.number, r.born, r.generation, r.leased, r.depth, r.granted, r.owed}
  for _, n in ipairs(r.answer) do list[#list + 1] = n end
  redis.call('SET', key, text_of(list), 'PX', string.format('%.0f', RECORD_TTL))
end

local function run_rates(keys, argv, now)
  if #argv < 1 or #argv > MAX_OPS or #keys ~= 2 * #argv then return {err = 'HLRATES unreadable message'} end
  local ops = {}
  for i = 1, #argv do
    ops[i] = read_op(argv[i])
    if not ops[i] then return {err = 'HLRATES unreadable op ' .. i} end
  end
  local raw, states, records, reply = redis.call('MGET', unpack(keys)), {}, {}, {}
  for i, op in ipairs(ops) do
    local key, mine = keys[2 * i - 1], keys[2 * i]
    local r = records[mine] or read_record(raw[2 * i])
    if r.number < op.number then
      states[key] = load(states[key] or read_state(raw[2 * i - 1] or nil), op, now)
      settle(states[key], r, op)
      if op.reset then
        local s = states[key]
        s.level, s.peak, s.reset = room(s), {op.burst, op.burst}, now
      end
      records[mine] = lease(states[key], op, now)
      r = records[mine]
    end
    reply[#reply + 1] = r.number == op.number and 1 or 0
    for j = 1, 9 do reply[#reply + 1] = r.number == op.number and r.answer[j] or 0 end
  end
  for key, s in pairs(states) do store_state(key, s) end
  for key, r in pairs(records) do store_record(key, r) end
  return reply
end
