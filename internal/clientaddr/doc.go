// Package clientaddr is what the adapters of HTTP and gRPC share about clients beside the text of keys (package
// clientkey): the address of a client behind proxies, and the checks of the arguments of key functions.
package clientaddr
