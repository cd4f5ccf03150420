package hybridlimit_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

func ExampleParseLimit() {
	for _, text := range []string{
		"100/s burst 200", "5 per minute", "1_000/24h", "10/1m30s burst 20 leaky queue", "100/h sliding window", "unlimited",
	} {
		fmt.Println(hybridlimit.ParseLimit(text))
	}
	// Output:
	// 100 per 1s, burst 200 (token bucket) <nil>
	// 5 per 1m0s, burst 5 (token bucket) <nil>
	// 1000 per 24h0m0s, burst 1000 (token bucket) <nil>
	// 10 per 1m30s, burst 20 (leaky queue) <nil>
	// 100 per 1h0m0s (sliding window) <nil>
	// unlimited <nil>
}

func ExampleParseLimit_errors() {
	_, err := hybridlimit.ParseLimit("100/s burst lots")
	fmt.Println(err)
	_, err = hybridlimit.ParseLimit("0/s")
	fmt.Println(err)
	fmt.Println(errors.Is(err, hybridlimit.ErrInvalid))
	// Output:
	// hybridlimit: Limit ("100/s burst lots") cannot be read: expected a burst of at least 1, got "lots"
	// hybridlimit: Limit ("0/s") is not valid; Limit.Rate (0) must be at least 1
	// true
}

func ExampleLimit_MarshalText() {
	text, err := hybridlimit.SlidingWindow(5, time.Minute).MarshalText()
	fmt.Println(string(text), err)
	// Output: 5/min sliding window <nil>
}

// A limit is a string in JSON. An invalid limit cannot be written.
func ExampleLimit_MarshalText_json() {
	for _, limit := range []hybridlimit.Limit{hybridlimit.TokenBucket(100, time.Second, 200), hybridlimit.FixedWindow(0, time.Hour)} {
		text, err := json.Marshal(map[string]hybridlimit.Limit{"limit": limit})
		fmt.Println(string(text), errors.Is(err, hybridlimit.ErrInvalid))
	}
	// Output:
	// {"limit":"100/s burst 200"} false
	//  true
}

// Limits of customer groups in a JSON configuration.
func ExampleLimit_UnmarshalText() {
	const file = `{
		"free":     "5 per minute",
		"paid":     "100/s burst 200",
		"internal": "unlimited",
		"banned":   "blocked"
	}`
	var plans map[string]hybridlimit.Limit
	if err := json.Unmarshal([]byte(file), &plans); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plans["free"])
	fmt.Println(plans["paid"])
	fmt.Println(plans["internal"])
	// MarshalText writes the canonical form.
	text, err := json.Marshal(plans)
	fmt.Println(string(text), err)
	// Output:
	// 5 per 1m0s, burst 5 (token bucket)
	// 100 per 1s, burst 200 (token bucket)
	// unlimited
	// {"banned":"blocked","free":"5/min","internal":"unlimited","paid":"100/s burst 200"} <nil>
}

// A limit can be a command-line flag.
func ExampleLimit_UnmarshalText_flag() {
	var limit hybridlimit.Limit
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.TextVar(&limit, "limit", hybridlimit.PerSecond(10), "limit of one client, such as 100/s burst 200")
	err := flags.Parse([]string{"-limit", "20/s burst 40"})
	fmt.Println(limit, err)
	// Output: 20 per 1s, burst 40 (token bucket) <nil>
}
