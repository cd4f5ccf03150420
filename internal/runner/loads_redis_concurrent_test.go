package runner_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/runner"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// big is a pool that never makes a call wait for a connection.
func big(o *redis.Options) { o.PoolSize, o.ReadTimeout = 2*callers, 30*time.Second }

// newRunner returns a Runner that is closed when the test ends.
func newRunner(t *testing.T, rdb redis.UniversalClient, functions bool) *runner.Runner {
	t.Helper()
	r, err := runner.New(rdb, 30*time.Second, runner.WithFunctions(functions))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// lose makes a server forget scripts and functions.
func lose(t *testing.T, rdb *redis.Client, functions bool) {
	t.Helper()
	redistest.Do(t, rdb, "SCRIPT", "FLUSH")
	if functions {
		redistest.Do(t, rdb, "FUNCTION", "FLUSH")
	}
}

// loadsIn returns the number of sources that a server has received.
func loadsIn(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	c := redistest.Calls(t, rdb)
	return c["eval"] + c["function|load"]
}

// isOneLoad reports whether so many loads are one. On a busy machine a load may take longer than a second: then another
// call begins one beside it. TestOneLoadForAllCallers wants exactly one, in virtual time.
func isOneLoad(n int, took time.Duration) bool { return n >= 1 && n <= 1+int(took/time.Second) }

var withAndWithout = map[string]bool{"scripts": false, "functions": true}

// TestOneLoadOfRedis is TestOneLoadForAllCallers on a real Redis, also with functions. The
// source arrives late, so that all calls find the code missing.
func TestOneLoadOfRedis(t *testing.T) {
	for name, functions := range withAndWithout {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			direct := server.Client(t)
			if functions {
				redistest.NeedFunctions(t, direct)
			}
			proxy := redistest.NewProxy(t, server.Addr())
			r := newRunner(t, proxy.Client(t, big), functions)
			for i, err := range each(callers, func(int) error { return ask(t.Context(), r, "k") }) { // opens the connections
				if err != nil {
					t.Fatalf("call %d: %v", i, err)
				}
			}
			late := redistest.Delay(200 * time.Millisecond)
			proxy.Script(func(_ int, cmd []string) redistest.Verdict {
				if verb := strings.ToUpper(cmd[0]); verb == "EVAL" || verb == "FUNCTION" {
					return late
				}
				return redistest.Forward()
			})
			for round := range 3 {
				lose(t, direct, functions)
				before, began := loadsIn(t, direct), time.Now()
				for i, err := range each(callers, func(int) error { return ask(t.Context(), r, "k") }) {
					if err != nil {
						t.Errorf("call %d: %v", i, err)
					}
				}
				if n := loadsIn(t, direct) - before; !isOneLoad(n, time.Since(began)) {
					t.Errorf("loss %d: %d loads", round, n)
				}
			}
			if got := used(t.Context(), t, r, "k"); got != 4*callers {
				t.Errorf("%d units were taken", got)
			}
		})
	}
}

// TestOneLoadForEachNode checks that a node that has lost the code receives it once, and
// that the other node does not receive it again.
func TestOneLoadForEachNode(t *testing.T) {
	for name, functions := range withAndWithout {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring, servers := redistest.NewRing(t, 2)
			if functions {
				redistest.NeedFunctions(t, servers[0].Client(t))
			}
			r := newRunner(t, ring, functions)
			ask := func(i int) error { return ask(t.Context(), r, fmt.Sprint("k", i%32)) }
			var before [2]int
			for step, want := range [][2]int{{1, 1}, {1, 0}, {0, 1}, {0, 0}, {1, 1}} { // the loads, and so the losses, of each node
				for i, s := range servers {
					if step > 0 && want[i] > 0 {
						lose(t, s.Client(t), functions)
					}
					before[i] = loadsIn(t, s.Client(t))
				}
				began := time.Now()
				for i, err := range each(callers, ask) {
					if err != nil {
						t.Errorf("call %d: %v", i, err)
					}
				}
				took := time.Since(began)
				for i, s := range servers {
					if n := loadsIn(t, s.Client(t)) - before[i]; n != want[i] && (want[i] == 0 || !isOneLoad(n, took)) {
						t.Errorf("step %d: node %d received %d loads, want %d", step, i, n, want[i])
					}
				}
			}
		})
	}
}

// TestLoadIsRefused checks a Redis that refuses the load to its user. Every call gets the
// cause, and a second has one load. Then the user gets the right, and calls are answered.
func TestLoadIsRefused(t *testing.T) {
	for name, functions := range withAndWithout {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			direct := server.Client(t)
			if functions {
				redistest.NeedFunctions(t, direct)
			}
			redistest.Do(t, direct, "ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "-eval", "-function")
			proxy := redistest.NewProxy(t, server.Addr())
			r := newRunner(t, proxy.Client(t, big, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" }), functions)
			began := time.Now()
			for range 3 {
				for i, err := range each(callers, func(int) error { return ask(t.Context(), r, "k") }) {
					if err == nil || !strings.Contains(err.Error(), "NOPERM") {
						t.Errorf("call %d: %v", i, err)
					}
				}
			}
			took := time.Since(began)
			if n := proxy.Count("EVAL").Seen + proxy.Count("FUNCTION").Seen; !isOneLoad(n, took) {
				t.Errorf("%d loads in %v", n, took)
			}
			redistest.Do(t, direct, "ACL", "SETUSER", "limited", "+eval", "+function")
			redistest.Eventually(t, 30*time.Second, "an answer", func() bool { return ask(t.Context(), r, "k") == nil })
			if got := used(t.Context(), t, r, "k"); got != 1 {
				t.Errorf("%d units were taken", got)
			}
		})
	}
}

// TestLoadWithoutMemory checks a Redis at its memory limit. It knows the script after the
// first load, although each call gets an OOM error. A call after that needs no load.
func TestLoadWithoutMemory(t *testing.T) {
	server := redistest.New(t)
	direct := server.Client(t)
	r := newRunner(t, server.Client(t, big), false)
	redistest.Do(t, direct, "CONFIG", "SET", "maxmemory", "1")
	began := time.Now()
	for i, err := range each(callers, func(int) error { return ask(t.Context(), r, "k") }) {
		if !redis.HasErrorPrefix(err, "OOM") {
			t.Errorf("call %d: %v", i, err)
		}
	}
	redistest.Do(t, direct, "CONFIG", "SET", "maxmemory", "0")
	if err := ask(t.Context(), r, "k"); err != nil {
		t.Error(err)
	}
	if n := loadsIn(t, direct); !isOneLoad(n, time.Since(began)) {
		t.Errorf("%d loads", n)
	}
	if got := used(t.Context(), t, r, "k"); got != 1 {
		t.Errorf("%d units were taken", got)
	}
}
