// Package rls is a rate limit service for Envoy (envoy.service.ratelimit.v3) on package hybrid. It replaces
// github.com/envoyproxy/ratelimit and reads its configuration files.
//
// The program hybridlimit-rls is this service with flags, health checks, metrics and reloads: see README.md. Use the
// package to serve from a program of your own:
//
//	set, err := rls.ParseRules(files, false)
//	...
//	service, err := rls.New(hub, rls.Options{})
//	...
//	err = service.SetRules(set)
//	...
//	ratelimitv3.RegisterRateLimitServiceServer(grpcServer, service)
//
// # Decisions
//
// There is one limiter for each domain, algorithm, overshoot and split. The key is the path of the rule and the values
// of the descriptor. A decision about a key in use is made in memory, as package hybrid does. The first requests of a
// key ask Redis, unless its rule has an overshoot.
//
// The rules of a request are admitted together or not at all: a denied request takes nothing. There are exceptions:
//
//   - A rule with shadow_mode denies nothing. A rule with quota_mode denies only if all
//     quotas of the request are used up. Both are asked on their own, after the others,
//     and count only requests that the others admit. Units that do not fit take what is
//     left. The quotas are looked at before, so a request may be denied by a quota that
//     another one has used up meanwhile: then it has taken from the others.
//   - A descriptor with hits_addend 0 takes nothing. It is over if no unit is left.
//   - A descriptor with is_negative_hits gives its units back.
//
// # Named costs
//
// A named cost is a hits_addend of a descriptor above 0, or one of the request above 1. In general its units were used
// already, as the tokens that Envoy reports when a response is over. So it is booked first, at each rule on its own,
// whatever other rules say:
//
//   - A cost above what is left is over, and counts all the same: a bucket goes down to one
//     burst of debt, and a window or log gives all that is left. So does a class with a
//     floor, whose calls leave the floor to others.
//   - It is booked also if the caller's context ends. Costs of a request are booked at the
//     same time. One above what is left takes up to three round trips, each of at most
//     MaxWait of the limiter.
//   - A report that is sent twice counts twice.
//   - Between the ask and the rest, other calls may take units.
//
// Take no cost from a header that clients write: a denied call still books it. Options.AskCosts asks for costs as for
// other units.
//
// # Limits in descriptors
//
// In one request, two descriptors of one limit both take units.
//
// A limit in a descriptor replaces the rule, also its floor. Limits with different periods have counts of their own.
// Limits with the same period share one, and used units stay used when the limit changes.
//
// # Floors
//
// A rule with a floor has no limit of its own. It counts for the limit around it, and is over when only its floor is
// left: a part of the burst that its calls leave to others. See hybrid.Config.Classes.
//
//   - A floor is 0 to 0.5, rounded up to whole units. 0 is the limit itself. A domain has
//     at most seven different floors above 0 for one algorithm and overshoot. Use few:
//     only calls with the largest one take turns in asking Redis.
//   - Other descriptors may stand between the limit and the floor. A floor inside a floor
//     is the one that counts. A sliding log has no floors.
//   - A value with "*", value_to_metric and detailed_metric choose the entry and the name
//     of the metric. The count is that of the limit.
//   - shadow_mode, quota_mode, name and replaces of the limit hold for its floors too. A
//     shadow_mode or quota_mode beside the floor holds for its calls only.
//   - A hits_addend above the limit less its floor is always over. Units that are given
//     back come back for all.
//   - Headers and current_limit have the units above the floor, and the policy a name such
//     as "100/second floor 0.2". requests_per_unit stays that of a bucket.
//   - Metrics and /rlconfig have a name for each floor. The name of the limit counts the
//     other calls only.
//   - Replicas with other floors share the counts.
//   - Without Redis, the calls of a limit share one share, with the floors inside. A share
//     of one unit has no floor.
//
// # Without Redis
//
// A service decides without Redis, at the start and later, by the fallback of its limiters: by default each replica
// gets its share of the limit. See Options.FailError.
package rls
