// Package hybridlimit holds the vocabulary of a hybrid rate limiter: what a
// limit is, what a decision says, what every limiter can do, and the errors
// they share. It imports the standard library only and does no work itself.
//
// Pick the package that fits where the limit lives; all three satisfy
// [Limiter], so that moving from one to another changes one line:
//
//   - local: the limit of one process, in memory. No Redis.
//   - global: one limit for a whole fleet; every decision is exact and costs
//     one Redis round trip.
//   - hybrid: one limit for a whole fleet; decisions are made in memory and
//     processes sync with Redis in batches. It keeps limiting when Redis is
//     gone. This is what most services want.
//
// The words used here and in every other package are few: a limit is an
// algorithm with a rate and a burst; a key is who is limited; a unit is what
// a call consumes; a process is one limiter instance; the fleet is all
// processes that share a Redis prefix and a limiter name.
package hybridlimit
