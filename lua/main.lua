-- Entry point of a batch. It reads the clock once, for all ops.
local t = redis.call('TIME')
return run_batch(KEYS, ARGV, t[1] * 1000000 + t[2])
