// Package clientip answers who a client is: its address ([Resolver]), the
// network it is counted with ([Grouper]), and whether it stands on a list
// ([Set]). It keeps no state that changes; everything is safe for concurrent
// use once made.
//
// # Addresses
//
// Every address that this package gives or compares is in one form: an
// IPv4-mapped IPv6 address is the IPv4 address (RFC 4291 §2.5.5.2), and a zone
// is dropped. "::ffff:192.0.2.1" and "192.0.2.1" are therefore one client.
//
// # Trust
//
// A header is what a client writes. It is believed only if an operator names
// it, and only from the peers in Options.Trusted; with no such list it is
// believed from anyone, as cork-cache-n-queue does, which is safe only where
// nobody but the proxy can reach the listener.
//
// How a header is read depends on its name:
//
//   - X-Forwarded-For and Forwarded (RFC 7239) are lists to which each proxy
//     appends. All lines are one list in order of arrival (RFC 9110 §5.2). It is
//     walked from the right, trusted proxies are skipped, and the first other
//     address is the client; if all are trusted proxies, the leftmost is. An
//     entry that is no address ends the walk: what stands left of it may be
//     forged. Empty entries are skipped.
//   - Any other header, such as CF-Connecting-IP or X-Real-IP, has one value,
//     which the proxy sets. Of several lines or a list the last entry that is
//     not empty counts, since the proxy comes last.
//
// An entry may have a port, which is dropped, and an IPv6 address may stand in
// brackets. In Forwarded it is the "for" parameter, quoted or not; a value with
// a backslash is no address, and neither are "unknown" and "_hidden" names (RFC
// 7239 §6.2, §6.3).
//
// Reading begins at the right end, so that what a client put to the left, such
// as a quote that never ends, cannot change how the proxy's entry is read. It
// also ends after [MaxEntries], however long the header is.
package clientip
