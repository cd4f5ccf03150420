module github.com/hybridlimit/hybridlimit/shed

go 1.26.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/hybridlimit/hybridlimit v0.1.0
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/metric v1.47.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	golang.org/x/time v0.16.0 // indirect
)
