package member

import (
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/control"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/census"
	"github.com/hybridlimit/hybridlimit/internal/groups"
	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// Party is a limiter as the heartbeats count it: its part in the fleet.
type Party struct {
	census.Census // the heartbeat's goroutine writes it

	Name    string
	Control *control.View
	// Sized is called when N is known, after each count: the goroutine of the heartbeat calls it, under no lock.
	Sized func(accounts int64)
	// Parts returns the largest number of parts of the split keys of the limiter so far. Nil: it splits no keys.
	Parts func() int64
	Left  atomic.Bool   // heartbeats no longer count this limiter
	Ready chan struct{} // closed when N is known, from two heartbeats or from HubConfig.FleetSize, and one was answered

	readyOnce sync.Once
	// The rest belongs to the heartbeat's goroutine.
	settled bool         // the settings of this limiter were heard
	other   disagreement // about the limit
	split   disagreement // about the number of parts
}

// NewParty returns the part of a limiter with so many classes. hint is HubConfig.FleetSize.
func NewParty(name string, hint, classes int) *Party {
	p := &Party{Name: name, Ready: make(chan struct{})}
	p.Hint, p.Classes = int64(hint), int64(classes)
	return p
}

// watch makes all budgets end when the first known fleet size goes stale: credit is not valid from then on.
func (b *Heart) watch(all []*Party, now int64) {
	first := int64(math.MaxInt64)
	for _, l := range all {
		if ends := l.Ends(); ends > now {
			first = min(first, ends)
		}
	}
	b.env.Clock.EndAll(first)
}

// counted notes the sizes of the limiters' fleets, in the answer to a heartbeat.
func (b *Heart) counted(ls []*Party, count func(*Party) (processes, accounts int64), sent, received int64) {
	changed := false
	for _, l := range ls {
		before, all := l.Size(), l.Accounts()
		processes, accounts := count(l)
		l.Counted(processes, accounts, sent, received)
		changed = changed || l.Size() != before || l.Accounts() != all
	}
	b.watch(b.env.Limiters(), received)
	b.env.Sized()
	if changed {
		b.env.Clock.Void() // C has changed
	}
	for _, l := range ls {
		if l.Known(b.env.Clock.Now()) {
			l.Sized(l.Accounts())
		}
	}
}

// Size returns the largest N of limiters.
func Size(all []*Party) int64 {
	n := int64(1)
	for _, l := range all {
		n = max(n, l.Size())
	}
	return n
}

const (
	// rollout is the time for which the processes of a limiter may have two limits without a log line: a rollout of
	// another limit takes about as long.
	rollout = time.Minute
	// repeatOther is the time after which the line about them is repeated.
	repeatOther = time.Hour
)

// disagreement is the knowledge that other processes have other settings for a limiter. The heartbeat's goroutine owns
// it.
type disagreement struct {
	since  int64 // ns of the hub's clock; 0: there is none
	logged int64 // ns: the last line; 0: none
}

// due notes whether there is a disagreement now, and reports whether a line about it is due.
func (d *disagreement) due(is bool, now int64) bool {
	switch {
	case !is:
		d.since = 0
	case d.since == 0:
		d.since = now
	case now-d.since < int64(rollout), d.logged > 0 && now-d.logged < int64(repeatOther):
	default:
		d.logged = now
		return true
	}
	return false
}

// compare logs limiters for which other processes have another limit, or another number of parts of a key, for longer
// than a rollout. Two programs that chose the same prefix and name share the state of their keys without knowing it.
func (b *Heart) compare(count groups.Count, ls []*Party) {
	now := max(1, b.env.Clock.Now())
	for _, l := range ls {
		own := l.Control.Program()
		other, processes := "", int64(0)
		if s := l.Control.Source(); s == control.FromConfig || s == control.FromSettings {
			other, processes = b.book.OtherLimit(count, l.Name, own)
		}
		if l.other.due(other != "", now) {
			b.env.Log.Write(slog.LevelWarn, tell.MsgOtherLimit, 0, []any{
				slog.String("limiter", l.Name), slog.String("limit", own),
				slog.String("other", other), slog.Int64("processes", processes),
			})
		}
		parts := l.parts()
		others, processes := b.book.OtherParts(count, l.Name, parts)
		if l.split.due(others > 0, now) {
			b.env.Log.Write(slog.LevelWarn, tell.MsgOtherSplit, 0, []any{
				slog.String("limiter", l.Name), slog.Int64("parts", parts),
				slog.Int64("other", others), slog.Int64("processes", processes),
			})
		}
	}
}

// parts returns the largest number of parts of a key; 0: not known.
func (l *Party) parts() int64 {
	if l.Parts == nil {
		return 1
	}
	return l.Parts()
}

// terms returns what the names of the group of a process with these limiters say. With plain, or if the names would be
// too long, they say no limits.
func (b *Heart) terms(ls []*Party) []string {
	terms := make([]string, len(ls), 2*len(ls)+1)
	for i, l := range ls {
		terms[i] = groups.Term(l.Name, int(l.Classes))
	}
	if b.plain {
		return terms
	}
	full := append(terms, groups.TagsTerm(b.env.Names.Tags))
	for _, l := range ls {
		full = append(full, groups.LimitTerm(l.Name, l.Control.Program()))
		if l.Parts != nil {
			full = append(full, groups.SplitTerm(l.Name, l.Parts()))
		}
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
