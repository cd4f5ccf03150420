package account

import "time"

// The defaults of package hybrid, which are set in its Config, and the tick of its clock.
const (
	defaultOvershoot = 0.05
	defaultSyncEvery = 1000
	defaultInterval  = 50 * time.Millisecond
	defaultMaxWait   = 20 * time.Millisecond
	tick             = 5 * time.Millisecond
)
