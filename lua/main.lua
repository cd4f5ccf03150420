-- Entry point under EVALSHA: one reading of the clock for the whole batch.
local t = redis.call('TIME')
return run_batch(KEYS, ARGV, t[1] * 1000000 + t[2])
