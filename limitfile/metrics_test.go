package limitfile

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/test/metertest"
)

var errNoMore = errors.New("no more instruments")

// The age is small while the file is read well, also if it never changes. It grows,
// and the errors are counted, from the first read that fails.
func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, hub := &metertest.Provider{}, &fakeHub{}
		path := t.TempDir() + "/limits.json"
		write(t, path, limits("100"))
		s, err := Watch(path, hub, Config{MeterProvider: m})
		must(t, err)
		defer s.Close()
		at := func(age, errs float64) {
			t.Helper()
			want := map[string]float64{
				"rate_limiting.config.age{rate_limiting.config.file=" + path + "}":    age,
				"rate_limiting.config.errors{rate_limiting.config.file=" + path + "}": errs,
			}
			if got := m.CollectFloats(t); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		at(0, 0)
		time.Sleep(time.Second)
		at(1, 0)
		time.Sleep(1000*defaultEvery - settle) // half a second after a read, whatever the time
		at(0.9, 0)
		write(t, path, "[]")
		time.Sleep(10 * defaultEvery)
		at(20.9, 10)
		write(t, path, limits("100"))
		time.Sleep(defaultEvery)
		at(0.9, 10)
		must(t, os.Remove(path))
		time.Sleep(defaultEvery)
		at(2.9, 11)
		must(t, s.Close())
		if m.Registered() {
			t.Error("Close has not ended the metrics")
		}
	})
}

func TestMetricsThatFail(t *testing.T) {
	for _, at := range []string{"rate_limiting.config.age", "rate_limiting.config.errors"} {
		bubble(t, func(t *testing.T) {
			m, hub := &metertest.Provider{Fail: errNoMore, FailAt: at}, &fakeHub{}
			path := t.TempDir() + "/limits.json"
			write(t, path, limits("100"))
			s, err := Watch(path, hub, Config{MeterProvider: m})
			if s != nil || !errors.Is(err, errNoMore) || !strings.HasPrefix(err.Error(), "limitfile: Config.MeterProvider: ") || hub.calls != 0 {
				t.Errorf("%s: %v, %v, %d calls", at, s, err, hub.calls)
			}
		})
	}
}

// docs/metrics.md lists exactly these instruments, and the code has their meaning.
func TestInstrumentsOfAFileAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	must(t, err)
	_, section, ok := strings.Cut(string(text), "\n## Limits from a file\n")
	if section, _, _ = strings.Cut(section, "\n## "); !ok {
		t.Fatal("no section")
	}
	rows := map[string]string{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), "`", ""), " | "); strings.HasPrefix(line, "| `rate_limiting") && len(cells) == 4 {
			rows[strings.TrimPrefix(cells[0], "| ")] = strings.Replace(cells[1], ", ", " | ", 1) + " | " + cells[2]
		}
	}
	if !strings.Contains(section, "Attribute: `"+string(attrFile)+"`") {
		t.Errorf("the section does not name the attribute %s", attrFile)
	}
	m := &metertest.Provider{}
	bubble(t, func(t *testing.T) {
		path := t.TempDir() + "/limits.json"
		write(t, path, "{}")
		s, err := Watch(path, &fakeHub{}, Config{MeterProvider: m})
		must(t, err)
		must(t, s.Close())
	})
	if made := m.Described(); !maps.Equal(rows, made) {
		t.Errorf("rows %q\nand instruments %q", slices.Sorted(maps.Values(rows)), slices.Sorted(maps.Values(made)))
	}
}
