// Package otellimit exports the decisions of any limiter as OpenTelemetry metrics: of packages local and global, or of
// your own. Limiters of package hybrid do not need it: they export these metrics and more (HubConfig.MeterProvider).
//
// A [Recorder] wraps limiters. It counts each decision in an atomic, at a cost of about 10 ns, and reads the counters
// at each collection. Only Config.Durations records a value per call. Without a provider, Wrap returns the limiter
// itself. Keys are never attributes.
//
// The instruments have the names, units and attributes of package hybrid, so that
// one dashboard shows both. docs/metrics.md lists them.
package otellimit
