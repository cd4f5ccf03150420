package filepoll

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A read that is not awaited is the next one.
func TestReadAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := make(chan string)
		p := Poller[string]{Read: func() ([]byte, error) { return []byte(<-next), nil }}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.fetch(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go func() { next <- "late" }()
		if data, err := p.fetch(t.Context()); err != nil || string(data) != "late" || p.pending != nil {
			t.Errorf("%q, %v", data, err)
		}
	})
}

// A Parse that goes on does not delay the end of a look, nor of the poller. Its content is not applied.
func TestCancelDuringParse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parsing, end := make(chan struct{}), make(chan struct{})
		p := Poller[string]{
			Read:  func() ([]byte, error) { return []byte("huge"), nil },
			Parse: func([]byte) (string, error) { close(parsing); <-end; return "huge", nil },
			Apply: func(text string, _ [sha256.Size]byte) error { t.Errorf("%q was applied", text); return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-parsing; cancel() }()
		if err := p.Look(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		began := time.Now()
		if p.Wait(time.Second); time.Since(began) != time.Second {
			t.Errorf("Wait took %v", time.Since(began))
		}
		close(end)
		if p.Wait(time.Second); time.Since(began) != time.Second || p.parsing != nil {
			t.Errorf("Wait took %v", time.Since(began))
		}
	})
}

// Content is applied once, after two reads that found it. Content that Apply refuses is
// applied again, without another Parse.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads []string
		parsed, refuse := 0, error(nil)
		var applied []string
		p := Poller[string]{
			Read: func() ([]byte, error) {
				text := reads[0]
				if len(reads) > 1 {
					reads = reads[1:]
				}
				if text == "gone" {
					return nil, errGone
				}
				return []byte(text), nil
			},
			Parse: func(data []byte) (string, error) { parsed++; return string(data), nil },
			Apply: func(text string, hash [sha256.Size]byte) error {
				if hash != sha256.Sum256([]byte(text)) {
					t.Errorf("the hash of %q is wrong", text)
				}
				applied = append(applied, text)
				return refuse
			},
		}
		look := func(want error, wantApplied int, of ...string) {
			t.Helper()
			reads = of
			if err := p.Look(t.Context()); !errors.Is(err, want) || len(applied) != wantApplied {
				t.Errorf("%q: %v, applied %q", of, err, applied)
			}
		}
		look(nil, 1, "a")
		look(nil, 1, "a")
		look(ErrUnsettled, 1, "b", "bc")
		look(errGone, 1, "gone")
		look(nil, 1, "a")
		refuse = errGone
		look(errGone, 2, "c")
		look(errGone, 3, "c")
		refuse = nil
		look(nil, 4, "c")
		if parsed != 2 {
			t.Errorf("parsed %d times", parsed)
		}
		p.Wait(time.Second)
	})
}

var errGone = errors.New("gone")
