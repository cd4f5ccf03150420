package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/filepoll"
	"github.com/hybridlimit/hybridlimit/rls"
)

// The end of the program does not wait for the parser of a huge configuration. It took 70 s.
func TestEndDuringParse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parsing, end := make(chan struct{}), make(chan struct{})
		w := &watcher{source: newSource("files", msgUnusable, slog.New(slog.DiscardHandler))}
		w.poller = filepoll.Poller[*rls.Rules]{
			Read:  func() ([]byte, error) { return []byte("huge"), nil },
			Parse: func([]byte) (*rls.Rules, error) { close(parsing); <-end; return nil, errors.New("wrong") },
			Apply: func(*rls.Rules, [sha256.Size]byte) error { t.Error("rules were applied"); return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			w.run(ctx, time.Second, func() { t.Error("a configuration was refused") })
			close(ended)
		}()
		<-parsing
		began := time.Now()
		cancel()
		<-ended
		if took := time.Since(began); took > time.Second {
			t.Errorf("the end took %v", took)
		}
		close(end)
	})
}
