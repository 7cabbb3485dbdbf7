// Package qos is a net/http middleware that refuses the requests of those who
// ask too much while a site is under load: per host, per client address and per
// subnet. It is connect-qos for Go.
//
// A [Limiter] keeps a short history of the requests it let through. A key with
// enough of them to be judged is bad while its rate is above a limit, and the limit
// falls as the process lags behind its work ([Lag]). A host may also be refused
// for its share of all requests. Refused requests are not counted, so a client
// that does not slow down is let through now and then.
//
// # State
//
// All state is in the memory of the process, belongs to one Limiter, and is gone
// when the process ends. Nothing else knows better, and nothing can fail. A
// history is a key's requests of the last Options.MaxAge; it is pruned when it is
// looked at, so it is never stale. At most Options.HistorySize keys of each kind
// are kept. A decision is atomic: requests that arrive together are decided one
// after the other as far as they share a key, whose shards are locked meanwhile.
// No lock is held while a request is served. The lag is at most half a second old.
//
// Memory is bounded by HistorySize times the bound of one history: as many
// requests as the limit allows within MaxAge, at one or two bytes each. More are
// never needed: with that many the key is bad, however many came before. With
// Options.Cluster there are the hits of MaxTrackedActors keys of each kind besides,
// twice while a batch cannot be published.
//
// Times are read from the monotonic clock, in whole milliseconds.
//
// # Several nodes
//
// With Options.Cluster nodes add up their hits in a [ClusterStore], and block who is
// above a limit of the cluster. The store is authoritative for the sums; a node has
// the hits that it could not publish yet, and blocklists that are as old as its last
// sync: at most SyncInterval, or as long as the store does not answer. Decisions
// never wait for the store. What a failure leaves unpublished is published later, and
// counts as of then, however long the failure was; in Redis, the batch that failed counts
// in the window in which it was made. Hits of the last interval are lost when a node
// ends. Windows follow the wall clock, so the clocks of nodes should agree to a
// fraction of MaxAge.
//
// # Differences from connect-qos
//
// With Options.Compat the decisions are those of connect-qos 5.7.0. Without it
// the following is mended.
//
//   - A host is normalised once for all purposes. There, a second time for
//     judging it, so that www.www.example.com is never limited for itself.
//   - An IPv6 literal is kept whole: [2001:db8::1]:80 is [2001:db8::1]. There
//     it is "1]", as are many others. An empty port is dropped, and what is no
//     host with a port is kept as it is; there it is what follows its last colon.
//   - A client address is parsed. A mapped IPv4 address is the IPv4 address, a
//     zone and a port are dropped, and what is no address gives way to the peer's.
//     There the text counts, so one client has several.
//   - An IPv6 subnet is a /64. There each address is its own. The unique-IP gate
//     is for IPv4: a /64 is bad by its rate alone.
//   - A host that has too large a share is in violation for a minute, or until
//     hosts are judged again if that is sooner. There, with no end in sight, since
//     its refused requests do not lead to a new judgement.
//   - Only requests of the last minute make up a share. There, counts stay until
//     hosts are judged, whenever that is, in a map without a bound.
//   - Whitelist entries are normalised as hosts and addresses of requests are, a
//     subnet may be in CIDR notation, and an entry that is no address is an error.
//     There they are compared as they are.
//   - A MaxAge of less than a millisecond, negative rates and delays, and statuses
//     that cannot be sent are errors. There they are accepted.
//   - Options.MinSubnetUniqueIPs is 0.5. It came after 5.7.0, so with Compat it is
//     1, which lets the rate alone decide.
//   - A batch of hits that may or may not have reached the cluster is sent again under
//     the same ID, so that it counts once. There its hits go out with the next ones,
//     and may count twice.
//   - A host is in violation of the cluster's ratio only once that has MaxHostRatio *
//     1000 requests. There the only request of an idle cluster is all of its traffic.
//
// Some differences remain with Compat, none of them in a decision about requests that
// a Go server accepts: numbers that are not finite are errors; upper case is folded
// in ASCII only; a key longer than 256 bytes is replaced by its hash; at most 65,536
// hosts are counted for their share at a time; a query with MaxAge 0 does not throw;
// a status that cannot be sent is replaced by 503; HTTP/2 connections end without
// cutting other streams (see [Limiter.Middleware]).
//
// # What to know before limits are switched on
//
//   - The default limits of connect-qos are per host: 40 requests a second, and 20
//     under lag. If all traffic goes to one host, that is the whole site.
//   - A key is judged once MinRate * MaxAge of its requests are known: with the
//     defaults the first 200 requests to a host always pass.
//   - X-Forwarded-For is believed only with HTTPBehindProxy or HTTPSBehindProxy.
//     Set TrustedHops with them: the first entry, which connect-qos reads, is the
//     client's to invent.
//   - An address is cheap to change, above all in IPv6. Limit subnets too.
package qos
