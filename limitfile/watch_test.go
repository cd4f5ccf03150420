package limitfile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
)

// Watch fails if it cannot begin with valid settings, and leaves nothing behind.
func TestFirstRead(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		fail error
		err  string
		is   error
	}{
		"no file":     {err: "no such file or directory", is: fs.ErrNotExist},
		"invalid":     {text: `{"api": 1}`, err: "limits.json:1: api (1) must be an object", is: hybridlimit.ErrInvalid},
		"empty":       {text: "\n", err: `limits.json:1 ("") is empty`, is: hybridlimit.ErrInvalid},
		"hub refuses": {text: "{}", fail: errRefused, err: "limits.json: the limiters refuse the settings: hybrid: refused", is: errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { // which fails if a goroutine is left
				path, hub, m := filepath.Join(t.TempDir(), "limits.json"), &fakeHub{fail: c.fail}, &metertest.Provider{}
				if c.text != "" {
					write(t, path, c.text)
				}
				s, err := Watch(path, hub, Config{MeterProvider: m})
				if s != nil || err == nil || !strings.Contains(err.Error(), c.err) || !errors.Is(err, c.is) {
					t.Errorf("%v, %v", s, err)
				}
				if m.Registered() {
					t.Error("metrics are left")
				}
			})
		})
	}
	_, err := Watch("", nil, Config{Every: time.Millisecond})
	const want = `limitfile: path ("") is required; hub (<nil>) is required; Config.Every (1ms) must be at least 100ms, or 0 for 2s`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Config.Every and Config.Parse have their effect.
func TestConfig(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path, hub := filepath.Join(t.TempDir(), "limits"), &fakeHub{}
		write(t, path, "100")
		s, err := Watch(path, hub, Config{Every: time.Minute, Parse: func(name string, data []byte) (*File, error) {
			return Parse(name, []byte(limits(string(data))))
		}})
		must(t, err)
		defer s.Close()
		write(t, path, "200")
		time.Sleep(59 * time.Second)
		if rate, calls := hub.rate(); rate != 100 || calls != 1 {
			t.Errorf("before its time: %d, %d", rate, calls)
		}
		time.Sleep(2 * time.Second)
		if rate, _ := hub.rate(); rate != 200 {
			t.Errorf("rate %d, want 200", rate)
		}
	})
}

// The same content, read ten thousand times, does not reach the hub once. Neither does
// content that differs only in its form.
func TestSameContentChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := limits("100")
		r := startEvery(t, "limits.json", never, func(string) ([]byte, error) { return []byte(text), nil })
		first := r.File()
		for range 10_000 {
			r.poll()
		}
		if r.File() != first {
			t.Error("the same text was parsed again")
		}
		for i := range 10_000 {
			text = limits("100") + strings.Repeat(" ", 1+i%7) + strings.Repeat("\n", i%3)
			r.poll()
		}
		if rate, calls := r.hub.rate(); rate != 100 || calls != 1 {
			t.Errorf("rate %d after %d calls, want 100 after 1", rate, calls)
		}
		if r.File() == first || r.Err() != nil {
			t.Errorf("the new text was not read: %v", r.Err())
		}
		if lines := r.log.take(); len(lines) != 1 {
			t.Errorf("%d lines: %q", len(lines), lines[:2])
		}
	})
}

// A plan can change without the hub: it hears of the change nevertheless, because the
// file as a whole has changed.
func TestPlan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := begun(t, `{"api": {"plans": {"gold": "100/s"}}}`)
		if l, ok := r.Plan("api", "gold"); !ok || l != hybridlimit.PerSecond(100) {
			t.Errorf("%v, %v", l, ok)
		}
		write(t, r.path, `{"api": {"plans": {"gold": "200/s"}}}`)
		r.settled()
		if l, ok := r.Plan("api", "gold"); !ok || l != hybridlimit.PerSecond(200) {
			t.Errorf("%v, %v", l, ok)
		}
		if _, ok := r.Plan("api", "silver"); ok {
			t.Error("a plan that the file does not have")
		}
	})
}

// A hub that refuses keeps its settings, and is asked again.
func TestRefusedSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := begun(t, limits("100"))
		r.hub.failWith(errRefused)
		write(t, r.path, limits("200"))
		for range 3 {
			r.settled()
			if !errors.Is(r.Err(), errRefused) || r.File().Settings()["api"].Limit.Rate != 100 {
				t.Errorf("%v; %s", r.Err(), r.File())
			}
		}
		r.hub.failWith(nil)
		r.settled()
		if rate, calls := r.hub.rate(); rate != 200 || calls < 4 || r.Err() != nil {
			t.Errorf("rate %d after %d calls, %v", rate, calls, r.Err())
		}
		r.hub.failWith(errRefused)
		write(t, r.path, limits("300"))
		r.settled()
		write(t, r.path, limits("200")) // as before: the hub need not be asked
		r.settled()
		if rate, _ := r.hub.rate(); rate != 200 || r.Err() != nil {
			t.Errorf("rate %d, %v", rate, r.Err())
		}
	})
}

