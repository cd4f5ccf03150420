// Package limittest has limiters for the tests of those who use
// hybridlimit.Limiter: one that admits all, one that denies all, one that plays
// a script, and one that notes what another is asked.
//
// They refuse bad keys and costs as real limiters do, so that a test does not
// pass with a call that would fail in earnest. The zero values are of no use:
// make them with the functions.
//
// # Real limiters in tests
//
// The limiters of local, global and hybrid read package time only, and start
// nothing that outlives Close. So they work inside the bubbles of
// testing/synctest, where a minute takes no time: make the limiter in the
// bubble, and close it there (the example of the package does). Those that talk
// to Redis need one whose connections are in the bubble too: miniredis 2.40 or
// newer with its Dial as redis.Options.Dialer, and an IP address as Addr, since
// a name would be asked of a resolver outside.
package limittest
