package main

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestSettingsOfTwoFaults checks that two faults with the same setting leave its
// value of before, whichever ends first, and that the younger one decides.
func TestSettingsOfTwoFaults(t *testing.T) {
	needRedis(t)
	srv := redistest.New(t)
	n := &node{admin: adminClient(srv.Addr(), ""), Server: srv, settings: map[string][]*string{}}
	t.Cleanup(func() { n.admin.Close() })
	s := &scene{world: &world{nodes: []*node{n}}, plan: plan{faults: []*fault{{}}}}
	value := func() string {
		was, err := n.admin.ConfigGet(t.Context(), "maxmemory").Result()
		if err != nil {
			t.Fatal(err)
		}
		return was["maxmemory"]
	}
	before := value()
	for _, olderFirst := range []bool{true, false} {
		var backs [2]func() error
		for i, v := range []string{"200000000", "300000000"} {
			back, err := s.config(t.Context(), "maxmemory", v)
			if err != nil {
				t.Fatal(err)
			}
			backs[i] = back
		}
		ends, left := []int{0, 1}, "300000000"
		if !olderFirst {
			ends, left = []int{1, 0}, "200000000"
		}
		for i, want := range []string{left, before} {
			for range 2 { // the second call has no effect
				if err := backs[ends[i]](); err != nil {
					t.Fatal(err)
				}
			}
			if got := value(); got != want {
				t.Errorf("the older fault ends first: %v; after end %d maxmemory is %s, want %s", olderFirst, i+1, got, want)
			}
		}
	}
	if _, err := s.config(t.Context(), "maxmemory", "200000000", "no-such-setting", "1"); err == nil {
		t.Error("a setting that Redis does not know was accepted")
	}
	if got := value(); got != before {
		t.Errorf("after a change that failed in part, maxmemory is %s, want %s", got, before)
	}
}
