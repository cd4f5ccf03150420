package hybrid

import (
	"context"
	"log/slog"

	"github.com/hybridlimit/hybridlimit/hybrid/internal/restore"
	"github.com/hybridlimit/hybridlimit/hybrid/internal/tell"
	"github.com/hybridlimit/hybridlimit/internal/account"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// restorer makes what asks Config.Restore; nil: nothing.
func (m *family) restorer(cfg Config) *restore.Asker {
	if cfg.Restore == nil {
		return nil
	}
	first := func() *Limiter { return m.views[0] } // the classes share the state in Redis
	m.restore = restore.New(restore.Env{
		Keys: cfg.MaxKeys, Ask: cfg.Restore,
		Tell: func(ctx context.Context, key string, p *account.Plan, v algo.View) bool {
			at, err := first().terms.PlaceUnder(key, p)
			if err != nil {
				return false
			}
			_, _, ok := first().direct.Within(ctx, at, algo.Op{View: v}, m.hub.engine.Timeout())
			return ok
		},
		Told: func(key string) {
			first().terms.Count.Restored.Add(1)
			for _, v := range m.views {
				v.terms.Reread(key)
			}
		},
		Failed: func(key string, err error) {
			first().terms.Count.Unrestored.Add(1)
			m.hub.log.Event(tell.MsgRestore, slog.String("limiter", cfg.Name),
				slog.String("key_digest", m.hub.names.Digest(cfg.Name, key)), slog.Any("cause", err))
		},
	})
	return m.restore
}
