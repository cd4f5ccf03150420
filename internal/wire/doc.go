// Package wire is the format of the messages between this module and the scripts of package lua: batches and their
// answers, heartbeats, switches, and pages of a log's history. It encodes and decodes, and has no Redis client: package
// runner sends the messages.
//
// A batch is a list of ops on keys of one cluster slot. Redis runs it as one call with one reading of its clock. An
// [Op] pays the owed units of a process for a key, asks for units, and asks for a lease. With an [Envelope] Redis
// applies a batch exactly once, however often it is sent. A batch without an envelope is sent once.
//
// Decoding trusts nothing. A reply that the scripts cannot have given is [ErrReply].
//
// The headers of the .lua files in lua/ specify KEYS, ARGV and the replies.
package wire
