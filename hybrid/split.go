package hybrid

import (
	"log/slog"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/split"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/internal/parts"
)

// This file has the moves of split keys. A process whose part of a key is full looks at another part, and uses that one
// if it has units: see package hybrid/internal/split. Before that it pays what it owes to the part that it leaves, and
// returns its units. So it has leases and credit in one part at a time.

// splits makes what a limiter knows of its split keys.
func (m *family) splits(cfg Config) {
	if cfg.Split == nil {
		return
	}
	for _, v := range m.views {
		v.terms.Split = split.New(cfg.Split, m.hub.process, m.hub.names.Tags)
	}
	m.party.Parts = func() (most int64) {
		for _, v := range m.views {
			most = max(most, v.terms.Split.Most())
		}
		return most
	}
	if m.hub.runner.Together() {
		m.hub.log.Write(slog.LevelInfo, tell.MsgSplitAlone, 0, []any{slog.String("limiter", cfg.Name)})
	}
}

const (
	// leaveTries is the number of times that a move tries to leave a part, and leaveEvery the time between two of them. A
	// busy key may owe, or wait for Redis, at each of these times. The move is given up then.
	leaveTries = 20
	leaveEvery = 25 * time.Millisecond
)

// lookForParts looks for other parts of split keys, in a goroutine, if some are due and no other looks.
func (h *Hub) lookForParts() {
	type look struct {
		split.Look
		of *Limiter
	}
	var due []look
	for _, v := range h.views() {
		if v.terms.Split == nil || h.looking.Load() {
			continue
		}
		for _, l := range v.terms.Split.Looks(v.party.Size(), h.clock.Now()) {
			due = append(due, look{l, v})
		}
	}
	if len(due) == 0 || !h.begin() {
		return
	}
	h.looking.Store(true)
	go func() {
		defer h.wg.Done()
		defer h.looking.Store(false)
		for _, l := range due {
			l.of.lookForPart(l.Look)
		}
	}()
}

// lookForPart looks at another part of a key, and uses it if it has units.
func (l *Limiter) lookForPart(look split.Look) {
	at, ok := l.terms.Known(look.Key)
	if !ok || at.Plan.Part != look.From || l.terms.Alone(at.Tag) {
		return
	}
	to := l.terms.InPart(at, look.To)
	ans, _, ok := l.direct.Within(l.hub.ctx, to, algo.Op{}, l.direct.Patience())
	if !ok || !parts.Worth(to.Plan.Units(ans.Level), to.Plan.Burst) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for range leaveTries {
		select {
		case <-timer.C:
		case <-l.hub.ctx.Done():
			return
		}
		if l.terms.Go(look) {
			return
		}
		timer.Reset(leaveEvery)
	}
}
