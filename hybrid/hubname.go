package hybrid

import (
	"fmt"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// This file is what tells hubs of one MeterProvider apart: without it their
// metrics without a policy would be one series, of which a reader sees whatever
// was observed last.

// hubNames is which names are taken by hubs that are open.
var hubNames = struct {
	sync.Mutex
	taken map[hubName]bool
}{taken: map[hubName]bool{}}

type hubName struct {
	provider metric.MeterProvider
	name     string
}

// named takes a name for a hub's metrics. Of hubs that would have the same one,
// those that come later get a number: the same after each restart, as long as
// they are made in the same order. A provider that cannot be compared is taken
// to be another one each time.
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
