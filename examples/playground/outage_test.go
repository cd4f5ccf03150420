package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func (f *fleet) change(t *testing.T, how func(*settings)) {
	t.Helper()
	f.ask(t, func() error {
		to := f.settings
		how(&to)
		return f.set(to)
	})
}

// TestEndingWithoutRedisIsACrash checks that a process that ends without Redis
// counts as crashed, because it could not pay its owed units.
func TestEndingWithoutRedisIsACrash(t *testing.T) {
	world(t, func(t *testing.T, f *fleet) {
		time.Sleep(3 * time.Second)
		f.change(t, func(s *settings) { s.Processes = 3 })
		if b := boundOf(t, f.seen(t), "shared"); strings.Contains(b.Why, "crashed") {
			t.Errorf("a process that has paid: %+v", b)
		}
		f.hit(t, fault{Action: "hang"})
		time.Sleep(time.Second)
		f.change(t, func(s *settings) { s.Processes = 1 })
		if b := boundOf(t, f.seen(t), "shared"); !strings.Contains(b.Why, "+ 2 crashed or ended without Redis") {
			t.Errorf("two processes that could not pay: %+v", b)
		}
	})
}

// TestForeignKeysAreNotTouched checks that a cut off and wiped Redis keeps all
// keys that are not the playground's.
func TestForeignKeysAreNotTouched(t *testing.T) {
	addr := redistest.New(t).Addr()
	client := redistest.Client(t, addr)
	foreign := []string{"user:42", "playground-", "playground-of-somebody-else:v2:key", "hl:v2:requests"}
	for _, key := range foreign {
		if err := client.Set(t.Context(), key, "theirs", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := newStore(&redis.Options{Addr: addr, Network: "tcp"})
	defer s.close()
	f, err := newFleet(s, func(string, any) {}, func() bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	ours := func() int {
		t.Helper()
		keys, err := client.Keys(t.Context(), s.prefix+"*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return len(keys)
	}
	redistest.Eventually(t, 10*time.Second, "the fleet has keys", func() bool { return ours() > 0 })
	f.change(t, func(s *settings) { s.Running = false })
	f.hit(t, fault{Action: "kill"})
	if ours() == 0 {
		t.Error("the cut off Redis has lost the playground's keys")
	}
	f.hit(t, fault{Action: "wipe"}) // the wipe bypasses the fault, and no process writes
	if n := ours(); n > 0 {
		t.Errorf("the wiped Redis has %d keys of the playground", n)
	}
	f.hit(t, fault{Action: "restore"})
	for _, key := range foreign {
		if got := client.Get(t.Context(), key).Val(); got != "theirs" {
			t.Errorf("%s is %q", key, got)
		}
	}
	for _, want := range []string{"Redis itself keeps its memory", "All other keys are unchanged"} {
		if !f.told(want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}
