// Package fallback decides for keys while Redis does not answer.
//
// Each process limits itself to its share of a limit. Shares has the shares of a limiter's keys. A share is a
// rate.Limiter of golang.org/x/time: its rate is the share of the rate, and its burst the share of the burst, but at
// least one unit. A share of a window or a log is a pair of counters instead, which begin anew with each window. A
// share of a window below one unit is saved up over several windows, so it is a rate.Limiter too.
//
// A fleet of N processes without Redis therefore admits at most rate·t + max(burst, N) units in any time t, and in a
// window its limit, or with a limit below N at most rate·t + N.
//
// A share is kept until it is full again. So a Redis that comes and goes gives no new burst. An LRU of golang-lru
// bounds the number of shares: a key for which it has no room uses one of a few shares that many keys of the same limit
// have together.
package fallback
