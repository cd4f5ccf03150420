package redistest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, 3)
	rdb := c.Client(t)
	for i := range 60 {
		if err := rdb.Set(t.Context(), fmt.Sprintf("{%d}", i), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i, node := range c.Nodes {
		if calls := Calls(t, node.Client(t)); calls["set"] < 5 || calls["!CROSSSLOT"] > 0 {
			t.Errorf("node %d: %v", i, calls)
		}
	}
	one := c.Nodes[0].Client(t)
	if err := one.Eval(t.Context(), "return 1", []string{"{1}", "{2}"}).Err(); err == nil || Calls(t, one)["!CROSSSLOT"] != 1 {
		t.Errorf("a script on keys of two slots: %v, %v", err, Calls(t, one))
	}

	// The others serve while one master is down. It comes back with its slots.
	c.Nodes[2].Kill()
	var served atomic.Int64
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			if rdb.Get(t.Context(), fmt.Sprintf("{%d}", i)).Err() == nil {
				served.Add(1)
			}
		})
	}
	all.Wait()
	if n := served.Load(); n < 20 || n > 55 {
		t.Errorf("two of three masters serve %d of 60 keys, want 20 to 55", n)
	}
	if err := c.Nodes[2].Restart(); err != nil {
		t.Fatal(err)
	}
	AwaitCluster(t, c.Nodes[2].Client(t), 3)
}

func TestRing(t *testing.T) {
	t.Parallel()
	ring, servers := NewRing(t, 2)
	for i := range 60 {
		if err := ring.Set(t.Context(), fmt.Sprintf("{%d}", i), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range servers {
		if n := Calls(t, s.Client(t))["set"]; n < 10 {
			t.Errorf("server %d has %d of 60 keys, want at least 10", i, n)
		}
	}
}
