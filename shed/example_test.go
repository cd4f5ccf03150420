package shed_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hybridlimit/hybridlimit/httplimit"
	"github.com/hybridlimit/hybridlimit/shed"
)

// One place is taken. A call of the first class runs all the same, and a call of
// another class is shed after MaxWait.
func ExampleShedder_Acquire() {
	s, err := shed.New(shed.Config{
		Classes:     []string{"payment", "listing"},
		Healthy:     200 * time.Millisecond,
		MaxInFlight: 1,
		MaxWait:     time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	for _, class := range []string{"listing", "payment", "listing"} {
		permit, res, err := s.Acquire(ctx, class)
		if err != nil {
			log.Fatal(err)
		}
		defer permit.Release()
		fmt.Println(class, res.Allowed, res.RetryAfter >= time.Second)
	}
	// Output:
	// listing true false
	// payment true false
	// listing false true
}

// A service with the class of each request from its route.
func ExampleNew() {
	s, err := shed.New(shed.Config{
		Classes:     []string{"payment", "listing"},
		Healthy:     200 * time.Millisecond,
		MaxInFlight: 80,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") })
	mux.HandleFunc("GET /listings", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "none") })
	mw, err := httplimit.New(httplimit.Config{
		Shedder: s,
		Class: func(r *http.Request) string {
			if _, route := mux.Handler(r); route == "POST /payments" {
				return "payment"
			}
			return "listing"
		},
	}) // limits are further arguments
	if err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	mw(mux).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/payments", nil))
	fmt.Println(w.Code, w.Body)
	for _, c := range s.Stats().Classes {
		fmt.Println(c.Class, c.Allowed)
	}
	// Output:
	// 200 paid
	// payment 1
	// listing 0
}
