package limitfile

import (
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// watching returns the number of goroutines that watch a file. Goroutines of the runtime come and go, so it counts no others.
func watching() int {
	synctest.Wait()
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "(*Set).run(")
}

// The settings are no longer touched after Close, which can be called twice.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := begun(t, limits("100"))
		if n := watching(); n != 1 {
			t.Errorf("%d goroutines watch before Close, want 1", n)
		}
		must(t, r.Close())
		if n := watching(); n != 0 {
			t.Errorf("%d goroutines watch after Close", n)
		}
		write(t, r.path, limits("200"))
		time.Sleep(time.Hour)
		must(t, r.Close())
		if rate, calls := r.hub.rate(); rate != 100 || calls != 1 {
			t.Errorf("rate %d after %d calls", rate, calls)
		}
	})
}

// slowHub takes its time.
type slowHub struct {
	fakeHub
	takes time.Duration
	done  atomic.Bool
}

func (h *slowHub) SetSettings(all map[string]hybrid.Settings) error {
	h.done.Store(false)
	time.Sleep(h.takes)
	h.done.Store(true)
	return h.fakeHub.SetSettings(all)
}

// Close waits for a change that has begun.
func TestCloseDuringAChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path, hub := filepath.Join(t.TempDir(), "limits.json"), &slowHub{takes: time.Second}
		write(t, path, limits("100"))
		s, err := Watch(path, hub, Config{Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		write(t, path, limits("200"))
		time.Sleep(defaultEvery + 2*settle)
		if hub.done.Load() {
			t.Fatal("the change has not begun")
		}
		must(t, s.Close())
		if rate, _ := hub.rate(); rate != 200 {
			t.Errorf("rate %d after Close", rate)
		}
	})
}

// Close during each part of a poll ends it.
func TestCloseAtAnyTime(t *testing.T) {
	for at := range 60 {
		bubble(t, func(t *testing.T) {
			r := begun(t, limits("100"))
			write(t, r.path, limits("200"))
			time.Sleep(defaultEvery - settle + time.Duration(at)*5*time.Millisecond)
			began := time.Now()
			must(t, r.Close())
			if took := time.Since(began); took > 0 || r.Err() != nil {
				t.Errorf("%v, %v", took, r.Err())
			}
		})
	}
}

// A file system that hangs: the settings stay, the error shows, and there is one read.
// Close waits for it a second.
func TestReadThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reads atomic.Int64
		hang := make(chan struct{})
		r := start(t, "limits.json", func(string) ([]byte, error) {
			if reads.Add(1) == 3 {
				<-hang
			}
			return []byte(limits("100")), nil
		})
		time.Sleep(time.Hour)
		if n := reads.Load(); n != 3 {
			t.Errorf("%d reads, want 3", n)
		}
		if err := r.Err(); !errors.Is(err, errSlow) || err.Error() != "limitfile: limits.json: a read takes longer than 10s" {
			t.Errorf("%v", err)
		}
		if lines := r.log.take(); len(lines) != 2 {
			t.Errorf("lines %q", lines)
		}
		began := time.Now()
		must(t, r.Close())
		if took := time.Since(began); took != closeWait {
			t.Errorf("Close took %v", took)
		}
		close(hang) // the goroutine of the read ends, or the bubble fails
	})
}

// Close does not wait for the parser of a huge file.
func TestCloseDuringParse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path, hub, end := filepath.Join(t.TempDir(), "limits.json"), &fakeHub{}, make(chan struct{})
		write(t, path, limits("100"))
		s, err := Watch(path, hub, Config{
			Logger: slog.New(slog.DiscardHandler),
			Parse: func(name string, data []byte) (*File, error) {
				if strings.Contains(string(data), "200") {
					<-end
				}
				return Parse(name, data)
			},
		})
		must(t, err)
		write(t, path, limits("200"))
		time.Sleep(defaultEvery + 2*settle)
		began := time.Now()
		must(t, s.Close())
		if took := time.Since(began); took != closeWait {
			t.Errorf("Close took %v", took)
		}
		close(end)
		synctest.Wait()
		if rate, calls := hub.rate(); rate != 100 || calls != 1 {
			t.Errorf("rate %d after %d calls", rate, calls)
		}
	})
}

// After a read that hung, the file is read as before.
func TestReadThatHungForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reads atomic.Int64
		r := start(t, "limits.json", func(string) ([]byte, error) {
			switch n := reads.Add(1); {
			case n == 3:
				time.Sleep(time.Minute)
				return []byte(limits("200")), nil // old by then
			case n < 3:
				return []byte(limits("100")), nil
			}
			return []byte(limits("300")), nil
		})
		time.Sleep(30 * time.Second)
		if !errors.Is(r.Err(), errSlow) {
			t.Errorf("%v", r.Err())
		}
		time.Sleep(time.Minute)
		if rate, calls := r.hub.rate(); rate != 300 || calls != 2 || r.Err() != nil {
			t.Errorf("rate %d after %d calls, %v", rate, calls, r.Err())
		}
	})
}

// The first read hangs: Watch fails.
func TestFirstReadThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		began := time.Now()
		s, err := watch("limits.json", &fakeHub{}, Config{}, func(string) ([]byte, error) { <-hang; return nil, nil })
		if took := time.Since(began); s != nil || !errors.Is(err, errSlow) || took != slowRead {
			t.Errorf("%v, %v, %v", s, err, took)
		}
		close(hang)
	})
}
