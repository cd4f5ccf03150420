// Package lua holds the scripts that run in Redis and the names of their keys. It has no Redis client.
//
// Programs in other languages can run the scripts. The headers of the .lua files specify KEYS, ARGV and the reply of
// each script, the expiry of keys, and the sources of the algorithms. [Library] is the same code as Redis Functions.
//
// Operators find a limiter's keys with [Names].
package lua
