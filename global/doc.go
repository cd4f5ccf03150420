// Package global limits a whole fleet exactly. Every decision is one Redis round trip, and Redis alone decides.
//
// Use it if the limit is small and each unit matters, or if traffic is so sparse that a process's share of the limit is
// below one unit. It also serves as the baseline for the savings of package hybrid. Its limiters share their state with
// hybrid limiters of the same prefix and name.
//
// Concurrent calls share messages. If no message for a key's tag is in flight, a call goes out at once. Calls that come
// while one is in flight go out together when it is back, up to 64 in one message. So a process with many concurrent
// calls sends Redis far fewer messages than calls. A call's decision is the one that it would have got alone. A call of
// a sliding log, and a call under several limits, has its own message. In traces of the client, a shared message
// belongs to the first of its calls.
//
// A decision is sent once. go-redis would repeat a call whose reply was lost, and so count it up to four times. Here, a
// call with a lost reply over-counts by its own cost at most, and its error is ErrUnavailable. Every deadline is
// honoured, even if the client's ContextTimeoutEnabled is off.
//
// [hybridlimit.AllowAll] decides one call under several limits, all or nothing. On a single Redis they are one message,
// which Redis decides as a whole.
package global
