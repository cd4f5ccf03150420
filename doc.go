// Package hybridlimit has the vocabulary of a rate limiter: the limit, the decision, the methods that every limiter
// has, and their common errors. It imports the standard library only and makes no decisions itself.
// Package adapter has what only authors of limiters and of adapters need.
//
// Choose the package by the place of the limit. All three satisfy [Limiter], so
// a change from one to another changes one line:
//
//   - local: the limit of one process, in memory, without Redis.
//   - global: one limit for a whole fleet. Every decision is exact and costs
//     one Redis round trip.
//   - hybrid: one limit for a whole fleet. Decisions are made in memory, and
//     processes sync with Redis in batches. It continues to limit while Redis
//     is away. Most services want this one.
//
// Every package uses these words:
//
//   - A limit is an algorithm with a rate and a burst.
//   - A key is the name of the party that is limited, for example a user. Redis keeps its state under a longer name.
//   - A subject is the user that a request is authenticated for. It is one of the things that a key can be made of.
//   - A policy is a limiter as others see it: its name, and the limit of a key.
//   - A unit is the measure of consumption: a call costs one unit or more.
//   - A process is one limiter instance.
//   - The fleet is all processes that share a Redis prefix and a limiter name.
package hybridlimit
