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
	poisons atomic.Int64 // number of toxics so far
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

// direction is the direction in which a toxic works.
type direction string

const (
	requests direction = "upstream"
	replies  direction = "downstream"
)

// poison adds a toxic to a share of the connections, and returns a function that
// removes it. The removal closes connections that the toxic has silenced, as a
// recovered network resets connections that it has forgotten. Each toxic has its
// own name, because two faults at once may have the same kind and direction, and
// the end of one must leave the other.
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
