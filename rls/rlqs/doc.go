// Package rlqs is a rate limit quota service for Envoy (RLQS, envoy.service.rate_limit_quota.v3). Envoy decides by
// itself, by an assignment. It reports its usage of each bucket every few seconds, and each report is answered with
// an assignment.
//
// The rules are those of a Service of package rls. A bucket is a descriptor of up to eight entries without an order.
// The rate of its rule is what all Envoys together may pass.
//
//   - A limit is 10 000 slices, which the whole fleet of replicas shares, as permits of a limit on calls in flight.
//     They stand for 98 % of the limit. An Envoy gets as many as its usage needs, and a quarter more, while there are
//     some.
//   - An Envoy that wants more makes others give up what they do not use. One that has less than its part makes those
//     give some up that have more than theirs. So a load that moves to another Envoy is served after about 15 s, with
//     reports every 5 s.
//   - Slices are taken before Envoy hears of them. They are given back with the next report after it has heard that it
//     has fewer, or when its assignment has expired. So no two Envoys have one. If a replica dies, its slices come back
//     after 3 s, but its Envoys may go on until the end of their assignments: 10 s or two reports.
//   - An assignment is a token bucket of a tenth of a second of its rate, or one token. Envoy begins a changed one
//     with a full bucket. So an assignment changes only when the 2 % that are not handed out have paid for that:
//     after 5 s, or 50 s divided by its rate, whichever is longer.
//   - All Envoys together pass at most the limit, a tenth of a second of it, and two requests for each Envoy that has
//     less than 10 a second. A bucket of one token serves two thirds of such a rate and more.
//   - A bucket without a rule, a rule without a limit, and one in shadow allow everything. A limit of 0 denies
//     everything, and so does an assignment without slices, until the next report.
//   - Algorithms, bursts, floors, quota_mode and costs have no meaning here, and the counts are not those of
//     ShouldRateLimit.
//
// Without Redis, replicas keep the slices that they have. After 5 s, one with more than its share goes down to it.
// After 20 s, all hand out their shares. With more than 100 000 buckets in a replica, those above have no answer, and
// a line in the log. A report costs up to four messages to Redis for each bucket with a limit; those of one report
// are sent together.
package rlqs
