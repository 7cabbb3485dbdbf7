//go:build race

package qos

// distinctAddresses is how many addresses TestMemoryIsBounded has. The race detector
// makes each of them some 20 times as slow.
const distinctAddresses = 200_000
