// Package bench is the place for everything that measures hybridlimit from outside: rivals side by side on the same load
// (compare, over the adapters of rivals; its figures are in RESULTS.md), the lab that measures overshoot and utilisation of
// whole fleets, and what a decision costs Redis. Chaos (real servers and processes, killed, paused, cut off) lies in here too,
// as a module of its own for the proxy that it needs.
//
// It is a module of its own, so that what only a measurement needs (rival libraries, the OpenTelemetry SDK) never
// reaches those who import the library: heavy dependencies are allowed here and nowhere else. It sees the
// library through its public packages, as a user does, from the working tree that it lies in; only the lab (accuracy) goes
// through internal/fleet, which plays whole fleets in virtual time, windows, which holds the windows against a log, through
// internal/algo, because arithmetic takes any time that it is given, redis, which measures ops as Redis gets them, through that
// and internal/redistest, and compare and the tests, which start redis-servers with internal/redistest.
package bench
