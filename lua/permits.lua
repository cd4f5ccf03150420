-- The permits of calls in flight: one message of a process, with an op for each of some
-- keys of a tag. A process tells the permits that it keeps, and is granted more.
-- KEYS:   1: memory of the tag; then for each op: the holdings of its key, all different
-- ARGV:   1: text "1 <process> <number> <after> <epoch> <period>": the number of the
--         message, that of the last one with an answer (0: none), the epoch that the
--         process knows (0: none), and the period of the heartbeats in µs; then each op:
--         text "<limit> <keep> <want> <first> <spare> <had> <procs> <flags>", and for
--         each claim " <process> <number>". Flags: 1 rejoin, 2 reset. internal/permits
--         has the meaning of each.
-- Reply:  the epoch; then for each op: booked, usable, free (it may be negative), the µs
--         until Redis grants again, flags (1 scarce, 2 lost, 4 another process is
--         starving), and the other holders: text
--         "<process> <number> ...", or "" if the whole of want was granted, or if the
--         process has its part of the limit and leaves the rest to the starving one
-- Once:   a message whose number is not greater than the last one of its process gets an
--         error and has no effect. The process sends each attempt with a new number.
-- State:  memory: hash; '' is "1 <epoch> <learn> <sweep>", a process is
--         "<number> <time>" of its last message. Holdings: hash; '' is
--         "1 <total> <scarce> <learn>", a process is "<permits> <number>". '!' is
--         "<process> <since> <last>": a process without a permit was refused at these
--         times, and was granted none in between. It is starving if they are a second
--         apart, until STARVES after the last one. An op reads the fields of its own
--         process, '', '!' and claims, so its cost does not depend on the number of
--         holders. Only a refusal
--         reads all.
-- Lost:   a hash that the library cannot have written counts as lost, and is replaced: one
--         of more than MAX_FIELDS fields too. A refusal also compares the total with the
--         holdings. Another total counts as a loss, and is replaced by their sum.
-- Expiry: memory: a day. Holdings: two hours while a process holds permits, so that they
--         outlive a step of the clock by an hour, else two
--         minutes; none are kept that say nothing. The numbers of processes that were
--         silent for an hour are dropped once an hour.
local SECOND, STARVES, HOUR, LEARN, MAX_PERIOD, MOST = 1000000, 1250000, 3600000000, 3, 60000000, 2 ^ 51
local MAX_KEYS, MAX_HOLDERS, MAX_TEXT, MAX_FIELDS = 64, 64, 8192, 65536

-- count returns the number that digits spell, up to `most`, or nil.
local function count(digits, most)
  local n = digits and #digits <= 16 and string.match(digits, '^%d+$') and tonumber(digits)
  return n and n <= most and n or nil
end

-- read_hash returns the values of fields; none of a key that is no hash.
local function read_hash(key, fields)
  local values = redis.pcall('HMGET', key, unpack(fields))
  if not values.err then return values end
  if not string.find(values.err, '^WRONGTYPE') then error(values.err, 0) end -- a lacking right is no loss
  return {}
end

-- three returns the numbers of a text "1 <a> <b> <c>", or nil.
local function three(text)
  local a, b, c = string.match(text or '', '^1 (%d+) (%d+) (%d+)$')
  a, b, c = count(a, 2 ^ 53), count(b, 2 ^ 53), count(c, 2 ^ 53)
  if a and b and c then return a, b, c end
end

local function two(text)
  local a, b = string.match(text or '', '^(%d+) (%d+)$')
  return count(a, 2 ^ 53), count(b, 2 ^ 53)
end

-- held returns the permits and the number of a holding, or nil.
local function held(text)
  local permits, number = two(text)
  if permits and permits <= MOST then return permits, number end
end

