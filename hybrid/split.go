package hybrid

import (
	"log/slog"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/split"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
)

// This file has what a hub does for split keys. A process whose part of a key is full looks at another part, and uses
// that one if it has units: see direct.Asker.Move.

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

// lookForParts looks for other parts of split keys, in a goroutine, if some are due and no other looks.
func (h *Hub) lookForParts() {
	type look struct {
		split.Look
		of *Limiter
	}
	if h.looking.Load() {
		return
	}
	var due []look
	for _, v := range h.views() {
		if v.terms.Split == nil {
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
			l.of.direct.Move(h.ctx, l.Look)
		}
	}()
}
