module github.com/hybridlimit/hybridlimit/internal/e2e

go 1.26.0

replace github.com/hybridlimit/hybridlimit => ../../

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/hybridlimit/hybridlimit v0.0.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	golang.org/x/time v0.16.0 // indirect
)
