package account

import "time"

// The defaults of package hybrid, whose Config has them, and its clock's tick.
const (
	defaultOvershoot = 0.05
	defaultSyncEvery = 1000
	defaultInterval  = 50 * time.Millisecond
	defaultMaxWait   = 20 * time.Millisecond
	tick             = 5 * time.Millisecond
)
