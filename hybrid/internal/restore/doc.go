// Package restore asks Config.Restore for the use of a key whose state in Redis is younger than its period, because
// Redis may have lost an older one, and tells Redis the answer. It knows no limiter and no entry.
package restore
