-- A lone ask: a batch of one op that only asks, once, for units of a bucket. Most
-- calls of `global` and ModeExact are of this form. It is decided before anything
-- else is defined, because each EVALSHA pays for all that its script defines.
-- Result: the reply of run_batch, to the bit; nil for any other batch, and for a
--         state with debt, with a ledger or of another limit: run_batch decides then.
-- Source: batch.lua, bucket.lua and lease.lua, for these inputs. It changes with them.
-- Time:   now is nil, for Redis's clock, or the time of a test.
local function run_lone(keys, argv, now)
  if #keys ~= 1 or #argv ~= 3 then return nil end
  local match, format, floor, ceil = string.match, string.format, math.floor, math.ceil
  local n = match(argv[3], '^1 0 0 0 0 0 0 0 0 0 0 (%d+)$')
  if not n or #n > 16 or not match(argv[1], '^1 0 %d+ 1$') then return nil end
  local unit, refill, cap = match(argv[2], '^b (%d+) (%d+) (%d+)$')
  if not cap or #unit > 16 or #refill > 16 or #cap > 16 then return nil end
  n, unit, refill, cap = n + 0, unit + 0, refill + 0, cap + 0
  if n < 1 or unit < 1 or refill < 1 or cap < unit or 2 * cap + refill > 2 ^ 53 then return nil end

  if not now then
    local t = redis.call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  local raw = redis.call('MGET', keys[1])[1]
  local level, born, since = cap, now, 0
  local tail = refill == 1 and '' or format(' r%x', refill)
  if raw then
    local u, l, age, b, c, rest = match(raw, '^1b(%x+) (%x+) (%x+) (%x+) (%x+)(.*)$')
    if rest ~= tail or u ~= format('%x', unit) or #l > 13 or #age > 13 or #b > 13 or #c > 13 then return nil end
    level, born, since = tonumber(l, 16), tonumber(b, 16), tonumber(c, 16)
    local past = now - born - tonumber(age, 16)
    if born < 1 or past < 0 then return nil end -- past < 0: the clock stepped back
    level = math.min(math.min(level, cap) + past * refill, cap)
  end

  local granted, wants, life = 0, n, math.min(1000000, floor((cap - level) / refill))
  if life < 20000 then life = 0 end -- MAX_LEASE and MIN_LEASE, which are not defined yet
  if n <= floor(level / unit) then
    granted, wants, level, since = n, 1, level - n * unit, math.min(since + n, 2 ^ 53)
    redis.call('SET', keys[1], format('1b%x %x %x %x %x', unit, level, now - born, born, since) .. tail,
      'PX', format('%d', ceil(ceil((cap - level) / refill) / 1000) + 2000)) -- as bucket_write
  elseif not raw then
    born = 0
  end
  local retry = wants * unit > cap and 2 ^ 53 or ceil(math.max(wants * unit - level, 0) / refill)
  return {1, 0, 0, now, granted, 0, life, level, retry, born, cap, 0, 0, 0}
end
