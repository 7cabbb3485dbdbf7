// Package redis is a store for clusters of [qos.Limiter] on Redis (from 6.2) or
// Valkey, alone, with Sentinel or as a Redis Cluster. It is wire-compatible with
// connect-qos: Go and Node instances with the same key prefix, MaxAge and limits count
// together.
//
// # Keys
//
// W is the number of a window: the time since the Unix epoch over MaxAge.
//
//	<prefix>ip:w<W>      sorted set: address, hits
//	<prefix>subnet:w<W>  sorted set: subnet, hits
//	<prefix>host:w<W>    sorted set: host, hits
//	<prefix>total:w<W>   number: hits of all hosts
//	<prefix>unique:w<W>  sorted set: subnet, most addresses that one node has seen
//	{<key>}:<batch>.<n>  a part of a batch that has been added to the key
//
// Windows are trimmed to MaxTrackedActors keys with each batch. Each key expires 4
// windows after its last change. A window that only Node instances have written to
// has no expiry; it is removed, as they do it, by any sync 3 windows later.
//
// Every command concerns one key, or two of one slot, so a Redis Cluster spreads the
// windows over its nodes.
//
// # What is authoritative, and what happens on failure
//
// Redis is authoritative for the sums; this package keeps nothing. A batch is added
// in parts by a script that leaves a mark beside the sum, in one step. A batch that
// is sent again after an error adds only the parts without a mark, whatever had
// arrived before, so that no hit is lost or counts twice. Should Redis lose data, the
// counts of at most two windows are gone, and nothing else.
//
// With Options.Compat of the limiter everything is as in connect-qos 5.7.0: hits are
// added by plain commands and may count twice after an error, no key expires, a key
// with less than half the limit in a window counts as 0 in it, and there is no key
// "unique", unless MinSubnetUniqueIPs asks for one. Give such a limiter a client that
// does not retry commands on its own (MaxRetries: -1).
//
// # A fleet of Go and Node instances
//
// Addresses and hosts that are counted are written in one form by default. Node
// instances write what they have seen: an IPv4 address of a dual-stack socket as
// ::ffff:192.0.2.1, and an IPv6 address as a subnet of its own. Those are blocked
// here too, but counted apart from those of Go instances.
package redis
