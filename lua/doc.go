// Package lua holds the scripts that run in Redis and the names of their keys. It has no Redis client.
//
// Programs in other languages can run the scripts: the headers of the .lua files say what KEYS, ARGV and the reply of each
// are, when keys expire, and where the algorithms come from. [Library] is the same code as Redis Functions.
//
// Operators find a limiter's keys with [Names].
package lua
