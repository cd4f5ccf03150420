package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy is a toxiproxy in front of one server, in this process.
type proxy struct {
	*toxiproxy.Proxy
}

func startProxy(upstream string) (*proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, upstream, "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", upstream, err)
	}
	return &proxy{p}, nil
}

func (p *proxy) addr() string { return p.Listen }

// direction is which way a toxic works.
type direction string

const (
	requests direction = "upstream"
	replies  direction = "downstream"
)

// poison adds a toxic: of every connection, or of a part of them.
func (p *proxy) poison(kind string, d direction, part float64, attributes map[string]int) error {
	text, err := json.Marshal(map[string]any{
		"type": kind, "stream": d, "toxicity": part, "attributes": attributes,
	})
	if err != nil {
		return err
	}
	if _, err := p.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		return fmt.Errorf("toxic %s: %w", text, err)
	}
	return nil
}

// heal takes all toxics away. Connections that a toxic has silenced are closed
// with it, as a network that comes back resets those it has forgotten.
func (p *proxy) heal() { p.Toxics.ResetToxics(context.Background()) }
