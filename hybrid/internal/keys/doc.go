// Package keys keeps the keys of a limiter of rates in memory: it finds them, decides from their budgets without a
// lock, runs the events of their accounts, and forgets them. A key knows the Terms that it shares with the other keys
// of its limiter, and no limiter.
package keys
