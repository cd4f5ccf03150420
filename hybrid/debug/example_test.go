package debug_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybrid/debug"
)

// A private port shows the state of a key.
func ExampleHandler() {
	stand, err := miniredis.Run() // a Redis inside this program
	if err != nil {
		panic(err)
	}
	defer stand.Close()
	rdb := redis.NewClient(&redis.Options{Addr: stand.Addr()})
	defer rdb.Close()
	hub, err := hybrid.NewHub(rdb, hybrid.HubConfig{})
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	if _, err := hub.Limiter(hybridlimit.Blocked(), hybrid.Config{Name: "export"}); err != nil {
		panic(err)
	}

	mux := http.NewServeMux()
	mux.Handle("/debug/limits", debug.Handler(hub))
	private := httptest.NewServer(mux) // for example http.ListenAndServe("127.0.0.1:6060", mux)
	defer private.Close()

	res, err := http.Get(private.URL + "/debug/limits?limiter=export&key=alice")
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err != nil {
		panic(err)
	}
	sentence, _, _ := strings.Cut(string(page), "\n")
	fmt.Println(sentence)
	// Output: denied because the limit is blocked: it admits nobody
}
