package limitfile

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// fakeHub keeps the settings that it is given.
type fakeHub struct {
	mu    sync.Mutex
	calls int
	all   map[string]hybrid.Settings
	fail  error
}

func (h *fakeHub) SetSettings(all map[string]hybrid.Settings) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if h.fail != nil {
		return h.fail
	}
	h.all = maps.Clone(all)
	return nil
}

func (h *fakeHub) failWith(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail = err
}

// rate returns the rate in force of the limiter "api", and the number of calls.
func (h *fakeHub) rate() (rate int64, calls int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all["api"].Limit.Rate, h.calls
}

// journal is a log.
type journal struct{ testenv.Log }

// take returns the lines since the last take, without their times.
func (j *journal) take() (lines []string) {
	for line := range strings.Lines(j.Take()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		lines = append(lines, line)
	}
	return lines
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// limits is a valid file with a rate.
func limits(rate string) string { return `{"api": {"limit": "` + rate + `/s"}}` }

// write writes a file in place.
func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a watched file.
type rig struct {
	*Set
	hub  *fakeHub
	log  *journal
	path string
}

// start watches a file that exists.
func start(t *testing.T, path string, read func(string) ([]byte, error)) *rig {
	t.Helper()
	return startEvery(t, path, defaultEvery, read)
}

// never is a time between polls for tests that poll themselves.
const never = 1e6 * time.Hour

func startEvery(t *testing.T, path string, every time.Duration, read func(string) ([]byte, error)) *rig {
	t.Helper()
	r := &rig{hub: &fakeHub{}, log: &journal{}, path: path}
	var err error
	r.Set, err = watch(path, r.hub, Config{Every: every, Logger: r.log.logger()}, read)
	must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// begun is start with a file of its own, in its own directory.
func begun(t *testing.T, text string) *rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.json")
	write(t, path, text)
	return start(t, path, readFile)
}

// settled waits until the Set has read the file at least once.
func (r *rig) settled() {
	time.Sleep(defaultEvery + 2*settle)
	synctest.Wait()
}

var errRefused = errors.New("hybrid: refused")
