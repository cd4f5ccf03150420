package hybrid

import (
	"time"
)

// This file joins the limiter to its shares, which decide while Redis does not answer. Entries use them, and so do keys that find
// no memory, because memory is full of keys that owe. All classes of a limiter use the same shares. See
// docs/decisions/0055-shares-without-redis.md.

// overflowQuiet is the least time between two lines about the overflow of one limiter.
const overflowQuiet = 10 * time.Second
