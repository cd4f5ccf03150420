// Package region shares one bucket limit among regions with a Redis each.
//
//	hub, err := hybrid.NewHub(redisInEurope, hybrid.HubConfig{})
//	limiter, err := region.New(hybridlimit.PerSecond(900), region.Config{
//		Name: "api", Here: "eu", Hub: hub,
//		Others: map[string]redis.UniversalClient{"us": redisInAmerica, "asia": redisInAsia},
//	})
//
// Each region has a share of the limit, and decides by it at memory speed, as package hybrid does. When a key is denied,
// one process of the region takes units of the key that other regions do not use, and gives them to its own region. So
// the denied call stays denied, and later ones are admitted. A key that no region denies costs no message between
// regions.
//
// # Promise
//
// In any interval (s, t], all regions together admit at most
//
//	Burst + rate·(t-s) + the sum of N·C over the regions
//
// whatever the network between them does. N and C are those of package hybrid, for each region. In ModeStrict and
// ModeExact, C is 0. With the defaults, the sum is at most a twentieth of the burst. The conditions are those of package
// hybrid, in each region; the transfers need no exception for Refund. These faults raise the bound, each by at most one
// transfer, which is the escrow of the region:
//
//   - A Redis loses its memory just after a transfer. Package hybrid adds the units that it forgot.
//   - A process that moves units is frozen, or cut off from the Redis of its region, for longer than 0.8 s. Then another
//     process may move units too.
//
// From below: if 1.5 times the limit moves from one of two, three or four regions to another, 80 ms away, all regions
// together admit at least 0.85 of the limit from three seconds on. The burst must be at least a second of the rate, and
// some dozens of units. With more regions, a smaller burst or a longer way, fewer units come in time: three regions 200 ms
// apart admit 0.8, and six that are 80 ms apart 0.67 (make lab-regions). More escrow helps: see Config.Escrow. A way of
// 300 ms or more is too long. A region that is cut off keeps its share.
//
// # Parts of the burst
//
// The burst has three parts: the bursts of the regions, the escrow for units under way, and a reserve. The reserve is for
// leases that no ledger of Redis records: units of other regions may come beside them. With a burst of one second and the
// default escrow, each of two regions has a quarter of the burst at once, and each of three 15 %. A longer burst has more
// for the regions: three have a quarter each if the burst is a minute of the rate. Limiter.Here tells the share.
//
// A call that costs more than the burst of its region is denied for ever. A flood in one region draws units that the
// others do not use, down to a quarter of their bursts. Their rates stay theirs.
//
// # Cost
//
// A decision takes 10 ns longer than one of package hybrid. For a denied key, the process that moves its units sends each
// other region at most 12 messages a second, one of its region some more. At most 1000 denied keys of a process are
// served at once. A limiter has one goroutine, and one for each message in flight.
//
// docs/decisions/0074-units-move-between-regions.md has the reasons and the proof. docs/operations.md compares regions
// without transfers, which need no package.
package region
