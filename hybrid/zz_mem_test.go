package hybrid

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestZZMem(t *testing.T) {
	for _, limit := range []hybridlimit.Limit{hybridlimit.PerSecond(1e9), hybridlimit.PerSecond(100)} {
		srv := redistest.New(t)
		const keys = 200_000
		l, err := New(srv.Client(t), limit, Config{Name: "m", MaxKeys: keys + keys/4})
		if err != nil { t.Fatal(err) }
		l.Ready(t.Context())
		time.Sleep(time.Second)
		heap := func() int64 { var m runtime.MemStats; runtime.GC(); runtime.GC(); runtime.ReadMemStats(&m); return int64(m.HeapAlloc) }
		before := heap()
		for i := range keys { l.Allow(context.Background(), fmt.Sprintf("%020d", i)) }
		for { s := l.Stats(); if s.Owed == 0 && s.Held == 0 { break }; time.Sleep(50*time.Millisecond) }
		fmt.Println(limit, "perkey", (heap()-before)/keys)
		time.Sleep(2*time.Second)
		l.Stats()
		awake := 0
		var ex *entry
		l.store.each(func(e *entry) { if e.whole != nil { awake++; ex = e } })
		fmt.Println(limit, "perkey", (heap()-before)/keys, "awake", awake, l.Stats().Allowed)
		if ex != nil { fmt.Printf("%+v\n%+v\n", ex.whole.state, ex.whole.waiters) }
		l.Close()
	}
}
