package ratesync_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
	ratesync "github.com/hybridlimit/hybridlimit/sync"
)

// ofTag returns an item of a tag. Its key begins with the tag.
func ofTag(t *testing.T, tag, i int, owed int64) *item {
	it := newItem(t, fmt.Sprintf("{%d}k%d", tag, i), owed)
	it.node.Tag = uint16(tag)
	return it
}

func oneLane(cfg *ratesync.Config) { cfg.Lanes = 1 }

// tagsOf returns the tags of the keys of an attempt.
func (a attempt) tags() map[string]int {
	m := map[string]int{}
	for _, op := range a.ops {
		m[op.Key[:strings.Index(op.Key, "}")+1]]++
	}
	return m
}

// TestOneLaneForAServer checks that keys of all tags of one server share a message, and its envelope.
func TestOneLaneForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, calm, oneLane)
		due := now().Add(10 * time.Millisecond)
		var items []*item
		for i := range 20 {
			items = append(items, ofTag(t, i%tags, i, 3))
			w.Enqueue(i%tags, items[i], due)
		}
		time.Sleep(time.Second)
		all := w.wantAttempts(1)
		if len(all[0].ops) != 20 || len(all[0].tags()) != tags || all[0].env.Key != "hl:v2:{0}:@env:p1" {
			t.Errorf("%v, tags %v", all[0], all[0].tags())
		}
		for _, it := range items {
			if it.account() != [4]int64{0, 0, 3, 0} {
				t.Errorf("%s: %v", it.name, it.account())
			}
		}
	})
}

// TestAServerThatWantsATagEach checks a client for one Redis that reaches a cluster. Its refusal of keys in several slots loses
// nothing. From then on each message has keys of one tag, with an envelope of that tag.
func TestAServerThatWantsATagEach(t *testing.T) {
	for _, asks := range [][]int64{nil, {1}} {
		for _, mixed := range []bool{false, true} { // with payments, which have a message of their own
			checkTagsEach(t, asks, mixed)
		}
	}
}

func checkTagsEach(t *testing.T, asks []int64, mixed bool) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, calm, oneLane)
		w.redis.script = func(ctx context.Context, a attempt) (wire.Reply, error) {
			own := strings.HasPrefix(a.env.Key, "hl:v2:{")
			for tag := range a.tags() {
				own = own && a.env.Key == "hl:v2:"+tag+":@env:p1"
			}
			if len(a.tags()) > 1 || a.env.Seq > 0 && !own {
				return wire.Reply{}, refusal("CROSSSLOT Keys in request don't hash to the same slot")
			}
			return applied(ctx, a)
		}
		var items []*item
		for i := range 200 {
			items = append(items, ofTag(t, i%tags, i, 1))
			if asks != nil {
				items[i].pending, items[i].asks = 0, asks
				if mixed && i%3 > 0 {
					items[i].pending, items[i].asks = 1, nil
				}
			}
		}
		for round := range int64(3) {
			before := len(w.redis.all())
			for i, it := range items {
				if round > 0 && len(it.asks) == 0 {
					it.owe(1)
				}
				w.Enqueue(i%tags, it, now().Add(10*time.Millisecond))
			}
			time.Sleep(time.Second)
			synctest.Wait()
			for _, it := range items {
				asked := len(it.asks) > 0
				if got := it.account(); got[0]+got[1]+got[3] != 0 || !asked && got[2] != round+1 || asked && len(it.answers) != int(round)+1 {
					t.Fatalf("round %d: %s: %v, %d answers", round, it.name, got, len(it.answers))
				}
			}
			if all := w.redis.all()[before:]; round > 0 && len(all) > 4*tags {
				t.Errorf("round %d: %d messages for 200 items of %d tags: %v", round, len(all), tags, all)
			}
		}
	})
}

// TestPaymentsHaveTheirOwnMessage checks that ops that only pay do not share a message with others, which would make them as costly
// for Redis as those.
func TestPaymentsHaveTheirOwnMessage(t *testing.T) {
	for _, pays := range []int{0, 1, 2, 20} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, calm, oneLane)
			due := now().Add(10 * time.Millisecond)
			for i := range 20 {
				it := ofTag(t, i%tags, i, 1)
				if i >= pays {
					it.asks = []int64{1}
				}
				w.Enqueue(i%tags, it, due)
			}
			time.Sleep(time.Second)
			want := 2
			if pays < 2 || pays == 20 {
				want = 1
			}
			for i, a := range w.wantAttempts(want) {
				asks := 0
				for _, op := range a.ops {
					asks += len(op.Asks)
				}
				if n := len(a.ops); want == 2 && n != []int{20 - pays, pays}[i] || want == 2 && asks != []int{20 - pays, 0}[i] {
					t.Errorf("%d pay: message %d has %d ops, %d of which ask", pays, i, n, asks)
				}
			}
		})
	}
}

// Single asks go with the payments, in one message, which goes first: their callers wait.
func TestShortOpsGoTogether(t *testing.T) {
	for others, want := range map[int][]int{0: {6}, 3: {6, 3}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, calm, oneLane)
			due := now().Add(10 * time.Millisecond)
			for i := range 6 + others {
				it := ofTag(t, i%tags, i, 1)
				switch {
				case i < 3: // it only asks
					it.pending, it.asks = 0, []int64{1}
				case i >= 6: // it does both
					it.asks = []int64{1}
				}
				w.Enqueue(i%tags, it, due)
			}
			time.Sleep(time.Second)
			for i, a := range w.wantAttempts(len(want)) {
				if len(a.ops) != want[i] || a.env.Seq != int64(i+1) {
					t.Errorf("%d others: message %d has %d ops: %v", others, i, len(a.ops), a)
				}
			}
		})
	}
}
