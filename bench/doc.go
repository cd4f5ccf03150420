// Package bench has everything that measures hybridlimit from outside:
//
//   - compare measures rivals side by side on the same load, over the adapters of rivals. Its figures are in RESULTS.md.
//   - accuracy is the lab. It measures overshoot and utilisation of whole fleets.
//   - redis measures the cost of a decision for Redis.
//   - permits simulates designs of a limit on calls in flight, for which there is no code yet.
//   - chaos injects faults into real servers and processes. It is its own module because of its proxy.
//
// bench is its own module, so that dependencies of a measurement (rival libraries, the OpenTelemetry SDK) never reach
// importers of the library: heavy dependencies are allowed here and nowhere else. It uses the library through its
// public packages, as a user does, from the working tree around it. The exceptions: accuracy uses internal/test/fleet,
// which runs whole fleets in virtual time. windows compares the windows with a log through internal/algo, because that
// arithmetic takes any time as an argument. redis measures ops as Redis receives them, through internal/algo. The
// programs share the harness internal/test/benchkit, and start redis-servers with it or with internal/test/redistest.
package bench
