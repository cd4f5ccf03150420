package hybrid

import (
	"log/slog"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

const (
	// rollout is the time for which the processes of a limiter may have two limits without a log line: a rollout of another limit
	// takes about as long.
	rollout = time.Minute
	// repeatOther is the time after which the line about them is repeated.
	repeatOther = time.Hour
)

// otherLimit is the knowledge that other processes have another limit for a limiter. The heartbeat's goroutine owns it.
type otherLimit struct {
	since  int64 // ns of the hub's clock; 0: they have none
	logged int64 // ns: the last line; 0: none
}

// compareLimits logs limiters for which other processes have another limit for longer than a rollout. Two programs that chose the
// same prefix and name share the state of their keys without knowing it.
func (h *Hub) compareLimits(book *groups.Book, count groups.Count, ls []*Limiter) {
	now := max(1, h.clock.Now())
	for _, l := range ls {
		o, own := &l.fleet.other, l.control.Program()
		other, processes := "", int64(0)
		if s := l.LimitState().Source; s == LimitFromConfig || s == LimitFromSettings {
			other, processes = book.OtherLimit(count, l.cfg.Name, own)
		}
		switch {
		case other == "":
			o.since = 0
		case o.since == 0:
			o.since = now
		case now-o.since < int64(rollout), o.logged > 0 && now-o.logged < int64(repeatOther):
		default:
			o.logged = now
			h.log.Write(slog.LevelWarn, tell.MsgOtherLimit, 0, []any{
				slog.String("limiter", l.cfg.Name), slog.String("limit", own),
				slog.String("other", other), slog.Int64("processes", processes),
			})
		}
	}
}

// terms returns what the names of the group of a process with these limiters say. With plain, or if the names would be too long,
// they say no limits.
func (h *Hub) terms(ls []*Limiter, plain bool) []string {
	terms := make([]string, len(ls), 2*len(ls)+1)
	for i, l := range ls {
		terms[i] = groups.Term(l.cfg.Name, len(l.views))
	}
	if plain {
		return terms
	}
	full := append(terms, groups.TagsTerm(h.cfg.Tags))
	for _, l := range ls {
		full = append(full, groups.LimitTerm(l.cfg.Name, l.control.Program()))
	}
	length := 0
	for _, term := range full {
		length += len(term) + 1
	}
	if length > wire.MaxNames {
		return terms
	}
	return full
}
