// Package clientkey makes the keys of clients as text. The key functions of packages httplimit and grpclimit use it, so
// Config.LimitFor, a limit file and a test can name the same key:
//
//	LimitFor: func(key string) hybridlimit.Limit {
//		if key == clientkey.User("", "alice") {
//			return hybridlimit.PerMinute(500)
//		}
//		return hybridlimit.PerMinute(5)
//	}
//
// A key begins with its kind, so that a key of one kind never equals one of another:
//
//	kind     key                          function
//	user     user:alice                   User
//	ip       ip:192.0.2.1, ip:2001:db8::/64  IP, Network
//	apikey   apikey:<hash>                APIKey
//	bearer   bearer:<hash>                Bearer, Authorization
//	route    route:GET /users/{id}        Route
//	         *                            Everyone
//
// API keys and tokens are secrets, so their keys have a hash instead. A user is text that logs and operators know, so
// it is not hashed unless there is a secret (User). HubConfig.HashKeys hides all keys in Redis. The command
//
//	hybridlimit key -user alice
//
// prints these keys. See docs/decisions/0066-how-a-key-is-named.md.
//
// The functions do no I/O and keep no state.
package clientkey
