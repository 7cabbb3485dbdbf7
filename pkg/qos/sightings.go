package qos

import "math"

// sightings is when each address of one IPv4 subnet was last tracked. An address
// is its host part: its number within the subnet.
//
// Most subnets show one address, so the dense table comes with the second.
type sightings struct {
	first      uint16   // the only address while last is nil
	at         int64    // when first was tracked, ms
	last       []uint32 // by host part: ms since base, plus 1; 0 = never
	base       int64
	openBefore int64 // enough addresses are known to count before then
}

// touch notes that an address of a subnet of so many addresses is tracked at now.
func (s *sightings) touch(host uint16, addresses int, now int64) {
	if s.last == nil {
		if s.first == host {
			s.at = now
			return
		}
		s.base = s.at
		s.last = make([]uint32, addresses)
		s.last[s.first] = 1
	}
	if now-s.base >= math.MaxUint32 {
		// Once in 49 days all addresses are forgotten: until enough are seen anew,
		// the subnet is not bad.
		clear(s.last)
		s.base = now
	}
	s.last[host] = uint32(now-s.base) + 1
}

// enough reports whether at least n addresses, n > 1, were tracked within maxAge,
// which are the same in every call.
func (s *sightings) enough(n int, now, maxAge int64) bool {
	if s.last == nil {
		return false
	}
	if now < s.openBefore {
		return true
	}
	from := uint32(max(now-maxAge-s.base, 0)) + 1
	count, oldest := 0, uint32(math.MaxUint32)
	for _, at := range s.last {
		if at < from {
			continue
		}
		oldest = min(oldest, at)
		if count++; count >= n {
			// Sightings only become newer: those counted hold until the oldest ends.
			s.openBefore = s.base + int64(oldest) + maxAge
			return true
		}
	}
	return false
}
