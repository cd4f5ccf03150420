package permits_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

func TestDebug(t *testing.T) {
	seed, _ := strconv.Atoi(os.Getenv("SEED"))
	if os.Getenv("SEED") == "" {
		t.Skip()
	}
	f := fault(os.Getenv("FAULT"))
	if f == "" {
		f = noFault
	}
	rnd := rand.New(rand.NewPCG(uint64(seed), 19))
	w := newWorld(draw(rnd, f, ""), rnd)
	w.load()
	w.strike(f)
	dump := func() {
		now := w.micros()
		fmt.Printf("== %.2f limit %d most %d\n", float64(w.now)/1e9, w.limit, w.most)
		for name, k := range w.redis.memory.Keys {
			fmt.Printf("  redis %s total %d held %v learn %d scarce %d tag learn %d\n", name, k.Total, k.Held, k.Learn-now, k.Scarce-now, w.redis.memory.Learn-now)
		}
		for _, p := range w.procs {
			fmt.Printf("  %s gone %v frozen %.1f live %v session %d lane %+v beats %d\n", p.id, p.gone, float64(p.frozen)/1e9, p.member.Standing().Live(w.now), p.session, p.lane, w.redis.beats[p.id]-now)
			for _, h := range p.keys {
				fmt.Printf("     %+v lists %v calls %d queued %d\n", h.Holding, h.lists, len(h.calls), len(h.queued))
			}
		}
	}
	for t := second; t < span+calm; t += second / 4 {
		w.at(t, w.watch)
	}
	at, _ := strconv.ParseFloat(os.Getenv("AT"), 64)
	if at > 0 {
		w.at(int64(at*1e9), dump)
	}
	w.run(span + calm)
	dump()
	w.collect()
	dump()
	fmt.Println(w.bad)
}
