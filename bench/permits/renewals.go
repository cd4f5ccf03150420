package main

import "maps"

// generations are the permits of one key, summed by the period in which they were renewed. A sum older than three periods is
// forgotten with the processes in it.
type generations struct {
	born   float64
	sums   map[int64]int64
	scarce float64 // until
	learn  float64 // nothing is granted before
}

func (g *generations) clone() *generations {
	c := *g
	c.sums = maps.Clone(g.sums)
	return &c
}

// renew moves the holding of an op into the current generation, and grants.
func (st *state) renew(w *world, o op, now float64) reply {
	g := st.renewed[o.key]
	if g == nil {
		g = &generations{born: now, sums: map[int64]int64{}}
		st.renewed[o.key] = g
	}
	gen := int64(now / w.period)
	maps.DeleteFunc(g.sums, func(x, _ int64) bool { return x <= gen-3 })
	sum, there := g.sums[o.gen]
	young := o.known != 0 && o.had > 0 && o.gen > gen-3
	known := o.known != 0 && there && (o.born == g.born || w.mutant == "born") && sum >= o.had
	lost := young && !known && !o.rejoins
	if lost && w.mutant != "learn" {
		g.learn = max(g.learn, now+3*w.period)
	}
	keep := o.keep // of a process that admits nothing now: its running calls
	if known {
		g.sums[o.gen] -= o.had
	}
	var others int64
	for _, n := range g.sums {
		others += n
	}
	free := w.permits - others - keep
	r := reply{keep: keep, usable: max(0, min(keep, w.permits-others)), gen: gen, born: g.born, lost: lost}
	if now >= max(st.learn, g.learn) || w.mutant == "learn" {
		r.granted = grant(o, free, w.rules.procs)
	}
	if r.granted < o.want {
		g.scarce = now + 1
	}
	r.free = w.permits - others - keep - r.granted
	r.scarce = now < g.scarce
	g.sums[gen] += keep + r.granted
	return r
}
