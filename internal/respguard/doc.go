// Package respguard checks the replies of a Redis server before the client reads them. A Redis client allocates memory
// for the number of values that a reply announces, and recurses for each level of a nested reply: a few bytes from a
// false server can exhaust its memory or its stack. A guarded connection passes replies on byte for byte. It fails
// before it passes on a header that announces more than a reply to the sent command can hold.
package respguard
