package region

import (
	"fmt"
	"sync"
	"testing"
)

// TestNotesConcurrently notes denials of some keys from many goroutines, while others take and remove them. While a key
// is not removed, no unit is lost.
func TestNotesConcurrently(t *testing.T) {
	const goroutines, each = 8, 2000
	n := notes{added: make(chan struct{}, 1)}
	kept := n.enter("kept")
	var taken int64
	var all, taker sync.WaitGroup
	stop := make(chan struct{})
	taker.Go(func() {
		for {
			for _, d := range n.news() {
				if d != kept {
					d.take()
					n.remove(d)
				}
			}
			units, cost := kept.take()
			if taken += units; cost > 3 || units == 0 && cost > 0 {
				t.Errorf("%d units, the largest cost %d", units, cost)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for g := range goroutines {
		all.Go(func() {
			for i := range each {
				n.add("kept", int64(1+i%3))
				n.add(fmt.Sprint("k", g, i%50), 1)
			}
		})
	}
	all.Wait()
	close(stop)
	taker.Wait()
	units, _ := kept.take()
	want := int64(0)
	for i := range each {
		want += int64(1 + i%3)
	}
	if taken += units; taken != goroutines*want {
		t.Errorf("%d units, want %d", taken, goroutines*want)
	}
	if size := n.size(); size < 1 || size > 1+goroutines*50 {
		t.Errorf("%d keys", size)
	}
}
