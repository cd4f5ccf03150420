// Package replay has only tests. They run the tests of Envoy's rate limit service (github.com/envoyproxy/ratelimit)
// against this module: they copy that module from the module cache, put adapters over the packages of this module in
// the places of its own packages, and run its tests there. Each of its tests has a row in a table here.
package replay
