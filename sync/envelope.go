package ratesync

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/wire"
)

// This file decides which batches have an envelope.

// bare reports whether the batch has no envelope. Such a batch is sent once. If there is no answer, it gets an envelope
// for the next attempt: see cover.
func (b *batch) bare() bool { return b.env.Seq == 0 }

// The longest times after the start of a batch with an envelope for which batches go without. The answers to batches
// with an envelope show losses of Redis, and a loss must be noticed within three seconds (account.LossNoticed).
const (
	bareFor = 2 * time.Second
	// bareWatched is the time for a server that is watched (Config.Watched). Envelopes then only show the loss of a
	// part of the data. No promise covers such a loss.
	bareWatched = 30 * time.Second
	// bareTold is the time for a batch with views. Only an envelope shows that Redis has an older state than that of a
	// view, because a failover lost writes. So such a loss goes unnoticed if it lost nothing but asks of this time.
	bareTold = 100 * time.Millisecond
)

// chain is the batches with an envelope of a tag.
type chain struct {
	name  string // replaces Config.Process; empty: Config.Process
	seq   int64
	kept  time.Time // until then Redis knows the last batch; zero: Redis has not stored it
	epoch int64     // of the last answer; 0: there was none
}

func (l *lane) chain(tag int) *chain {
	c := l.chains[tag]
	if c == nil {
		c = new(chain)
		l.chains[tag] = c
	}
	return c
}

// checked reports whether losses of the tag's server are noticed without an envelope. told reports whether the batch
// tells views.
func (l *lane) checked(tag int, told bool) bool {
	return l.engine.enough(tag, time.Since(l.chain(tag).kept.Add(-EnvelopeTTL)), told)
}

// enough is checked for the time since a batch with an envelope.
func (e *Engine) enough(tag int, since time.Duration, told bool) bool {
	if told {
		return since < bareTold
	}
	return since < bareFor || since < bareWatched && e.watched(tag)
}

// send freezes a batch. attempt then sends it.
//
// A batch that only asks goes without an envelope, which costs Redis several times as much as an ask. If the reply is
// lost, the units that Redis may have granted are lost with it. After a miss there is always an envelope, so that an
// outage costs a key one such loss.
func (l *lane) send(b *batch) {
	l.frozen = b
	asks, told := len(b.ops) > 0, false
	for i := range b.ops {
		asks, told = asks && b.ops[i].AsksByView(), told || !b.ops[i].OnlyAsks()
	}
	if b.uncertain {
		l.misses = max(l.misses, 1)
	}
	if l.misses > 0 || !asks || !l.checked(b.tag, told) {
		l.cover(b)
	}
}

// cover gives a batch an envelope under the next sequence number.
func (l *lane) cover(b *batch) {
	cfg, c := &l.engine.cfg, l.chain(b.tag)
	c.seq++
	name := cfg.Process
	if c.name != "" {
		name = c.name
	}
	b.env = wire.Envelope{
		Key: cfg.Names.Envelope(b.tag, name), Epoch: cfg.Names.Epoch(b.tag),
		Seq: c.seq, TTL: EnvelopeTTL,
	}
}
