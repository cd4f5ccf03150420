package limittest_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limittest"
	"github.com/hybridlimit/hybridlimit/local"
)

// send uses a limiter as a program does.
func send(ctx context.Context, l hybridlimit.Limiter, user string) string {
	switch res, err := l.Allow(ctx, user); {
	case err != nil:
		return "try later"
	case !res.Allowed:
		return fmt.Sprintf("wait %v", res.RetryAfter)
	}
	return "sent"
}

func Example() {
	ctx := context.Background()
	fmt.Println(send(ctx, limittest.AllowAll(), "ann"))
	fmt.Println(send(ctx, limittest.DenyAll(time.Minute), "ann"))
	recorder := limittest.Record(limittest.Play(hybridlimit.Result{Allowed: true}, hybridlimit.Result{RetryAfter: time.Second}))
	fmt.Println(send(ctx, recorder, "ann"), "and", send(ctx, recorder, "bob"), recorder.Keys())
	// Output:
	// sent
	// wait 1m0s
	// sent and wait 1s [ann bob]
}

// A local limiter in virtual time: an hour takes no real time.
func TestLocalLimiterInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := local.New(hybridlimit.PerHour(2), local.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, want := range []string{"sent", "sent", "wait 30m0s"} {
			if got := send(t.Context(), l, "ann"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		time.Sleep(30 * time.Minute)
		if got := send(t.Context(), l, "ann"); got != "sent" {
			t.Errorf("half an hour later: %q", got)
		}
	})
}

// A hybrid limiter with its Redis in the same bubble.
func TestHybridLimiterInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		first, err := server.Dial() // starts it without a listener
		if err != nil {
			t.Fatal(err)
		}
		first.Close()
		server.ClockTTL(true)
		defer server.Close()
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", DialerRetries: 1, // never dialled
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		})
		defer rdb.Close()
		l, err := hybrid.New(rdb, hybridlimit.PerHour(2), hybrid.Config{Name: "api"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.Ready(t.Context()); err != nil { // a virtual second
			t.Fatal(err)
		}
		for i := range 2 {
			if got := send(t.Context(), l, "ann"); got != "sent" {
				t.Errorf("call %d: %q", i, got)
			}
		}
		if got := send(t.Context(), l, "ann"); got == "sent" {
			t.Error("the third was sent")
		}
		time.Sleep(31 * time.Minute)
		if got := send(t.Context(), l, "ann"); got != "sent" {
			t.Errorf("half an hour later: %q", got)
		}
	})
}