-- read_message returns the head of a message and its ops, or nil.
local function read_message(keys, argv)
  local head = {}
  local process, number, after, epoch, period = string.match(argv[1] or '', '^1 ([%w_-]+) (%d+) (%d+) (%d+) (%d+)$')
  head.number, head.after, head.epoch = count(number, 2 ^ 53), count(after, 2 ^ 53), count(epoch, 2 ^ 53)
  head.period, head.process = count(period, MAX_PERIOD), process
  if not (process and #process <= 64 and head.number and head.after and head.epoch and head.period) then return nil end
  if head.number < 1 or head.period < 1 or #keys ~= #argv or #keys > MAX_KEYS + 1 then return nil end
  local ops = {}
  for i = 2, #argv do
    if #argv[i] > MAX_TEXT then return nil end
    local limit, keep, want, first, spare, had, procs, flags, rest =
      string.match(argv[i], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([0-3])(.*)$')
    local op = {
      limit = count(limit, MOST), keep = count(keep, MOST), want = count(want, MOST), first = count(first, MOST),
      spare = count(spare, MOST), had = count(had, MOST), procs = count(procs, MOST), claims = {},
      rejoin = flags == '1' or flags == '3', reset = flags == '2' or flags == '3',
    }
    if not (op.limit and op.keep and op.want and op.first and op.spare and op.had and op.procs) or op.procs < 1 or op.first > op.want then
      return nil
    end
    local length = 0
    for other, at in string.gmatch(rest, ' ([%w_-]+) (%d+)') do
      length = length + 2 + #other + #at
      at = count(at, 2 ^ 53)
      if not at then return nil end
      op.claims[#op.claims + 1] = {other, at}
    end
    if length ~= #rest or #op.claims > MAX_HOLDERS then return nil end
    ops[i - 1] = op
  end
  return head, ops
end

-- load_key returns the state of a key for an op: `there` if the process holds permits,
-- its `own` permits, the claims that hold (`taken`), and `fresh` if there is no state.
local function load_key(key, op, head, now)
  local fields = {'', head.process}
  for _, claim in ipairs(op.claims) do fields[#fields + 1] = claim[1] end
  fields[#fields + 1] = '!'
  local values = read_hash(key, fields)
  local k = {own = 0, total = 0, scarce = 0, learn = 0, taken = {}}
  local total, scarce, learn = three(values[1] or nil)
  if not total or total > MOST then
    k.fresh = true
    return k
  end
  k.total, k.scarce, k.learn = total, scarce, learn
  local own = held(values[2] or nil)
  if own then k.own, k.there = own, true end
  for i, claim in ipairs(op.claims) do
    local permits, number = held(values[2 + i] or nil)
    if permits and number == claim[2] and claim[1] ~= head.process and not k.taken[claim[1]] then
      k.total, k.taken[claim[1]] = k.total - permits, true
    end
  end
  k.total = math.max(k.total, k.own)
  if k.scarce > now + SECOND then k.scarce = now + SECOND end -- the clock was put back
  if k.learn > now + LEARN * MAX_PERIOD then k.learn = now + LEARN * head.period end
  k.marked = values[#fields]
  local starving, since, last = string.match(k.marked or '', '^([%w_-]+) (%d+) (%d+)$')
  since, last = count(since, 2 ^ 53), count(last, 2 ^ 53)
  if starving and #starving <= 64 and since and last and since <= last and last <= now and now < last + STARVES then
    k.starving, k.since, k.last = starving, since, last
  end
  return k
end

-- others returns the holders without the process of the message, as text in the order of
-- their names: each second other ones, if there are too many for one reply. It also
-- returns the sum of their permits; nil if the hash has too many fields or permits.
local function others(key, k, process, now)
  if redis.call('HLEN', key) > MAX_FIELDS then return '', nil end
  local all, names = redis.call('HGETALL', key), {}
  local numbers, sum = {}, 0
  for i = 1, #all, 2 do
    local permits, number = held(all[i + 1])
    if permits and #all[i] <= 64 and all[i] ~= process and string.match(all[i], '^[%w_-]+$') and not k.taken[all[i]] then
      names[#names + 1], numbers[all[i]], sum = all[i], number, sum + permits
    end
  end
  if sum > MOST then return '', nil end
  table.sort(names)
  local first, told = 0, {}
  if #names > MAX_HOLDERS then first = math.floor(now / SECOND) * MAX_HOLDERS % #names end
  for i = 1, math.min(#names, MAX_HOLDERS) do
    local name = names[(first + i - 1) % #names + 1]
    told[i] = string.format('%s %.0f', name, numbers[name])
  end
  return table.concat(told, ' '), sum
end

-- hold replaces the holding of a message's process at one key, and grants. It returns the
-- six parts of the reply, and changes only `k`.
local function hold(key, k, op, head, gap, learn, now)
  local lost = gap or op.reset or op.had > 0 and not k.there and not op.rejoin
  if lost then k.learn = math.max(k.learn, now + LEARN * head.period) end
  if op.reset then k.total = k.own end
  local rest = k.total - k.own
  local free, granted, learns = op.limit - rest - op.keep, 0, math.max(0, learn - now, k.learn - now)
  local part = math.floor(op.limit / op.procs)
  local marked = k.starving == head.process
  local starving = k.starving ~= nil and not marked and k.last - k.since >= SECOND
  local leaves = starving and part > 0 and op.keep >= part -- to the starving one
  if learns == 0 and not leaves and free > 0 and free >= op.first then
    granted = math.min(free, op.want + math.min(op.spare, math.floor(free / (2 * op.procs))))
  end
  local holders = ''
  if granted < op.want and not leaves then
    k.scarce = now + SECOND
    if op.keep == 0 and granted == 0 and op.first == 1 and learns == 0 and part > 0 and (marked or not k.starving) then
      k.starving, k.since, k.last = head.process, marked and k.since or now, now
    end
    if not op.reset and not k.fresh then
      local sum
      holders, sum = others(key, k, head.process, now)
      if sum ~= rest then -- another hand changed the hash
        k.fresh, rest = not sum, sum or 0
        lost, free, granted, learns = true, op.limit - rest - op.keep, 0, math.max(learns, LEARN * head.period)
        k.learn = math.max(k.learn, now + LEARN * head.period)
      end
    end
  end
  k.booked, k.total = op.keep + granted, math.min(rest + op.keep + granted, 2 ^ 53)
  if marked and k.booked > 0 then k.starving = nil end
  local flags = (now < k.scarce and 1 or 0) + (lost and 2 or 0) + (starving and 4 or 0)
  local usable = math.max(0, math.min(op.keep, op.limit - rest)) + granted
  return k.booked, usable, free - granted, learns, flags, holders
end

local function store_key(key, k, op, head, now)
  if op.reset or k.fresh then redis.call('DEL', key) end
  for process in pairs(k.taken) do redis.call('HDEL', key, process) end
  if k.total <= 0 and now >= k.scarce and now >= k.learn then
    redis.call('DEL', key)
    return
  end
  local about = string.format('1 %.0f %.0f %.0f', k.total, k.scarce, k.learn)
  if k.booked > 0 then
    redis.call('HSET', key, '', about, head.process, string.format('%.0f %.0f', k.booked, head.number))
  else
    redis.call('HDEL', key, head.process)
    redis.call('HSET', key, '', about)
  end
  if k.starving then
    redis.call('HSET', key, '!', string.format('%s %.0f %.0f', k.starving, k.since, k.last))
  elseif k.marked then
    redis.call('HDEL', key, '!')
  end
  redis.call('PEXPIRE', key, k.total > 0 and '7200000' or '120000')
end

-- store_memory writes the memory of the tag. Once an hour it drops the numbers of
-- processes that were silent for an hour.
local function store_memory(key, m, head, now)
  if m.fresh then redis.call('DEL', key) end
  if now >= m.sweep then
    if redis.call('HLEN', key) > MAX_FIELDS then redis.call('DEL', key) end -- each process then tells a loss
    local all = redis.call('HGETALL', key)
    for i = 1, #all, 2 do
      local _, at = two(all[i + 1])
      if all[i] ~= '' and not (at and at >= now - HOUR and at <= now + HOUR) then redis.call('HDEL', key, all[i]) end
    end
    m.sweep = now + HOUR
  end
  redis.call('HSET', key, '', string.format('1 %.0f %.0f %.0f', m.epoch, m.learn, m.sweep),
    head.process, string.format('%.0f %.0f', head.number, now))
  redis.call('PEXPIRE', key, '86400000')
end

local function run_permits(KEYS, ARGV, now)
  local head, ops = read_message(KEYS, ARGV)
  if not head then return {err = 'HLPERMITS unreadable message'} end
  local values = read_hash(KEYS[1], {'', head.process})
  local epoch, learn, sweep = three(values[1] or nil)
  local last = epoch and two(values[2] or nil) or 0
  if head.number <= last then return {err = 'HLPERMITS stale'} end
  local m = {epoch = epoch, learn = learn, sweep = sweep}
  if not epoch then
    m = {epoch = now, learn = now + LEARN * head.period, sweep = now + HOUR, fresh = true}
  end
  if m.learn > now + LEARN * MAX_PERIOD then m.learn = now + LEARN * head.period end -- the clock was put back
  m.sweep = math.min(m.sweep, now + HOUR)
  local gap = head.epoch ~= 0 and (head.epoch ~= m.epoch or last < head.after)
  if gap then m.learn = math.max(m.learn, now + LEARN * head.period) end -- processes may hold more than is booked

  local reply, states = {m.epoch}, {}
  for i, op in ipairs(ops) do
    local k = load_key(KEYS[i + 1], op, head, now)
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5], reply[n + 6] = hold(KEYS[i + 1], k, op, head, gap, m.learn, now)
    states[i] = k
  end
  for i, op in ipairs(ops) do store_key(KEYS[i + 1], states[i], op, head, now) end
  store_memory(KEYS[1], m, head, now)
  return reply
end
