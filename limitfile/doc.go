// Package limitfile takes limits of package hybrid from a file, and applies changes of the file while the program runs.
//
//	{
//	  "api": {
//	    "limit": "100/s burst 200",
//	    "plans": {"gold": "1000/s burst 3000"},
//	    "keys": {"partner-7": "500/s", "partner-8": "gold"},
//	    "shadow": false,
//	    "mode": "strict",
//	    "fallback": "full"
//	  },
//	  "login": {"limit": "5/min"}
//	}
//
// # Format
//
// The file is one JSON object. Its members are limiters, by [hybrid.Config.Name]. All fields of a limiter are optional.
// A missing field means the value in hybrid.Config.
//
//	limit     the limit of keys without a limit of their own, as hybridlimit.ParseLimit reads it
//	keys      the limits of single keys: a limit as text, or the name of a plan
//	plans     named limits; keys can refer to them, and the program can look them up (Set.Plan)
//	shadow    true or false: hybrid.Config.Shadow
//	mode      "auto", "strict", "deferred" or "exact"
//	fallback  "share", "full", "allow_all" or "deny_all"
//
// All limits of one limiter have the same algorithm. "unlimited" and "blocked" fit every algorithm. A plan has a name
// in the form of a limiter's name. A file has at most [MaxSize] bytes. It is UTF-8, with or without a byte order mark.
//
// These are errors: duplicate names, unknown fields, values of a wrong type, text after the object, an empty file. The
// empty object {} is valid: each limiter then has the settings of its Config. [Parse] reports all errors of a file
// together, with file, line, field and value. The command "hybridlimit check FILE" prints them.
//
// Package limitfile/yamllimit, a module of its own, reads YAML. [Build] makes a File from any other format.
//
// # Watching
//
// [Watch] reads the file, and then reads it again every two seconds. It compares the content by its hash. So no way to
// replace a file goes unnoticed: a write in place, a rename over it, the swapped link of a ConfigMap, a network file
// system. A ConfigMap that is mounted with subPath never changes: mount the directory.
//
// The whole file applies, or nothing of it. New content counts when two reads, 100 ms apart, have found the same bytes.
// So a read in the middle of a write changes nothing. While the file is invalid or missing, the settings before stay in
// force: a log line names the error, rate_limiting.config.errors counts each read, and rate_limiting.config.age grows.
//
// A change never refills a key: used units stay used.
package limitfile
