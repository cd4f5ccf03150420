// Package parity holds the answers of envoyproxy/ratelimit to our configurations, and compares this service with them.
//
// The module proxy has no module of the recorded version, so the answers are kept in testdata:
//
//   - NAME.txt is a configuration with requests and recorded answers; see Case.
//   - PIN names the version, and has a hash of all cases.
//
// Two programs need a clone of envoyproxy/ratelimit:
//
//	go run ./internal/parity/record -from CLONE   # writes new answers below each configuration, and PIN
//	go run ./internal/parity/behind -from CLONE   # tells the commits since PIN and since the replayed version
//
// To add a configuration, write its part above the first round, and record. Package replay runs the tests of an older
// version, which the proxy has.
package parity
