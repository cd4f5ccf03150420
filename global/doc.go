// Package global limits a whole fleet exactly: every decision is one Redis
// round trip, and what Redis says goes.
//
// Pick it where the limit is small and each unit matters, where traffic is so
// sparse that a process's share of the limit is below one unit, or as the
// measure of what package hybrid saves. Its limiters share their state with
// hybrid limiters of the same prefix and name.
//
// A decision is sent once. go-redis would repeat a call whose reply was lost
// and so count it up to four times; here an ambiguous call over-counts by its
// own cost at most, and the caller learns of it as ErrUnavailable. Every
// deadline is honoured, even where the client's ContextTimeoutEnabled is off.
//
// [hybridlimit.AllowAll] is a call under several limits, all or nothing. Keys that share a
// slot are one message that Redis decides as a whole.
package global
