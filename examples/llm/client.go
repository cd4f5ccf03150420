package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/spend"
)

// request is the part of a request that says what it may cost.
type request struct {
	Model     string `json:"model"`
	MaxTokens int64  `json:"max_tokens"`
}

// newClient returns a client that keeps the tokens of all replicas together below the provider's limit, and leaves
// other users of the account what they take. tokens has the provider's limit.
func newClient(tokens hybridlimit.Limiter, costs *spend.Estimator, base http.RoundTripper) (*http.Client, error) {
	transport, err := httplimit.NewTransport(httplimit.TransportConfig{
		Base:    base,
		MaxWait: 10 * time.Second,
		Shared: []httplimit.Share{{
			Unit:    "tokens",
			Limiter: tokens,
			Key:     func(*http.Request) string { return "our account" },
			Cost:    func(r *http.Request) int64 { return estimate(costs, r) },
			Used:    func(resp *http.Response, body []byte) int64 { return used(costs, resp, body) },
			Window:  true, // the provider has new tokens at its reset, and none before
		}},
	})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// estimate returns what earlier requests to the model have used, at most what the request permits.
func estimate(costs *spend.Estimator, r *http.Request) int64 {
	asked := read(r)
	return max(1, costs.Estimate(asked.Model, asked.MaxTokens))
}

// read reads a copy of the request's body.
func read(r *http.Request) (asked request) {
	asked.MaxTokens = 1
	if r.GetBody == nil {
		return asked
	}
	body, err := r.GetBody()
	if err != nil {
		return asked
	}
	defer body.Close()
	_ = json.NewDecoder(body).Decode(&asked) // a body that cannot be read costs one token
	return asked
}

// used reads the tokens of a response from the end of its body. That of a stream has them in its last event.
func used(costs *spend.Estimator, resp *http.Response, body []byte) int64 {
	i := bytes.LastIndex(body, []byte(`"usage":`))
	if i < 0 {
		return -1 // not known: the estimate stands
	}
	var usage struct {
		Total int64 `json:"total_tokens"`
	}
	if err := json.NewDecoder(bytes.NewReader(body[i+len(`"usage":`):])).Decode(&usage); err != nil {
		return -1
	}
	costs.Observe(read(resp.Request).Model, usage.Total)
	return usage.Total
}
