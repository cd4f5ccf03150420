package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy is a toxiproxy in front of one server, in this process.
type proxy struct {
	*toxiproxy.Proxy
	poisons atomic.Int64 // how many there have been
}

func startProxy(upstream string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, upstream, "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", upstream, err)
	}
	return &proxy{Proxy: p}, nil
}

func (p *proxy) addr() string { return p.Listen }

// direction is which way a toxic works.
type direction string

const (
	requests direction = "upstream"
	replies  direction = "downstream"
)

// poison adds a toxic, of every connection or of a part of them, and returns how
// to take it away again. Connections that the toxic has silenced are closed with
// it, as a network that comes back resets those it has forgotten. Each toxic has
// a name of its own: two faults at once may be of one kind and direction, and
// the end of one leaves the other.
func (p *proxy) poison(kind string, d direction, part float64, attributes map[string]int) (cure func() error, err error) {
	name := fmt.Sprintf("%s %d", kind, p.poisons.Add(1))
	text, err := json.Marshal(map[string]any{
		"name": name, "type": kind, "stream": d, "toxicity": part, "attributes": attributes,
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("toxic %s: %w", text, err)
	}
	return func() error { return p.Toxics.RemoveToxic(context.Background(), name) }, nil
}