// Content that only one of two reads finds does not count, and is no error: the reads
// hit the middle of a write.
func TestReadInTheMiddleOfAWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reads atomic.Int64
		texts := func(n int64) (string, error) {
			switch {
			case n < 4, n == 7, n == 11: // the first two are Watch's; the others do not change
				return limits("100"), nil
			case n == 4:
				return "", nil // truncated, and not written yet
			case n == 5:
				return limits("200"), nil
			case n == 6:
				return limits("300"), nil // and 7 differs
			case n == 8:
				return "", fs.ErrNotExist // between a removal and a creation
			case n == 9:
				return limits("100"), nil
			case n == 10:
				return limits("999"), nil
			}
			return limits("400"), nil
		}
		r := start(t, "limits.json", func(string) ([]byte, error) {
			text, err := texts(reads.Add(1))
			return []byte(text), err
		})
		for reads.Load() < 11 {
			r.settled()
			if rate, calls := r.hub.rate(); rate != 100 || calls != 1 || r.Err() != nil {
				t.Fatalf("read %d: rate %d after %d calls, %v", reads.Load(), rate, calls, r.Err())
			}
		}
		r.settled()
		r.settled()
		if rate, calls := r.hub.rate(); rate != 400 || calls != 2 {
			t.Errorf("rate %d after %d calls", rate, calls)
		}
	})
}

// A file that is created while the program starts is found, with its second content.
func TestFileThatAppears(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reads atomic.Int64
		r := start(t, "limits.json", func(string) ([]byte, error) {
			switch reads.Add(1) {
			case 1:
				return nil, fs.ErrNotExist
			case 2:
				return nil, nil
			}
			return []byte(limits("100")), nil
		})
		if rate, calls := r.hub.rate(); rate != 100 || calls != 1 || r.File() == nil {
			t.Errorf("rate %d after %d calls", rate, calls)
		}
	})
}

// A file that differs with each read is an error of Watch.
func TestFileThatKeepsChanging(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reads atomic.Int64
		hub := &fakeHub{}
		s, err := watch("limits.json", hub, Config{}, func(string) ([]byte, error) {
			return []byte(limits("1") + strings.Repeat(" ", int(reads.Add(1)))), nil
		})
		if s != nil || !errors.Is(err, errUnsettled) || hub.calls != 0 {
			t.Errorf("%v, %v, %d calls", s, err, hub.calls)
		}
	})
}

// One line for each different error, however long it lasts, and one when it is over.
func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := begun(t, limits("100"))
		lines := func(wants ...string) {
			t.Helper()
			for range 5 {
				r.settled()
			}
			got := r.log.take()
			if len(got) != len(wants) {
				t.Errorf("%d lines, want %d: %q", len(got), len(wants), got)
				return
			}
			for i, want := range wants {
				if !strings.Contains(got[i], want) || !strings.Contains(got[i], "file="+r.path) {
					t.Errorf("no %s in %s", want, got[i])
				}
			}
		}
		const bad = `level=WARN msg="hybridlimit: a file with limits cannot be used; the settings before stay in force; correct the file"`
		const again = `level=INFO msg="hybridlimit: the file with limits is valid again"`
		lines(`level=INFO msg="hybridlimit: the settings of a file are in force"`)
		lines()
		write(t, r.path, "{\"api\": {\n\"limit\": \"9/q\"}}")
		lines(bad)
		write(t, r.path, "{\"api\": {\n\"limit\": \"9/q\"}} ") // the same error of another text
		lines()
		must(t, os.Remove(r.path))
		lines(bad)
		write(t, r.path, "{\"api\": {\n\"limit\": \"9/q\"}}") // was logged before
		lines()
		write(t, r.path, limits("100"))
		lines(again)
		write(t, r.path, "[]")
		lines(`error="limitfile: ` + r.path + `:1 (an array) must be an object"`)
		write(t, r.path, limits("200"))
		sum := sha256.Sum256([]byte(limits("200")))
		lines(fmt.Sprintf("limiters=1 sha256=%x", sum[:6]), again)
		write(t, r.path, "[]")
		lines(`error="limitfile: ` + r.path + `:1 (an array) must be an object"`)
		write(t, r.path, "{"+strings.Repeat("\"a b\": 1,\n", 7)+"\"c d\": 1}")
		lines("more=3")
	})
}

// The page for operators quotes the begin of log lines.
func TestLinesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Change a limit in production\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, msg := range []string{msgInForce, msgUnusable, msgMissing} {
		quoted, _, _ := strings.Cut(msg, ";")
		if !strings.Contains(section, "`"+quoted+"`") {
			t.Errorf("the page has no %s", quoted)
		}
	}
	if n := strings.Count(section, "`hybridlimit: "); n != 3 {
		t.Errorf("the page has %d lines, want 3", n)
	}
}

// Different errors of a broken file do not fill the log.
func TestLogIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits.json")
		write(t, path, limits("100"))
		r := startEvery(t, path, never, readFile)
		r.log.take()
		for range 100 {
			r.note(errors.New("error " + time.Now().String()))
			time.Sleep(time.Second)
		}
		if n := len(r.log.take()); n != maxLogged {
			t.Errorf("%d lines, want %d", n, maxLogged)
		}
	})
}
