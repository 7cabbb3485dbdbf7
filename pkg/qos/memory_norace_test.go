//go:build !race

package qos

// distinctAddresses is how many addresses TestMemoryIsBounded has.
const distinctAddresses = 10_000_000
