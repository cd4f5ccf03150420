-- The heartbeat of a process: it counts the live processes and reads the switch.
-- KEYS:   1: sorted set of process ids; a score is the µs of the last heartbeat;
--         2: switch
-- ARGV:   1: process id; 2: expiry in µs; 3: "1" to leave, else "0"; 4 and 5:
--         the switch that the process saw last, and the µs at which it was set
--         (0 0: none); 6: TTL of the switch in ms
-- Reply:  the number of processes with a heartbeat within the expiry, including
--         this one unless it leaves; the µs of the heartbeat before of this one
--         (0: not known); now in µs; the switch; the µs at which it was set. If
--         a process knows of a later heartbeat of its own, Redis lost its memory.
-- Expiry: twice the expiry of the processes: by then all in the set are dead. Of
--         the switch: see switch.lua.
local t = redis.call('TIME')
local now, expiry = t[1] * 1000000 + t[2], string.match(ARGV[2] or '', '^%d+$')
expiry = expiry and tonumber(expiry)
-- PEXPIRE refuses a value out of range, and would do so after the ZADD.
if not expiry or expiry < 1 or expiry > 2 ^ 53 then return {err = 'HLFLEET unreadable expiry'} end
local seen, seen_at, ttl = switch_args(ARGV[4], ARGV[5], ARGV[6])
if not seen or not KEYS[2] then return {err = 'HLFLEET unreadable switch'} end
local before = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)
if ARGV[3] == '1' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], now, ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - expiry))
-- A clock that stepped back leaves members in the future, which would never
-- expire. They count as seen now. To drop them would count live processes as gone,
-- and a count that is too small is unsafe.
-- Each heartbeat moves a hundred, so that none takes long. The others count too.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf', 'LIMIT', 0, 100)) do
  redis.call('ZADD', KEYS[1], now, id)
end
redis.call('PEXPIRE', KEYS[1], math.ceil(expiry / 500))
local switch, at, more = read_switch(KEYS[2], now)
if seen_at > now then seen_at = at > 0 and 0 or now end -- the later one is unknown: the switch in Redis stays
if seen_at > at then
  switch, at = seen, seen_at
  write_switch(KEYS[2], switch, at, more, ttl)
elseif at > 0 and redis.call('PTTL', KEYS[2]) < ttl / 2 then
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', ttl))
end
return {redis.call('ZCARD', KEYS[1]), before, now, switch, at}
