// Package respguard checks what a server in Redis's place sends before a client
// reads it. A client of Redis makes room for as many values as a reply
// announces, and calls itself for each level of a nested one: a few bytes can
// cost it its memory or its stack. A Conn passes replies on byte for byte, and
// fails instead of passing on a header that announces more than the command
// that was sent can be told.
package respguard
