package main

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// lasts is the time of a phase in the tests of virtual time: that of the program.
const lasts = 4 * time.Second

// rowsOf returns the rows of a phase by the names of its sources, with the limiters
// and without.
func rowsOf(results [][][]tally, i int) (with, without map[string]tally) {
	by := []map[string]tally{{}, {}}
	for j, rows := range results[i] {
		for k, row := range rows {
			by[j][phases[i].sources[k].name] = row
		}
	}
	return by[0], by[1]
}

// Each limiter does its work, on virtual time: the figures do not depend on the
// machine.
func TestEachLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results, alone, err := play(t.Context(), redistest.NewBubble(t).Client(nil), classOf, lasts)
		if err != nil || alone > 0 {
			t.Fatal(alone, err)
		}
		expect := func(ok bool, phase string, rows map[string]tally, what string) {
			t.Helper()
			if !ok {
				t.Errorf("%s: not %s: %+v", phase, what, rows)
			}
		}

		with, without := rowsOf(results, 0)
		greedy := with["listings, greedy user"]
		expect(greedy.served >= 55 && greedy.served <= 65 && greedy.shed == 0, "(a)", with, "about 20 + 4 s × 10/s of the greedy user")
		expect(with["payments"].served == 40 && with["listings"].served == 400, "(a)", with, "all others served")
		expect(without["payments"].served <= 20 && without["listings"].served <= 200, "(a)", without, "harmed")

		with, without = rowsOf(results, 1)
		paid := with["payments"].served + with["payments at once"].served
		expect(paid >= 99, "(b)", with, "99 % of the payments served")
		expect(paid+with["listings, flood"].served >= 600, "(b)", with, "the whole rate in use")
		expect(with["listings, flood"].denied >= 3000, "(b)", with, "listings denied")
		expect(without["payments"].served+without["payments at once"].served <= 50, "(b)", without, "harmed")

		with, without = rowsOf(results, 2)
		expect(with["payments"].served == 40 && with["listings"].served == 400, "(c)", with, "all others served")
		reports := with["reports"]
		expect(reports.served >= 72 && reports.served <= 120 && reports.denied == reports.sent-reports.served, "(c)", with, "about 8 users × 3 × 4 s / 1.3 s")
		expect(without["payments"].served <= 30, "(c)", without, "harmed")

		with, without = rowsOf(results, 3)
		expect(with["payments"].served == 40, "(d)", with, "all payments served")
		expect(with["listings"].shed >= 100 && with["listings"].denied == 0 && with["listings"].served > 0, "(d)", with, "listings shed")
		expect(without["payments"].served <= 20, "(d)", without, "harmed")
	})
}

// If all requests are of one class, payments are denied and shed as listings are. So
// the test above can fail.
func TestOneClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results, alone, err := play(t.Context(), redistest.NewBubble(t).Client(nil), func(string) string { return rest }, lasts/2)
		if err != nil || alone > 0 {
			t.Fatal(alone, err)
		}
		with, _ := rowsOf(results, 1)
		if paid := with["payments"].served + with["payments at once"].served; paid >= 50 {
			t.Errorf("%d of 50 payments served: %+v", paid, with)
		}
		if with, _ = rowsOf(results, 3); with["payments"].shed == 0 {
			t.Errorf("no payment shed: %+v", with)
		}
	})
}

// The whole program, in real time, with shorter phases. A busy machine may stop all
// goroutines, and then clients leave and Redis does not answer. So the figures of
// payments count if the machine kept time, as a canary tells, and if Redis answered.
// TestEachLimiter checks them in any case.
func TestStart(t *testing.T) {
	canary := newCanary()
	begin := time.Now()
	var out strings.Builder
	if err := start(t.Context(), &out, 1500*time.Millisecond); err != nil {
		t.Fatalf("%v; it printed\n%s", err, out.String())
	}
	took, late := time.Since(begin), canary.stop()
	rows := regexp.MustCompile(`(?m)^  (with the limiters|without) +(.*?) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$`).FindAllStringSubmatch(out.String(), -1)
	if len(rows) != 22 {
		t.Fatalf("%d rows, want 22:\n%s", len(rows), out.String())
	}
	busy := late >= 200*time.Millisecond || strings.Contains(out.String(), "decided without Redis")
	for _, row := range rows {
		n := [5]int{}
		for i := range n {
			n[i], _ = strconv.Atoi(row[3+i])
		}
		sent, served, timedOut := n[0], n[1], n[4]
		with := row[1] == names[0]
		switch {
		case sent != n[1]+n[2]+n[3]+n[4]:
			t.Errorf("an end of a request is not in the table: %q", row[0])
		case !with && sent != served+timedOut:
			t.Errorf("denied without a limiter: %q", row[0])
		case with && strings.HasPrefix(row[2], "listings, greedy") && served > 22+int(10*took.Seconds()):
			t.Errorf("more than its limit in %v: %q", took, row[0])
		case with && strings.HasPrefix(row[2], "payments") && !busy && served+timedOut < sent:
			t.Errorf("payments were refused, while the machine was at most %v late and Redis answered: %q", late, row[0])
		}
	}
	t.Logf("the machine was at most %v late\n%s", late, out.String())
}

// canary measures how late the machine wakes a goroutine.
type canary struct {
	end  chan struct{}
	late chan time.Duration
}

func newCanary() *canary {
	c := &canary{make(chan struct{}), make(chan time.Duration, 1)}
	go func() {
		const every = 10 * time.Millisecond
		worst := time.Duration(0)
		for {
			begin := time.Now()
			select {
			case <-c.end:
				c.late <- worst
				return
			case <-time.After(every):
				worst = max(worst, time.Since(begin)-every)
			}
		}
	}()
	return c
}

// stop returns the longest delay.
func (c *canary) stop() time.Duration {
	close(c.end)
	return <-c.late
}

// The README shows the output of the program. Only its figures depend on the run.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "go run .\n")
	shown, _, _ = strings.Cut(shown, "```")
	var out strings.Builder
	var results [][][]tally
	for _, p := range phases {
		results = append(results, [][]tally{make([]tally, len(p.sources)), make([]tally, len(p.sources))})
	}
	table(&out, results)
	form := func(text string) string {
		text = regexp.MustCompile(`(?m) +\d+ +\d+ +\d+ +\d+ +\d+$`).ReplaceAllString(text, " figures")
		return strings.TrimSpace(text)
	}
	if got := form(out.String()); got != form(shown) {
		t.Errorf("the program prints\n%s\nthe README has\n%s", got, form(shown))
	}
}

// A request without a user is refused, and no header changes the class.
func TestWithoutAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		shared, err := newLimits(hub)
		if err != nil {
			t.Fatal(err)
		}
		h, err := protect(shared, nil, classOf, newService(newDependency()))
		if err != nil {
			t.Fatal(err)
		}
		a := answer{header: http.Header{}, status: http.StatusOK}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/listings", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if h.ServeHTTP(&a, r); a.status != http.StatusUnauthorized {
			t.Errorf("%d", a.status)
		}
	})
}
