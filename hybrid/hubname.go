package hybrid

import (
	"fmt"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// This file gives the hubs of one MeterProvider different names. Otherwise their metrics without a policy would be one series, and a
// reader would see only the last observation.

// hubNames holds the names of the open hubs.
var hubNames = struct {
	sync.Mutex
	taken map[hubName]bool
}{taken: map[hubName]bool{}}

type hubName struct {
	provider metric.MeterProvider
	name     string
}

// named takes a name for a hub's metrics until release. If an open hub has that name, the new one gets a number. The numbers are the
// same after each restart if the hubs are made in the same order. A provider that cannot be compared counts as a new one each time.
func named(provider metric.MeterProvider, name string) (got string, release func()) {
	if provider == nil || !reflect.ValueOf(provider).Comparable() {
		return name, func() {}
	}
	hubNames.Lock()
	defer hubNames.Unlock()
	at := hubName{provider, name}
	for n := 2; hubNames.taken[at]; n++ {
		at.name = fmt.Sprintf("%s-%d", name, n)
	}
	hubNames.taken[at] = true
	return at.name, sync.OnceFunc(func() {
		hubNames.Lock()
		defer hubNames.Unlock()
		delete(hubNames.taken, at)
	})
}
