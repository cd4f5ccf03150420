package permits_test

import (
	"math/rand/v2"
	"testing"
)

// TestNewcomerGetsPermits lets a process begin while the calls of two others use all permits without a pause.
func TestNewcomerGetsPermits(t *testing.T) {
	w := newWorld(quiet(3, 12), rand.New(rand.NewPCG(1, 1)))
	w.patience = second / 5
	var calls [3][]*call
	began := func() (n [3]int) {
		for i, all := range calls {
			for _, c := range all {
				if c.runs {
					n[i]++
				}
			}
		}
		return n
	}
	var again func(proc int)
	again = func(proc int) {
		c := &call{lasts: second / 20}
		c.waiter.N = 1
		calls[proc] = append(calls[proc], c)
		w.procs[proc].call(c)
		w.After(second/20+second/100_000, func() { again(proc) }) // before an op that gives the permit back
	}
	for i := range 12 {
		w.At(5*second, func() { again(i % 2) })
	}
	w.Run(15 * second)
	for range 6 {
		w.At(15*second, func() { again(2) })
	}
	w.Run(22 * second)
	before := began()
	if before[2] == 0 {
		t.Error("no call of a process that began later was admitted in 7 s")
	}
	w.Run(42 * second)
	after := began()
	for i := range after {
		after[i] -= before[i]
	}
	t.Logf("calls in 20 s: %v, before: %v", after, before)
	if sum := after[0] + after[1] + after[2]; 6*after[2] < sum {
		t.Errorf("the process that began later has %d of %d calls", after[2], sum)
	}
}
