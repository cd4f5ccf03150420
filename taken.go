package hybridlimit

import "context"

// Taken names units that AllowAll took for an [Ask]: the limiter that takes them back, and the window in which it has
// counted them. Package spend gives units back by it. The zero Taken stands for no units: a limit that counts nothing,
// a shadow limit that would have denied, a denial.
type Taken struct {
	by     Returner
	at     int64
	period int64
	direct bool
}

// Returner takes back units of a Taken. It is for implementations of adapter.Joint.
type Returner interface {
	// ReturnTaken gives n units of key back, which were taken at the marks of NewTaken.
	ReturnTaken(ctx context.Context, key string, n, at, period int64, direct bool) error
}

// NewTaken returns a Taken. It is for implementations of adapter.Joint. at is a mark of the implementation, for example
// the number of a window. period is the period of that window, because another period has other numbers; 0: at is no
// such number. direct is whether Redis itself made the decision. It does not allocate.
func NewTaken(by Returner, at, period int64, direct bool) Taken { return Taken{by, at, period, direct} }

// Return gives n units of the key of the ask back. In a window and in a log they return to where they were taken; if
// that is over, or the limit has another period since, nothing returns. A bucket takes units back up to a full one. A
// caller gives back at most what was taken, in one or more parts. The errors are those of Refund. The zero Taken
// returns nothing, without an error.
func (t Taken) Return(ctx context.Context, key string, n int64) error {
	if t.by == nil {
		return nil
	}
	return t.by.ReturnTaken(ctx, key, n, t.at, t.period, t.direct)
}
