// Package ratelimitheader parses and writes the response fields RateLimit and RateLimit-Policy of
// draft-ietf-httpapi-ratelimit-headers-11. Both are Lists of structured fields (RFC 9651).
//
// A server is not trusted: a field longer than 8 KB or 64 items is malformed, and is rejected before it costs memory.
package ratelimitheader
