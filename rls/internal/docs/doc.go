// Package docs has only tests. They read the YAML of docs/envoy.md and README.md as Envoy and this module do: a wrong
// name of a field fails.
package docs
