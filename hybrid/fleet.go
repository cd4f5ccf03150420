package hybrid

import (
	"log/slog"
	"math"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"

	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/census"
)

// fleet is a limiter's knowledge of the other processes of its fleet. The heartbeat's goroutine owns the fields below the census.
type fleet struct {
	census.Census

	settled bool // the settings of this limiter were heard
	small   bool // the log line about a C of 0 was written
	other   otherLimit
}

// watch makes all budgets end when the first known fleet size goes stale: credit is not valid from then on.
func (h *Hub) watch(now int64) {
	first := int64(math.MaxInt64)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.limiters {
		if ends := l.fleet.Ends(); ends > now {
			first = min(first, ends)
		}
	}
	h.clock.EndAll(first)
}

// counted notes the sizes of the limiters' fleets, in the answer to a heartbeat.
func (h *Hub) counted(ls []*Limiter, count func(*Limiter) (processes, accounts int64), sent, received int64) {
	changed := false
	for _, l := range ls {
		f := &l.fleet
		before, all := f.Size(), f.Accounts()
		processes, accounts := count(l)
		f.Counted(processes, accounts, sent, received)
		changed = changed || f.Size() != before || f.Accounts() != all
	}
	h.watch(received)
	if changed {
		h.clock.Void() // C has changed
	}
	for _, l := range ls {
		f := &l.fleet
		if !f.small && f.Known(h.clock.Now()) && l.terms.givesCredit() && !account.Static(l.control.Plan().Limit) && l.terms.credit(l.control.Plan(), f.Accounts()) == 0 {
			f.small = true
			h.log.Write(slog.LevelInfo, tell.MsgSmall, 0, []any{
				slog.String("limiter", l.cfg.Name), slog.String("limit", l.control.Plan().Limit.String()),
				slog.String("mode", l.Mode().String()), slog.Int64("fleet", f.Accounts()), slog.String("why", l.noCredit(l.control.Plan(), f.Accounts())),
			})
		}
	}
}

// fleetSize returns the largest N of the hub's limiters.
func (h *Hub) fleetSize() int64 {
	n := int64(1)
	for _, l := range h.all() {
		n = max(n, l.fleet.Size())
	}
	return n
}
