// Package otellimit exports what a limiter decides as OpenTelemetry metrics,
// whichever limiter it is: those of local and global, or one of yours. Limiters
// of hybrid export this and more by themselves (HubConfig.MeterProvider) and need
// no wrapping.
//
// A [Recorder] wraps limiters. Decisions are counted in plain atomics, some 10 ns
// each, and read when somebody collects; only with Config.Durations is anything
// recorded with each call. Without a provider Wrap returns the limiter as it is.
// A key is never an attribute.
//
// The instruments have the names, units and attributes of hybrid's, so that one
// dashboard shows both: docs/metrics.md lists them.
package otellimit
